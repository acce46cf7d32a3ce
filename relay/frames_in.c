#include "relay/frames.h"

#include "base/core/b64.h"
#include "base/signal_name.h"
#include "relay/relay.h"

#include <stdlib.h>
#include <string.h>

#define OFFSET_MAX ((json_int_t)(INT64_MAX / 4))

bool frame_parse_head(const unsigned char *data, size_t len, uint64_t *offset)
{
    if (len < FRAME_HEAD || data[0] != 0)
        return false;
    *offset = 0;
    for (int i = 0; i < 8; i++)
        *offset = *offset << 8 | data[1 + i];
    return true;
}

static enum frame_client unknown(struct sg_error *e, const char *pointer, const char *why)
{
    sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "%s", why);
    return FRAME_UNKNOWN;
}

/* An offset that may be missing. */
static bool take_offset(const json_t *o, const char *key, bool *given, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    *given = v != NULL;
    if (!v)
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > OFFSET_MAX)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static enum frame_client parse_stdin(const json_t *o, bool json, struct frame_in *out, struct sg_error *e)
{
    bool given;
    const json_t *data = json_object_get(o, "data");
    if (!json)
        return unknown(e, "/type", "input goes into binary frames in this protocol");
    if (!take_offset(o, "offset", &given, &out->offset))
        return unknown(e, "/offset", "must be an offset");
    if (!json_is_string(data))
        return unknown(e, "/data", "must be base64");
    size_t n = json_string_length(data);
    if (n > SG_B64_LEN((size_t)FRAME_INPUT_MAX))
        return FRAME_TOO_LARGE;
    out->data = malloc(n + 1);
    if (!out->data)
        return FRAME_NO_MEMORY;
    ssize_t len = sg_b64_decode(out->data, json_string_value(data), n);
    if (len < 0)
        return unknown(e, "/data", "must be base64");
    out->len = (size_t)len;
    return out->len > FRAME_INPUT_MAX ? FRAME_TOO_LARGE : FRAME_STDIN;
}

static enum frame_client parse_close(const json_t *o, struct frame_in *out, struct sg_error *e)
{
    bool given;
    if (!take_offset(o, "offset", &given, &out->offset))
        return unknown(e, "/offset", "must be an offset");
    return FRAME_STDIN_CLOSE;
}

static bool take_side(const json_t *o, const char *key, unsigned *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > PROCESS_SIDE_MAX)
        return false;
    *out = (unsigned)json_integer_value(v);
    return true;
}

static enum frame_client parse_resize(const json_t *o, struct frame_in *out, struct sg_error *e)
{
    if (!take_side(o, "cols", &out->cols))
        return unknown(e, "/cols", "must be from 1 to 1000");
    if (!take_side(o, "rows", &out->rows))
        return unknown(e, "/rows", "must be from 1 to 1000");
    return FRAME_RESIZE;
}

static enum frame_client parse_signal(const json_t *o, struct frame_in *out, struct sg_error *e)
{
    const json_t *w = json_object_get(o, "whole");
    out->whole = !json_is_false(w);
    if (w && !json_is_boolean(w))
        return unknown(e, "/whole", "must be true or false");
    out->signal = sg_signal_number(json_object_get(o, "signal"));
    return out->signal ? FRAME_SIGNAL : unknown(e, "/signal", "must be a signal's name or number");
}

static enum frame_client parse_ack(const json_t *o, struct frame_in *out, struct sg_error *e)
{
    for (int s = 0; s < FRAME_STREAMS; s++) {
        if (take_offset(o, frame_stream_name((enum frame_stream)s), &out->acked[s], &out->received[s]))
            continue;
        sg_fail_field(e, SG_E_INVALID_FIELD, "/ack", "%s must be an offset",
                      frame_stream_name((enum frame_stream)s));
        return FRAME_UNKNOWN;
    }
    return FRAME_ACK;
}

static enum frame_client classify(const json_t *o, bool json, struct frame_in *out, struct sg_error *e)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    if (!type)
        return unknown(e, "/type", "must be a string");
    if (!strcmp(type, "stdin"))
        return parse_stdin(o, json, out, e);
    if (!strcmp(type, "ack"))
        return parse_ack(o, out, e);
    if (!strcmp(type, "resize"))
        return parse_resize(o, out, e);
    if (!strcmp(type, "signal"))
        return parse_signal(o, out, e);
    if (!strcmp(type, "stdin_close"))
        return parse_close(o, out, e);
    if (!strcmp(type, "detach"))
        return FRAME_DETACH;
    return unknown(e, "/type", "unknown message type");
}

void frame_parse(const char *text, size_t len, bool json, struct frame_in *out, struct sg_error *e)
{
    json_error_t je;
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    *out = (struct frame_in){.offset = UINT64_MAX};
    if (json_is_object(o))
        out->kind = classify(o, json, out, e);
    else if (!o && json_error_code(&je) == json_error_out_of_memory)
        out->kind = FRAME_NO_MEMORY;
    else
        out->kind = FRAME_BAD_JSON;
    json_decref(o);
}

void frame_clear(struct frame_in *in)
{
    free(in->data);
    in->data = NULL;
}
