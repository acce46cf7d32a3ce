#include "vercel/commands.h"

#include "vercel/answer.h"
#include "vercel/impl.h"
#include "vercel/targz.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static bool fs_path(struct sg_buf *b, const char *session_id, const char *what)
{
    sg_buf_init(b, 1024);
    return sg_buf_adds(b, "/v2/sandboxes/sessions/") && sg_buf_add_urlenc(b, session_id) &&
           sg_buf_adds(b, "/fs/") && sg_buf_adds(b, what);
}

/* {"path", "cwd"?, "recursive"?}; NULL when it is not UTF-8 or memory ran out. */
static char *fs_body(const char *path, const char *cwd, const bool *recursive)
{
    json_t *o = json_object();
    bool ok = o && !json_object_set_new(o, "path", json_string(path));
    if (ok && cwd)
        ok = !json_object_set_new(o, "cwd", json_string(cwd));
    if (ok && recursive)
        ok = !json_object_set_new(o, "recursive", json_boolean(*recursive));
    char *text = ok ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static void cannot_say(struct sg_error *e)
{
    (void)sg_fail(e, SG_E_INVALID_PATH, SG_NOT_SENT, "The upstream takes only paths that are UTF-8.");
}

struct vercel_call *vercel_file_read(struct vercel_client *c, const char *session_id, const char *path,
                                     const char *cwd, const struct vercel_events *ev, void *arg,
                                     struct sg_error *e)
{
    struct vercel_call *call = NULL;
    struct sg_buf url;
    char *body = fs_body(path, cwd, NULL);
    if (!fs_path(&url, session_id, "read") || !body) {
        cannot_say(e);
        goto out;
    }
    const struct vercel_request r = {
        .method = "POST",
        .path = url.data,
        .body = body,
        .body_len = strlen(body),
        .class = VERCEL_BULK,
        .idempotent = true, /* a read, whatever its method */
        .timeout_ms = -1,
        .expect_type = "application/octet-stream",
        .means = {.on_400 = SG_E_FILE_ERROR, .on_404 = SG_E_FILE_NOT_FOUND},
    };
    call = vercel_call_start(c, &r, ev, arg, e);
out:
    free(body);
    sg_buf_free(&url);
    return call;
}

/* ---- calls whose answer is {} or nothing ---- */

struct void_call {
    vercel_done_fn *done;
    void *arg;
    vercel_read_fn *read; /* a file's own source; NULL: data */
    const char *data;
    uint64_t size, given;
    struct targz archive;
};

static void void_gone(void *arg)
{
    struct void_call *v = arg;
    targz_free(&v->archive);
    free(v);
}

static void on_void_body(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct void_call *v = arg;
    struct sg_error own;
    if (!e && len) {
        json_t *doc = vercel_body_json(*body, len, &own);
        if (!doc)
            e = &own;
        json_decref(doc);
    }
    v->done(v->arg, e);
}

static struct void_call *void_new(vercel_done_fn *done, void *arg, struct sg_error *e)
{
    struct void_call *v = calloc(1, sizeof *v);
    if (!v)
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
    else
        *v = (struct void_call){.done = done, .arg = arg};
    return v;
}

static struct vercel_call *void_start(struct vercel_client *c, const struct vercel_request *r,
                                      struct void_call *v, struct sg_error *e)
{
    struct vercel_call *call = vercel_collect_start(c, r, on_void_body, v, e);
    if (call)
        vercel_call_on_gone(call, void_gone, v);
    else
        void_gone(v);
    return call;
}

struct vercel_call *vercel_mkdir_start(struct vercel_client *c, const char *session_id, const char *path,
                                       const char *cwd, bool recursive, vercel_done_fn *done, void *arg,
                                       struct sg_error *e)
{
    struct vercel_call *call = NULL;
    struct sg_buf url;
    char *body = fs_body(path, cwd, &recursive);
    if (!fs_path(&url, session_id, "mkdir") || !body) {
        cannot_say(e);
        goto out;
    }
    const struct vercel_request r = {
        .method = "POST",
        .path = url.data,
        .body = body,
        .body_len = strlen(body),
        .idempotent = recursive, /* like mkdir -p: making it again changes nothing */
        .means = {.on_400 = SG_E_FILE_ERROR, .on_404 = SG_E_SANDBOX_NOT_FOUND},
    };
    struct void_call *v = void_new(done, arg, e);
    if (v)
        call = void_start(c, &r, v, e);
out:
    free(body);
    sg_buf_free(&url);
    return call;
}

/* ---- fs/write ---- */

static size_t read_file(void *arg, char *buf, size_t cap)
{
    struct void_call *v = arg;
    if (v->read)
        return v->read(v->arg, buf, cap);
    size_t n = v->size - v->given < cap ? (size_t)(v->size - v->given) : cap;
    if (n)
        memcpy(buf, v->data + v->given, n);
    v->given += n;
    return n;
}

static size_t read_archive(void *arg, char *buf, size_t cap)
{
    struct void_call *v = arg;
    return targz_read(&v->archive, buf, cap);
}

static void rewind_archive(void *arg)
{
    struct void_call *v = arg;
    v->given = 0;
    targz_rewind(&v->archive);
}

struct vercel_call *vercel_file_write_start(struct vercel_client *c, const struct vercel_file_write *w,
                                            vercel_done_fn *done, void *arg, struct sg_error *e)
{
    struct vercel_call *call = NULL;
    struct sg_buf url;
    struct void_call *v = void_new(done, arg, e);
    if (!v)
        return NULL;
    v->read = w->read;
    v->data = w->data;
    v->size = w->size;
    if (!fs_path(&url, w->session_id, "write")) {
        cannot_say(e);
        goto fail;
    }
    if (targz_init(&v->archive, w->path, w->mode, w->size, sg_wall_ms() / 1000, read_file, v, e) != SG_OK)
        goto fail;
    const struct vercel_request r = {
        .method = "POST",
        .path = url.data,
        .content_type = "application/gzip",
        .extra_header = "x-cwd: /",
        .read = read_archive,
        .read_size = (int64_t)targz_size(&v->archive),
        .rewind = w->read ? NULL : rewind_archive,
        .class = VERCEL_BULK,
        .idempotent = !w->read, /* the same bytes to the same path */
        .timeout_ms = -1,
        .means = {.on_400 = SG_E_FILE_ERROR, .on_404 = SG_E_SANDBOX_NOT_FOUND},
    };
    call = void_start(c, &r, v, e);
    v = NULL;
fail:
    if (v)
        void_gone(v);
    sg_buf_free(&url);
    return call;
}
