#include "relay/frames.h"

#include "base/problem.h"
#include "relay/attach.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const stream_names[2] = {"stdout", "stderr"};

void frame_head(unsigned char out[FRAME_HEAD], int stream, uint64_t offset)
{
    out[0] = (unsigned char)(stream + 1); /* 1 stdout, 2 stderr */
    for (int i = 0; i < 8; i++)
        out[1 + i] = (unsigned char)(offset >> (56 - 8 * i));
}

static json_t *number(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *hello_streams(const struct frame_hello *h)
{
    json_t *both = json_object();
    for (int s = 0; both && s < 2; s++) {
        json_t *one = json_pack("{s:o,s:o,s:o}", "oldest", number(h->p->oldest[s]), "next",
                                number(h->next[s]), "end", number(h->p->end[s]));
        if (json_object_set_new(both, stream_names[s], one)) {
            json_decref(both);
            return NULL;
        }
    }
    return both;
}

json_t *frame_hello(const struct frame_hello *h)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:{s:i,s:b},s:{s:i,s:i}}", "type", "hello", "process_id",
                     h->p->id, "sandbox", h->sandbox, "session_id", h->session_id, "state",
                     sg_wire_state_name(h->p->state), "streams", hello_streams(h), "stdin", "accepted", 0,
                     "open", 0, "limits", "frame_payload_bytes", ATTACH_FRAME_MAX, "queue_bytes",
                     ATTACH_QUEUE_HIGH);
}

json_t *frame_gap(int stream, uint64_t from, uint64_t to)
{
    return json_pack("{s:s,s:s,s:o,s:o}", "type", "gap", "stream", stream_names[stream], "from", number(from),
                     "to", number(to));
}

static json_t *signal_json(const struct sg_wire_process *p)
{
    char name[24];
    if (p->how != SG_HOW_SIGNAL && (p->how != SG_HOW_TIMEOUT || !p->value))
        return json_null();
    const char *abbrev = p->value && p->value < 32 ? sigabbrev_np((int)p->value) : NULL;
    if (abbrev)
        (void)snprintf(name, sizeof name, "SIG%s", abbrev);
    else if (p->value >= 34 && p->value <= 64)
        (void)snprintf(name, sizeof name, "SIGRTMIN+%u", p->value - 34);
    else
        (void)snprintf(name, sizeof name, "SIG%u", p->value);
    return json_string(name);
}

json_t *frame_exit(const struct sg_wire_process *p)
{
    return json_pack("{s:s,s:o,s:o,s:b,s:b,s:b,s:o,s:o,s:o}", "type", "exit", "exit_code",
                     p->how == SG_HOW_EXIT ? json_integer(p->value) : json_null(), "signal", signal_json(p),
                     "timed_out", p->how == SG_HOW_TIMEOUT, "output_complete", !p->output_incomplete,
                     "descendants_hold_output", p->descendants_hold_output, "duration_ms",
                     number(p->duration_ms), "stdout_end", number(p->end[0]), "stderr_end",
                     number(p->end[1]));
}

json_t *frame_error(const struct sg_error *e)
{
    json_t *o = sg_problem_json(e, NULL, NULL);
    if (o && json_object_set_new(o, "type", json_string("error"))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *frame_keepalive(void)
{
    return json_pack("{s:s}", "type", "keepalive");
}

static enum frame_client classify(const json_t *type, struct sg_error *e)
{
    static const char *const later[] = {"resize", "signal", "stdin_close", "stdin", "data"};
    const char *name = json_string_value(type);
    if (!name) {
        sg_fail_field(e, SG_E_INVALID_FIELD, "/type", "must be a string");
        return FRAME_UNKNOWN;
    }
    if (!strcmp(name, "detach"))
        return FRAME_DETACH;
    if (!strcmp(name, "ack"))
        return FRAME_ACK;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (strcmp(name, later[i]) != 0)
            continue;
        sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "\"%s\" is not supported on this connection", name);
        return FRAME_UNSUPPORTED;
    }
    sg_fail_field(e, SG_E_INVALID_FIELD, "/type", "unknown message type");
    return FRAME_UNKNOWN;
}

enum frame_client frame_parse(const char *text, size_t len, struct sg_error *e)
{
    json_error_t je;
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    enum frame_client kind = json_is_object(o) ? classify(json_object_get(o, "type"), e) : FRAME_BAD_JSON;
    json_decref(o);
    return kind;
}
