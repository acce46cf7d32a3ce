/* The snapshots that a sandbox's own sessions left, whatever else the upstream lists under its name. */
#include "control/control.h"
#include "control/retention.h"

#include "vercel/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 50, PAGES_MAX = 40, SESSION_TEXT = 129 };

/* Found, and not yet known whose they are. */
struct found {
    struct own_snapshot snapshot;
    char session[SESSION_TEXT];
    bool own;
};
struct search {
    struct found *items;
    size_t n, cap, open; /* open: whose session was not found yet */
    bool whole;
};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for a list of snapshots");
}

static enum sg_code add(struct search *f, const struct vercel_snapshot *s, struct sg_error *e)
{
    if (s->status != VERCEL_SNAPSHOT_CREATED || !s->source_session_id)
        return SG_OK;
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : PAGE;
        struct found *items = realloc(f->items, cap * sizeof *items);
        if (!items)
            return no_memory(e);
        f->items = items;
        f->cap = cap;
    }
    struct found *x = &f->items[f->n];
    *x = (struct found){
        .snapshot = {.automatic = s->creation_method && !strcmp(s->creation_method, "automatic"),
                     .created_at_ms = s->created_at}};
    if (snprintf(x->session, sizeof x->session, "%s", s->source_session_id) >= SESSION_TEXT)
        return SG_OK;
    (void)snprintf(x->snapshot.id, sizeof x->snapshot.id, "%s", s->id);
    memcpy(x->snapshot.session_id, x->session, sizeof x->session);
    f->n++;
    f->open++;
    return SG_OK;
}

static enum sg_code list(struct control *c, const char *name, struct search *f, struct sg_error *e)
{
    char *cursor = NULL;
    enum sg_code rc = SG_OK;
    for (int i = 0; i < PAGES_MAX; i++) {
        struct vercel_snapshot_page page;
        rc = vercel_snapshot_list(c->vercel, name, PAGE, cursor, &page, e);
        free(cursor);
        cursor = NULL;
        if (rc)
            break;
        for (size_t k = 0; k < page.n && !rc; k++)
            rc = add(f, &page.items[k], e);
        f->whole = !page.next;
        if (!rc && page.next && !(cursor = strdup(page.next)))
            rc = no_memory(e);
        vercel_snapshot_page_clear(&page);
        if (rc || f->whole)
            break;
    }
    free(cursor);
    return rc;
}

static void claim(struct search *f, const char *session_id)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->items[i].own || strcmp(f->items[i].session, session_id) != 0)
            continue;
        f->items[i].own = true;
        f->open--;
    }
}

/* Until each one's session was found, or there are no more: what is left over is somebody else's. */
static enum sg_code match(struct control *c, const char *name, struct search *f, struct sg_error *e)
{
    char *cursor = NULL;
    enum sg_code rc = SG_OK;
    for (int i = 0; i < PAGES_MAX && f->open; i++) {
        struct vercel_session_page page;
        rc = vercel_session_list(c->vercel, name, PAGE, cursor, &page, e);
        free(cursor);
        cursor = NULL;
        if (rc)
            break;
        for (size_t k = 0; k < page.n; k++)
            claim(f, page.items[k].id);
        bool last = !page.next;
        if (page.next && !(cursor = strdup(page.next)))
            rc = no_memory(e);
        vercel_session_page_clear(&page);
        if (rc || last)
            break;
    }
    free(cursor);
    return rc;
}

static int newest_first(const void *a, const void *b)
{
    const struct own_snapshot *x = a, *y = b;
    if (x->created_at_ms != y->created_at_ms)
        return x->created_at_ms < y->created_at_ms ? 1 : -1;
    return strcmp(y->id, x->id);
}

void own_snapshots_clear(struct own_snapshots *o)
{
    free(o->items);
    *o = (struct own_snapshots){0};
}

enum sg_code control_own_snapshots(struct control *c, const char *name, struct own_snapshots *out,
                                   struct sg_error *e)
{
    struct search f = {0};
    *out = (struct own_snapshots){0};
    enum sg_code rc = list(c, name, &f, e);
    if (!rc && f.open)
        rc = match(c, name, &f, e);
    if (!rc && f.n) {
        out->items = calloc(f.n, sizeof *out->items);
        if (!out->items)
            rc = no_memory(e);
    }
    if (!rc) {
        for (size_t i = 0; out->items && i < f.n; i++)
            if (f.items[i].own)
                out->items[out->n++] = f.items[i].snapshot;
        if (out->items && out->n)
            qsort(out->items, out->n, sizeof *out->items, newest_first);
        out->whole = f.whole;
    }
    free(f.items);
    return rc;
}
