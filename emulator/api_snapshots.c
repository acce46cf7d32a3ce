#include "emulator/api.h"
#include "emulator/lifecycle.h"
#include "emulator/render.h"

#include <stdlib.h>
#include <string.h>

static int oldest_first(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int newest_first(const void *a, const void *b)
{
    return -oldest_first(a, b);
}

static const char *snapshot_id(void *item)
{
    return ((struct snapshot *)item)->id;
}

int api_snapshot_list(struct request *rq, struct reply *rp)
{
    size_t n;
    struct page page;
    struct state *st = rq->emu->state;
    int order = api_order(rq);
    if (!order)
        return -1;
    struct snapshot **all = state_all_snapshots(st, request_project(rq), request_query(rq, "name"), &n);
    if (!all)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    qsort(all, n, sizeof(struct snapshot *), order > 0 ? oldest_first : newest_first);
    int rc = api_page(rq, n, snapshot_id, (void **)all, &page);
    if (!rc) {
        sg_buf_adds(&rp->body, "{\"snapshots\":[");
        pthread_mutex_lock(&st->lock);
        for (size_t i = page.from; i < page.to; i++) {
            if (i > page.from)
                sg_buf_adds(&rp->body, ",");
            render_snapshot(&rp->body, all[i]);
        }
        pthread_mutex_unlock(&st->lock);
        sg_buf_adds(&rp->body, "],");
        render_pagination(&rp->body, page.to - page.from, page.more ? all[page.to - 1]->id : NULL);
        sg_buf_adds(&rp->body, "}");
    }
    for (size_t i = 0; i < n; i++)
        snapshot_unref(all[i]);
    free(all);
    return rc;
}

static void answer(struct request *rq, struct reply *rp, struct snapshot *sn)
{
    sg_buf_adds(&rp->body, "{\"snapshot\":");
    pthread_mutex_lock(&rq->emu->state->lock);
    render_snapshot(&rp->body, sn);
    pthread_mutex_unlock(&rq->emu->state->lock);
    sg_buf_adds(&rp->body, "}");
}

static struct snapshot *find(struct request *rq)
{
    struct snapshot *sn = state_snapshot(rq->emu->state, rq->param[0]);
    if (!sn)
        api_fail(&rq->err, 404, "not_found", "Snapshot not found");
    return sn;
}

int api_snapshot_get(struct request *rq, struct reply *rp)
{
    struct snapshot *sn = find(rq);
    if (!sn)
        return -1;
    answer(rq, rp, sn);
    snapshot_unref(sn);
    return 0;
}

int api_snapshot_delete(struct request *rq, struct reply *rp)
{
    struct snapshot *sn = find(rq);
    if (!sn)
        return -1;
    lifecycle_delete_snapshot(rq->emu, sn);
    answer(rq, rp, sn);
    snapshot_unref(sn);
    return 0;
}
