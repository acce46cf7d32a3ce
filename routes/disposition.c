#include "routes/disposition.h"

#include <jansson.h>
#include <string.h>

/* What a quoted string may hold, and no client reads as something else. */
static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '%' && c != '/';
}

static bool is_attr_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$&+-.^_`|~", c));
}

static bool is_utf8(const char *s, size_t len)
{
    json_t *text = json_stringn(s, len);
    json_decref(text);
    return text != NULL;
}

static const char *last_part(const char *path, size_t *len)
{
    while (*len && path[*len - 1] == '/')
        (*len)--;
    const char *slash = *len ? memrchr(path, '/', *len) : NULL;
    const char *name = slash ? slash + 1 : path;
    *len -= (size_t)(name - path);
    return name;
}

static bool is_none(const char *name, size_t len)
{
    return len == 0 || (len <= 2 && memcmp(name, "..", len) == 0);
}

void disposition_add(const char *kind, const char *path, size_t len, const char *ending,
                     const char *otherwise, struct sg_buf *out)
{
    bool plain = true;
    const char *name = last_part(path, &len);
    if (is_none(name, len)) {
        name = otherwise;
        len = strlen(otherwise);
    }
    (void)sg_buf_addf(out, "%s; filename=\"", kind);
    for (size_t i = 0; i < len; i++) {
        bool fine = is_plain((unsigned char)name[i]);
        plain = plain && fine;
        (void)sg_buf_add(out, fine ? name + i : "_", 1);
    }
    (void)sg_buf_addf(out, "%s\"", ending);
    if (plain || !is_utf8(name, len))
        return;
    (void)sg_buf_adds(out, "; filename*=UTF-8''");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        (void)(is_attr_char(c) ? sg_buf_add(out, name + i, 1) : sg_buf_addf(out, "%%%02X", c));
    }
    (void)sg_buf_adds(out, ending);
}

void disposition_format(const char *path, size_t len, const char *ending, const char *otherwise,
                        struct sg_buf *out)
{
    disposition_add("attachment", path, len, ending, otherwise, out);
}
