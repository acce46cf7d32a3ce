#include "control/fields.h"

#include <string.h>

enum sg_code field_put(json_t *out, const char *key, json_t *value, struct sg_error *e)
{
    if (!json_object_set_new(out, key, value))
        return SG_OK;
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

bool field_is_name(const char *s, size_t max)
{
    size_t n = 0;
    for (; s[n]; n++) {
        char c = s[n];
        bool ok = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
                  c == '-';
        if (!ok || n >= max)
            return false;
    }
    return n > 0;
}

bool field_has_nul(const json_t *string)
{
    return strlen(json_string_value(string)) != json_string_length(string);
}

bool field_listed(const char *const list[], const char *s)
{
    for (size_t i = 0; list[i]; i++)
        if (!strcmp(list[i], s))
            return true;
    return false;
}
