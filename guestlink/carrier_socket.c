#include "guestlink/carrier_impl.h"
#include "guestlink/lines.h"

#include "base/clock.h"
#include "base/core/carrier.h"
#include "vercel/interactive.h"

#include <stdlib.h>
#include <string.h>

enum {
    REACH_MS = 20 * 1000, /* the terminal's own patience is shorter */
    MAGIC_MS = 10 * 1000, /* from the connection to the guest's first word */
    OPEN_MS = 30 * 1000,  /* from there to its C line */
    NOISE_MAX = 8 * 1024, /* a greeting, an echo */
    AGAIN_MS = 15 * 1000, /* after a failure; four times as long after each further one */
    AGAIN_MAX_MS = 5 * 60 * 1000,
    NOT_EXECUTABLE = 126,
    NOT_FOUND = 127
};

struct carrier_socket {
    struct vercel_interactive *terminal;
    struct sg_buf noise; /* what came before the magic */
    bool magic, missing; /* the guest spoke; it is not there */
    struct lines lines;
};

bool carrier_socket_may(const struct carrier *c)
{
    const struct host *host = c->host;
    return host->state != HOST_ABSENT && host->state != HOST_BUSY &&
           (!host->socket_failures || sg_mono_ms() >= host->socket_not_before);
}

static void remember_failure(struct host *host)
{
    int64_t ms = AGAIN_MS;
    for (int i = 0; i < host->socket_failures && ms < AGAIN_MAX_MS; i++)
        ms *= 4;
    host->socket_failures++;
    host->socket_not_before = sg_mono_ms() + (ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS);
}

/* Takes the other transport; what was queued goes there. */
static void fall_back(struct carrier *c, const struct sg_error *e)
{
    struct sg_error mine;
    bool missing = c->sock->missing;
    carrier_socket_drop(c);
    if (e && (e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_TRANSITION)) {
        carrier_end(c, NULL, e); /* nor would the other one find it */
        return;
    }
    if (!missing)
        remember_failure(c->host);
    if (carrier_stdin_begin(c, &mine) != SG_OK)
        carrier_end(c, NULL, &mine);
}

bool carrier_socket_late(struct carrier *c)
{
    if (c->sock->magic)
        return false;
    fall_back(c, NULL);
    return true;
}

/* ---- what comes ---- */

static void take_line(struct carrier *c, const char *text, size_t n)
{
    unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line line;
    struct sg_error e;
    if (n && text[n - 1] == '\r')
        n--;
    if (n == 0 || text[0] == '#')
        return;
    if (!sg_wire_parse(text, n, scratch, &line)) {
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                      "The helper in the sandbox said something that is not its protocol.");
        carrier_end(c, NULL, &e);
    } else if (line.kind == SG_WIRE_OK || line.kind == SG_WIRE_MORE || line.kind == SG_WIRE_ERROR) {
        carrier_end(c, &line, NULL);
    } else {
        carrier_line(c, &line);
    }
}

static void take_lines(struct carrier *c, const char *data, size_t len)
{
    while (!c->dead) {
        const char *line;
        size_t n;
        enum lines_step step = lines_next(&c->sock->lines, &data, &len, &line, &n);
        if (step == LINES_MORE)
            return;
        if (step == LINES_LINE)
            take_line(c, line, n);
        else
            take_line(c, "too long", 8);
    }
}

/* The bytes after the magic line; NULL: it has not come yet. */
static const char *after_magic(const struct sg_buf *noise)
{
    static const char magic[] = SG_CARRIER_MAGIC;
    const char *end = noise->data + noise->len;
    const char *p = noise->data;
    while ((p = memmem(p, (size_t)(end - p), magic, sizeof magic - 1))) {
        p += sizeof magic - 1;
        const char *lf = p < end && *p == '\r' ? p + 1 : p;
        if (lf < end && *lf == '\n')
            return lf + 1;
    }
    return NULL;
}

static void on_data(void *arg, const void *data, size_t len)
{
    struct carrier *c = arg;
    struct carrier_socket *s = c->sock;
    if (s->magic) {
        take_lines(c, data, len);
        return;
    }
    size_t room = s->noise.max - s->noise.len;
    size_t n = len < room ? len : room;
    const char *rest = sg_buf_add(&s->noise, data, n) ? after_magic(&s->noise) : NULL;
    if (rest) {
        s->magic = true;
        c->host->socket_failures = 0;
        carrier_wait(c, OPEN_MS, SG_E_UPSTREAM_TIMEOUT, "The helper in the sandbox did not answer in time.");
        take_lines(c, rest, (size_t)(s->noise.data + s->noise.len - rest));
        if (!c->dead)
            take_lines(c, (const char *)data + n, len - n);
        if (!c->dead)
            sg_buf_free(&s->noise);
    } else if (n < len || s->noise.failed || s->noise.len == s->noise.max) {
        fall_back(c, NULL);
    }
}

static void on_open(void *arg)
{
    carrier_wait(arg, MAGIC_MS, SG_E_UPSTREAM_TIMEOUT, "The helper in the sandbox did not answer in time.");
}

static void on_exit_code(void *arg, int code)
{
    struct carrier *c = arg;
    c->sock->missing = !c->sock->magic && (code == NOT_FOUND || code == NOT_EXECUTABLE);
}

static void on_room(void *arg)
{
    carrier_socket_push(arg);
}

static void on_end(void *arg, const struct sg_error *e)
{
    struct carrier *c = arg;
    struct carrier_socket *s = c->sock;
    const struct sg_wire_line ok = {.kind = SG_WIRE_OK};
    struct sg_error mine;
    s->terminal = NULL;
    if (!s->magic) {
        fall_back(c, e);
    } else if (!e && c->finishing) {
        carrier_end(c, &ok, NULL);
    } else {
        (void)sg_fail(&mine, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN,
                      "The helper in the sandbox ended before it had said everything.");
        carrier_end(c, NULL, e ? e : &mine);
    }
}

/* ---- what goes ---- */

void carrier_socket_push(struct carrier *c)
{
    struct vercel_interactive *t = c->sock->terminal;
    if (!c->open || !t)
        return;
    if (c->queue.len) {
        size_t n = vercel_interactive_send(t, c->queue.data, c->queue.len);
        sg_buf_consume(&c->queue, n);
        if (!c->queue.len)
            sg_buf_free(&c->queue);
        if (n)
            carrier_left(c);
    }
    if (!c->dead && c->finishing && !c->queue.len)
        vercel_interactive_finish(t);
}

size_t carrier_socket_queued(const struct carrier *c)
{
    return c->sock && c->sock->terminal ? vercel_interactive_queued(c->sock->terminal) : 0;
}

enum sg_code carrier_socket_begin(struct carrier *c, struct sg_error *e)
{
    static const struct vercel_terminal_events ev = {on_open, on_data, on_room, on_exit_code, on_end};
    char path[GUEST_PATH_MAX];
    const char *const args[] = {path, "input", "--session", c->host->id, "--id", c->id, NULL};
    const struct vercel_terminal t = {
        .session_id = c->host->id,
        .command = c->sudo ? "sudo" : path,
        .args = c->sudo ? args : args + 1,
        .cwd = "/",
    };
    struct carrier_socket *s = calloc(1, sizeof *s);
    if (!s)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the way into the sandbox.");
    guest_path(path, c->blob);
    sg_buf_init(&s->noise, NOISE_MAX);
    s->terminal = vercel_interactive_start(c->g->client, &t, &ev, c, e);
    if (!s->terminal) {
        free(s);
        return e->code;
    }
    c->sock = s;
    carrier_wait(c, REACH_MS, SG_E_UPSTREAM_TIMEOUT, "The upstream's terminal could not be reached in time.");
    return SG_OK;
}

void carrier_socket_drop(struct carrier *c)
{
    struct carrier_socket *s = c->sock;
    if (!s)
        return;
    if (s->terminal)
        vercel_interactive_cancel(s->terminal);
    s->terminal = NULL;
    c->sock = NULL;
    c->spent = s; /* may be in use further up the stack */
}

void carrier_socket_free(struct carrier_socket *s)
{
    if (!s)
        return;
    sg_buf_free(&s->noise);
    free(s);
}
