#include "emulator/api.h"
#include "emulator/drives.h"
#include "emulator/render.h"
#include "emulator/validate.h"

#include <stdlib.h>
#include <string.h>

static void answer(struct request *rq, struct reply *rp, const struct drive *d)
{
    sg_buf_adds(&rp->body, "{\"drive\":");
    pthread_mutex_lock(&rq->emu->state->lock);
    drives_render(&rp->body, d);
    pthread_mutex_unlock(&rq->emu->state->lock);
    sg_buf_adds(&rp->body, "}");
}

static struct drive *find(struct request *rq, bool by_id)
{
    struct drive *d = drives_find(rq->emu->state, request_project(rq), rq->param[0], by_id);
    if (!d)
        api_fail(&rq->err, 404, "not_found", "Drive not found");
    return d;
}

int api_drive_get(struct request *rq, struct reply *rp)
{
    struct drive *d = find(rq, true);
    if (!d)
        return -1;
    answer(rq, rp, d);
    drive_unref(d);
    return 0;
}

static int want_name(struct request *rq, const char *name)
{
    if (!name || !valid_drive_name(name))
        return api_invalid(&rq->err,
                           "`name` should match pattern \"^[a-zA-Z0-9_-]+$\" and NOT be longer than 64 "
                           "characters.");
    return 0;
}

static int want_size(struct request *rq, const json_t *body, uint64_t *out)
{
    const json_t *v = json_object_get(body, "maxSizeBytes");
    int64_t bytes = 0;
    if (v && validate_int("maxSizeBytes", v, DRIVE_BYTES_UNIT, (int64_t)DRIVE_BYTES_MAX, &bytes, &rq->err))
        return -1;
    if (bytes % DRIVE_BYTES_UNIT)
        return api_invalid(&rq->err, "`maxSizeBytes` should be multiple of %d.", DRIVE_BYTES_UNIT);
    *out = (uint64_t)bytes;
    return 0;
}

/* Of the body, of the query, or the default. */
static const char *want_project(struct request *rq, const json_t *body)
{
    const json_t *v = json_object_get(body, "projectId");
    const char *p = v ? json_string_value(v) : request_project(rq);
    if (!p || strlen(p) >= PROJECT_TEXT) {
        api_invalid(&rq->err, "`projectId` should be string of at most %d characters.", PROJECT_TEXT - 1);
        return NULL;
    }
    return *p ? p : "prj_default";
}

int api_drive_make(struct request *rq, struct reply *rp)
{
    static const char *const members[] = {"projectId", "region", "maxSizeBytes", NULL};
    const json_t *body = request_json(rq);
    int region = -1;
    uint64_t bytes = 0;
    if (!body || validate_only(body, members, &rq->err) || want_name(rq, rq->param[0]) ||
        validate_region(body, &region, &rq->err) || want_size(rq, body, &bytes))
        return -1;
    const char *project = want_project(rq, body);
    if (!project)
        return -1;
    bool created;
    struct drive *d = drives_get_or_create(rq->emu, project, rq->param[0], region, bytes, &created, &rq->err);
    if (!d)
        return -1;
    if (created)
        rp->status = 201;
    answer(rq, rp, d);
    drive_unref(d);
    return 0;
}

int api_drive_fork(struct request *rq, struct reply *rp)
{
    static const char *const members[] = {"name", NULL};
    const json_t *body = request_json(rq);
    if (!body || validate_only(body, members, &rq->err) ||
        want_name(rq, json_string_value(json_object_get(body, "name"))))
        return -1;
    struct drive *source = find(rq, false);
    if (!source)
        return -1;
    struct drive *d =
        drives_fork(rq->emu, source, json_string_value(json_object_get(body, "name")), &rq->err);
    drive_unref(source);
    if (!d)
        return -1;
    rp->status = 201;
    answer(rq, rp, d);
    drive_unref(d);
    return 0;
}

int api_drive_delete(struct request *rq, struct reply *rp)
{
    struct drive *d = find(rq, false);
    if (!d)
        return -1;
    int rc = drives_delete(rq->emu, d, &rq->err);
    if (!rc)
        answer(rq, rp, d);
    drive_unref(d);
    return rc;
}

/* ---- list ---- */

/* A drive with what it is sorted by: a time that may change meanwhile is looked at once. */
struct row {
    struct drive *d;
    int64_t time; /* 0: by name */
};

static int ascending(const void *a, const void *b)
{
    const struct row *x = *(struct row *const *)a, *y = *(struct row *const *)b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    int c = strcmp(x->d->name, y->d->name);
    return c ? c : strcmp(x->d->id, y->d->id);
}

static int descending(const void *a, const void *b)
{
    return ascending(b, a);
}

static const char *row_id(void *item)
{
    return ((struct row *)item)->d->id;
}

/* "createdAt", "updatedAt" or "name"; NULL with 400. */
static const char *parse_sort(struct request *rq)
{
    const char *by = request_query(rq, "sortBy");
    if (!*by)
        by = "createdAt";
    if (strcmp(by, "createdAt") != 0 && strcmp(by, "updatedAt") != 0 && strcmp(by, "name") != 0) {
        api_invalid(&rq->err,
                    "`sortBy` should be equal to one of the allowed values \"createdAt, updatedAt, name\".");
        return NULL;
    }
    if (*request_query(rq, "namePrefix") && strcmp(by, "name") != 0) {
        api_invalid(&rq->err, "`namePrefix` is only supported with `sortBy=name`.");
        return NULL;
    }
    return by;
}

static size_t fill(struct state *st, struct drive **all, size_t n, const char *by, const char *prefix,
                   struct row *rows, struct row **sorted)
{
    size_t k = 0;
    pthread_mutex_lock(&st->lock);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(all[i]->name, prefix, strlen(prefix)) != 0)
            continue;
        rows[k].d = all[i];
        rows[k].time = *by == 'c' ? all[i]->created_ms : *by == 'u' ? all[i]->updated_ms : 0;
        sorted[k] = &rows[k];
        k++;
    }
    pthread_mutex_unlock(&st->lock);
    return k;
}

static int render_page(struct request *rq, struct reply *rp, struct row **sorted, size_t k)
{
    struct page page;
    if (api_page(rq, k, row_id, (void **)sorted, &page))
        return -1;
    sg_buf_adds(&rp->body, "{\"drives\":[");
    pthread_mutex_lock(&rq->emu->state->lock);
    for (size_t i = page.from; i < page.to; i++) {
        sg_buf_adds(&rp->body, i > page.from ? "," : "");
        drives_render(&rp->body, sorted[i]->d);
    }
    pthread_mutex_unlock(&rq->emu->state->lock);
    sg_buf_adds(&rp->body, "],");
    render_pagination(&rp->body, page.to - page.from, page.more ? sorted[page.to - 1]->d->id : NULL);
    sg_buf_adds(&rp->body, "}");
    return 0;
}

int api_drive_list(struct request *rq, struct reply *rp)
{
    size_t n;
    int order = api_order(rq);
    const char *by = order ? parse_sort(rq) : NULL;
    if (!by)
        return -1;
    struct drive **all = drives_all(rq->emu->state, request_project(rq), &n);
    if (!all)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    struct row *rows = calloc(n + 1, sizeof *rows), **sorted = calloc(n + 1, sizeof(struct row *));
    int rc = -1;
    if (rows && sorted) {
        size_t k = fill(rq->emu->state, all, n, by, request_query(rq, "namePrefix"), rows, sorted);
        qsort(sorted, k, sizeof(struct row *), order > 0 ? ascending : descending);
        rc = render_page(rq, rp, sorted, k);
    } else {
        api_fail(&rq->err, 500, "internal_server_error", "no memory");
    }
    for (size_t i = 0; i < n; i++)
        drive_unref(all[i]);
    free(sorted);
    free(rows);
    free(all);
    return rc;
}
