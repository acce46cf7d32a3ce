#include "control/fields.h"

#include "base/json.h"
#include "control/sandboxes.h"
#include "control/tags.h"

#include <stdio.h>
#include <string.h>

enum { ENV_NAME_MAX = 256, ENV_VALUE_MAX = 131000 };

static enum sg_code check_port(const json_t *ports, size_t i, struct sg_error *e)
{
    const json_t *v = json_array_get(ports, i);
    json_int_t port = json_is_integer(v) ? json_integer_value(v) : -1;
    char ptr[32];
    (void)snprintf(ptr, sizeof ptr, "/ports/%zu", i);
    if (port < FIELD_PORT_MIN || port > 65535)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be an integer from %d to 65535",
                             FIELD_PORT_MIN);
    if (port == FIELD_PORT_RESERVED)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "port %d is reserved", FIELD_PORT_RESERVED);
    for (size_t k = 0; k < i; k++)
        if (json_integer_value(json_array_get(ports, k)) == port)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "listed twice");
    return SG_OK;
}

enum sg_code field_ports(const json_t *body, json_t *out, struct sg_error *e)
{
    json_t *ports = NULL;
    enum sg_code rc = sg_json_array(body, "", "ports", &ports, e);
    if (rc || !ports)
        return rc;
    if (json_array_size(ports) > FIELD_PORTS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/ports", "at most %d ports", FIELD_PORTS_MAX);
    for (size_t i = 0; i < json_array_size(ports) && !rc; i++)
        rc = check_port(ports, i, e);
    return rc ? rc : field_put(out, "ports", json_incref(ports), e);
}

enum sg_code control_env_check(const json_t *env, const char *base, struct sg_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)env, key, value)
    {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, base, key);
        size_t n = 0;
        while (key[n] == '_' || (key[n] >= 'A' && key[n] <= 'Z') || (key[n] >= 'a' && key[n] <= 'z') ||
               (n && key[n] >= '0' && key[n] <= '9'))
            n++;
        if (!n || key[n] || n > ENV_NAME_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr,
                                 "a variable's name is a letter or '_', then letters, digits, '_'");
        if (!json_is_string(value))
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a string");
        if (field_has_nul(value) || json_string_length(value) > ENV_VALUE_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "at most %d bytes and no NUL", ENV_VALUE_MAX);
    }
    return SG_OK;
}

enum sg_code field_env(const json_t *body, json_t *out, struct sg_error *e)
{
    json_t *env = NULL;
    enum sg_code rc = sg_json_object(body, "", "env", &env, e);
    if (!rc && env)
        rc = control_env_check(env, "/env", e);
    return rc || !env ? rc : field_put(out, "env", json_incref(env), e);
}

enum sg_code field_tags(const json_t *body, json_t *out, struct sg_error *e)
{
    json_t *tags = NULL;
    enum sg_code rc = sg_json_object(body, "", "tags", &tags, e);
    if (!rc && tags)
        rc = control_tags_check(tags, "/tags", e);
    return rc || !tags ? rc : field_put(out, "tags", json_copy(tags), e);
}

/* ---- paths ---- */

/* Absolute, no empty, "." or ".." part, no slash at its end. */
static bool is_clean(const char *path)
{
    if (path[0] != '/' || strlen(path) >= FIELD_PATH_MAX)
        return false;
    if (!path[1])
        return true;
    for (const char *p = path; *p;) {
        const char *part = p + 1; /* *p is a slash */
        size_t n = strcspn(part, "/");
        if (!n || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        p = part + n;
    }
    return true;
}

enum sg_code field_working_directory(const json_t *body, const char **out, struct sg_error *e)
{
    const char *path = NULL;
    enum sg_code rc = sg_json_str(body, "", "working_directory", FIELD_PATH_MAX - 1, &path, e);
    if (rc || !path)
        return rc;
    if (field_has_nul(json_object_get(body, "working_directory")) || !is_clean(path))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/working_directory",
                             "must be an absolute path without \".\", \"..\", double slashes, a slash at its "
                             "end or NUL");
    *out = path;
    return SG_OK;
}

/* ---- mounts ---- */

/* Whether one is the other or lies inside it. */
static bool overlap(const char *a, const char *b)
{
    size_t n = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    const char *longer = strlen(a) < strlen(b) ? b : a;
    return !strncmp(a, b, n) && (longer[n] == '\0' || longer[n] == '/');
}

static enum sg_code check_mount_path(const json_t *mounts, const char *path, const char *ptr,
                                     struct sg_error *e)
{
    if (!is_clean(path) || !path[1])
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr,
                             "a mount's path is absolute and clean, and not \"/\"");
    const char *other;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)mounts, other, value)
    {
        (void)value;
        if (strcmp(other, path) != 0 && overlap(other, path))
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "overlaps with another mount");
    }
    return SG_OK;
}

/* *out: {drive, mode}, a new reference. */
static enum sg_code read_mount(const json_t *value, const char *ptr, json_t **out, struct sg_error *e)
{
    static const char *const fields[] = {"drive", "mode", NULL};
    const char *drive = json_string_value(value), *mode = "read-write";
    enum sg_code rc = SG_OK;
    if (!drive) {
        if (!json_is_object(value))
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a drive's name, or {drive, mode}");
        rc = sg_json_only(value, ptr, fields, e);
        if (!rc)
            rc = sg_json_str(value, ptr, "drive", 256, &drive, e);
        if (!rc)
            rc = sg_json_str(value, ptr, "mode", 32, &mode, e);
    }
    char at[128];
    sg_json_pointer(at, sizeof at, ptr, "drive");
    const json_t *text = json_is_object(value) ? json_object_get(value, "drive") : value;
    if (!rc && (!drive || field_has_nul(text) || !field_is_name(drive, FIELD_DRIVE_NAME_MAX)))
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, json_is_object(value) ? at : ptr,
                           "a drive's name is 1 to %d letters, digits, '_' or '-'", FIELD_DRIVE_NAME_MAX);
    sg_json_pointer(at, sizeof at, ptr, "mode");
    if (!rc && strcmp(mode, "read-write") != 0 && strcmp(mode, "snapshot") != 0)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, at, "must be \"read-write\" or \"snapshot\"");
    if (rc)
        return rc;
    *out = json_pack("{ssss}", "drive", drive, "mode", mode);
    return *out ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

enum sg_code field_mounts(const json_t *body, json_t *out, struct sg_error *e)
{
    json_t *mounts = NULL;
    enum sg_code rc = sg_json_object(body, "", "mounts", &mounts, e);
    if (rc || !mounts)
        return rc;
    if (json_object_size(mounts) > FIELD_MOUNTS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/mounts", "at most %d mounts", FIELD_MOUNTS_MAX);
    json_t *all = json_object();
    const char *path;
    json_t *value;
    json_object_foreach(mounts, path, value)
    {
        char ptr[128];
        json_t *one = NULL;
        sg_json_pointer(ptr, sizeof ptr, "/mounts", path);
        rc = check_mount_path(mounts, path, ptr, e);
        if (!rc)
            rc = read_mount(value, ptr, &one, e);
        if (!rc)
            rc = field_put(all, path, one, e);
        if (rc)
            break;
    }
    if (rc) {
        json_decref(all);
        return rc;
    }
    return field_put(out, "mounts", all, e);
}
