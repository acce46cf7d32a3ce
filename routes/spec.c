#include "routes/spec.h"

#include "base/crypto.h"
#include "base/json.h"
#include "control/sandboxes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SIGNAL_MAX = 64, RT_MIN = 34 };

static const char *const run_fields[] = {"id",   "argv",       "shell",   "cwd",        "env", "env_mode",
                                         "sudo", "timeout_ms", "wait_ms", "max_output", NULL};
static const char *const process_fields[] = {"id",   "argv",       "shell", "cwd",       "env", "env_mode",
                                             "sudo", "timeout_ms", "stdin", "retention", NULL};
/* Fields of the API that this build cannot honour. */
static const char *const not_built[] = {"user", "pty", "lease", "on_disconnect", "resume", NULL};

static bool has_nul(const json_t *string)
{
    return strlen(json_string_value(string)) != json_string_length(string);
}

static enum sg_code refuse_unbuilt(const json_t *body, enum spec_form form, struct sg_error *e)
{
    for (size_t i = 0; not_built[i]; i++) {
        if (!json_object_get(body, not_built[i]))
            continue;
        char ptr[64];
        sg_json_pointer(ptr, sizeof ptr, "", not_built[i]);
        return sg_fail_field(e, SG_E_UNSUPPORTED, ptr, "this field is not supported");
    }
    if (form == SPEC_RUN && json_object_get(body, "stdin"))
        return sg_fail_field(e, SG_E_UNSUPPORTED, "/stdin", "input is not supported");
    return sg_json_only(body, "", form == SPEC_RUN ? run_fields : process_fields, e);
}

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
    memcpy(out->id, id, len + 1);
    return SG_OK;
}

static enum sg_code parse_shell(const json_t *body, struct spec *out, struct sg_error *e)
{
    const char *shell = NULL;
    enum sg_code rc = sg_json_str(body, "", "shell", SPEC_ARG_MAX, &shell, e);
    if (rc)
        return rc;
    if (!*shell || has_nul(json_object_get(body, "shell")))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/shell", "must be a non-empty command line without NUL");
    out->argv = calloc(4, sizeof *out->argv);
    if (!out->argv)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    out->argv[0] = "/bin/sh";
    out->argv[1] = "-c";
    out->argv[2] = shell;
    return SG_OK;
}

static enum sg_code parse_argv(const json_t *body, struct spec *out, struct sg_error *e)
{
    json_t *argv = NULL;
    enum sg_code rc = sg_json_array(body, "", "argv", &argv, e);
    if (rc)
        return rc;
    size_t n = json_array_size(argv);
    if (n < 1 || n > SPEC_ARGS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/argv", "1 to %d arguments", SPEC_ARGS_MAX);
    out->argv = calloc(n + 1, sizeof *out->argv);
    if (!out->argv)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(argv, i);
        char ptr[32];
        (void)snprintf(ptr, sizeof ptr, "/argv/%zu", i);
        if (!json_is_string(v) || has_nul(v) || json_string_length(v) > SPEC_ARG_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr,
                                 "must be a string of at most %d bytes without NUL", SPEC_ARG_MAX);
        out->argv[i] = json_string_value(v);
    }
    if (!*out->argv[0])
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/argv/0", "must name a program");
    return SG_OK;
}

static enum sg_code parse_program(const json_t *body, struct spec *out, struct sg_error *e)
{
    bool argv = json_object_get(body, "argv") != NULL, shell = json_object_get(body, "shell") != NULL;
    if (!argv && !shell)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/argv", "argv or shell is required");
    if (argv && shell)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/shell", "not together with argv");
    return argv ? parse_argv(body, out, e) : parse_shell(body, out, e);
}

static enum sg_code parse_surroundings(const json_t *body, struct spec *out, struct sg_error *e)
{
    const char *mode = "extend";
    enum sg_code rc = sg_json_str(body, "", "cwd", SPEC_PATH_MAX, &out->cwd, e);
    if (!rc && out->cwd && (!*out->cwd || has_nul(json_object_get(body, "cwd"))))
        rc = sg_fail_field(e, SG_E_INVALID_PATH, "/cwd", "must be a non-empty path without NUL");
    if (!rc)
        rc = sg_json_object(body, "", "env", &out->env, e);
    if (!rc && out->env)
        rc = control_env_check(out->env, "/env", e);
    if (!rc)
        rc = sg_json_str(body, "", "env_mode", 16, &mode, e);
    if (rc)
        return rc;
    if (strcmp(mode, "extend") != 0 && strcmp(mode, "replace") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/env_mode", "must be \"extend\" or \"replace\"");
    out->env_replace = !strcmp(mode, "replace");
    rc = sg_json_bool(body, "", "sudo", &out->sudo, e);
    if (!rc)
        rc = sg_json_int(body, "", "timeout_ms", 1, SPEC_TIMEOUT_MAX_MS, &out->timeout_ms, e);
    return rc;
}

static enum sg_code parse_run(const json_t *body, struct spec *out, struct sg_error *e)
{
    out->wait_ms = SPEC_WAIT_MAX_MS;
    out->max_output = SPEC_OUTPUT_DEFAULT;
    enum sg_code rc = sg_json_int(body, "", "wait_ms", 0, SPEC_WAIT_MAX_MS, &out->wait_ms, e);
    if (!rc)
        rc = sg_json_int(body, "", "max_output", 0, SPEC_OUTPUT_MAX, &out->max_output, e);
    return rc;
}

static enum sg_code parse_process(const json_t *body, struct spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"bytes", "mode", NULL};
    const char *in = "closed", *mode = "ring";
    json_t *retention = NULL;
    enum sg_code rc = sg_json_str(body, "", "stdin", 16, &in, e);
    if (!rc && strcmp(in, "closed") != 0)
        rc = sg_fail_field(e, SG_E_UNSUPPORTED, "/stdin", "only \"closed\" is supported");
    if (!rc)
        rc = sg_json_object(body, "", "retention", &retention, e);
    if (rc || !retention)
        return rc;
    rc = sg_json_only(retention, "/retention", fields, e);
    if (!rc)
        rc = sg_json_int(retention, "/retention", "bytes", SPEC_RETAIN_MIN, SPEC_RETAIN_MAX,
                         &out->retain_bytes, e);
    if (!rc)
        rc = sg_json_str(retention, "/retention", "mode", 16, &mode, e);
    if (!rc && strcmp(mode, "ring") != 0)
        rc = sg_fail_field(e, SG_E_UNSUPPORTED, "/retention/mode", "only \"ring\" is supported");
    return rc;
}

enum sg_code spec_parse(const json_t *body, enum spec_form form, struct spec *out, struct sg_error *e)
{
    memset(out, 0, sizeof *out);
    enum sg_code rc = refuse_unbuilt(body, form, e);
    if (!rc)
        rc = parse_id(body, out, e);
    if (!rc)
        rc = parse_program(body, out, e);
    if (!rc)
        rc = parse_surroundings(body, out, e);
    if (!rc)
        rc = form == SPEC_RUN ? parse_run(body, out, e) : parse_process(body, out, e);
    if (rc)
        spec_clear(out);
    return rc;
}

void spec_clear(struct spec *s)
{
    free(s->argv);
    s->argv = NULL;
}

const char *spec_signal_name(uint32_t number, char buf[SPEC_SIGNAL_TEXT])
{
    const char *abbrev = number && number < RT_MIN ? sigabbrev_np((int)number) : NULL;
    if (abbrev)
        (void)snprintf(buf, SPEC_SIGNAL_TEXT, "SIG%s", abbrev);
    else if (number >= RT_MIN && number <= SIGNAL_MAX)
        (void)snprintf(buf, SPEC_SIGNAL_TEXT, "SIGRTMIN+%u", number - RT_MIN);
    else
        (void)snprintf(buf, SPEC_SIGNAL_TEXT, "SIG%u", number);
    return buf;
}

enum sg_code spec_signal(const json_t *value, const char *pointer, int *out, struct sg_error *e)
{
    if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= SIGNAL_MAX) {
        *out = (int)json_integer_value(value);
        return SG_OK;
    }
    if (json_is_string(value)) {
        const char *want = json_string_value(value);
        if (!strncasecmp(want, "SIG", 3))
            want += 3;
        for (uint32_t n = 1; n <= SIGNAL_MAX; n++) {
            char buf[SPEC_SIGNAL_TEXT];
            if (n > SIGSYS && n < RT_MIN)
                continue;
            if (!strcasecmp(spec_signal_name(n, buf) + 3, want)) {
                *out = (int)n;
                return SG_OK;
            }
        }
    }
    return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "must be a signal's name or a number from 1 to %d",
                         SIGNAL_MAX);
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
