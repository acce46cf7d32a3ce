#include "guestlink/carrier_impl.h"

#include "vercel/stdin.h"

#include <stdio.h>
#include <string.h>

enum {
    OPEN_MS = 60 * 1000,      /* until the guest has spoken, an upload of the helper included */
    LAST_WORD_MS = 10 * 1000, /* the command takes no more input: why should come on its output */
    STALLS_MAX = 1,           /* calls in a row that came to nothing, before the last one */
    REFUSALS_MAX = 5,
    BULK_MIN =
        16 * 1024, /* so much at once is a part of more: held while more comes, so that calls are few */
    HOLD_MS = 8,
    HOLDS_MAX = 6,
    REFUSED_MS = 400, /* doubled with each refusal in a row */
    REFUSED_MAX_MS = 20 * 1000
};

static void on_written(void *arg, enum vercel_stdin_result result, int64_t taken, const struct sg_error *e);

/* ---- one call at a time ---- */

static void post(struct carrier *c, enum carrier_post what)
{
    struct carrier_stdin *in = &c->in;
    struct sg_error e;
    const struct vercel_stdin w = {
        .session_id = c->host->id,
        .command_id = in->command_id,
        .offset = what == POST_ASK ? -1 : (int64_t)in->base,
        .data = what == POST_WRITE ? in->flight.data : NULL,
        .len = what == POST_WRITE ? in->flight.len : 0,
        .close = what == POST_CLOSE,
        .counts = in->counts,
    };
    in->doing = what;
    in->post = vercel_stdin_write(c->g->client, &w, on_written, c, &e);
    if (!in->post)
        carrier_end(c, NULL, &e);
}

/* The next piece of the queue becomes what is on its way. */
static bool load(struct carrier *c)
{
    struct sg_buf *flight = &c->in.flight;
    if (c->queue.len <= VERCEL_STDIN_MAX) {
        struct sg_buf empty = *flight;
        *flight = c->queue;
        c->queue = empty;
        return true;
    }
    if (!sg_buf_add(flight, c->queue.data, VERCEL_STDIN_MAX))
        return false;
    sg_buf_consume(&c->queue, VERCEL_STDIN_MAX);
    return true;
}

/* What is queued is to wait for what is still coming. */
static bool hold(struct carrier *c)
{
    struct carrier_stdin *in = &c->in;
    size_t n = c->queue.len;
    if (n >= BULK_MIN && n < VERCEL_STDIN_MAX && !c->finishing && n > in->held && in->holds < HOLDS_MAX) {
        in->held = n;
        in->holds++;
        sg_timer_start(c->kick, HOLD_MS);
        return true;
    }
    in->held = 0;
    in->holds = 0;
    return false;
}

void carrier_stdin_push(struct carrier *c)
{
    struct carrier_stdin *in = &c->in;
    struct sg_error e;
    if (in->post || in->closed || in->deaf)
        return;
    if (!in->unsure && !in->flight.len && hold(c))
        return;
    if (!in->flight.len && c->queue.len && !load(c)) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "No memory for the input of the process.");
        carrier_end(c, NULL, &e);
        return;
    }
    if (in->unsure)
        post(c, POST_ASK);
    else if (in->flight.len)
        post(c, POST_WRITE);
    else if (c->finishing)
        post(c, POST_CLOSE);
}

/* ---- what became of it ---- */

/* Asks how much has arrived: where the sandbox counts, nothing is lost and nothing sent twice. */
static void ask(struct carrier *c, const struct sg_error *why)
{
    c->in.why = *why;
    c->in.unsure = true;
    post(c, POST_ASK);
}

/* The sandbox has taken `taken` bytes since the command began. */
static void settle(struct carrier *c, uint64_t taken)
{
    struct carrier_stdin *in = &c->in;
    struct sg_error e;
    if (taken < in->base || taken - in->base > in->flight.len) {
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                      "The upstream's count of the input is not what was sent.");
        carrier_end(c, NULL, &e);
        return;
    }
    size_t n = (size_t)(taken - in->base);
    in->stalls = n || !in->flight.len ? 0 : in->stalls + 1;
    in->base = taken;
    in->unsure = false;
    if (n == in->flight.len)
        sg_buf_free(&in->flight); /* an idle carrier holds no memory */
    else
        sg_buf_consume(&in->flight, n);
    if (in->stalls > STALLS_MAX)
        carrier_end(c, NULL, &in->why);
    else
        carrier_left(c);
    if (!c->dead)
        carrier_stdin_push(c);
}

/* Refused, to be asked again; nothing of it was done. */
static void wait_and_try_again(struct carrier *c, const struct sg_error *e)
{
    int64_t ms = (int64_t)REFUSED_MS << (c->in.refusals < 8 ? c->in.refusals : 8);
    if (++c->in.refusals > REFUSALS_MAX || e->retry_after_ms > REFUSED_MAX_MS) {
        carrier_end(c, NULL, e);
        return;
    }
    ms = ms > e->retry_after_ms ? ms : e->retry_after_ms;
    sg_timer_start(c->kick, (uint64_t)(ms < REFUSED_MAX_MS ? ms : REFUSED_MAX_MS));
}

/* The command takes no input any more. */
static void hear_why(struct carrier *c, const struct sg_error *e)
{
    c->in.deaf = true;
    sg_timer_start(c->patience, LAST_WORD_MS);
    c->late = *e;
}

static void closed(struct carrier *c)
{
    c->in.closed = true;
    carrier_wait(c, LAST_WORD_MS, SG_E_UPSTREAM_TIMEOUT, "The helper in the sandbox did not end in time.");
}

static void failed(struct carrier *c, enum carrier_post what, const struct sg_error *e)
{
    /* asking and closing twice are once, and so is a write at an offset that counts */
    bool again = what != POST_WRITE || e->outcome != SG_OUTCOME_UNKNOWN || c->in.counts;
    if (e->code == SG_E_UPSTREAM_RATE_LIMITED && again)
        wait_and_try_again(c, e);
    else if (e->outcome != SG_OUTCOME_UNKNOWN || what == POST_ASK)
        carrier_end(c, NULL, what == POST_ASK ? &c->in.why : e);
    else if (what == POST_WRITE)
        ask(c, e);
    else if (++c->in.stalls > STALLS_MAX)
        carrier_end(c, NULL, e);
    else
        post(c, POST_CLOSE);
}

static void taken_all(struct carrier *c, enum carrier_post what, int64_t taken)
{
    struct carrier_stdin *in = &c->in;
    in->refusals = 0;
    if (what == POST_CLOSE)
        closed(c);
    else if (taken >= 0)
        settle(c, (uint64_t)taken);
    else if (what == POST_WRITE)
        settle(c, in->base + in->flight.len);
    else
        carrier_end(c, NULL, &in->why); /* it does not count: whether it arrived cannot be known */
}

static void slow(struct carrier *c, enum carrier_post what, int64_t taken, const struct sg_error *e)
{
    if (what != POST_WRITE) {
        failed(c, what, e);
    } else if (taken < 0) {
        ask(c, e);
    } else {
        c->in.why = *e;
        settle(c, (uint64_t)taken);
    }
}

static void on_written(void *arg, enum vercel_stdin_result result, int64_t taken, const struct sg_error *e)
{
    struct carrier *c = arg;
    enum carrier_post what = c->in.doing;
    c->in.post = NULL;
    c->in.doing = POST_NONE;
    if (taken >= 0 || !e)
        c->in.counts = taken >= 0;
    if (!e)
        taken_all(c, what, taken);
    else if (result == VERCEL_STDIN_SLOW)
        slow(c, what, taken, e);
    else if (result == VERCEL_STDIN_GAP)
        carrier_end(c, NULL, e);
    else if (result != VERCEL_STDIN_CLOSED && result != VERCEL_STDIN_GONE)
        failed(c, what, e);
    else if (what == POST_CLOSE)
        closed(c); /* an earlier call of which no answer came has done it */
    else
        hear_why(c, e);
}

/* ---- the guest's `input`, and what it says ---- */

static void on_command(void *arg, const char *command_id)
{
    struct carrier *c = arg;
    (void)snprintf(c->in.command_id, sizeof c->in.command_id, "%s", command_id);
}

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    carrier_line(arg, line);
    return true;
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct carrier *c = arg;
    (void)hello;
    c->in.call = NULL;
    carrier_end(c, line, e);
}

enum sg_code carrier_stdin_begin(struct carrier *c, struct sg_error *e)
{
    static const struct guest_events ev = {.on_line = on_line, .on_end = on_end, .on_command = on_command};
    const char *const args[] = {"input", "--session", c->host->id, "--id", c->id, NULL};
    const struct guest_args a = {
        .session_id = c->host->id,
        .arch = c->blob->arch,
        .args = args,
        .sudo = c->sudo,
        .attach_stdin = true,
    };
    c->in.call = guest_call_start(c->g, &a, &ev, c, e);
    if (!c->in.call)
        return e->code;
    carrier_wait(c, OPEN_MS, SG_E_UPSTREAM_TIMEOUT, "The helper in the sandbox did not answer in time.");
    return SG_OK;
}

void carrier_stdin_drop(struct carrier *c)
{
    if (c->in.call)
        guest_cancel(c->in.call);
    if (c->in.post)
        vercel_call_cancel(c->in.post);
    c->in.call = NULL;
    c->in.post = NULL;
}
