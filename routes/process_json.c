#include "routes/process_json.h"

#include "base/clock.h"
#include "base/core/b64.h"
#include "base/signal_name.h"

#include <stdlib.h>

static json_t *u64(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *stream_json(const struct sg_wire_process *p, int stream)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "oldest", u64(p->oldest[stream]));
    bad |= json_object_set_new(o, "end", u64(p->end[stream]));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *streams_json(const struct sg_wire_process *p)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, p->terminal ? "pty" : "stdout", stream_json(p, 0));
    if (!p->terminal)
        bad |= json_object_set_new(o, "stderr", stream_json(p, 1));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *started_json(const struct sg_wire_process *p)
{
    if (!p->started_ms || p->started_ms > INT64_MAX / 2)
        return json_null();
    char text[SG_TIME_TEXT];
    sg_time_format((int64_t)p->started_ms, text);
    return json_string(text);
}

static bool output_complete(const struct sg_wire_process *p)
{
    return p->state == SG_PS_FINISHED && p->how != SG_HOW_NONE && !p->output_incomplete;
}

/* What ended it; null while it runs. */
static json_t *ended_by_json(const struct sg_wire_process *p)
{
    switch (p->how) {
    case SG_HOW_EXIT:
        return json_string("exit");
    case SG_HOW_SIGNAL:
        return json_string("signal");
    case SG_HOW_TIMEOUT:
        return json_string("timeout");
    case SG_HOW_SCOPE:
        return json_string("scope");
    case SG_HOW_UNKNOWN:
        return json_string("unknown");
    case SG_HOW_NONE:
    default:
        return json_null();
    }
}

static json_t *stdin_json(const struct sg_wire_process *p)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "open", json_boolean(p->takes_input));
    bad |= json_object_set_new(o, "accepted", u64(p->input));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *retention_json(const struct sg_wire_process *p)
{
    return json_pack("{ss}", "mode", p->lossless ? "lossless" : "ring");
}

/* What record and run have in common. */
static int set_common(json_t *o, const struct sg_wire_process *p, const char *session_id)
{
    /* A hello tells that it has ended, not how: never "finished" without that. */
    enum sg_wire_state state = p->state == SG_PS_FINISHED && p->how == SG_HOW_NONE ? SG_PS_RUNNING : p->state;
    char buf[SG_SIGNAL_TEXT];
    bool ended = p->how != SG_HOW_NONE;
    bool signalled =
        p->how == SG_HOW_SIGNAL || ((p->how == SG_HOW_TIMEOUT || p->how == SG_HOW_SCOPE) && p->value);
    int bad = json_object_set_new(o, "process_id", json_string(p->id));
    bad |= json_object_set_new(o, "session_id", json_string(session_id));
    bad |= json_object_set_new(o, "state", json_string(sg_wire_state_name(state)));
    bad |= json_object_set_new(o, "exit_code", p->how == SG_HOW_EXIT ? json_integer(p->value) : json_null());
    bad |= json_object_set_new(o, "signal",
                               signalled ? json_string(sg_signal_name(p->value, buf)) : json_null());
    bad |= json_object_set_new(o, "ended_by", ended_by_json(p));
    bad |= json_object_set_new(o, "timed_out", json_boolean(p->how == SG_HOW_TIMEOUT));
    bad |= json_object_set_new(o, "started_at", started_json(p));
    bad |= json_object_set_new(o, "duration_ms", ended ? u64(p->duration_ms) : json_null());
    bad |= json_object_set_new(o, "descendants_hold_output", json_boolean(p->descendants_hold_output));
    return bad;
}

json_t *process_json(const struct sg_wire_process *p, const char *session_id)
{
    json_t *o = json_object();
    int bad = set_common(o, p, session_id);
    bad |= json_object_set_new(o, "terminal", json_boolean(p->terminal));
    bad |= json_object_set_new(o, "stdin", stdin_json(p));
    bad |= json_object_set_new(o, "retention", retention_json(p));
    bad |= json_object_set_new(o, "paused", json_boolean(p->paused));
    bad |= json_object_set_new(o, "streams", streams_json(p));
    bad |= json_object_set_new(o, "output_complete", json_boolean(output_complete(p)));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *base64_json(const char *data, size_t len)
{
    char *text = malloc(SG_B64_LEN(len) + 1);
    if (!text)
        return NULL;
    size_t n = sg_b64_encode(text, data, len);
    json_t *s = json_stringn_nocheck(text, n);
    free(text);
    return s;
}

json_t *run_head_json(const struct run_result *r, const char *session_id, const char *encoding)
{
    json_t *o = json_object();
    int bad = set_common(o, &r->p, session_id);
    bad |= json_object_set_new(o, "encoding", json_string(encoding));
    bad |= json_object_set_new(o, "truncated", json_boolean(r->truncated));
    bad |= json_object_set_new(o, "output_complete", json_boolean(r->output_complete));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

json_t *run_json(const struct run_result *r, const char *session_id)
{
    /* jansson checks the UTF-8 while it copies */
    json_t *out[2] = {json_stringn(r->len[0] ? r->out[0] : "", r->len[0]),
                      json_stringn(r->len[1] ? r->out[1] : "", r->len[1])};
    const char *encoding = "utf-8";
    if (!out[0] || !out[1]) {
        encoding = "base64";
        for (int i = 0; i < 2; i++) {
            json_decref(out[i]);
            out[i] = base64_json(r->len[i] ? r->out[i] : "", r->len[i]);
        }
    }
    json_t *o = run_head_json(r, session_id, encoding);
    int bad = json_object_set_new(o, "stdout", out[0]);
    bad |= json_object_set_new(o, "stderr", out[1]);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}
