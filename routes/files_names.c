/* What tells of names: lists, facts of one file, links, and what a pattern finds. */
#include "routes/handlers.h"

#include "base/json_write.h"
#include "routes/files.h"

#include <string.h>

enum { LIST_DEFAULT = 1000, LIST_MAX = 10000 };

#define PATH                                                                                                 \
    {                                                                                                        \
        "path", "--path", FILES_PATH, true, 0, 0, -1                                                         \
    }
#define FOLLOW                                                                                               \
    {                                                                                                        \
        "follow", NULL, FILES_CHOICE, false, 0, 0, -1                                                        \
    }
#define LIMIT                                                                                                \
    {                                                                                                        \
        "limit", "--limit", FILES_NUMBER, false, 1, LIST_MAX, LIST_DEFAULT                                   \
    }

static int malformed(struct sg_error *e)
{
    (void)sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                  "the helper in the sandbox answered something else than it was asked");
    return 0;
}

static enum sg_code after_cursor(struct fs_request *r, const char *data, size_t len, struct sg_error *e)
{
    (void)e;
    fs_request_bytes(r, "--after", data, len);
    return SG_OK;
}

/* The end of a page of names. */
static int end_page(struct files_call *f, const struct fs_answer *a, struct sg_buf *out, struct sg_error *e)
{
    const struct fs_item *last = a->at ? a->at : a->n ? &a->items[a->n - 1] : NULL;
    if (a->more && !last) { /* all of them were removed while they were looked at */
        (void)sg_fail(e, SG_E_UPSTREAM_UNAVAILABLE, SG_FINISHED,
                      "the directory changed while it was read; ask again");
        return 0;
    }
    (void)sg_buf_adds(out, "]");
    files_put_cursor(f, out, a->more ? a->bytes + last->name : NULL, a->more ? last->name_len : 0);
    (void)sg_buf_adds(out, "}");
    return 200;
}

static int answer_list(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                       struct sg_error *e)
{
    (void)sg_buf_adds(out, "{\"items\":[");
    for (size_t i = 0; i < a->n; i++) {
        if (a->items[i].kind != SG_WIRE_FILE)
            return malformed(e);
        sg_jw_next(out);
        files_put_file(out, a, &a->items[i]);
    }
    return end_page(f, a, out, e);
}

static const struct files_op list_op = {
    .op = "list",
    .fields = {PATH, LIMIT},
    .reads = true,
    .pages = true,
    .cursor = after_cursor,
    .answer = answer_list,
};

void route_file_list(struct exchange *ex)
{
    files_begin(ex, &list_op);
}

static int answer_glob(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                       struct sg_error *e)
{
    (void)sg_buf_adds(out, "{\"items\":[");
    for (size_t i = 0; i < a->n; i++) {
        if (a->items[i].kind != SG_WIRE_NAME)
            return malformed(e);
        sg_jw_next(out);
        (void)sg_buf_adds(out, "{");
        files_put_bytes(out, "path", a->bytes + a->items[i].name, a->items[i].name_len);
        (void)sg_buf_adds(out, "}");
    }
    return end_page(f, a, out, e);
}

static const struct files_op glob_op = {
    .op = "glob",
    .fields = {PATH,
               {"pattern", "--pattern", FILES_PATTERN, true, 0, 0, -1},
               {"hidden", "--hidden", FILES_FLAG, false, 0, 0, -1},
               LIMIT},
    .reads = true,
    .pages = true,
    .cursor = after_cursor,
    .answer = answer_glob,
};

void route_file_glob(struct exchange *ex)
{
    files_begin(ex, &glob_op);
}

/* ---- one file ---- */

static int answer_stat(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                       struct sg_error *e)
{
    (void)f;
    if (a->n != 1 || a->items[0].kind != SG_WIRE_FILE)
        return malformed(e);
    files_put_file(out, a, &a->items[0]);
    return 200;
}

static const struct files_op stat_op = {
    .op = "stat", .fields = {PATH, FOLLOW}, .reads = true, .answer = answer_stat};
static const struct files_op lstat_op = {
    .op = "lstat", .fields = {PATH, FOLLOW}, .reads = true, .answer = answer_stat};

void route_file_stat(struct exchange *ex)
{
    const char *follow = ex_query(ex, "follow", NULL);
    files_begin(ex, follow && strcmp(follow, "false") == 0 ? &lstat_op : &stat_op);
}

static int put_one(const struct fs_answer *a, const char *key, struct sg_buf *out, struct sg_error *e)
{
    if (a->n != 1 || a->items[0].kind != SG_WIRE_NAME)
        return malformed(e);
    (void)sg_buf_adds(out, "{");
    files_put_bytes(out, key, a->bytes + a->items[0].name, a->items[0].name_len);
    (void)sg_buf_adds(out, "}");
    return 200;
}

static int answer_readlink(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                           struct sg_error *e)
{
    (void)f;
    return put_one(a, "target", out, e);
}

static const struct files_op readlink_op = {
    .op = "readlink", .fields = {PATH}, .reads = true, .answer = answer_readlink};

void route_file_readlink(struct exchange *ex)
{
    files_begin(ex, &readlink_op);
}

static int answer_realpath(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                           struct sg_error *e)
{
    (void)f;
    return put_one(a, "path", out, e);
}

static const struct files_op realpath_op = {
    .op = "realpath", .fields = {PATH}, .reads = true, .answer = answer_realpath};

void route_file_realpath(struct exchange *ex)
{
    files_begin(ex, &realpath_op);
}

static int answer_exists(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                         struct sg_error *e)
{
    (void)f;
    bool yes = strcmp(a->word, "yes") == 0;
    if (!yes && strcmp(a->word, "no") != 0)
        return malformed(e);
    (void)sg_buf_adds(out, yes ? "{\"exists\":true}" : "{\"exists\":false}");
    return 200;
}

static const struct files_op exists_op = {
    .op = "exists", .fields = {PATH}, .reads = true, .answer = answer_exists};

void route_file_exists(struct exchange *ex)
{
    files_begin(ex, &exists_op);
}

static int answer_access(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                         struct sg_error *e)
{
    (void)f;
    (void)a;
    (void)out;
    (void)e;
    return 204;
}

static const struct files_op access_op = {
    .op = "access",
    .fields = {PATH, {"mode", "--mode", FILES_ACCESS, false, 0, 0, -1}},
    .reads = true,
    .answer = answer_access,
};

void route_file_access(struct exchange *ex)
{
    files_begin(ex, &access_op);
}
