/* The chain a snapshot stands in: ancestors, or descendants along the newest child. */
#include "emulator/api.h"
#include "base/core/num.h"
#include "emulator/render.h"

#include <stdlib.h>
#include <string.h>

enum { TREE_LIMIT = 10, SIBLINGS_MAX = 50 };

struct tree {
    struct state *st;
    struct snapshot **all; /* newest first; ids and parents never change */
    size_t n;
};

static int newest_first(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? 1 : -1;
    return strcmp(y->id, x->id);
}

static const struct snapshot *by_id(const struct tree *t, const char *id)
{
    for (size_t i = 0; *id && i < t->n; i++)
        if (!strcmp(t->all[i]->id, id))
            return t->all[i];
    return NULL;
}

static const struct snapshot *newest_child(const struct tree *t, const char *id)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->all[i]->parent, id))
            return t->all[i];
    return NULL;
}

/* The next one on the way. */
static const struct snapshot *step(const struct tree *t, const struct snapshot *at, bool up)
{
    return up ? by_id(t, at->parent) : newest_child(t, at->id);
}

/* With state->lock. */
static void add_node(struct sg_buf *out, const struct tree *t, const struct snapshot *sn)
{
    size_t siblings = 0;
    bool more = false;
    sg_buf_adds(out, "{\"snapshot\":");
    render_snapshot(out, sn);
    sg_buf_adds(out, ",\"siblings\":[");
    for (size_t i = 0; *sn->parent && !more && i < t->n; i++) {
        if (t->all[i] == sn || strcmp(t->all[i]->parent, sn->parent) != 0)
            continue;
        more = siblings + 1 == SIBLINGS_MAX;
        if (more)
            break;
        sg_buf_adds(out, siblings++ ? "," : "");
        render_snapshot(out, t->all[i]);
    }
    sg_buf_addf(out, "],\"count\":\"%zu%s\"}", siblings + 1, more ? "+" : "");
}

static void walk(struct sg_buf *out, const struct tree *t, const struct snapshot *anchor, bool up,
                 size_t limit)
{
    const struct snapshot *at = anchor ? step(t, anchor, up) : NULL, *last = NULL;
    size_t k = 0;
    if (!anchor && t->n)
        at = up ? t->all[0] : t->all[t->n - 1]; /* from the newest down to the root, or from the oldest up */
    pthread_mutex_lock(&t->st->lock);
    sg_buf_adds(out, "{\"snapshots\":[");
    for (; at && k < limit; at = step(t, at, up)) {
        sg_buf_adds(out, k++ ? "," : "");
        add_node(out, t, at);
        last = at;
    }
    sg_buf_adds(out, "],");
    if (anchor) {
        sg_buf_adds(out, "\"anchor\":");
        add_node(out, t, anchor);
        sg_buf_adds(out, ",");
    }
    render_pagination(out, k, at && last ? last->id : NULL);
    sg_buf_adds(out, "}");
    pthread_mutex_unlock(&t->st->lock);
}

int api_snapshot_tree(struct request *rq, struct reply *rp)
{
    const char *limit = request_query(rq, "limit"), *id = request_query(rq, "snapshotId");
    uint64_t max = TREE_LIMIT;
    int order = api_order(rq);
    if (!order)
        return -1;
    if (*limit && (!sg_parse_u64(limit, strlen(limit), TREE_LIMIT, &max) || !max))
        return api_invalid(&rq->err, "`limit` should be >= 1 and <= %d.", TREE_LIMIT);
    struct tree t = {.st = rq->emu->state};
    t.all = state_all_snapshots(t.st, request_project(rq), "", &t.n);
    if (!t.all)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    qsort(t.all, t.n, sizeof(struct snapshot *), newest_first);
    const struct snapshot *anchor = by_id(&t, id);
    int rc = *id && !anchor ? api_fail(&rq->err, 404, "not_found", "Snapshot not found") : 0;
    if (!rc)
        walk(&rp->body, &t, anchor, order < 0, (size_t)max);
    for (size_t i = 0; i < t.n; i++)
        snapshot_unref(t.all[i]);
    free(t.all);
    return rc;
}
