#include "control/look.h"

#include "control/control.h"
#include "control/record.h"
#include "control/tags.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading { /* what is asked of the store */
    const char *upstream;
    char alloc[STORE_ALLOC_TEXT];
    struct store_sandbox row;
    bool found;
};

struct look {
    struct store_work work; /* first: cast back */
    struct control *c;
    struct vercel_call *call;
    struct sg_timer *timer;
    struct vercel_sandbox s;
    struct reading reading;
    char *upstream;
    bool reads;    /* the store has the work: freed when it has ended */
    look_fn *done; /* NULL: nobody waits any more */
    void *arg;
};

/* ---- the store ---- */

static enum sg_code read_row(struct store_db *db, void *arg, struct sg_error *e)
{
    struct reading *r = arg;
    if (r->found)
        store_sandbox_clear(&r->row); /* of an earlier try */
    r->found = false;
    return store_sandbox_get(db, r->upstream, r->alloc, &r->row, &r->found, e);
}

/* False: nothing can be known of it. */
static bool reading_of(const struct vercel_sandbox *s, struct reading *r)
{
    const char *alloc = control_tag_of(s, CONTROL_TAG_ALLOC);
    if (!alloc || strlen(alloc) >= sizeof r->alloc)
        return false;
    (void)snprintf(r->alloc, sizeof r->alloc, "%s", alloc);
    return true;
}

bool control_known(struct control *c, const struct vercel_sandbox *s, struct store_sandbox *row)
{
    struct reading r = {.upstream = c->upstream};
    struct sg_error e;
    if (!c->store || !reading_of(s, &r))
        return false;
    if (store_call(c->store, STORE_READ, read_row, &r, &e)) {
        if (r.found)
            store_sandbox_clear(&r.row);
        return false;
    }
    *row = r.row;
    return r.found;
}

json_t *control_record_now(struct control *c, const struct vercel_sandbox *s)
{
    struct store_sandbox row;
    bool found = control_known(c, s, &row);
    json_t *record = control_record(s, found ? &row : NULL, sg_wall_ms());
    if (found)
        store_sandbox_clear(&row);
    return record;
}

enum sg_code control_expect(struct control *c, const char *name, control_fits_fn *fits, void *arg,
                            struct sg_error *e)
{
    struct vercel_sandbox s;
    char etag[CONTROL_ETAG_LEN + 1];
    enum sg_code rc = control_name_for_lookup(name, e);
    if (!rc)
        rc = vercel_get(c->vercel, name, false, &s, e);
    if (rc) {
        e->outcome = SG_NOT_STARTED;
        return rc;
    }
    json_t *record = control_record_now(c, &s);
    if (!record || !control_record_etag(record, etag))
        rc = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the request");
    else if (!fits(arg, etag))
        rc = sg_fail(e, SG_E_PRECONDITION_FAILED, SG_NOT_STARTED,
                     "the sandbox is in another state than If-Match says");
    json_decref(record);
    vercel_sandbox_clear(&s);
    return rc;
}

/* ---- the look ---- */

static void look_free(struct look *l)
{
    if (l->call)
        vercel_call_cancel(l->call);
    sg_timer_free(l->timer); /* NULL is fine */
    vercel_sandbox_clear(&l->s);
    if (l->reading.found)
        store_sandbox_clear(&l->reading.row);
    free(l->upstream);
    free(l);
}

void look_cancel(struct look *l)
{
    l->done = NULL;
    if (!l->reads)
        look_free(l);
}

static void tell(struct look *l, const struct store_sandbox *known, const struct sg_error *e)
{
    look_fn *done = l->done;
    struct vercel_sandbox s = l->s;
    l->done = NULL;
    l->s = (struct vercel_sandbox){0};
    void *arg = l->arg;
    struct store_sandbox row = {.alloc = ""};
    if (known) {
        row = *known;
        l->reading.found = false; /* taken */
    }
    if (!l->reads)
        look_free(l);
    else if (l->timer)
        sg_timer_stop(l->timer);
    done(arg, e ? NULL : &s, known ? &row : NULL, e);
    vercel_sandbox_clear(&s);
    if (known)
        store_sandbox_clear(&row);
}

static void on_read(struct store_work *work)
{
    struct look *l = (struct look *)work;
    l->reads = false;
    if (l->done)
        tell(l, work->code == SG_OK && l->reading.found ? &l->reading.row : NULL, NULL);
    else
        look_free(l);
}

/* The store is slow: what the upstream said is told without it. */
static void on_late(void *arg)
{
    struct look *l = arg;
    if (l->done)
        tell(l, NULL, NULL);
}

static bool read_store(struct look *l)
{
    if (!l->c->store || !reading_of(&l->s, &l->reading))
        return false;
    l->upstream = strdup(l->c->upstream); /* the control may be gone before the store has run it */
    l->timer = sg_timer_new(l->c->loop, on_late, l);
    if (!l->upstream || !l->timer)
        return false;
    l->reading.upstream = l->upstream;
    l->work = (struct store_work){
        .kind = STORE_READ, .fn = read_row, .arg = &l->reading, .done = on_read, .bytes = sizeof *l};
    l->reads = store_submit(l->c->store, &l->work);
    if (l->reads)
        sg_timer_start(l->timer, LOOK_STORE_MS);
    return l->reads;
}

static void on_get(void *arg, struct vercel_sandbox *s, const struct sg_error *e)
{
    struct look *l = arg;
    l->call = NULL;
    if (!e) {
        l->s = *s;
        *s = (struct vercel_sandbox){0};
    }
    if (e || !read_store(l))
        tell(l, NULL, e);
}

struct look *look_start(struct control *c, const char *name, bool resume, look_fn *done, void *arg,
                        struct sg_error *e)
{
    struct look *l = calloc(1, sizeof *l);
    if (!l) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        return NULL;
    }
    l->c = c;
    l->done = done;
    l->arg = arg;
    l->call = vercel_get_start(c->vercel, name, resume, on_get, l, e);
    if (l->call)
        return l;
    look_free(l);
    return NULL;
}
