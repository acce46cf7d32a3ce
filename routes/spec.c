#include "routes/spec.h"

#include "base/core/b64.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/signal_name.h"
#include "control/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETAINED_ANYWAY = 8 * 1024 * 1024 };

static const char *const run_fields[] = {"id",       "argv",       "shell", "cwd",    "env",
                                         "env_mode", "sudo",       "user",  "resume", "timeout_ms",
                                         "wait_ms",  "max_output", "stdin", NULL};
static const char *const process_fields[] = {
    "id",     "argv",       "shell", "cwd", "env",       "env_mode", "sudo",          "user",
    "resume", "timeout_ms", "stdin", "pty", "retention", "lease",    "on_disconnect", NULL};

static enum sg_code parse_id(const json_t *body, struct spec *out, struct sg_error *e)
{
    const char *id = NULL;
    enum sg_code rc = sg_json_str(body, "", "id", 1024, &id, e);
    if (rc)
        return rc;
    if (!id) {
        if (!sg_random_id(out->id, "p_", 20))
            return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for an id");
        return SG_OK;
    }
    size_t len = json_string_length(json_object_get(body, "id"));
    if (len > SG_WIRE_ID_MAX || !sg_wire_id_valid(id, len))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/id",
                             "1 to %d letters, digits, '.', '_' or '-', beginning with a letter or digit",
                             SG_WIRE_ID_MAX);
    if (sg_wire_id_own(id))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/id",
                             "ids that begin with \"" SG_WIRE_OWN "\" are not for programs");
    memcpy(out->id, id, len + 1);
    return SG_OK;
}

static enum sg_code parse_program(const json_t *body, struct spec *out, struct sg_error *e)
{
    struct program p;
    enum sg_code rc = program_parse(body, "", &p, e);
    out->argv = p.argv;
    out->cwd = p.cwd;
    out->env = p.env;
    out->env_replace = p.env_replace;
    out->sudo = p.sudo;
    out->user = p.user;
    out->timeout_ms = p.timeout_ms;
    return rc ? rc : sg_json_bool(body, "", "resume", &out->resume, e);
}

/* A string, or {"base64": ...}. */
static enum sg_code parse_input(const json_t *body, struct spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"base64", NULL};
    const json_t *in = json_object_get(body, "stdin");
    const char *text = NULL;
    if (!in)
        return SG_OK;
    if (json_is_string(in)) {
        out->input = json_string_value(in);
        out->input_len = json_string_length(in);
    } else if (json_is_object(in)) {
        enum sg_code rc = sg_json_only(in, "/stdin", fields, e);
        if (!rc)
            rc = sg_json_str(in, "/stdin", "base64", SIZE_MAX, &text, e);
        if (rc)
            return rc;
        size_t len = text ? strlen(text) : 0;
        if (!text)
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin", "must be a string or {\"base64\": ...}");
        out->decoded = malloc(len / 4 * 3 + 1);
        if (!out->decoded)
            return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ssize_t n = sg_b64_decode(out->decoded, text, len);
        if (n < 0)
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin/base64", "must be base64 with its padding");
        out->input = out->decoded;
        out->input_len = (size_t)n;
    } else {
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin", "must be a string or {\"base64\": ...}");
    }
    if (out->input_len > PROCESS_INPUT_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin",
                             "at most %d bytes; start a process and send more to its stdin",
                             PROCESS_INPUT_MAX);
    return SG_OK;
}

static enum sg_code parse_run(const json_t *body, struct spec *out, struct sg_error *e)
{
    out->wait_ms = SPEC_WAIT_MAX_MS;
    out->max_output = -1;
    enum sg_code rc = sg_json_int(body, "", "wait_ms", 0, SPEC_WAIT_MAX_MS, &out->wait_ms, e);
    if (!rc)
        rc = sg_json_int(body, "", "max_output", 0, SPEC_OUTPUT_MAX, &out->max_output, e);
    if (!rc)
        rc = parse_input(body, out, e);
    return rc;
}

enum sg_code spec_size(const json_t *obj, const char *base, unsigned *cols, unsigned *rows,
                       struct sg_error *e)
{
    static const char *const fields[] = {"cols", "rows", NULL};
    int64_t n[2] = {0, 0};
    enum sg_code rc = sg_json_only(obj, base, fields, e);
    for (int i = 0; i < 2 && !rc; i++) {
        rc = sg_json_int(obj, base, fields[i], 1, PROCESS_SIDE_MAX, &n[i], e);
        if (!rc && !n[i]) {
            char ptr[64];
            sg_json_pointer(ptr, sizeof ptr, base, fields[i]);
            rc = sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "required, from 1 to %d", PROCESS_SIDE_MAX);
        }
    }
    *cols = (unsigned)n[0];
    *rows = (unsigned)n[1];
    return rc;
}

static enum sg_code parse_terminal(const json_t *body, struct spec *out, struct sg_error *e)
{
    const char *in = NULL;
    json_t *pty = NULL;
    enum sg_code rc = sg_json_object(body, "", "pty", &pty, e);
    if (!rc && pty)
        rc = spec_size(pty, "/pty", &out->cols, &out->rows, e);
    if (!rc)
        rc = sg_json_str(body, "", "stdin", 16, &in, e);
    if (rc)
        return rc;
    if (in && strcmp(in, "closed") != 0 && strcmp(in, "open") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin", "must be \"closed\" or \"open\"");
    if (in && pty && strcmp(in, "open") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin", "the input of a terminal is open");
    out->input_open = pty || (in && !strcmp(in, "open"));
    return SG_OK;
}

/* A terminal has a type, also where the caller does not name it. */
static enum sg_code name_terminal(struct spec *out, struct sg_error *e)
{
    if (!out->cols || json_object_get(out->env, "TERM"))
        return SG_OK;
    out->own_env = out->env ? json_copy(out->env) : json_object();
    if (json_object_set_new(out->own_env, "TERM", json_string("xterm-256color")))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    out->env = out->own_env;
    return SG_OK;
}

static enum sg_code parse_retention(const json_t *body, struct spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"bytes", "mode", NULL};
    const char *mode = "ring";
    json_t *retention = NULL;
    enum sg_code rc = sg_json_object(body, "", "retention", &retention, e);
    if (rc || !retention)
        return rc;
    rc = sg_json_only(retention, "/retention", fields, e);
    if (!rc)
        rc = sg_json_int(retention, "/retention", "bytes", SPEC_RETAIN_MIN, SPEC_RETAIN_MAX,
                         &out->retain_bytes, e);
    if (!rc)
        rc = sg_json_str(retention, "/retention", "mode", 16, &mode, e);
    if (rc)
        return rc;
    if (strcmp(mode, "ring") != 0 && strcmp(mode, "lossless") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/retention/mode", "must be \"ring\" or \"lossless\"");
    out->lossless = !strcmp(mode, "lossless");
    return SG_OK;
}

/* An object with one member, which must be there. */
static enum sg_code one_number(const json_t *value, const char *pointer, const char *name, int64_t min,
                               int64_t *out, struct sg_error *e)
{
    const char *const fields[] = {name, NULL};
    if (!json_is_object(value))
        return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "must be an object");
    enum sg_code rc = sg_json_only(value, pointer, fields, e);
    if (!rc && !json_object_get(value, name)) {
        char ptr[64];
        sg_json_pointer(ptr, sizeof ptr, pointer, name);
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "required");
    }
    if (!rc)
        rc = sg_json_int(value, pointer, name, min, SPEC_LEASE_MAX_MS, out, e);
    return rc;
}

enum sg_code spec_lease(const json_t *value, const char *pointer, int64_t *ttl_ms, struct sg_error *e)
{
    return one_number(value, pointer, "ttl_ms", SPEC_LEASE_MIN_MS, ttl_ms, e);
}

enum sg_code spec_on_disconnect(const json_t *value, const char *pointer, int64_t *ms, struct sg_error *e)
{
    *ms = 0;
    if (json_is_string(value)) {
        if (strcmp(json_string_value(value), "keep") != 0)
            return sg_fail_field(e, SG_E_INVALID_FIELD, pointer,
                                 "must be \"keep\" or {\"kill_after_ms\": ...}");
        return SG_OK;
    }
    enum sg_code rc = one_number(value, pointer, "kill_after_ms", 0, ms, e);
    if (!rc && *ms < SPEC_LEFT_MIN_MS)
        *ms = SPEC_LEFT_MIN_MS;
    return rc;
}

static enum sg_code parse_process(const json_t *body, struct spec *out, struct sg_error *e)
{
    const json_t *lease = json_object_get(body, "lease"), *left = json_object_get(body, "on_disconnect");
    enum sg_code rc = parse_terminal(body, out, e);
    if (!rc)
        rc = name_terminal(out, e);
    if (!rc)
        rc = parse_retention(body, out, e);
    if (!rc && lease)
        rc = spec_lease(lease, "/lease", &out->lease_ms, e);
    if (!rc && left)
        rc = spec_on_disconnect(left, "/on_disconnect", &out->unattended_ms, e);
    return rc;
}

enum sg_code spec_parse(const json_t *body, enum spec_form form, struct spec *out, struct sg_error *e)
{
    memset(out, 0, sizeof *out);
    enum sg_code rc = sg_json_only(body, "", form == SPEC_RUN ? run_fields : process_fields, e);
    if (!rc)
        rc = parse_id(body, out, e);
    if (!rc)
        rc = parse_program(body, out, e);
    if (!rc)
        rc = form == SPEC_RUN ? parse_run(body, out, e) : parse_process(body, out, e);
    if (rc)
        spec_clear(out);
    return rc;
}

void spec_clear(struct spec *s)
{
    free(s->argv);
    free(s->decoded);
    json_decref(s->own_env);
    s->own_env = NULL;
    s->env = NULL;
    s->argv = NULL;
    s->decoded = NULL;
    s->input = NULL;
}

void spec_set_defaults(struct spec *s, enum spec_form form, int64_t retain_bytes, int64_t run_max_output)
{
    if (!s->retain_bytes)
        s->retain_bytes = retain_bytes;
    if (form != SPEC_RUN)
        return;
    if (s->max_output < 0)
        s->max_output = run_max_output ? run_max_output : SPEC_OUTPUT_DEFAULT;
    /* the ring drops whole segments of an eighth: leave room for that */
    int64_t needed = s->max_output + s->max_output / 4;
    if (needed > RETAINED_ANYWAY && needed > s->retain_bytes)
        s->retain_bytes = needed;
}

struct process_spec spec_for_relay(const struct spec *s, struct relay_session session)
{
    return (struct process_spec){
        .session = session,
        .id = s->id,
        .argv = s->argv,
        .cwd = s->cwd,
        .env = s->env,
        .env_replace = s->env_replace,
        .sudo = s->sudo,
        .user = s->user,
        .timeout_ms = s->timeout_ms,
        .retain_bytes = s->retain_bytes,
        .lossless = s->lossless,
        .cols = s->cols,
        .rows = s->rows,
        .input_open = s->input_open,
        .input = s->input,
        .input_len = s->input_len,
        .lease_ms = s->lease_ms,
        .unattended_ms = s->unattended_ms,
    };
}

enum sg_code spec_signal(const json_t *value, const char *pointer, int *out, struct sg_error *e)
{
    *out = sg_signal_number(value);
    if (*out)
        return SG_OK;
    return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "must be a signal's name or a number from 1 to %d",
                         SG_SIGNAL_MAX);
}

enum sg_code spec_path(const char *path, size_t len, struct sg_error *e)
{
    if (!path)
        return sg_fail_field(e, SG_E_INVALID_PATH, "?path", "required");
    if (!len)
        return sg_fail_field(e, SG_E_INVALID_PATH, "?path", "must not be empty");
    if (memchr(path, '\0', len))
        return sg_fail_field(e, SG_E_INVALID_PATH, "?path", "must not hold NUL");
    if (len > SPEC_PATH_MAX)
        return sg_fail_field(e, SG_E_INVALID_PATH, "?path", "longer than %d bytes", SPEC_PATH_MAX);
    return SG_OK;
}

enum sg_code spec_mode(const char *text, int *out, struct sg_error *e)
{
    size_t len = strlen(text);
    int mode = 0;
    for (size_t i = 0; i < len && len <= 5; i++) {
        if (text[i] < '0' || text[i] > '7')
            len = 0;
        else
            mode = mode * 8 + (text[i] - '0');
    }
    if (len < 1 || len > 5 || mode > 07777)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?mode", "must be octal, at most 7777");
    *out = mode;
    return SG_OK;
}
