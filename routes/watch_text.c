#include "routes/watch_text.h"

#include "base/core/num.h"
#include "base/crypto.h"
#include "base/json_write.h"
#include "routes/files.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DIGEST_CHARS = 16, RANDOM_CHARS = 26, OVERHEAD = 1024 };
#define OFFSET_MAX (INT64_MAX / 4) /* the relay's */

/* ---- ids ---- */

static void digest(const struct fs_request *r, char out[DIGEST_CHARS + 1])
{
    unsigned char sum[64] = {0}; /* of what came before, and of the next */
    char hex[65];
    for (size_t i = 0; i < r->n; i++) {
        sg_sha256(r->args[i], strlen(r->args[i]), sum + 32);
        sg_sha256(sum, sizeof sum, sum);
    }
    sum[32] = r->sudo;
    sg_sha256(sum, 33, sum);
    sg_hex(hex, sum, 32);
    memcpy(out, hex, DIGEST_CHARS);
    out[DIGEST_CHARS] = '\0';
}

bool watch_id_make(char id[SG_WIRE_ID_MAX + 1], const struct fs_request *r)
{
    char of[DIGEST_CHARS + 1], prefix[sizeof SG_WIRE_OWN + DIGEST_CHARS + 1];
    digest(r, of);
    (void)snprintf(prefix, sizeof prefix, "%s%s-", SG_WIRE_OWN, of);
    return sg_random_id(id, prefix, RANDOM_CHARS);
}

bool watch_id_fits(const char *id, const struct fs_request *r)
{
    char of[DIGEST_CHARS + 1];
    size_t at = sizeof SG_WIRE_OWN - 1;
    digest(r, of);
    return strlen(id) == at + DIGEST_CHARS + 1 + RANDOM_CHARS && sg_wire_id_own(id) &&
           strncmp(id + at, of, DIGEST_CHARS) == 0;
}

/* ---- cursors ---- */

bool watch_cursor_parse(const char *text, size_t len, struct watch_cursor *out)
{
    static const char end[] = ";end";
    size_t tail = sizeof end - 1;
    *out = (struct watch_cursor){.over = len > tail && memcmp(text + len - tail, end, tail) == 0};
    len -= out->over ? tail : 0;
    const char *dot = len < WATCH_CURSOR_MAX ? memchr(text, '.', len) : NULL;
    size_t n = dot ? (size_t)(dot - text) : 0;
    if (!dot || n > SG_WIRE_ID_MAX || !sg_wire_id_valid(text, n))
        return false;
    memcpy(out->id, text, n);
    return sg_wire_id_own(out->id) && sg_parse_u64(dot + 1, len - n - 1, OFFSET_MAX, &out->offset);
}

void watch_cursor_format(const struct watch_cursor *c, char out[WATCH_CURSOR_MAX])
{
    (void)snprintf(out, WATCH_CURSOR_MAX, "%s.%" PRIu64 "%s", c->id, c->offset, c->over ? ";end" : "");
}

/* ---- records ---- */

static void begin(struct sg_buf *json, const char *type, const char *cursor)
{
    sg_buf_init(json, (size_t)SG_WIRE_LINE_MAX * 8 + OVERHEAD);
    (void)sg_buf_adds(json, "{");
    sg_jw_key(json, "type");
    sg_jw_text(json, type);
    sg_jw_key(json, "cursor");
    sg_jw_text(json, cursor);
}

static bool finish(struct sg_buf *json, struct sg_buf *b, enum events_format format, const char *cursor,
                   const char *type)
{
    (void)sg_buf_adds(json, "}");
    bool ok = !json->failed && events_record_id(b, format, cursor, type, json->data);
    sg_buf_free(json);
    return ok;
}

static void put_path(struct sg_buf *json, const char *key, const unsigned char *bytes, size_t len)
{
    char path[SG_WIRE_DATA_MAX + 1];
    memcpy(path, bytes, len);
    path[len] = '\0';
    files_put_bytes(json, key, path, len);
}

bool watch_put_change(struct sg_buf *b, enum events_format format, const struct watch_cursor *c,
                      const struct sg_wire_line *line)
{
    const char *type = sg_wire_change_name(line->change);
    char cursor[WATCH_CURSOR_MAX];
    struct sg_buf json;
    watch_cursor_format(c, cursor);
    begin(&json, type, cursor);
    bool move = line->change == SG_CH_MOVE;
    if (line->name_len && !move)
        put_path(&json, "path", line->name, line->name_len);
    if (move) { /* path is where it is now, as in all others */
        put_path(&json, "path", line->data, line->len);
        put_path(&json, "from", line->name, line->name_len);
        put_path(&json, "to", line->data, line->len);
    }
    if (line->entry) {
        sg_jw_key(&json, "file_type");
        sg_jw_text(&json, line->entry == 'd' ? "directory" : "file");
    }
    return finish(&json, b, format, cursor, type);
}

bool watch_put(struct sg_buf *b, enum events_format format, const struct watch_cursor *c, const char *type,
               ...)
{
    char cursor[WATCH_CURSOR_MAX];
    struct sg_buf json;
    va_list ap;
    watch_cursor_format(c, cursor);
    begin(&json, type, cursor);
    va_start(ap, type);
    for (const char *key; (key = va_arg(ap, const char *));) {
        sg_jw_key(&json, key);
        sg_jw_text(&json, va_arg(ap, const char *));
    }
    va_end(ap);
    return finish(&json, b, format, cursor, type);
}

const char *watch_end_reason(const char *text)
{
    static const char *const known[] = {"deleted", "moved", "replaced", "unmounted"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], text) == 0)
            return known[i];
    return NULL;
}
