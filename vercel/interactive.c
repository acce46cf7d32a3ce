#include "vercel/interactive.h"

#include "vercel/answer.h"
#include "vercel/impl.h"
#include "vercel/wsock.h"

#include "base/json.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_MS = 10 * 1000,    /* for the address and the token */
    CONNECT_MS = 5 * 1000, /* from there to the connection */
    ADDRESSES_MAX = 4,
    TEXT_MAX = 4096, /* a text frame that may be an exit */
    HOST_MAX = 256,
    PROXY_MAX = 256,
    TOKEN_MAX = 4096
};

struct address {
    char text[INET6_ADDRSTRLEN];
};

/* Outlives the terminal when that is cancelled meanwhile. */
struct lookup {
    uv_getaddrinfo_t req; /* first */
    struct vercel_interactive *terminal;
};

struct vercel_interactive {
    TAILQ_ENTRY(vercel_interactive) link;
    struct vercel_client *client;
    struct vercel_terminal_events ev;
    void *arg;
    bool dead, open, finishing, exited, crowded;
    char *start; /* the first frame */
    struct sg_timer *patience;

    struct vercel_call *call;
    struct lookup *lookup;
    struct wsock *sock;

    /* where it connects */
    bool tls;
    int port;
    char host[HOST_MAX];        /* a name, or an address without brackets */
    char host_header[HOST_MAX]; /* with the port where it is not the usual one */
    struct sg_buf path;         /* with the token */
    struct address addresses[ADDRESSES_MAX];
    int naddresses, next_address;

    struct sg_buf queue;
    struct sg_buf text; /* a text frame so far */
    bool text_over;     /* it was too long to be an exit */
    struct sg_grave grave;
};

/* ---- the end ---- */

static void on_bury(struct sg_grave *grave)
{
    struct vercel_interactive *t =
        (struct vercel_interactive *)((char *)grave - offsetof(struct vercel_interactive, grave));
    sg_buf_wipe(&t->path);
    sg_buf_wipe(&t->queue); /* what people type may be secret */
    sg_buf_free(&t->text);
    free(t->start);
    free(t);
}

static void terminal_die(struct vercel_interactive *t)
{
    t->dead = true;
    if (t->call)
        vercel_call_cancel(t->call);
    if (t->lookup) {
        t->lookup->terminal = NULL;
        (void)uv_cancel((uv_req_t *)&t->lookup->req);
    }
    if (t->sock)
        wsock_drop(t->sock);
    t->call = NULL;
    t->lookup = NULL;
    t->sock = NULL;
    sg_timer_free(t->patience);
    t->patience = NULL;
    TAILQ_REMOVE(&t->client->terminals, t, link);
    sg_loop_bury(t->client->loop, &t->grave);
}

static void terminal_end(struct vercel_interactive *t, const struct sg_error *e)
{
    if (t->dead)
        return;
    terminal_die(t);
    t->ev.on_end(t->arg, e);
}

static void terminal_fail(struct vercel_interactive *t, enum sg_code code, const char *why)
{
    struct sg_error e;
    (void)sg_fail(&e, code, t->open ? SG_OUTCOME_UNKNOWN : SG_NOT_STARTED, "%s", why);
    terminal_end(t, &e);
}

void vercel_terminals_end(struct vercel_client *c)
{
    struct vercel_interactive *t;
    while ((t = TAILQ_FIRST(&c->terminals)))
        terminal_fail(t, SG_E_UPSTREAM_UNREACHABLE, "The gateway is shutting down.");
}

static void on_patience(void *arg)
{
    terminal_fail(arg, SG_E_UPSTREAM_TIMEOUT, "The upstream's terminal could not be reached in time.");
}

/* ---- what comes ---- */

static void on_open(void *arg)
{
    struct vercel_interactive *t = arg;
    t->open = true;
    sg_timer_stop(t->patience);
    sg_buf_wipe(&t->path);
    wsock_want_write(t->sock);
}

/* A text frame that is not JSON is output; one that is may tell the end. */
static void take_text(struct vercel_interactive *t)
{
    json_t *doc = json_loadb(t->text.data ? t->text.data : "", t->text.len, 0, NULL);
    const json_t *code = json_object_get(doc, "code");
    bool exits = !strcmp(sg_jget_str(doc, "type", ""), "exit");
    json_int_t v = json_is_integer(code) ? json_integer_value(code) : 0;
    if (!doc) {
        t->ev.on_data(t->arg, t->text.data, t->text.len);
    } else if (exits) {
        t->exited = true;
        t->ev.on_exit(t->arg, v >= 0 && v <= 255 ? (int)v : 0);
    }
    json_decref(doc);
    if (!t->dead)
        sg_buf_free(&t->text);
}

static void on_data(void *arg, bool text, bool last, const void *data, size_t len)
{
    struct vercel_interactive *t = arg;
    if (!text || t->text_over) {
        t->text_over = t->text_over && !last;
        if (len)
            t->ev.on_data(t->arg, data, len);
    } else if (sg_buf_add(&t->text, data, len)) {
        if (last)
            take_text(t);
    } else { /* too long to be anything but output */
        t->text_over = !last;
        if (t->text.len)
            t->ev.on_data(t->arg, t->text.data, t->text.len);
        if (!t->dead)
            sg_buf_free(&t->text);
        if (!t->dead)
            t->ev.on_data(t->arg, data, len);
    }
}

static void tell_room(struct vercel_interactive *t)
{
    if (!t->crowded || t->queue.len > VERCEL_TERMINAL_QUEUE / 2)
        return;
    t->crowded = false;
    t->ev.on_room(t->arg);
}

static void on_writable(void *arg)
{
    struct vercel_interactive *t = arg;
    if (t->start) {
        bool ok = wsock_write(t->sock, true, t->start, strlen(t->start));
        free(t->start);
        t->start = NULL;
        if (ok)
            t->ev.on_open(t->arg);
    } else if (t->queue.len) {
        size_t n = t->queue.len < WSOCK_FRAME_MAX ? t->queue.len : WSOCK_FRAME_MAX;
        if (!wsock_write(t->sock, false, t->queue.data, n))
            return;
        explicit_bzero(t->queue.data, n);
        sg_buf_consume(&t->queue, n);
        if (!t->queue.len)
            sg_buf_wipe(&t->queue);
        tell_room(t);
    }
    if (t->dead)
        return;
    if (t->queue.len)
        wsock_want_write(t->sock);
    else if (t->finishing)
        wsock_close(t->sock);
}

static bool try_next(struct vercel_interactive *t);
static void cannot_connect(struct vercel_interactive *t);

static void on_closed(void *arg, const char *why)
{
    struct vercel_interactive *t = arg;
    t->sock = NULL;
    sg_log(SG_LOG_DEBUG, "terminal_closed", "open", "b", (int)t->open, "why", "s", why, NULL);
    if (!t->open && try_next(t))
        return;
    if (t->open && (t->exited || t->finishing))
        terminal_end(t, NULL);
    else if (t->open)
        terminal_fail(t, SG_E_UPSTREAM_UNREACHABLE, "The upstream's terminal was cut off.");
    else
        cannot_connect(t);
}

/* ---- connecting ---- */

/* "user:password@address:port" for the library, with the proxy's address in place of its name. */
static bool proxy_text(const struct vercel_interactive *t, const char *address, char out[PROXY_MAX])
{
    char *user = NULL, *password = NULL, *port = NULL;
    CURLU *u = curl_url();
    bool ok = u && curl_url_set(u, CURLUPART_URL, t->client->proxy, 0) == CURLUE_OK;
    if (ok) {
        (void)curl_url_get(u, CURLUPART_USER, &user, CURLU_URLDECODE);
        (void)curl_url_get(u, CURLUPART_PASSWORD, &password, CURLU_URLDECODE);
        (void)curl_url_get(u, CURLUPART_PORT, &port, 0);
        bool v6 = strchr(address, ':') != NULL;
        int n = snprintf(out, PROXY_MAX, "%s%s%s%s%s%s%s:%s", user ? user : "", user ? ":" : "",
                         user && password ? password : "", user ? "@" : "", v6 ? "[" : "", address,
                         v6 ? "]" : "", port ? port : "1080");
        ok = n > 0 && n < PROXY_MAX;
    }
    if (password)
        explicit_bzero(password, strlen(password));
    curl_free(user);
    curl_free(password);
    curl_free(port);
    curl_url_cleanup(u);
    return ok;
}

/* False: there is no address left to try. */
static bool try_next(struct vercel_interactive *t)
{
    static const struct wsock_events ev = {on_open, on_data, on_writable, on_closed};
    struct vercel_client *c = t->client;
    char proxy[PROXY_MAX];
    if (!c->wsocks)
        c->wsocks = wsock_pool_new(c->loop, c->ca_bundle);
    while (c->wsocks && !t->sock && t->next_address < t->naddresses) {
        const char *address = t->addresses[t->next_address++].text;
        if (c->proxy && !proxy_text(t, address, proxy))
            continue;
        const struct wsock_spec spec = {
            .address = c->proxy ? t->host : address,
            .port = t->port,
            .host = t->host_header,
            .path = t->path.data,
            .tls = t->tls,
            .proxy = c->proxy ? proxy : NULL,
        };
        t->sock = wsock_connect(c->wsocks, &spec, &ev, t);
        explicit_bzero(proxy, sizeof proxy);
    }
    return t->sock != NULL;
}

static void cannot_connect(struct vercel_interactive *t)
{
    terminal_fail(t, SG_E_UPSTREAM_UNREACHABLE, "The upstream's terminal cannot be reached.");
}

static void add_address(struct vercel_interactive *t, const struct addrinfo *a)
{
    if (t->naddresses == ADDRESSES_MAX)
        return;
    if (getnameinfo(a->ai_addr, a->ai_addrlen, t->addresses[t->naddresses].text, sizeof t->addresses[0].text,
                    NULL, 0, NI_NUMERICHOST) == 0)
        t->naddresses++;
}

static void on_looked_up(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    struct lookup *l = (struct lookup *)req;
    struct vercel_interactive *t = l->terminal;
    if (t) {
        t->lookup = NULL;
        for (const struct addrinfo *a = status == 0 ? found : NULL; a; a = a->ai_next)
            add_address(t, a);
        if (!try_next(t))
            cannot_connect(t);
    }
    uv_freeaddrinfo(found);
    free(l);
}

static bool look_up(struct vercel_interactive *t, const char *name)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct lookup *l = calloc(1, sizeof *l);
    if (!l)
        return false;
    l->terminal = t;
    if (uv_getaddrinfo(sg_loop_uv(t->client->loop), &l->req, on_looked_up, name, NULL, &hints)) {
        free(l);
        return false;
    }
    t->lookup = l;
    return true;
}

/* The name is looked up where that does not hold the loop; an address needs none of it. */
static bool connect_to(struct vercel_interactive *t, const char *name)
{
    unsigned char bin[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, name, bin) != 1 && inet_pton(AF_INET6, name, bin) != 1)
        return look_up(t, name);
    (void)snprintf(t->addresses[0].text, sizeof t->addresses[0].text, "%.45s", name);
    t->naddresses = 1;
    return try_next(t);
}

/* ---- the address ---- */

/* A part of a URL into out; false when it is absent or too long. */
static bool part(CURLU *u, CURLUPart what, char *out, size_t cap, unsigned flags)
{
    char *s = NULL;
    bool ok = curl_url_get(u, what, &s, flags) == CURLUE_OK && s && strlen(s) < cap;
    if (ok)
        (void)snprintf(out, cap, "%s", s);
    curl_free(s);
    return ok;
}

static bool has_part(CURLU *u, CURLUPart what)
{
    char *s = NULL;
    bool there = curl_url_get(u, what, &s, 0) == CURLUE_OK && s;
    curl_free(s);
    return there;
}

/* Without brackets. */
static void bare_host(char *host)
{
    size_t n = strlen(host);
    if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
        memmove(host, host + 1, n - 2);
        host[n - 2] = '\0';
    }
}

/* ws:// is only for an upstream that is itself reached without TLS: else the token would travel in the clear. */
static bool read_url(struct vercel_interactive *t, const char *url, const char *token)
{
    char scheme[8], port[8], path[WSOCK_PATH_MAX], proper[HOST_MAX];
    CURLU *u = curl_url();
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
              part(u, CURLUPART_SCHEME, scheme, sizeof scheme, 0) &&
              part(u, CURLUPART_HOST, t->host, sizeof t->host - 8, 0) &&
              part(u, CURLUPART_PATH, path, sizeof path, 0) && !has_part(u, CURLUPART_USER) &&
              !has_part(u, CURLUPART_QUERY) && !has_part(u, CURLUPART_FRAGMENT);
    if (ok) {
        t->tls = !strcmp(scheme, "wss");
        ok = t->tls || (!strcmp(scheme, "ws") && !strncmp(t->client->base_url, "http://", 7));
    }
    if (ok) {
        t->port = t->tls ? 443 : 80;
        if (part(u, CURLUPART_PORT, port, sizeof port, 0))
            t->port = (int)strtol(port, NULL, 10);
        (void)snprintf(proper, sizeof proper, "%s", t->host);
        if (t->port == (t->tls ? 443 : 80))
            (void)snprintf(t->host_header, sizeof t->host_header, "%s", proper);
        else
            (void)snprintf(t->host_header, sizeof t->host_header, "%.240s:%d", proper, t->port);
        bare_host(t->host);
        ok =
            t->port > 0 && t->port < 65536 &&
            sg_buf_reserve(&t->path, strlen(path) + 3 * strlen(token) + 16) && /* at once: no copies behind */
            sg_buf_adds(&t->path, path) && sg_buf_adds(&t->path, "?token=") &&
            sg_buf_add_urlenc(&t->path, token) && t->path.len <= WSOCK_PATH_MAX;
    }
    curl_url_cleanup(u);
    return ok;
}

/* The host that is connected to: the proxy's, or the terminal's. */
static bool connect_host(const struct vercel_interactive *t, char out[HOST_MAX])
{
    if (!t->client->proxy) {
        (void)snprintf(out, HOST_MAX, "%s", t->host);
        return true;
    }
    CURLU *u = curl_url();
    char scheme[8];
    bool ok = u && curl_url_set(u, CURLUPART_URL, t->client->proxy, 0) == CURLUE_OK &&
              part(u, CURLUPART_SCHEME, scheme, sizeof scheme, 0) && !strcmp(scheme, "http") &&
              part(u, CURLUPART_HOST, out, HOST_MAX, 0);
    curl_url_cleanup(u);
    if (ok)
        bare_host(out);
    return ok;
}

static void take_answer(struct vercel_interactive *t, const json_t *doc)
{
    char host[HOST_MAX];
    const char *token = sg_jget_str(doc, "token", "");
    if (!*token || strlen(token) > TOKEN_MAX || !read_url(t, sg_jget_str(doc, "url", ""), token)) {
        terminal_fail(t, SG_E_UPSTREAM_BAD_RESPONSE, "The upstream's answer is not a terminal's address.");
        return;
    }
    sg_timer_start(t->patience, CONNECT_MS);
    if (!connect_host(t, host) || !connect_to(t, host))
        cannot_connect(t);
}

static void on_answer(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct vercel_interactive *t = arg;
    struct sg_error own;
    t->call = NULL;
    json_t *doc = e ? NULL : vercel_body_json(*body, len, &own);
    if (doc) {
        take_answer(t, doc);
        const char *token = sg_jget_str(doc, "token", "");
        explicit_bzero((char *)(uintptr_t)token,
                       strlen(token)); /* the library's memory, and nobody reads it again */
    } else {
        struct sg_error mine = e ? *e : own;
        mine.outcome = SG_NOT_STARTED; /* a token perhaps, but no terminal */
        terminal_end(t, &mine);
    }
    if (!e)
        explicit_bzero(*body, len);
    json_decref(doc);
}

/* ---- the owner's side ---- */

static char *start_text(const struct vercel_terminal *s)
{
    json_t *o = json_object();
    json_t *args = json_array();
    bool ok = o && args;
    for (const char *const *a = s->args; ok && a && *a; a++)
        ok = !json_array_append_new(args, json_string(*a));
    ok = ok && !json_object_set_new(o, "type", json_string("start")) &&
         !json_object_set_new(o, "command", json_string(s->command)) && !json_object_set(o, "args", args) &&
         !json_object_set_new(o, "env", json_array()) && !json_object_set_new(o, "cwd", json_string(s->cwd));
    if (ok && s->cols > 0 && s->rows > 0)
        ok = !json_object_set_new(o, "cols", json_integer(s->cols)) &&
             !json_object_set_new(o, "rows", json_integer(s->rows));
    char *text = ok ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    json_decref(args);
    if (text && strlen(text) > WSOCK_FRAME_MAX) {
        free(text);
        text = NULL;
    }
    return text;
}

static struct vercel_call *ask(struct vercel_interactive *t, const char *session_id, struct sg_error *e)
{
    struct sg_buf path;
    struct vercel_call *call = NULL;
    sg_buf_init(&path, 1024);
    if (sg_buf_adds(&path, "/v2/sandboxes/sessions/") && sg_buf_add_urlenc(&path, session_id) &&
        sg_buf_adds(&path, "/interactive")) {
        const struct vercel_request r = {
            .method = "POST",
            .path = path.data,
            .body = "{}",
            .body_len = 2,
            .class = VERCEL_CONTROL,
            .timeout_ms = ASK_MS,
            .idempotent = true, /* another token is as good */
            .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
        };
        call = vercel_collect_start(t->client, &r, on_answer, t, e);
    } else {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
    }
    sg_buf_free(&path);
    return call;
}

struct vercel_interactive *vercel_interactive_start(struct vercel_client *c, const struct vercel_terminal *s,
                                                    const struct vercel_terminal_events *ev, void *arg,
                                                    struct sg_error *e)
{
    struct vercel_interactive *t = calloc(1, sizeof *t);
    (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for a terminal.");
    if (!t)
        return NULL;
    t->client = c;
    t->ev = *ev;
    t->arg = arg;
    t->grave.fn = on_bury;
    sg_buf_init(&t->path, WSOCK_PATH_MAX + 3 * TOKEN_MAX + 64);
    sg_buf_init(&t->queue, VERCEL_TERMINAL_QUEUE);
    sg_buf_init(&t->text, TEXT_MAX);
    t->start = start_text(s);
    t->patience = sg_timer_new(c->loop, on_patience, t);
    if (t->start && t->patience && (t->call = ask(t, s->session_id, e))) {
        TAILQ_INSERT_TAIL(&c->terminals, t, link);
        return t;
    }
    sg_timer_free(t->patience);
    free(t->start);
    free(t);
    return NULL;
}

size_t vercel_interactive_queued(const struct vercel_interactive *t)
{
    return t->queue.len;
}

size_t vercel_interactive_send(struct vercel_interactive *t, const void *data, size_t len)
{
    size_t room = VERCEL_TERMINAL_QUEUE - t->queue.len;
    size_t n = len < room ? len : room;
    if (t->dead || !t->open || t->start || t->finishing || (n && !sg_buf_add(&t->queue, data, n)))
        n = 0;
    t->queue.failed = false;
    t->crowded |= n < len;
    if (n)
        wsock_want_write(t->sock);
    return n;
}

void vercel_interactive_pause(struct vercel_interactive *t, bool paused)
{
    if (!t->dead && t->sock)
        wsock_pause(t->sock, paused);
}

void vercel_interactive_finish(struct vercel_interactive *t)
{
    if (t->dead || t->finishing)
        return;
    t->finishing = true;
    if (t->sock)
        wsock_want_write(t->sock);
}

void vercel_interactive_cancel(struct vercel_interactive *t)
{
    if (!t->dead)
        terminal_die(t);
}
