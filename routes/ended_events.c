/* The events of a saved process, all at once: what is kept of its output is bounded. */
#include "relay/frames.h"
#include "routes/ended.h"
#include "store/processes.h"

#include <stdlib.h>

enum { PIECE_MAX = 64 * 1024 };

struct writer {
    struct sg_buf *out;
    enum events_format format;
    struct events_at at;
};

/* Takes json over. */
static bool put(struct writer *w, const char *type, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool ok = text && events_record(w->out, w->format, &w->at, type, text);
    json_decref(json);
    free(text);
    return ok;
}

static bool put_hello(struct writer *w, const char *sandbox, const struct stored_process *p,
                      const uint64_t offset[2])
{
    struct frame_hello h = {.sandbox = sandbox, .session_id = p->session_id, .p = &p->p};
    for (int s = 0; s < 2; s++)
        h.next[s] = offset[s] > p->p.oldest[s] ? offset[s] : p->p.oldest[s];
    json_t *json = frame_hello(&h);
    if (json && p->p.how == SG_HOW_NONE &&
        json_object_set_new(json, "state", json_string("ended_by_session"))) {
        json_decref(json);
        return false;
    }
    return put(w, "hello", json);
}

static bool put_stream(struct writer *w, const struct stored_process *p, int s)
{
    uint64_t oldest = p->p.oldest[s], end = p->p.end[s], at = w->at.offset[s];
    if (at < oldest) {
        w->at.offset[s] = oldest;
        if (!put(w, "gap", frame_gap(frame_stream(&p->p, s), at, oldest)))
            return false;
        at = oldest;
    }
    while (at < end) {
        size_t n = end - at < PIECE_MAX ? (size_t)(end - at) : PIECE_MAX;
        w->at.offset[s] = at + n;
        if (!events_data(w->out, w->format, &w->at, s, at, p->tail[s].data + (at - oldest), n))
            return false;
        at += n;
    }
    return true;
}

static bool put_end(struct writer *w, const struct stored_process *p)
{
    struct sg_wire_process last = p->p;
    struct sg_error e;
    if (last.how == SG_HOW_NONE || last.how == SG_HOW_UNKNOWN) {
        if (last.how == SG_HOW_NONE)
            (void)sg_fail(&e, SG_E_STALE_SESSION, SG_STARTED, "the session ended before the process did");
        else
            (void)sg_fail(&e, SG_E_PROCESS_LOST, SG_STARTED, "the process ended and left no word how");
        return put(w, "error", frame_error(&e));
    }
    last.output_incomplete = !p->complete;
    if (!put(w, "exit", frame_exit(&last)))
        return false;
    w->at.over = true;
    return put(w, "end", json_pack("{ss}", "type", "end"));
}

bool ended_events_write(struct sg_buf *out, const char *sandbox, const struct stored_process *p,
                        enum events_format format, const uint64_t offset[2])
{
    struct writer w = {out, format, {.offset = {offset[0], offset[1]}, .terminal = p->p.terminal}};
    return put_hello(&w, sandbox, p, offset) && put_stream(&w, p, 0) && put_stream(&w, p, 1) &&
           put_end(&w, p);
}
