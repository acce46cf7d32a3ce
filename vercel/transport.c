#include "vercel/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    POOL_MAX = 64,          /* idle easy handles kept per class */
    MAX_IDLE_CONNS = 256,   /* idle connections kept per class */
    LOG_STREAMS = 25,       /* h2 streams per connection of the log class */
    SMALL_BUFFER = 16384,   /* receive buffers, bytes */
    BULK_BUFFER = 65536,    /* libcurl hands over at most 16 KiB at once, but reads this much */
    CONN_IDLE_S = 50,       /* below the idle limit of common load balancers */
    CONN_LIFETIME_S = 600,  /* so that a changed DNS answer is followed */
    KEEPALIVE_IDLE_S = 30,  /* a silent stream notices a dead peer after 30 + 3 * 10 s */
    KEEPALIVE_INTVL_S = 10, /**/
    KEEPALIVE_COUNT = 3,
    USER_TIMEOUT_MS = 60000 /* sent bytes that stay unacknowledged this long end the connection */
};

struct multi;

/* A socket of libcurl's.  Those it opens through us stay registered for reading while they idle in its cache,
 * which saves two epoll_ctl calls for each request; we learn of their end from the close callback. */
struct sock {
    uv_poll_t poll;
    struct multi *multi;
    int fd;
    int want;   /* UV_READABLE…: what libcurl waits for; 0 while idle */
    int active; /* what the poll handle is started for */
    bool ours;  /* opened by on_open, ends with on_close or when found gone */
    ino_t ino;  /* ours: which socket the descriptor meant when it was opened */
    bool has_poll;
};

struct multi {
    struct vt *t;
    CURLM *curl;
    uv_timer_t timer;
    bool due;   /* libcurl wants to be driven now */
    int inside; /* in a libcurl function that may call us back */
    CURL *pool[POOL_MAX];
    int npool;
};

TAILQ_HEAD(job_list, vt_job);

struct vt {
    struct sg_loop *loop;
    char *proxy, *ca_bundle;
    long connect_timeout_ms;
    struct multi multi[VT_CLASSES];
    struct sock **socks; /* by descriptor */
    size_t nsocks;
    struct job_list later;
    uv_timer_t kick; /* stands in for the turn hook when the loop has none left */
    bool hooked;
    bool closing;
    int open_handles;
};

static void drive(struct multi *m, curl_socket_t fd, int events);

/* ---- memory of the uv handles ---- */

static void maybe_gone(struct vt *t)
{
    if (!t->closing || t->open_handles)
        return;
    free(t->socks);
    free(t->proxy);
    free(t->ca_bundle);
    free(t);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct vt *t = handle->data;
    t->open_handles--;
    maybe_gone(t);
}

static void on_sock_closed(uv_handle_t *handle)
{
    struct sock *s = handle->data;
    struct vt *t = s->multi->t;
    free(s);
    t->open_handles--;
    maybe_gone(t);
}

/* ---- sockets ---- */

static struct sock *sock_find(const struct vt *t, curl_socket_t fd)
{
    return fd >= 0 && (size_t)fd < t->nsocks ? t->socks[fd] : NULL;
}

static struct sock *sock_make(struct multi *m, curl_socket_t fd)
{
    struct vt *t = m->t;
    if (fd < 0)
        return NULL;
    if ((size_t)fd >= t->nsocks) {
        size_t n = t->nsocks ? t->nsocks : 64;
        while (n <= (size_t)fd)
            n *= 2;
        struct sock **p = realloc(t->socks, n * sizeof(void *));
        if (!p)
            return NULL;
        memset(p + t->nsocks, 0, (n - t->nsocks) * sizeof(void *));
        t->socks = p;
        t->nsocks = n;
    }
    struct sock *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->multi = m;
    s->fd = fd;
    t->socks[fd] = s;
    return s;
}

static void sock_drop(struct sock *s)
{
    struct vt *t = s->multi->t;
    t->socks[s->fd] = NULL;
    if (!s->has_poll) {
        free(s);
        return;
    }
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_sock_closed);
}

/* libcurl (7.88) closes a socket that was still connecting without a word to on_close: when a call is cancelled
 * or refused, or another address wins.  The descriptor is then free, or means something else already. */
static bool sock_gone(const struct sock *s)
{
    struct stat st;
    return fstat(s->fd, &st) != 0 || st.st_ino != s->ino;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct sock *s = poll->data;
    if (!s->want) { /* idle in the cache: the peer closed or said something unasked; libcurl will see */
        uv_poll_stop(poll);
        s->active = 0;
        return;
    }
    int flags = 0;
    if (status < 0) {
        s->active = 0; /* libuv has stopped it */
        flags = CURL_CSELECT_ERR;
    }
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    drive(s->multi, s->fd, flags);
}

static int sock_poll(struct sock *s, int want)
{
    struct vt *t = s->multi->t;
    s->want = want;
    if (s->active == want)
        return 0;
    if (!s->has_poll) {
        if (uv_poll_init(sg_loop_uv(t->loop), &s->poll, s->fd))
            return -1;
        s->poll.data = s;
        s->has_poll = true;
        t->open_handles++;
    }
    if (uv_poll_start(&s->poll, want, on_poll)) {
        s->active = 0;
        return -1;
    }
    s->active = want;
    return 0;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused)
{
    (void)easy;
    (void)unused;
    struct multi *m = arg;
    struct sock *s = sock_find(m->t, fd);
    if (what == CURL_POLL_REMOVE) {
        if (!s)
            return 0;
        s->want = 0;
        if (!s->ours || sock_gone(s))
            sock_drop(s);
        return 0;
    }
    if (!s)
        s = sock_make(m, fd);
    if (!s)
        return -1;
    int want = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    return sock_poll(s, want);
}

static curl_socket_t on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)purpose;
    struct multi *m = arg;
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct stat st;
    struct sock *stale = sock_find(m->t, fd);
    if (stale)
        sock_drop(stale); /* the descriptor is new: what it meant before is gone */
    struct sock *s = fstat(fd, &st) == 0 ? sock_make(m, fd) : NULL;
    if (!s) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    s->ours = true;
    s->ino = st.st_ino;
    if (a->socktype == SOCK_STREAM && a->family != AF_UNIX) {
        int count = KEEPALIVE_COUNT;
        unsigned ms = USER_TIMEOUT_MS;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    }
    return fd;
}

static int on_close(void *arg, curl_socket_t fd)
{
    struct multi *m = arg;
    struct sock *s = sock_find(m->t, fd);
    if (s)
        sock_drop(s);
    return close(fd);
}

/* ---- timers and driving ---- */

static void on_uv_timer(uv_timer_t *timer)
{
    struct vt *t = timer->data;
    for (int i = 0; i < VT_CLASSES; i++)
        if (timer == &t->multi[i].timer)
            drive(&t->multi[i], CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *curl, long ms, void *arg)
{
    (void)curl;
    struct multi *m = arg;
    m->due = ms == 0 && m->t->hooked;
    if (ms < 0 || m->due)
        uv_timer_stop(&m->timer);
    else
        uv_timer_start(&m->timer, on_uv_timer, (uint64_t)ms, 0);
    return 0;
}

/* Cuts a job's ties with libcurl. */
static void detach(struct multi *m, struct vt_job *job)
{
    CURL *easy = job->easy;
    job->easy = NULL;
    if (!easy)
        return;
    (void)curl_multi_remove_handle(m->curl, easy);
    vt_easy_release(m->t, job->class, easy);
}

static void unqueue(struct vt *t, struct vt_job *job)
{
    if (job->queued)
        TAILQ_REMOVE(&t->later, job, link);
    job->queued = job->add = job->remove = job->resume = false;
}

static void on_kick(uv_timer_t *timer);

static void queue(struct vt *t, struct vt_job *job)
{
    if (!job->queued)
        TAILQ_INSERT_TAIL(&t->later, job, link);
    job->queued = true;
    if (!t->hooked)
        uv_timer_start(&t->kick, on_kick, 0, 0);
}

static void run_one_later(struct vt *t, struct vt_job *job)
{
    struct multi *m = &t->multi[job->class];
    bool add = job->add;
    bool gone = job->remove;
    bool resume = job->resume;
    unqueue(t, job);
    if (gone) {
        detach(m, job);
    } else if (add) {
        if (curl_multi_add_handle(m->curl, job->easy) != CURLM_OK) {
            CURL *easy = job->easy;
            job->easy = NULL;
            job->done(job, easy, CURLE_OUT_OF_MEMORY);
            vt_easy_release(t, job->class, easy);
        }
    } else if (resume && job->easy) {
        m->inside++;
        (void)curl_easy_pause(job->easy, CURLPAUSE_CONT); /* may deliver data right here */
        m->inside--;
    }
}

/* Does what was asked for; what is asked for meanwhile waits for the next time, so a caller that pauses and
 * resumes in one breath cannot hold the loop. */
static bool run_later(struct vt *t)
{
    struct vt_job *last = TAILQ_LAST(&t->later, job_list);
    if (!last)
        return false;
    size_t n = 0;
    struct vt_job *job;
    TAILQ_FOREACH(job, &t->later, link)
    n++;
    while (n-- && (job = TAILQ_FIRST(&t->later)))
        run_one_later(t, job);
    return true;
}

/* Only removals and additions made inside a callback: they must not wait for the end of the turn, where a
 * removed job's memory goes. */
static void settle(struct vt *t)
{
    struct vt_job *job;
    do {
        TAILQ_FOREACH(job, &t->later, link)
        if (job->remove || job->add)
            break;
        if (job)
            run_one_later(t, job); /* may call back and change the list: start over */
    } while (job);
}

static void reap(struct multi *m)
{
    CURLMsg *msg;
    int left;
    while ((msg = curl_multi_info_read(m->curl, &left))) {
        if (msg->msg != CURLMSG_DONE)
            continue;
        CURL *easy = msg->easy_handle;
        CURLcode result = msg->data.result;
        struct vt_job *job = NULL;
        (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&job);
        (void)curl_multi_remove_handle(m->curl, easy);
        unqueue(m->t, job);
        job->easy = NULL;
        job->done(job, easy, result);
        vt_easy_release(m->t, job->class, easy);
    }
}

static void drive(struct multi *m, curl_socket_t fd, int events)
{
    int running;
    m->due = false;
    m->inside++;
    (void)curl_multi_socket_action(m->curl, fd, events, &running);
    m->inside--;
    settle(m->t);
    reap(m);
}

static bool on_turn(void *arg)
{
    struct vt *t = arg;
    bool did = run_later(t);
    settle(t);
    for (int i = 0; i < VT_CLASSES; i++) {
        if (!t->multi[i].due)
            continue;
        drive(&t->multi[i], CURL_SOCKET_TIMEOUT, 0);
        did = true;
    }
    return did;
}

static void on_kick(uv_timer_t *timer)
{
    (void)on_turn(timer->data);
}

/* ---- easy handles ---- */

static bool set_protocols(CURL *h)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    return curl_easy_setopt(h, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS) == CURLE_OK;
#endif
}

static CURL *easy_new(struct multi *m, enum vt_class class)
{
    struct vt *t = m->t;
    CURL *h = curl_easy_init();
    if (!h)
        return NULL;
    bool ok = set_protocols(h);
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROXY, t->proxy ? t->proxy : ""); /* "" also overrides the environment */
    SET(CURLOPT_NOPROXY, "");
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, t->connect_timeout_ms);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_USERAGENT, "sandgate");
    SET(CURLOPT_HTTP_VERSION, class == VT_BULK ? (long)CURL_HTTP_VERSION_1_1 : (long)CURL_HTTP_VERSION_2TLS);
    SET(CURLOPT_BUFFERSIZE, class == VT_BULK ? (long)BULK_BUFFER : (long)SMALL_BUFFER);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_IDLE_S);
    SET(CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_INTVL_S);
    SET(CURLOPT_MAXAGE_CONN, (long)CONN_IDLE_S);
    SET(CURLOPT_MAXLIFETIME_CONN, (long)CONN_LIFETIME_S);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
    SET(CURLOPT_OPENSOCKETDATA, m);
    SET(CURLOPT_CLOSESOCKETFUNCTION, on_close);
    SET(CURLOPT_CLOSESOCKETDATA, m);
    if (t->ca_bundle) {
        SET(CURLOPT_CAINFO, t->ca_bundle);
        SET(CURLOPT_PROXY_CAINFO, t->ca_bundle);
    }
#undef SET
    if (!ok) {
        curl_easy_cleanup(h);
        return NULL;
    }
    return h;
}

CURL *vt_easy(struct vt *t, enum vt_class class)
{
    struct multi *m = &t->multi[class];
    if (m->npool)
        return m->pool[--m->npool];
    return easy_new(m, class);
}

void vt_easy_release(struct vt *t, enum vt_class class, CURL *easy)
{
    struct multi *m = &t->multi[class];
    if (t->closing || m->npool == POOL_MAX)
        curl_easy_cleanup(easy);
    else
        m->pool[m->npool++] = easy;
}

/* ---- jobs ---- */

bool vt_start(struct vt *t, struct vt_job *job)
{
    struct multi *m = &t->multi[job->class];
    (void)curl_easy_setopt(job->easy, CURLOPT_PRIVATE, (char *)job);
    if (m->inside) {
        job->add = true;
        queue(t, job);
        return true;
    }
    return curl_multi_add_handle(m->curl, job->easy) == CURLM_OK;
}

void vt_stop(struct vt *t, struct vt_job *job)
{
    struct multi *m = &t->multi[job->class];
    bool never_added = job->add;
    unqueue(t, job);
    if (never_added) {
        vt_easy_release(t, job->class, job->easy);
        job->easy = NULL;
    } else if (m->inside && job->easy) {
        job->remove = true;
        queue(t, job);
    } else {
        detach(m, job);
    }
}

void vt_resume(struct vt *t, struct vt_job *job)
{
    if (!job->easy || job->remove)
        return;
    job->resume = true;
    queue(t, job);
}

/* ---- life ---- */

static bool multi_init(struct multi *m, struct vt *t, enum vt_class class)
{
    m->t = t;
    uv_timer_init(sg_loop_uv(t->loop), &m->timer); /* cannot fail */
    m->timer.data = t;
    t->open_handles++;
    m->curl = curl_multi_init();
    if (!m->curl)
        return false;
    bool ok = true;
#define SET(opt, value) ok = ok && curl_multi_setopt(m->curl, opt, value) == CURLM_OK
    SET(CURLMOPT_SOCKETFUNCTION, on_socket);
    SET(CURLMOPT_SOCKETDATA, m);
    SET(CURLMOPT_TIMERFUNCTION, on_curl_timer);
    SET(CURLMOPT_TIMERDATA, m);
    SET(CURLMOPT_MAXCONNECTS, (long)MAX_IDLE_CONNS);
    SET(CURLMOPT_PIPELINING, class == VT_BULK ? (long)CURLPIPE_NOTHING : (long)CURLPIPE_MULTIPLEX);
    if (class == VT_LOGS)
        SET(CURLMOPT_MAX_CONCURRENT_STREAMS, (long)LOG_STREAMS);
#undef SET
    return ok;
}

struct vt *vt_new(struct sg_loop *loop, const struct vt_config *config)
{
    struct vt *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->loop = loop;
    t->connect_timeout_ms = config->connect_timeout_ms;
    TAILQ_INIT(&t->later);
    bool ok = true;
    if (config->proxy)
        ok = (t->proxy = strdup(config->proxy)) != NULL;
    if (config->ca_bundle)
        ok = (t->ca_bundle = strdup(config->ca_bundle)) != NULL && ok;
    uv_timer_init(sg_loop_uv(loop), &t->kick);
    t->kick.data = t;
    t->open_handles = 1;
    for (int i = 0; i < VT_CLASSES; i++)
        ok = multi_init(&t->multi[i], t, (enum vt_class)i) && ok;
    if (!ok) {
        vt_free(t);
        return NULL;
    }
    t->hooked = sg_loop_on_turn(loop, on_turn, t) == 0;
    return t;
}

void vt_free(struct vt *t)
{
    if (!t)
        return;
    if (t->hooked)
        sg_loop_off_turn(t->loop, on_turn, t);
    settle(t);
    t->closing = true;
    for (int i = 0; i < VT_CLASSES; i++) {
        struct multi *m = &t->multi[i];
        while (m->npool)
            curl_easy_cleanup(m->pool[--m->npool]);
        if (m->curl)
            (void)curl_multi_cleanup(m->curl); /* closes the idle connections through on_close */
        uv_close((uv_handle_t *)&m->timer, on_timer_closed);
    }
    uv_close((uv_handle_t *)&t->kick, on_timer_closed);
}
