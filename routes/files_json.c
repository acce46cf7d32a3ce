#include "routes/files.h"

#include "base/core/b64.h"
#include "base/json_write.h"
#include "base/ws_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINK_MAX = 16384 };
#define NS_PER_S INT64_C(1000000000)

void files_time_format(int64_t ns, char out[FILES_TIME_TEXT])
{
    int64_t s = ns / NS_PER_S, rest = ns % NS_PER_S;
    if (rest < 0) {
        rest += NS_PER_S;
        s--;
    }
    time_t t = (time_t)s; /* an int64_t of nanoseconds stays within the years 1677 to 2262 */
    struct tm tm;
    if (!gmtime_r(&t, &tm))
        memset(&tm, 0, sizeof tm);
    (void)snprintf(out, FILES_TIME_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d.%09dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)rest);
}

static void put_base64(struct sg_buf *out, const char *data, size_t len)
{
    char *at = sg_buf_reserve(out, SG_B64_LEN(len) + 2);
    if (!at)
        return;
    *at = '"';
    size_t n = sg_b64_encode(at + 1, data, len);
    at[n + 1] = '"';
    at[n + 2] = '\0';
    out->len += n + 2;
}

void files_put_bytes(struct sg_buf *out, const char *key, const char *data, size_t len)
{
    char other[64];
    if (!memchr(data, '\0', len) && ws_codec_utf8(data, len)) {
        sg_jw_key(out, key);
        sg_jw_text(out, data);
        return;
    }
    (void)snprintf(other, sizeof other, "%s_b64", key);
    sg_jw_key(out, other);
    put_base64(out, data, len);
}

static const char *type_name(char type)
{
    static const char *const names[] = {"file",   "directory",        "symlink",     "fifo",
                                        "socket", "character_device", "block_device"};
    const char *at = type ? strchr(SG_WIRE_TYPES, type) : NULL;
    return names[at ? at - SG_WIRE_TYPES : 0];
}

static void put_number(struct sg_buf *out, const char *key, uint64_t n)
{
    sg_jw_key(out, key);
    sg_jw_int(out, n > INT64_MAX ? INT64_MAX : (int64_t)n);
}

static void put_text(struct sg_buf *out, const char *key, const char *text)
{
    sg_jw_key(out, key);
    sg_jw_text(out, text);
}

void files_put_file(struct sg_buf *out, const struct fs_answer *a, const struct fs_item *item)
{
    const struct sg_wire_file *f = &item->file;
    char text[FILES_TIME_TEXT];
    (void)sg_buf_adds(out, "{");
    files_put_bytes(out, "name", a->bytes + item->name, item->name_len);
    put_text(out, "type", type_name(f->type));
    (void)snprintf(text, sizeof text, "%04o", f->mode);
    put_text(out, "mode", text);
    put_number(out, "uid", f->uid);
    put_number(out, "gid", f->gid);
    put_number(out, "size", f->size);
    put_number(out, "links", f->nlink);
    files_time_format(f->mtime_ns, text);
    put_text(out, "modified_at", text);
    files_time_format(f->ctime_ns, text);
    put_text(out, "changed_at", text);
    if (item->data_len)
        files_put_bytes(out, "target", a->bytes + item->data, item->data_len);
    (void)sg_buf_adds(out, "}");
}

/* ---- cursors: base64 in the alphabet of URLs, unpadded ---- */

static void cursor_text(struct sg_buf *b, const char *data, size_t len)
{
    char *at = sg_buf_reserve(b, SG_B64_LEN(len));
    if (!at)
        return;
    size_t n = sg_b64_encode(at, data, len);
    while (n && at[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++)
        at[i] = at[i] == '+' ? '-' : at[i] == '/' ? '_' : at[i];
    at[n] = '\0';
    b->len += n;
}

bool files_cursor_parse(const char *text, size_t n, char *out, size_t *len)
{
    char copy[FILES_CURSOR_MAX + 4];
    if (n == 0 || n > FILES_CURSOR_MAX || n % 4 == 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '+' || text[i] == '/' || text[i] == '=')
            return false;
        copy[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    }
    while (n % 4)
        copy[n++] = '=';
    ssize_t got = sg_b64_decode(copy, copy, n);
    if (got <= 0 || memchr(copy, '\0', (size_t)got))
        return false;
    memcpy(out, copy, (size_t)got);
    *len = (size_t)got;
    return true;
}

static void add_query(struct sg_buf *b, struct exchange *ex, const char *name)
{
    size_t len = 0;
    const char *value = ex_query(ex, name, &len);
    if (!value || len != strlen(value))
        return;
    (void)sg_buf_addf(b, "%c%s=", b->data && strchr(b->data, '?') ? '&' : '?', name);
    (void)sg_buf_add_urlenc(b, value);
}

static const char *last_segment(const struct files_op *op)
{
    return strcmp(op->op, "list") == 0 ? "" : op->op;
}

static void set_link(struct files_call *f, const char *cursor)
{
    struct exchange *ex = f->act.ex;
    const char *segment = last_segment(f->op);
    struct sg_buf b;
    sg_buf_init(&b, LINK_MAX);
    (void)sg_buf_adds(&b, "</v1/sandboxes/");
    (void)sg_buf_add_urlenc(&b, ex->params[0]);
    (void)sg_buf_addf(&b, "/files%s%s", *segment ? "/" : "", segment);
    for (const struct files_field *field = f->op->fields; field->name; field++) {
        char other[64];
        (void)snprintf(other, sizeof other, "%s_b64", field->name);
        add_query(&b, ex, field->name);
        add_query(&b, ex, other);
    }
    add_query(&b, ex, "sudo");
    add_query(&b, ex, "session");
    (void)sg_buf_addf(&b, "%ccursor=%s>; rel=\"next\"", b.data && strchr(b.data, '?') ? '&' : '?', cursor);
    if (!b.failed)
        ex_set_header(ex, "Link", b.data);
    sg_buf_free(&b);
}

void files_put_cursor(struct files_call *f, struct sg_buf *out, const char *data, size_t len)
{
    struct sg_buf text;
    sg_jw_key(out, "next_cursor");
    if (!data) {
        (void)sg_buf_adds(out, "null");
        return;
    }
    sg_buf_init(&text, FILES_CURSOR_MAX);
    cursor_text(&text, data, len);
    out->failed = out->failed || text.failed;
    if (!text.failed) {
        sg_jw_text(out, text.data);
        if (f->act.ex)
            set_link(f, text.data);
    }
    sg_buf_free(&text);
}
