#include "guestlink/recall.h"

static void give_up(struct recall *r)
{
    r->ev->on_end(r->arg, false, -1);
}

static bool on_text(void *arg, int stream, const char *data, size_t len)
{
    struct recall *r = arg;
    if (stream != 1)
        return true;
    uint64_t known = r->heard - r->at; /* the log is behind what was heard, or level with it */
    size_t skip = known < len ? (size_t)known : len;
    if (skip < len && !r->ev->on_text(r->arg, data + skip, len - skip))
        return false; /* the same text comes again */
    r->at += len;
    if (r->heard < r->at)
        r->heard = r->at;
    return true;
}

static void on_log_end(void *arg, int exit_code, const struct sg_error *e);

static bool read_log(struct recall *r)
{
    static const struct vercel_command_events ev = {.on_text = on_text, .on_end = on_log_end};
    struct sg_error e;
    r->at = 0;
    r->log = vercel_logs_start(r->client, r->session_id, r->command_id, &ev, r, &e);
    return r->log != NULL;
}

static void on_command(void *arg, bool finished, int exit_code, const struct sg_error *e)
{
    struct recall *r = arg;
    r->end = NULL;
    r->finished = !e && finished;
    r->exit_code = exit_code;
    if (!r->finished || !read_log(r))
        give_up(r);
}

static void on_log_end(void *arg, int exit_code, const struct sg_error *e)
{
    struct recall *r = arg;
    struct sg_error mine;
    (void)exit_code; /* a log has none */
    r->log = NULL;
    if (r->ev->enough(r->arg) || r->finished) {
        r->ev->on_end(r->arg, r->finished && !e, r->exit_code);
        return;
    }
    bool refused =
        e && (e->code == SG_E_STALE_SESSION || (e->upstream_status >= 400 && e->upstream_status < 500));
    if (!refused)
        r->end = vercel_command_wait(r->client, r->session_id, r->command_id, on_command, r, &mine);
    if (!r->end)
        give_up(r);
}

bool recall_start(struct recall *r)
{
    r->finished = false;
    r->exit_code = -1;
    return read_log(r);
}

void recall_resume(struct recall *r)
{
    if (r->log)
        vercel_command_resume(r->log);
}

void recall_stop(struct recall *r)
{
    if (r->log)
        vercel_command_cancel(r->log);
    if (r->end)
        vercel_call_cancel(r->end);
    r->log = NULL;
    r->end = NULL;
}
