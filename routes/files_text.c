/* Lines of text files: by their numbers, and those that match. */
#include "routes/handlers.h"

#include "base/core/num.h"
#include "base/json_write.h"
#include "routes/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINES_DEFAULT = 1000,
    LINES_MAX = 100000,
    MATCHES_DEFAULT = 1000,
    MATCHES_MAX = 10000,
    TEXT_LINE_DEFAULT = 4096,
    TEXT_LINE_MAX = 65536,
    BYTES_DEFAULT = 1024 * 1024,
    BYTES_MAX = 4 * 1024 * 1024,
    CONTEXT_MAX = 100,
};

#define PATH                                                                                                 \
    {                                                                                                        \
        "path", "--path", FILES_PATH, true, 0, 0, -1                                                         \
    }
#define LINE_BYTES                                                                                           \
    {                                                                                                        \
        "max_line_bytes", "--max-line-bytes", FILES_NUMBER, false, 1, TEXT_LINE_MAX, TEXT_LINE_DEFAULT       \
    }
#define ALL_BYTES                                                                                            \
    {                                                                                                        \
        "max_bytes", "--max-bytes", FILES_NUMBER, false, 1, BYTES_MAX, BYTES_DEFAULT                         \
    }
#define FLAG(n, o)                                                                                           \
    {                                                                                                        \
        n, o, FILES_FLAG, false, 0, 0, -1                                                                    \
    }

static int malformed(struct sg_error *e)
{
    (void)sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                  "the helper in the sandbox answered something else than it was asked");
    return 0;
}

static void put_number(struct sg_buf *out, const char *key, uint64_t n)
{
    sg_jw_key(out, key);
    sg_jw_int(out, n > INT64_MAX ? INT64_MAX : (int64_t)n);
}

/* The members of a line that both have. */
static void put_line(struct sg_buf *out, const struct fs_answer *a, const struct fs_item *item)
{
    put_number(out, "line", item->line);
    put_number(out, "offset", item->offset);
    files_put_bytes(out, "text", a->bytes + item->data, item->data_len);
    sg_jw_key(out, "truncated");
    sg_jw_bool(out, item->cut);
}

/* ---- text ---- */

static int answer_lines(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                        struct sg_error *e)
{
    (void)f;
    if (!a->n || a->items[0].kind != SG_WIRE_FILE || (a->more && a->n < 2))
        return malformed(e);
    (void)sg_buf_adds(out, "{\"items\":[");
    for (size_t i = 1; i < a->n; i++) {
        if (a->items[i].kind != SG_WIRE_TEXT)
            return malformed(e);
        sg_jw_next(out);
        (void)sg_buf_adds(out, "{");
        put_line(out, a, &a->items[i]);
        (void)sg_buf_adds(out, "}");
    }
    (void)sg_buf_adds(out, "]");
    put_number(out, "size", a->items[0].file.size);
    if (a->more)
        put_number(out, "next_line", a->items[a->n - 1].line + 1);
    else
        (void)sg_buf_adds(out, ",\"next_line\":null");
    (void)sg_buf_adds(out, "}");
    return 200;
}

static const struct files_op lines_op = {
    .op = "lines",
    .fields = {PATH,
               {"line", "--from", FILES_NUMBER, false, 1, INT64_MAX, 1},
               {"limit", "--count", FILES_NUMBER, false, 1, LINES_MAX, LINES_DEFAULT},
               LINE_BYTES,
               ALL_BYTES},
    .reads = true,
    .answer = answer_lines,
};

void route_file_text(struct exchange *ex)
{
    files_begin(ex, &lines_op);
}

/* ---- grep: its cursor is the last line, ':', and the path of its file ---- */

static enum sg_code grep_cursor(struct fs_request *r, const char *data, size_t len, struct sg_error *e)
{
    const char *colon = memchr(data, ':', len);
    uint64_t line;
    if (!colon || !sg_parse_u64(data, (size_t)(colon - data), INT64_MAX, &line))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?cursor", "is none that was given out");
    size_t path = len - (size_t)(colon - data) - 1;
    fs_request_number(r, "--from", (int64_t)line);
    if (path)
        fs_request_bytes(r, "--after", colon + 1, path);
    return SG_OK;
}

static void put_grep_cursor(struct files_call *f, struct sg_buf *out, const struct fs_answer *a)
{
    const struct fs_item *last = a->at ? a->at : &a->items[a->n - 1];
    struct sg_buf cursor;
    sg_buf_init(&cursor, FILES_CURSOR_MAX);
    (void)sg_buf_addf(&cursor, "%" PRIu64 ":", last->line);
    (void)sg_buf_add(&cursor, a->bytes + last->name, last->name_len);
    out->failed = out->failed || cursor.failed;
    if (!cursor.failed)
        files_put_cursor(f, out, cursor.data, cursor.len);
    sg_buf_free(&cursor);
}

static int answer_grep(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                       struct sg_error *e)
{
    if (a->more && !a->n && !a->at)
        return malformed(e);
    (void)sg_buf_adds(out, "{\"items\":[");
    for (size_t i = 0; i < a->n; i++) {
        const struct fs_item *item = &a->items[i];
        if (item->kind != SG_WIRE_TEXT)
            return malformed(e);
        sg_jw_next(out);
        (void)sg_buf_adds(out, "{");
        if (item->name_len)
            files_put_bytes(out, "path", a->bytes + item->name, item->name_len);
        put_line(out, a, item);
        sg_jw_key(out, "context");
        sg_jw_bool(out, item->context);
        (void)sg_buf_adds(out, "}");
    }
    (void)sg_buf_adds(out, "],\"unreadable\":");
    sg_jw_bool(out, strcmp(a->word, "unreadable") == 0);
    if (a->more)
        put_grep_cursor(f, out, a);
    else
        files_put_cursor(f, out, NULL, 0);
    (void)sg_buf_adds(out, "}");
    return 200;
}

static const struct files_op grep_op = {
    .op = "grep",
    .fields = {PATH,
               {"pattern", "--pattern", FILES_PATTERN, true, 0, 0, -1},
               {"glob", "--glob", FILES_PATTERN, false, 0, 0, -1},
               FLAG("fixed", "--fixed"),
               FLAG("ignore_case", "--icase"),
               FLAG("hidden", "--hidden"),
               FLAG("binary", "--binary"),
               {"limit", "--max-matches", FILES_NUMBER, false, 1, MATCHES_MAX, MATCHES_DEFAULT},
               {"context", "--context", FILES_NUMBER, false, 0, CONTEXT_MAX, -1},
               LINE_BYTES,
               ALL_BYTES},
    .reads = true,
    .pages = true,
    .cursor = grep_cursor,
    .answer = answer_grep,
};

void route_file_grep(struct exchange *ex)
{
    files_begin(ex, &grep_op);
}
