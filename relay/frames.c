#include "relay/frames.h"

#include "base/problem.h"
#include "base/signal_name.h"
#include "relay/attach.h"

static const char *const stream_names[FRAME_STREAMS] = {"stdout", "stderr", "pty"};

enum frame_stream frame_stream(const struct sg_wire_process *p, int stream)
{
    if (p->terminal)
        return FRAME_PTY;
    return stream ? FRAME_STDERR : FRAME_STDOUT;
}

const char *frame_stream_name(enum frame_stream s)
{
    return stream_names[s];
}

static void put_offset(unsigned char out[8], uint64_t offset)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(offset >> (56 - 8 * i));
}

void frame_head(unsigned char out[FRAME_HEAD], enum frame_stream s, uint64_t offset)
{
    out[0] = (unsigned char)(s + 1); /* 1 stdout, 2 stderr, 3 terminal */
    put_offset(out + 1, offset);
}

static json_t *number(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

/* o, or NULL when one of its members could not be set. */
static json_t *whole(json_t *o, int bad)
{
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *hello_streams(const struct frame_hello *h)
{
    json_t *all = json_object();
    int bad = 0;
    for (int s = 0; s < (h->p->terminal ? 1 : 2); s++) {
        json_t *one = json_pack("{s:o,s:o,s:o}", "oldest", number(h->p->oldest[s]), "next",
                                number(h->next[s]), "end", number(h->p->end[s]));
        bad |= json_object_set_new(all, stream_names[frame_stream(h->p, s)], one);
    }
    return whole(all, bad);
}

static json_t *hello_input(const struct frame_hello *h)
{
    const struct sg_wire_process *p = h->p;
    bool alive = p->state == SG_PS_STARTING || p->state == SG_PS_RUNNING;
    json_t *o = json_pack("{s:o,s:b}", "accepted", number(h->mode ? h->accepted : p->input), "open",
                          alive && p->takes_input);
    int bad = 0;
    if (h->mode) {
        bad |= json_object_set_new(o, "certain", json_boolean(h->certain));
        bad |= json_object_set_new(o, "carrier", h->carrier ? json_string(h->carrier) : json_null());
    }
    return whole(o, bad);
}

static json_t *hello_limits(void)
{
    return json_pack("{s:i,s:i,s:i,s:i}", "frame_payload_bytes", ATTACH_FRAME_MAX, "queue_bytes",
                     ATTACH_QUEUE_HIGH, "stdin_message_bytes", FRAME_INPUT_MAX, "stdin_window_bytes",
                     ATTACH_WINDOW);
}

json_t *frame_hello(const struct frame_hello *h)
{
    const struct sg_wire_process *p = h->p;
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:{s:s},s:o,s:o,s:o}", "type", "hello", "process_id", p->id,
                  "sandbox", h->sandbox, "session_id", h->session_id, "state", sg_wire_state_name(p->state),
                  "terminal", p->terminal, "retention", "mode", p->lossless ? "lossless" : "ring", "streams",
                  hello_streams(h), "stdin", hello_input(h), "limits", hello_limits());
    int bad = 0;
    if (h->mode) {
        bad |= json_object_set_new(o, "mode", json_string(h->mode));
        bad |= json_object_set_new(
            o, "presence", json_pack("{s:i,s:i}", "writers", (int)h->writers, "watchers", (int)h->watchers));
    }
    return whole(o, bad);
}

json_t *frame_gap(enum frame_stream s, uint64_t from, uint64_t to)
{
    return json_pack("{s:s,s:s,s:o,s:o}", "type", "gap", "stream", stream_names[s], "from", number(from),
                     "to", number(to));
}

json_t *frame_stdin(uint64_t accepted, uint64_t room, bool closed, bool unwanted)
{
    return json_pack("{s:s,s:o,s:o,s:b,s:b}", "type", "stdin", "accepted", number(accepted), "room",
                     number(room), "closed", closed, "unwanted", unwanted);
}

json_t *frame_presence(unsigned writers, unsigned watchers)
{
    return json_pack("{s:s,s:i,s:i}", "type", "presence", "writers", (int)writers, "watchers", (int)watchers);
}

static json_t *signal_json(const struct sg_wire_process *p)
{
    char name[SG_SIGNAL_TEXT];
    bool stopped = (p->how == SG_HOW_TIMEOUT || p->how == SG_HOW_SCOPE) && p->value;
    return p->how == SG_HOW_SIGNAL || stopped ? json_string(sg_signal_name(p->value, name)) : json_null();
}

static const char *ended_by(const struct sg_wire_process *p)
{
    switch (p->how) {
    case SG_HOW_SIGNAL:
        return "signal";
    case SG_HOW_TIMEOUT:
        return "timeout";
    case SG_HOW_SCOPE:
        return "scope";
    case SG_HOW_EXIT:
        return "exit";
    case SG_HOW_UNKNOWN:
    case SG_HOW_NONE:
        break;
    }
    return "unknown";
}

json_t *frame_exit(const struct sg_wire_process *p)
{
    json_t *o = json_pack("{s:s,s:o,s:o,s:s,s:b,s:b,s:b,s:o}", "type", "exit", "exit_code",
                          p->how == SG_HOW_EXIT ? json_integer(p->value) : json_null(), "signal",
                          signal_json(p), "ended_by", ended_by(p), "timed_out", p->how == SG_HOW_TIMEOUT,
                          "output_complete", !p->output_incomplete, "descendants_hold_output",
                          p->descendants_hold_output, "duration_ms", number(p->duration_ms));
    int bad = 0;
    if (p->terminal) {
        bad |= json_object_set_new(o, "pty_end", number(p->end[0]));
    } else {
        bad |= json_object_set_new(o, "stdout_end", number(p->end[0]));
        bad |= json_object_set_new(o, "stderr_end", number(p->end[1]));
    }
    return whole(o, bad);
}

json_t *frame_error(const struct sg_error *e)
{
    json_t *o = sg_problem_json(e, NULL, NULL);
    return whole(o, json_object_set_new(o, "type", json_string("error")));
}

json_t *frame_keepalive(void)
{
    return json_pack("{s:s}", "type", "keepalive");
}
