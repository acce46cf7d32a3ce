#include "control/program.h"

#include "base/json.h"
#include "control/sandboxes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTER_MAX = 96 };

static bool has_nul(const json_t *string)
{
    return strlen(json_string_value(string)) != json_string_length(string);
}

static enum sg_code wrong(struct sg_error *e, enum sg_code code, const char *base, const char *key,
                          const char *what)
{
    char ptr[POINTER_MAX];
    sg_json_pointer(ptr, sizeof ptr, base, key);
    return sg_fail_field(e, code, ptr, "%s", what);
}

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

static enum sg_code parse_shell(const json_t *obj, const char *base, struct program *out, struct sg_error *e)
{
    const char *shell = NULL;
    enum sg_code rc = sg_json_str(obj, base, "shell", PROGRAM_ARG_MAX, &shell, e);
    if (rc)
        return rc;
    if (!*shell || has_nul(json_object_get(obj, "shell")))
        return wrong(e, SG_E_INVALID_FIELD, base, "shell", "must be a non-empty command line without NUL");
    out->argv = calloc(4, sizeof *out->argv);
    if (!out->argv)
        return no_memory(e);
    out->argv[0] = "/bin/sh";
    out->argv[1] = "-c";
    out->argv[2] = shell;
    return SG_OK;
}

static enum sg_code parse_argv(const json_t *obj, const char *base, struct program *out, struct sg_error *e)
{
    json_t *argv = NULL;
    enum sg_code rc = sg_json_array(obj, base, "argv", &argv, e);
    if (rc)
        return rc;
    char ptr[POINTER_MAX];
    sg_json_pointer(ptr, sizeof ptr, base, "argv");
    size_t n = json_array_size(argv);
    if (n < 1 || n > PROGRAM_ARGS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "1 to %d arguments", PROGRAM_ARGS_MAX);
    out->argv = calloc(n + 1, sizeof *out->argv);
    if (!out->argv)
        return no_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(argv, i);
        char one[POINTER_MAX + 24];
        (void)snprintf(one, sizeof one, "%s/%zu", ptr, i);
        if (!json_is_string(v) || has_nul(v) || json_string_length(v) > PROGRAM_ARG_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, one,
                                 "must be a string of at most %d bytes without NUL", PROGRAM_ARG_MAX);
        out->argv[i] = json_string_value(v);
    }
    if (!*out->argv[0])
        return wrong(e, SG_E_INVALID_FIELD, ptr, "0", "must name a program");
    return SG_OK;
}

static enum sg_code parse_what(const json_t *obj, const char *base, struct program *out, struct sg_error *e)
{
    bool argv = json_object_get(obj, "argv") != NULL, shell = json_object_get(obj, "shell") != NULL;
    if (!argv && !shell)
        return wrong(e, SG_E_INVALID_FIELD, base, "argv", "argv or shell is required");
    if (argv && shell)
        return wrong(e, SG_E_INVALID_FIELD, base, "shell", "not together with argv");
    return argv ? parse_argv(obj, base, out, e) : parse_shell(obj, base, out, e);
}

/* [A-Za-z0-9][A-Za-z0-9._-]*: what the sandbox may be asked about. */
static bool user_valid(const char *user, size_t len)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return len > 0 && len <= PROGRAM_USER_MAX && strspn(user, letters) == len && !strchr("._-", user[0]);
}

/* Programs run as the sandbox's default user, whose name only the sandbox knows, or as root. */
static enum sg_code parse_user(const json_t *obj, const char *base, struct program *out, struct sg_error *e)
{
    const char *user = NULL;
    bool given = json_object_get(obj, "sudo") != NULL;
    enum sg_code rc = sg_json_bool(obj, base, "sudo", &out->sudo, e);
    if (!rc)
        rc = sg_json_str(obj, base, "user", PROGRAM_USER_MAX, &user, e);
    if (rc || !user)
        return rc;
    bool root = !strcmp(user, "root");
    if (!user_valid(user, json_string_length(json_object_get(obj, "user"))))
        return wrong(e, SG_E_INVALID_FIELD, base, "user", "must be a user's name");
    if (given && out->sudo != root)
        return wrong(e, SG_E_INVALID_FIELD, base, "user", "contradicts sudo");
    out->sudo = root;
    out->user = root ? NULL : user;
    return SG_OK;
}

static enum sg_code parse_env(const json_t *obj, const char *base, struct program *out, struct sg_error *e)
{
    const char *mode = "extend";
    char ptr[POINTER_MAX];
    sg_json_pointer(ptr, sizeof ptr, base, "env");
    enum sg_code rc = sg_json_object(obj, base, "env", &out->env, e);
    if (!rc && out->env)
        rc = control_env_check(out->env, ptr, e);
    if (!rc)
        rc = sg_json_str(obj, base, "env_mode", 16, &mode, e);
    if (rc)
        return rc;
    if (strcmp(mode, "extend") != 0 && strcmp(mode, "replace") != 0)
        return wrong(e, SG_E_INVALID_FIELD, base, "env_mode", "must be \"extend\" or \"replace\"");
    out->env_replace = !strcmp(mode, "replace");
    return SG_OK;
}

enum sg_code program_parse(const json_t *obj, const char *base, struct program *out, struct sg_error *e)
{
    *out = (struct program){0};
    enum sg_code rc = parse_what(obj, base, out, e);
    if (!rc)
        rc = sg_json_str(obj, base, "cwd", PROGRAM_PATH_MAX, &out->cwd, e);
    if (!rc && out->cwd && (!*out->cwd || has_nul(json_object_get(obj, "cwd"))))
        rc = wrong(e, SG_E_INVALID_PATH, base, "cwd", "must be a non-empty path without NUL");
    if (!rc)
        rc = parse_env(obj, base, out, e);
    if (!rc)
        rc = parse_user(obj, base, out, e);
    if (!rc)
        rc = sg_json_int(obj, base, "timeout_ms", 1, PROGRAM_TIMEOUT_MAX_MS, &out->timeout_ms, e);
    return rc;
}

void program_clear(struct program *p)
{
    free(p->argv);
    *p = (struct program){0};
}
