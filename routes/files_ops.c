/* What changes files and answers next to nothing. */
#include "routes/handlers.h"

#include "base/json_write.h"
#include "routes/conditions.h"
#include "routes/files.h"

#include <string.h>

#define PATH                                                                                                 \
    {                                                                                                        \
        "path", "--path", FILES_PATH, true, 0, 0, -1                                                         \
    }
#define TO                                                                                                   \
    {                                                                                                        \
        "to", "--to", FILES_PATH, true, 0, 0, -1                                                             \
    }
#define FLAG(n, o)                                                                                           \
    {                                                                                                        \
        n, o, FILES_FLAG, false, 0, 0, -1                                                                    \
    }
#define FOLLOW                                                                                               \
    {                                                                                                        \
        "follow", "--no-follow", FILES_UNLESS, false, 0, 0, -1                                               \
    }
#define RECURSIVE FLAG("recursive", "--recursive")
#define EXCLUSIVE FLAG("exclusive", "--exclusive")

static int nothing(struct files_call *f, const struct fs_answer *a, struct sg_buf *out, struct sg_error *e)
{
    (void)f;
    (void)a;
    (void)out;
    (void)e;
    return 204;
}

static int made(struct files_call *f, const struct fs_answer *a, struct sg_buf *out, struct sg_error *e)
{
    (void)nothing(f, a, out, e);
    return 201;
}

static int perhaps_made(struct files_call *f, const struct fs_answer *a, struct sg_buf *out,
                        struct sg_error *e)
{
    return strcmp(a->word, "exists") == 0 ? nothing(f, a, out, e) : made(f, a, out, e);
}

/* ---- directories ---- */

static const struct files_op mkdir_op = {
    .op = "mkdir",
    .fields = {PATH, {"mode", "--mode", FILES_MODE, false, 0, 0, -1}, FLAG("parents", "--parents")},
    .answer = perhaps_made,
};

void route_file_mkdir(struct exchange *ex)
{
    files_begin(ex, &mkdir_op);
}

static const struct files_op remove_op = {
    .op = "remove",
    .fields = {PATH, RECURSIVE, FLAG("force", "--force")},
    .parts = true,
    .answer = nothing,
};

/* With force, nobody can tell how often it was done. */
static const struct files_op remove_force_op = {
    .op = "remove",
    .fields = {PATH, RECURSIVE, FLAG("force", "--force")},
    .parts = true,
    .again = true,
    .answer = nothing,
};

void route_file_remove(struct exchange *ex)
{
    files_begin(ex, files_is_set(ex, "force") ? &remove_force_op : &remove_op);
}

static enum sg_code delete_headers(struct exchange *ex, struct fs_request *r, struct sg_error *e)
{
    struct conditions c;
    enum sg_code rc = conditions_of(ex, &c, e);
    if (!rc && c.none_match.given)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "of conditions, removing takes If-Match");
    return rc ? rc : files_conditions(&c, r, e);
}

static const struct files_op delete_op = {
    .op = "remove", .fields = {PATH}, .headers = delete_headers, .answer = nothing};

void route_file_delete(struct exchange *ex)
{
    files_begin(ex, &delete_op);
}

/* ---- two paths ---- */

static const struct files_op move_op = {
    .op = "move", .fields = {PATH, TO, EXCLUSIVE}, .parts = true, .answer = nothing};

void route_file_move(struct exchange *ex)
{
    files_begin(ex, &move_op);
}

static const struct files_op copy_op = {
    .op = "copy", .fields = {PATH, TO, RECURSIVE, EXCLUSIVE}, .parts = true, .answer = nothing};

void route_file_copy(struct exchange *ex)
{
    files_begin(ex, &copy_op);
}

static const struct files_op symlink_op = {
    .op = "symlink", .fields = {PATH, {"target", "--to", FILES_PATH, true, 0, 0, -1}}, .answer = made};

void route_file_symlink(struct exchange *ex)
{
    files_begin(ex, &symlink_op);
}

static const struct files_op link_op = {.op = "link", .fields = {PATH, TO}, .answer = made};

void route_file_link(struct exchange *ex)
{
    files_begin(ex, &link_op);
}

/* ---- attributes: the same once more changes nothing ---- */

static const struct files_op chmod_op = {
    .op = "chmod",
    .fields = {PATH, {"mode", "--mode", FILES_MODE, true, 0, 0, -1}, RECURSIVE},
    .again = true,
    .parts = true,
    .answer = nothing,
};

void route_file_chmod(struct exchange *ex)
{
    files_begin(ex, &chmod_op);
}

static enum sg_code check_chown(struct exchange *ex, struct sg_error *e)
{
    const json_t *follow = json_object_get(ex->body, "follow");
    if (!json_object_get(ex->body, "uid") && !json_object_get(ex->body, "gid"))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/uid", "uid or gid is required");
    if (files_is_set(ex, "recursive") && follow && !json_is_true(follow))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/follow", "not together with recursive");
    return SG_OK;
}

static const struct files_op chown_op = {
    .op = "chown",
    .fields = {PATH,
               {"uid", "--uid", FILES_NUMBER, false, 0, UINT32_MAX - 1, -1},
               {"gid", "--gid", FILES_NUMBER, false, 0, UINT32_MAX - 1, -1},
               RECURSIVE,
               FOLLOW},
    .again = true,
    .parts = true,
    .check = check_chown,
    .answer = nothing,
};

void route_file_chown(struct exchange *ex)
{
    files_begin(ex, &chown_op);
}

static const struct files_op truncate_op = {
    .op = "truncate",
    .fields = {PATH, {"size", "--size", FILES_NUMBER, true, 0, INT64_MAX, -1}},
    .again = true,
    .answer = nothing,
};

void route_file_truncate(struct exchange *ex)
{
    files_begin(ex, &truncate_op);
}

static const struct files_op utimes_op = {
    .op = "utimes",
    .fields = {PATH,
               {"accessed_at", "--atime-ns", FILES_TIME, false, 0, 0, -1},
               {"modified_at", "--mtime-ns", FILES_TIME, false, 0, 0, -1},
               FOLLOW},
    .again = true,
    .answer = nothing,
};

void route_file_utimes(struct exchange *ex)
{
    files_begin(ex, &utimes_op);
}

/* ---- temporary files ---- */

static int one_path(struct files_call *f, const struct fs_answer *a, struct sg_buf *out, struct sg_error *e)
{
    (void)f;
    if (a->n != 1 || a->items[0].kind != SG_WIRE_NAME) {
        (void)sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED, "the answer names no file");
        return 0;
    }
    (void)sg_buf_adds(out, "{");
    files_put_bytes(out, "path", a->bytes + a->items[0].name, a->items[0].name_len);
    (void)sg_buf_adds(out, "}");
    return 201;
}

static const struct files_op mktemp_op = {
    .op = "mktemp",
    .fields = {PATH, {"prefix", "--prefix", FILES_PREFIX, false, 0, 0, -1}, FLAG("directory", "--directory")},
    .answer = one_path,
};

void route_file_mktemp(struct exchange *ex)
{
    files_begin(ex, &mktemp_op);
}
