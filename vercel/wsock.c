#include "vercel/wsock.h"

#include "base/log.h"

#include <libwebsockets.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum {
    SCRATCH_MAX = 8 * 1024, /* the library's buffer for heads, and for what it reads at a time */
    TIMEOUT_S = 6,          /* the callers' patience is shorter */
    PING_S = 25,            /* an idle connection is asked whether it is still there */
    HANGUP_S = 40
};

struct wsock {
    LIST_ENTRY(wsock) link;
    struct wsock_pool *pool;
    struct lws *wsi; /* NULL before it was made, and after it went */
    struct wsock_events ev;
    void *arg;
    bool owned; /* by the caller: it is told */
    bool open, paused;
    bool closing, said_goodbye, closed; /* politely: asked for, prepared, done */
    bool connecting;                    /* inside the library's connect function */
    bool destroyed;                     /* ... where it also ended */
};

struct wsock_pool {
    struct sg_loop *loop;
    char *ca_bundle;
    struct lws_context *context;
    struct sg_timer *chore; /* what must not be done inside the library */
    LIST_HEAD(, wsock) all;
    int count;
    unsigned char *request; /* in the library's buffer: one with its token */
    size_t request_len;
    bool closing;
    bool broken; /* the library does not work here */
    unsigned char frame[LWS_PRE + WSOCK_FRAME_MAX];
};

/* ---- the library's memory and log ---- */

/* Requests hold tokens: what the library gives back is wiped. */
static void *wiping_realloc(void *old, size_t size, const char *reason)
{
    (void)reason;
    size_t had = old ? malloc_usable_size(old) : 0;
    void *p = size ? malloc(size) : NULL;
    if (size && !p)
        return NULL;
    if (p && old)
        memcpy(p, old, had < size ? had : size);
    if (old)
        explicit_bzero(old, had);
    free(old);
    return p;
}

static void on_log(int level, const char *line)
{
    char text[160];
    size_t n = strcspn(line, "?\r\n"); /* a query is not for logs */
    n = n < sizeof text ? n : sizeof text - 1;
    memcpy(text, line, n);
    text[n] = '\0';
    sg_log(level == LLL_ERR ? SG_LOG_INFO : SG_LOG_DEBUG, "libwebsockets", "says", "s", text, NULL);
}

static void set_up_library(void)
{
    lws_set_allocator(wiping_realloc);
    lws_set_log_level(LLL_WARN, on_log);
}

/* ---- a connection's end ---- */

static void wsock_free(struct wsock *s)
{
    LIST_REMOVE(s, link);
    s->pool->count--;
    free(s);
}

/* Tells the owner, who may forget about it then. */
static void tell_closed(struct wsock *s, const char *why)
{
    if (!s->owned || s->connecting)
        return;
    s->owned = false;
    s->ev.on_closed(s->arg, why);
}

struct leak {
    const struct lws *wsi;
};

static void on_leaked_closed(uv_handle_t *handle)
{
    (void)wiping_realloc(handle, 0, NULL);
}

static void close_leaked(uv_handle_t *handle, void *arg)
{
    const struct leak *l = arg;
    if (handle->type == UV_POLL && handle->data == l->wsi && !uv_is_closing(handle))
        uv_close(handle, on_leaked_closed);
}

/* When connecting fails, the library closes the socket and forgets its handle in the loop. */
static void on_destroyed(struct lws *wsi, struct wsock *s)
{
    s->wsi = NULL;
    if (!s->open) {
        struct leak l = {wsi};
        uv_walk(sg_loop_uv(s->pool->loop), close_leaked, &l);
    }
    s->destroyed = true;
    if (s->connecting)
        return;
    tell_closed(s, "The connection was closed.");
    wsock_free(s);
}

/* ---- what the library tells ---- */

/* The request lies in the library's buffer; wiped once no function of the library runs. */
static void note_request(struct wsock_pool *p, char **end, size_t left)
{
    unsigned char *q = (unsigned char *)*end;
    p->request = q + left + 12 - SCRATCH_MAX; /* the library leaves 12 bytes after what a callback may add */
    p->request_len = (size_t)(q - p->request);
    sg_timer_start(p->chore, 0);
}

/* Returning -1 from a callback, the usual way, is no polite close: Debian's build then closes twice, to test itself,
 * and the second one cuts the first.  Closed from outside, once, it sends its close frame and waits for the answer. */
static void say_goodbye(struct lws *wsi, struct wsock *s)
{
    if (s->said_goodbye)
        return;
    s->said_goodbye = true;
    lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, NULL, 0);
    sg_timer_start(s->pool->chore, 0);
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct wsock *s = user; /* of these only: other reasons bring something else */
    switch ((int)reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        note_request(s->pool, in, len);
        break;
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        s->open = true;
        if (s->owned)
            s->ev.on_open(s->arg);
        break;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        if (s->owned)
            s->ev.on_data(s->arg, lws_frame_is_binary(wsi) == 0,
                          lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0, in, len);
        break;
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        if (s->owned && !s->closing)
            s->ev.on_writable(s->arg);
        if (s->owned && s->closing)
            say_goodbye(wsi, s);
        break;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        tell_closed(s, in && len ? in : "It could not connect.");
        break;
    case LWS_CALLBACK_CLIENT_CLOSED:
        tell_closed(s, "The connection was closed.");
        break;
    case LWS_CALLBACK_WSI_DESTROY:
        if (s) /* not the library's own pipe */
            on_destroyed(wsi, s);
        return 0;
    default:
        return 0;
    }
    return s->owned ? 0 : -1; /* dropped: no more of it */
}

static const struct lws_protocols protocols[] = {
    {.name = "interactive", .callback = on_event, .rx_buffer_size = SCRATCH_MAX},
    {0},
};

/* ---- the pool ---- */

static void pool_gone(struct wsock_pool *p)
{
    struct wsock *next; /* what ended inside the library's connect function */
    for (struct wsock *s = LIST_FIRST(&p->all); s; s = next) {
        next = LIST_NEXT(s, link);
        free(s);
    }
    sg_timer_free(p->chore);
    free(p->ca_bundle);
    free(p);
}

struct inside {
    const char *from, *to;
    bool any;
};

static void find_inside(uv_handle_t *handle, void *arg)
{
    struct inside *i = arg;
    const char *at = (const char *)handle;
    i->any |= at >= i->from && at < i->to;
}

/* The library's last step must come after the loop has closed its handles, of which it does not tell; the last ones
 * lie in the memory of its context. */
static void finish_closing(struct wsock_pool *p)
{
    const char *from = (const char *)p->context;
    struct inside i = {.from = from, .to = from ? from + malloc_usable_size(p->context) : NULL};
    if (from)
        uv_walk(sg_loop_uv(p->loop), find_inside, &i);
    if (i.any) {
        sg_timer_start(p->chore, 1);
        return;
    }
    lws_context_destroy(p->context); /* NULL is fine */
    pool_gone(p);
}

static void on_chore(void *arg)
{
    struct wsock_pool *p = arg;
    if (p->request)
        explicit_bzero(p->request, p->request_len);
    p->request = NULL;
    for (struct wsock *s = LIST_FIRST(&p->all), *next; s && !p->closing; s = next) {
        next = LIST_NEXT(s, link);
        if (!s->said_goodbye || s->closed || !s->wsi)
            continue;
        s->closed = true;
        lws_set_timeout(s->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
    }
    if (p->closing)
        finish_closing(p);
}

struct wsock_pool *wsock_pool_new(struct sg_loop *loop, const char *ca_bundle)
{
    struct wsock_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->loop = loop;
    LIST_INIT(&p->all);
    p->chore = sg_timer_new(loop, on_chore, p);
    if (!p->chore || (ca_bundle && !(p->ca_bundle = strdup(ca_bundle)))) {
        pool_gone(p);
        return NULL;
    }
    return p;
}

void wsock_pool_free(struct wsock_pool *p)
{
    if (!p)
        return;
    if (!p->context) {
        pool_gone(p);
        return;
    }
    p->request = NULL; /* goes with the context, whose memory is wiped */
    p->closing = true;
    lws_context_destroy(p->context);
    sg_timer_start(p->chore, 0);
}

static bool make_context(struct wsock_pool *p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const lws_retry_bo_t idle = {.secs_since_valid_ping = PING_S, .secs_since_valid_hangup = HANGUP_S};
    (void)pthread_once(&once, set_up_library);
    void *loops[] = {sg_loop_uv(p->loop)};
    const struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = protocols,
        .foreign_loops = loops,
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT |
                   LWS_SERVER_OPTION_UV_NO_SIGSEGV_SIGFPE_SPIN,
        .client_ssl_ca_filepath = p->ca_bundle,
        .fd_limit_per_thread = WSOCK_MAX + 8, /* or its tables are as long as the descriptor limit */
        .pt_serv_buf_size = SCRATCH_MAX,
        .max_http_header_data = SCRATCH_MAX,
        .timeout_secs = TIMEOUT_S,
        .connect_timeout_secs = TIMEOUT_S,
        .retry_and_idle_policy = &idle,
        .http_proxy_address = "", /* not what the environment says */
        .pcontext = &p->context,
    };
    lws_set_log_level(0, on_log); /* it complains about the proxies that are none */
    p->context = lws_create_context(&info);
    lws_set_log_level(LLL_ERR | LLL_WARN, on_log);
    if (!p->context) {
        p->broken = true;
        sg_log(SG_LOG_WARN, "websocket_client", "error", "s",
               "libwebsockets cannot start: is its libuv plugin installed?", NULL);
    }
    return p->context != NULL;
}

/* ---- connections ---- */

struct wsock *wsock_connect(struct wsock_pool *p, const struct wsock_spec *spec,
                            const struct wsock_events *ev, void *arg)
{
    if (p->count >= WSOCK_MAX || strlen(spec->path) > WSOCK_PATH_MAX || p->broken ||
        (!p->context && !make_context(p)))
        return NULL;
    struct wsock *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->pool = p;
    s->ev = *ev;
    s->arg = arg;
    LIST_INSERT_HEAD(&p->all, s, link);
    p->count++;
    if (spec->proxy)
        (void)lws_set_proxy(lws_get_vhost_by_name(p->context, "default"), spec->proxy);
    const struct lws_client_connect_info i = {
        .context = p->context,
        .address = spec->address,
        .port = spec->port,
        .path = spec->path,
        .host = spec->host,
        .ssl_connection = (spec->tls ? LCCSCF_USE_SSL : 0) | LCCSCF_HTTP_NO_FOLLOW_REDIRECT,
        .alpn = "http/1.1",
        .ietf_version_or_minus_one = -1,
        .local_protocol_name = protocols[0].name,
        .userdata = s,
        .pwsi = &s->wsi,
    };
    s->owned = true;
    s->connecting = true;
    struct lws *wsi = lws_client_connect_via_info(&i);
    s->connecting = false;
    lws_cancel_service(p->context); /* its timers are only looked at after an event */
    if (wsi) {
        s->wsi = wsi;
        return s;
    }
    s->owned = false;
    s->wsi = NULL;
    if (s->destroyed)
        wsock_free(s); /* else it may still be closing: it stays until it is told, or to the end of all */
    return NULL;
}

void wsock_want_write(struct wsock *s)
{
    if (s->wsi && s->open)
        (void)lws_callback_on_writable(s->wsi);
}

bool wsock_write(struct wsock *s, bool text, const void *data, size_t len)
{
    unsigned char *frame = s->pool->frame + LWS_PRE;
    memcpy(frame, data, len);
    return lws_write(s->wsi, frame, len, text ? LWS_WRITE_TEXT : LWS_WRITE_BINARY) >= (int)len;
}

void wsock_close(struct wsock *s)
{
    s->closing = true;
    wsock_want_write(s);
}

void wsock_pause(struct wsock *s, bool paused)
{
    if (!s->wsi || !s->open || s->paused == paused)
        return;
    s->paused = paused;
    (void)lws_rx_flow_control(s->wsi, !paused);
    if (!paused)
        lws_cancel_service(s->pool->context); /* what it kept meanwhile is given after an event */
}

void wsock_drop(struct wsock *s)
{
    s->owned = false;
    if (!s->wsi)
        return;
    lws_set_timeout(s->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    lws_cancel_service(s->pool->context);
}
