#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum sg_code sg_json_parse_object(const char *data, size_t len, json_t **out, struct sg_error *e)
{
    *out = NULL;
    if (len == 0) {
        *out = json_object();
        return *out ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request body");
    }
    json_error_t je;
    json_t *v = json_loadb(data, len, JSON_REJECT_DUPLICATES, &je);
    if (!v)
        return sg_fail(e, SG_E_INVALID_JSON, SG_NOT_SENT, "line %d column %d: %s", je.line, je.column,
                       je.text);
    if (!json_is_object(v)) {
        json_decref(v);
        return sg_fail(e, SG_E_INVALID_JSON, SG_NOT_SENT, "the body must be a JSON object");
    }
    *out = v;
    return SG_OK;
}

void sg_json_pointer(char *out, size_t cap, const char *base, const char *key)
{
    size_t n = 0;
    for (const char *p = base; *p && n + 1 < cap; p++)
        out[n++] = *p;
    if (n + 1 < cap)
        out[n++] = '/';
    for (const char *p = key; *p && n + 2 < cap; p++) {
        if (*p == '~' || *p == '/') {
            out[n++] = '~';
            out[n++] = *p == '~' ? '0' : '1';
        } else {
            out[n++] = *p;
        }
    }
    out[n] = '\0';
}

enum sg_code sg_json_only(const json_t *obj, const char *base, const char *const allowed[],
                          struct sg_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)obj, key, value)
    {
        size_t i = 0;
        while (allowed[i] && strcmp(allowed[i], key) != 0)
            i++;
        if (!allowed[i]) {
            char ptr[128];
            sg_json_pointer(ptr, sizeof ptr, base, key);
            return sg_fail_field(e, SG_E_UNKNOWN_FIELD, ptr, "unknown field");
        }
    }
    return SG_OK;
}

static enum sg_code wrong_type(const char *base, const char *key, const char *want, struct sg_error *e)
{
    char ptr[128];
    sg_json_pointer(ptr, sizeof ptr, base, key);
    return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be %s", want);
}

enum sg_code sg_json_str(const json_t *obj, const char *base, const char *key, size_t max_len,
                         const char **out, struct sg_error *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!v)
        return SG_OK;
    if (!json_is_string(v))
        return wrong_type(base, key, "a string", e);
    if (json_string_length(v) > max_len) {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, base, key);
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "longer than %zu bytes", max_len);
    }
    *out = json_string_value(v);
    return SG_OK;
}

enum sg_code sg_json_int(const json_t *obj, const char *base, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct sg_error *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!v)
        return SG_OK;
    if (!json_is_integer(v))
        return wrong_type(base, key, "an integer", e);
    int64_t n = json_integer_value(v);
    if (n < min || n > max) {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, base, key);
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be from %lld to %lld", (long long)min,
                             (long long)max);
    }
    *out = n;
    return SG_OK;
}

enum sg_code sg_json_bool(const json_t *obj, const char *base, const char *key, bool *out, struct sg_error *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!v)
        return SG_OK;
    if (!json_is_boolean(v))
        return wrong_type(base, key, "true or false", e);
    *out = json_is_true(v);
    return SG_OK;
}

enum sg_code sg_json_object(const json_t *obj, const char *base, const char *key, json_t **out,
                            struct sg_error *e)
{
    json_t *v = json_object_get(obj, key);
    if (!v)
        return SG_OK;
    if (!json_is_object(v))
        return wrong_type(base, key, "an object", e);
    *out = v;
    return SG_OK;
}

enum sg_code sg_json_array(const json_t *obj, const char *base, const char *key, json_t **out,
                           struct sg_error *e)
{
    json_t *v = json_object_get(obj, key);
    if (!v)
        return SG_OK;
    if (!json_is_array(v))
        return wrong_type(base, key, "an array", e);
    *out = v;
    return SG_OK;
}

const char *sg_jget_str(const json_t *obj, const char *key, const char *dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_string(v) ? json_string_value(v) : dflt;
}

int64_t sg_jget_int(const json_t *obj, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(obj, key);
    if (json_is_integer(v))
        return json_integer_value(v);
    if (json_is_real(v)) {
        double d = json_real_value(v);
        if (d > -9e15 && d < 9e15) /* exactly representable, safe to convert */
            return (int64_t)d;
    }
    return dflt;
}

bool sg_jget_bool(const json_t *obj, const char *key, bool dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}
