#include "control/prune.h"

#include "base/clock.h"
#include "base/log.h"
#include "control/cleanups.h"
#include "control/control.h"
#include "control/retention.h"
#include "store/known.h"
#include "store/leases.h"
#include "store/locks.h"
#include "store/sandboxes.h"
#include "store/watches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 50, ROWS = 200 };

enum kind { UNKNOWN_SANDBOX, ROW_SANDBOX, ROW_LEASE, ROW_WATCH };
static const char *const kind_names[] = {"sandbox", "settings", "lease", "watch"};

struct item {
    enum kind kind;
    char name[129], alloc[CONTROL_ALLOC_TEXT];
    char session_id[CONTROL_SESSION_TEXT]; /* of a watch */
    enum vercel_status status;             /* of a sandbox, as created_ms */
    int64_t created_ms;
};

struct seen { /* a sandbox of the upstream */
    char name[129], alloc[CONTROL_ALLOC_TEXT];
};

struct prune {
    struct control *c;
    const struct prune_ask *ask;
    struct seen *seen;
    size_t nseen, cap;
    struct item *items;
    size_t n[2]; /* found: sandboxes, rows; more than are in items, perhaps */
    size_t nitems;
    bool complete; /* every sandbox was seen */
    size_t looked_at, removed, failed;
    int64_t now_ms; /* the database's */
};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the comparison");
}

static void add(struct prune *p, const struct item *it)
{
    p->n[it->kind != UNKNOWN_SANDBOX]++;
    if (p->nitems < PRUNE_LIST_MAX)
        p->items[p->nitems++] = *it;
}

/* ---- the upstream's side ---- */

static bool remember(struct prune *p, const struct vercel_sandbox *s)
{
    if (p->nseen == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 256;
        struct seen *grown = realloc(p->seen, cap * sizeof *grown);
        if (!grown)
            return false;
        p->seen = grown;
        p->cap = cap;
    }
    struct seen *o = &p->seen[p->nseen++];
    const char *alloc = control_tag_of(s, CONTROL_TAG_ALLOC);
    (void)snprintf(o->name, sizeof o->name, "%s", s->name);
    (void)snprintf(o->alloc, sizeof o->alloc, "%s", alloc ? alloc : "");
    return true;
}

struct page {
    struct prune *p;
    const struct vercel_page *answer;
    bool known[PAGE];
};

static enum sg_code known_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct page *g = arg;
    enum sg_code rc = store_now(db, &g->p->now_ms, e);
    for (size_t i = 0; i < g->answer->n && i < PAGE && !rc; i++) {
        const char *alloc = control_tag_of(&g->answer->items[i], CONTROL_TAG_ALLOC);
        g->known[i] = !alloc;
        if (alloc)
            rc = store_known(db, g->p->c->upstream, alloc, &g->known[i], e);
    }
    return rc;
}

static enum sg_code take_page(struct prune *p, const struct vercel_page *answer, struct sg_error *e)
{
    struct page g = {.p = p, .answer = answer};
    enum sg_code rc = control_in_store(p->c, STORE_READ, known_fn, &g, e);
    for (size_t i = 0; i < answer->n && i < PAGE && !rc; i++) {
        const struct vercel_sandbox *s = &answer->items[i];
        if (!remember(p, s))
            return no_memory(e);
        if (g.known[i] || sg_wall_ms() - s->created_at < p->ask->older_than_ms)
            continue;
        struct item it = {.kind = UNKNOWN_SANDBOX, .status = s->status, .created_ms = s->created_at};
        (void)snprintf(it.name, sizeof it.name, "%s", s->name);
        (void)snprintf(it.alloc, sizeof it.alloc, "%s", control_tag_of(s, CONTROL_TAG_ALLOC));
        add(p, &it);
    }
    return rc;
}

static enum sg_code look_upstream(struct prune *p, struct sg_error *e)
{
    char *cursor = NULL;
    enum sg_code rc = SG_OK;
    while (!rc && !p->complete && p->nseen < PRUNE_LOOK_MAX && !jobs_stopping(p->c->jobs)) {
        const struct vercel_list_query q = {.limit = PAGE, .cursor = cursor};
        struct vercel_page answer = {0};
        rc = vercel_list(p->c->vercel, &q, &answer, e);
        if (rc)
            break;
        rc = take_page(p, &answer, e);
        free(cursor);
        cursor = answer.next ? strdup(answer.next) : NULL;
        p->complete = !answer.next;
        if (answer.next && !cursor && !rc)
            rc = no_memory(e);
        vercel_page_clear(&answer);
    }
    free(cursor);
    p->looked_at = p->nseen;
    return rc;
}

/* ---- the store's side ---- */

static int by_alloc(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->alloc, ((const struct seen *)b)->alloc);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->name, ((const struct seen *)b)->name);
}

static bool is_there(const struct prune *p, const char *name, const char *alloc,
                     int (*order)(const void *a, const void *b))
{
    struct seen key = {{0}, {0}};
    (void)snprintf(key.name, sizeof key.name, "%s", name);
    (void)snprintf(key.alloc, sizeof key.alloc, "%s", alloc);
    return p->nseen && bsearch(&key, p->seen, p->nseen, sizeof key, order);
}

struct rows {
    struct prune *p;
    char after[CONTROL_ALLOC_TEXT];
    int64_t got;
};

static void take_row(struct prune *p, enum kind kind, const char *name, const char *alloc, int64_t made_ms)
{
    struct item it = {.kind = kind};
    p->looked_at++;
    if (is_there(p, name, alloc, by_alloc) || p->now_ms - made_ms < p->ask->older_than_ms)
        return;
    (void)snprintf(it.name, sizeof it.name, "%s", name);
    (void)snprintf(it.alloc, sizeof it.alloc, "%s", alloc);
    add(p, &it);
}

static void on_sandbox(void *arg, const struct store_sandbox *s)
{
    struct rows *r = arg;
    r->got++;
    (void)snprintf(r->after, sizeof r->after, "%s", s->alloc);
    take_row(r->p, ROW_SANDBOX, s->name, s->alloc, s->made_at_ms);
}

static void on_lease(void *arg, const struct store_lease *l)
{
    struct rows *r = arg;
    r->got++;
    (void)snprintf(r->after, sizeof r->after, "%s", l->alloc);
    if (!l->pending)
        take_row(r->p, ROW_LEASE, l->sandbox, l->alloc, l->seen_at_ms);
}

static void on_watch(void *arg, const struct store_watch *w)
{
    struct prune *p = arg;
    struct item it = {.kind = ROW_WATCH};
    p->looked_at++;
    if (is_there(p, w->sandbox, "", by_name) || (w->deadline_ms && w->deadline_ms > sg_wall_ms()))
        return;
    (void)snprintf(it.name, sizeof it.name, "%s", w->sandbox);
    (void)snprintf(it.session_id, sizeof it.session_id, "%s", w->session_id);
    add(p, &it);
}

static enum sg_code sandboxes_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct rows *r = arg;
    return store_sandbox_list(db, r->p->c->upstream, r->after, ROWS, on_sandbox, r, e);
}

static enum sg_code leases_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct rows *r = arg;
    return store_lease_list(db, r->p->c->upstream, r->after, ROWS, on_lease, r, e);
}

static enum sg_code watches_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct prune *p = arg;
    return store_watch_list(db, p->c->upstream, on_watch, p, e);
}

static enum sg_code look_rows(struct prune *p, store_fn *fn, struct sg_error *e)
{
    struct rows r = {.p = p};
    enum sg_code rc = SG_OK;
    size_t end = p->looked_at + PRUNE_LOOK_MAX;
    do {
        r.got = 0;
        rc = control_in_store(p->c, STORE_READ, fn, &r, e);
    } while (!rc && r.got == ROWS && p->looked_at < end);
    return rc;
}

static enum sg_code look_store(struct prune *p, struct sg_error *e)
{
    if (p->nseen)
        qsort(p->seen, p->nseen, sizeof *p->seen, by_alloc);
    enum sg_code rc = look_rows(p, sandboxes_fn, e);
    if (!rc)
        rc = look_rows(p, leases_fn, e);
    if (p->nseen)
        qsort(p->seen, p->nseen, sizeof *p->seen, by_name);
    return rc ? rc : control_in_store(p->c, STORE_READ, watches_fn, p, e);
}

/* ---- taking away ---- */

struct one {
    struct control *c;
    const struct item *item;
    bool known;
};

static enum sg_code still_unknown_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct one *o = arg;
    return store_known(db, o->c->upstream, o->item->alloc, &o->known, e);
}

static enum sg_code forget_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct one *o = arg;
    switch (o->item->kind) {
    case ROW_SANDBOX:
        return store_sandbox_forget(db, o->c->upstream, o->item->alloc, e);
    case ROW_LEASE:
        return store_lease_drop(db, o->c->upstream, o->item->alloc, e);
    case ROW_WATCH:
        return store_watch_drop(db, o->item->session_id, e);
    case UNKNOWN_SANDBOX:
        break;
    }
    return SG_OK;
}

/* *removed false: it was told to the store meanwhile, or is gone already. */
static enum sg_code remove_sandbox(struct control *c, const struct item *it, bool *removed,
                                   struct sg_error *e)
{
    struct one o = {.c = c, .item = it};
    struct control_destroy d = {.name = it->name, .alloc = it->alloc};
    enum sg_code rc = control_in_store(c, STORE_READ, still_unknown_fn, &o, e);
    if (rc || o.known)
        return rc;
    struct sg_error own;
    rc = control_destroy_if(c, &d, e);
    *removed = !rc && d.found;
    if (rc && cleanup_sandbox(c, it->name, it->alloc, "pruned", &own) == SG_OK)
        sg_log(SG_LOG_WARN, "pruned sandbox is still there", "sandbox", "s", it->name, "error", "e", e, NULL);
    return rc;
}

/* *gone false: it is there after all. */
static enum sg_code is_gone(struct control *c, const struct item *it, bool *gone, struct sg_error *e)
{
    struct vercel_sandbox s;
    *gone = true;
    if (control_name_for_lookup(it->name, NULL))
        return SG_OK;
    enum sg_code rc = vercel_get(c->vercel, it->name, false, &s, e);
    if (rc)
        return rc == SG_E_SANDBOX_NOT_FOUND ? SG_OK : rc;
    *gone = *it->alloc && !control_is_alloc(&s, it->alloc);
    vercel_sandbox_clear(&s);
    return SG_OK;
}

static enum sg_code remove_row(struct control *c, const struct item *it, bool *removed, struct sg_error *e)
{
    struct one o = {.c = c, .item = it};
    bool gone = false;
    enum sg_code rc = is_gone(c, it, &gone, e);
    if (rc || !gone)
        return rc;
    rc = control_in_store(c, STORE_WRITE, forget_fn, &o, e);
    *removed = !rc;
    return rc;
}

static void apply(struct prune *p)
{
    for (size_t i = 0; i < p->nitems && !jobs_stopping(p->c->jobs); i++) {
        struct sg_error e;
        const struct item *it = &p->items[i];
        bool removed = false;
        enum sg_code rc = it->kind == UNKNOWN_SANDBOX ? remove_sandbox(p->c, it, &removed, &e)
                                                      : remove_row(p->c, it, &removed, &e);
        p->removed += removed;
        p->failed += rc != SG_OK;
        if (removed)
            sg_log(SG_LOG_INFO, "pruned", "kind", "s", kind_names[it->kind], "sandbox", "s", it->name, NULL);
    }
}

/* ---- telling ---- */

static json_t *tell(const struct item *it)
{
    char when[SG_TIME_TEXT];
    if (it->kind != UNKNOWN_SANDBOX)
        return json_pack("{ssss}", "kind", kind_names[it->kind], "sandbox", it->name);
    sg_time_format(it->created_ms, when);
    return json_pack("{ssssss}", "name", it->name, "status", vercel_status_name(it->status), "created_at",
                     when);
}

static json_t *report_of(const struct prune *p)
{
    json_t *lists[2] = {json_array(), json_array()};
    int bad = 0;
    for (size_t i = 0; i < p->nitems; i++)
        bad |= json_array_append_new(lists[p->items[i].kind != UNKNOWN_SANDBOX], tell(&p->items[i]));
    json_t *r =
        json_pack("{sbsbsIsososo}", "dry_run", !p->ask->apply, "complete",
                  p->complete && p->n[0] + p->n[1] == p->nitems, "looked_at", (json_int_t)p->looked_at,
                  "sandboxes", lists[0], "rows", lists[1], "counts",
                  json_pack("{sIsIsIsI}", "sandboxes", (json_int_t)p->n[0], "rows", (json_int_t)p->n[1],
                            "removed", (json_int_t)p->removed, "failed", (json_int_t)p->failed));
    if (!bad)
        return r;
    json_decref(r);
    return NULL;
}

enum sg_code control_prune(struct control *c, const struct prune_ask *ask, json_t **report,
                           struct sg_error *e)
{
    struct prune p = {.c = c, .ask = ask, .items = calloc(PRUNE_LIST_MAX, sizeof *p.items)};
    *report = NULL;
    enum sg_code rc = p.items ? look_upstream(&p, e) : no_memory(e);
    if (!rc && p.complete) /* what was not seen might be there */
        rc = look_store(&p, e);
    if (!rc && ask->apply)
        apply(&p);
    if (!rc && !(*report = report_of(&p)))
        rc = sg_fail(e, SG_E_OUT_OF_MEMORY, ask->apply ? SG_FINISHED : SG_NOT_STARTED,
                     "no memory for the answer");
    free(p.seen);
    free(p.items);
    return rc;
}
