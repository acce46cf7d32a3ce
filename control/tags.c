#include "control/tags.h"

#include "base/json.h"

#include <string.h>

bool control_tag_reserved(const char *key)
{
    return !strncmp(key, CONTROL_TAG_RESERVED, sizeof CONTROL_TAG_RESERVED - 1);
}

/* Characters of valid UTF-8. */
static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static enum sg_code check_tag(const char *key, const json_t *value, const char *ptr, struct sg_error *e)
{
    if (!*key || strlen(key) > CONTROL_TAG_KEY_MAX || strchr(key, ':'))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "a tag's key is 1 to %d bytes without ':'",
                             CONTROL_TAG_KEY_MAX);
    if (control_tag_reserved(key))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "tags beginning with \"%s\" are the gateway's",
                             CONTROL_TAG_RESERVED);
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value) ||
        characters(json_string_value(value)) > CONTROL_TAG_VALUE_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a string of at most %d characters",
                             CONTROL_TAG_VALUE_MAX);
    return SG_OK;
}

enum sg_code control_tags_check(const json_t *tags, const char *base, struct sg_error *e)
{
    if (json_object_size(tags) > CONTROL_TAGS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, base, "at most %d tags", CONTROL_TAGS_MAX);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)tags, key, value)
    {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, base, key);
        enum sg_code rc = check_tag(key, value, ptr, e);
        if (rc)
            return rc;
    }
    return SG_OK;
}

static enum sg_code set(json_t *tags, const char *key, const char *value, struct sg_error *e)
{
    if (!value || !json_object_set_new(tags, key, json_string(value)))
        return SG_OK;
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

enum sg_code control_tags_add(json_t *tags, const char *owner, const char *alloc, struct sg_error *e)
{
    enum sg_code rc = set(tags, CONTROL_TAG_OWNER, owner, e);
    return rc ? rc : set(tags, CONTROL_TAG_ALLOC, alloc, e);
}

enum sg_code control_tags_keep(json_t *tags, const struct vercel_sandbox *s, struct sg_error *e)
{
    return control_tags_add(tags, control_tag_of(s, CONTROL_TAG_OWNER), control_tag_of(s, CONTROL_TAG_ALLOC),
                            e);
}

const char *control_tag_of(const struct vercel_sandbox *s, const char *key)
{
    return sg_jn_str(s->tags, key, NULL);
}

bool control_is_alloc(const struct vercel_sandbox *s, const char *alloc)
{
    const char *has = control_tag_of(s, CONTROL_TAG_ALLOC);
    return has && !strcmp(has, alloc);
}
