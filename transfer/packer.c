#include "transfer/packer.h"

#include "transfer/gzip.h"

#include <stdlib.h>
#include <string.h>

enum { OUT = PACKER_SLICE + 4096 };

struct packer {
    uv_work_t work;
    uv_loop_t *uv;
    const struct packer_events *ev;
    void *arg;
    bool busy;  /* the pool has what is under `the pool's` */
    bool freed; /* by its owner, while it was busy or told something */
    bool telling, held, finished, ended, full;
    size_t collected;
    char *collect; /* PACKER_SLICE */

    /* the pool's */
    struct gzip gzip;
    char *slice; /* PACKER_SLICE */
    const char *at;
    size_t left;
    bool last;
    char *out; /* OUT */
    size_t made;
};

static void destroy(struct packer *p)
{
    gzip_close(&p->gzip);
    free(p->collect);
    free(p->slice);
    free(p->out);
    free(p);
}

struct packer *packer_new(struct sg_loop *loop, const struct packer_events *ev, void *arg)
{
    struct packer *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->uv = sg_loop_uv(loop);
    p->ev = ev;
    p->arg = arg;
    p->collect = malloc(PACKER_SLICE);
    p->slice = malloc(PACKER_SLICE);
    p->out = malloc(OUT);
    if (p->collect && p->slice && p->out && gzip_open(&p->gzip, GZIP_LEVEL))
        return p;
    destroy(p);
    return NULL;
}

void packer_free(struct packer *p)
{
    if (!p)
        return;
    p->freed = true;
    if (!p->busy && !p->telling)
        destroy(p);
}

static void on_pool(uv_work_t *work)
{
    struct packer *p = work->data;
    (void)gzip_step(&p->gzip, &p->at, &p->left, p->last, p->out, OUT, &p->made);
}

static void on_packed(uv_work_t *work, int status);

/* What the pool is to do next, if there is anything. */
static void go_on(struct packer *p)
{
    if (p->busy || p->held || p->freed || p->ended)
        return;
    bool more = p->left || (p->last && !p->gzip.done);
    if (!more && !p->collected && !p->finished)
        return;
    if (!more) {
        char *empty = p->slice;
        p->slice = p->collect;
        p->collect = empty;
        p->at = p->slice;
        p->left = p->collected;
        p->collected = 0;
        p->last = p->finished;
    }
    p->work.data = p;
    p->busy = uv_queue_work(p->uv, &p->work, on_pool, on_packed) == 0; /* fails only without a function */
}

static void on_packed(uv_work_t *work, int status)
{
    struct packer *p = work->data;
    (void)status; /* never cancelled */
    p->busy = false;
    if (p->freed) {
        destroy(p);
        return;
    }
    p->telling = true;
    if (p->made)
        p->ev->on_packed(p->arg, p->out, p->made);
    if (!p->freed && p->gzip.done) {
        p->ended = true;
        p->ev->on_end(p->arg);
    }
    go_on(p);
    if (!p->freed && p->full && p->collected < PACKER_SLICE / 2) {
        p->full = false;
        p->ev->on_room(p->arg);
    }
    p->telling = false;
    if (p->freed && !p->busy)
        destroy(p);
}

size_t packer_write(struct packer *p, const char *data, size_t len)
{
    size_t taken = 0;
    while (taken < len && p->collected < PACKER_SLICE) { /* twice where the pool takes what was collected */
        size_t room = PACKER_SLICE - p->collected;
        size_t n = len - taken < room ? len - taken : room;
        memcpy(p->collect + p->collected, data + taken, n);
        p->collected += n;
        taken += n;
        go_on(p);
    }
    p->full = taken < len;
    return taken;
}

void packer_finish(struct packer *p)
{
    p->finished = true;
    go_on(p);
}

void packer_hold(struct packer *p, bool held)
{
    p->held = held;
    go_on(p);
}
