#include "control/checkpoints.h"

#include "control/control.h"
#include "control/create_spec.h"
#include "control/fields.h"
#include "control/names.h"
#include "control/origins.h"
#include "control/snapshot_record.h"
#include "control/sweep.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { LOCK_PATIENCE_MS = 20 * 1000 };

enum sg_code checkpoint_name(const char *name, const char *pointer, struct sg_error *e)
{
    if (!name || !field_is_name(name, CHECKPOINT_NAME_TEXT - 1) || name[0] == '_' || name[0] == '-' ||
        !strcmp(name, "default"))
        return sg_fail_field(e, SG_E_INVALID_FIELD, pointer,
                             "a name is 1 to %d letters, digits, '_' or '-', beginning with a letter or "
                             "digit, and not \"default\"",
                             CHECKPOINT_NAME_TEXT - 1);
    return SG_OK;
}

/* ---- rows ---- */

struct call {
    struct control *c;
    const char *name, *snapshot_id, *session_id;
    struct store_checkpoint *row;
    struct store_checkpoint before;
    bool found;
    int64_t limit;
    store_checkpoint_fn *fn;
    void *arg;
};

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_checkpoint_get(db, k->c->upstream, k->name, k->row, &k->found, e);
}

static enum sg_code put_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_checkpoint_put(db, k->c->upstream, k->row, &k->before, e);
}

static enum sg_code gone_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_checkpoint_gone(db, k->c->upstream, k->name, k->snapshot_id, e);
}

static enum sg_code default_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_checkpoint_default(db, k->c->upstream, k->name, &k->found, e);
}

static enum sg_code list_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_checkpoint_list(db, k->c->upstream, k->name, k->limit, k->fn, k->arg, e);
}

/* What is dropped goes, in the same step: its snapshot when it was made for it; one that was there before is its sandbox's
 * again, where that is swept. */
static enum sg_code let_go(struct store_db *db, struct call *k, struct sg_error *e)
{
    const struct store_checkpoint *b = &k->before;
    if (!*b->snapshot_id || b->gone || (k->row && !strcmp(b->snapshot_id, k->row->snapshot_id)))
        return SG_OK;
    struct store_release r = {.created_at_ms = b->sandbox_created_ms};
    (void)snprintf(r.snapshot_id, sizeof r.snapshot_id, "%s", b->snapshot_id);
    if (!b->made)
        (void)snprintf(r.sandbox, sizeof r.sandbox, "%s", b->sandbox);
    enum sg_code rc = store_release_put(db, k->c->upstream, &r, e);
    return rc || b->made ? rc : store_retention_again(db, k->c->upstream, b->sandbox, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    enum sg_code rc = store_checkpoint_drop(db, k->c->upstream, k->name, &k->before, &k->found, e);
    return rc || !k->found ? rc : let_go(db, k, e);
}

static enum sg_code replace_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    bool had;
    enum sg_code rc = put_fn(db, arg, e);
    if (!rc && *k->session_id)
        rc = store_capture_drop(db, k->c->upstream, k->session_id, &had, e);
    return rc ? rc : let_go(db, k, e);
}

static enum sg_code not_found(const char *name, struct sg_error *e)
{
    return name ? sg_fail(e, SG_E_CHECKPOINT_NOT_FOUND, SG_NOT_SENT, "there is no checkpoint %s", name)
                : sg_fail(e, SG_E_CHECKPOINT_NOT_FOUND, SG_NOT_SENT, "there is no default checkpoint");
}

static enum sg_code read_row(struct control *c, const char *name, struct store_checkpoint *out,
                             struct sg_error *e)
{
    struct call k = {.c = c, .name = name, .row = out};
    enum sg_code rc = control_in_store(c, STORE_READ, get_fn, &k, e);
    return rc || k.found ? rc : not_found(name, e);
}

/* ---- making ---- */

static void fill(struct control_checkpoint *k, const struct vercel_snapshot *s)
{
    const struct control_capture *cap = &k->capture;
    struct store_checkpoint *r = &k->row;
    *r = (struct store_checkpoint){.sandbox_created_ms = cap->created_at_ms,
                                   .size_bytes = s->size_bytes,
                                   .made = cap->made,
                                   .is_default = k->make_default};
    (void)snprintf(r->name, sizeof r->name, "%s", k->name);
    (void)snprintf(r->snapshot_id, sizeof r->snapshot_id, "%s", s->id);
    (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", cap->sandbox);
    (void)snprintf(r->owner, sizeof r->owner, "%s", k->owner ? k->owner : "");
    (void)snprintf(r->region, sizeof r->region, "%s", s->region ? s->region : "");
    (void)snprintf(r->architecture, sizeof r->architecture, "%s", s->architecture ? s->architecture : "");
    (void)snprintf(r->image, sizeof r->image, "%s", cap->image ? cap->image : "");
    (void)snprintf(r->runtime, sizeof r->runtime, "%s", cap->runtime ? cap->runtime : "");
}

static enum sg_code make(struct control *c, struct control_checkpoint *k, struct sg_error *e)
{
    struct vercel_snapshot s = {0};
    struct store_checkpoint there;
    struct call call = {.c = c, .name = k->name, .row = &there};
    k->capture.intend = true;
    enum sg_code rc = control_in_store(c, STORE_READ, get_fn, &call, e);
    if (!rc && call.found && !k->replace)
        rc = sg_fail(e, SG_E_CHECKPOINT_EXISTS, SG_NOT_SENT, "the checkpoint %s was made at another time",
                     k->name);
    if (!rc)
        rc = control_capture(c, &k->capture, &s, e);
    if (rc)
        return rc;
    fill(k, &s);
    call.row = &k->row;
    call.session_id = k->capture.session_id;
    rc = control_in_store(c, STORE_DURABLE, replace_fn, &call, e);
    if (!rc)
        rc = read_row(c, k->name, &k->row, e);
    if (rc && k->capture.made) /* without a name it is released in time */
        e->outcome = SG_STARTED;
    vercel_snapshot_clear(&s);
    if (*call.before.snapshot_id)
        control_sweep_kick(c);
    return rc;
}

enum sg_code checkpoint_make(struct control *c, struct control_checkpoint *k, struct sg_error *e)
{
    char lock_name[CHECKPOINT_NAME_TEXT + 16];
    struct name_lock lock;
    (void)snprintf(lock_name, sizeof lock_name, "checkpoint/%s", k->name); /* no sandbox has such a name */
    enum sg_code rc = control_name_lock(c, lock_name, LOCK_PATIENCE_MS, &lock, e);
    if (rc)
        return rc;
    rc = make(c, k, e);
    control_name_unlock(&lock);
    return rc;
}

/* ---- healing ---- */

static void heal(struct control *c, struct store_checkpoint *row)
{
    struct sg_error e;
    struct call k = {.c = c, .name = row->name, .snapshot_id = row->snapshot_id};
    sg_log(SG_LOG_WARN, "checkpoint without its snapshot", "checkpoint", "s", row->name, "snapshot", "s",
           row->snapshot_id, "default", "b", (int)row->is_default, NULL);
    if (control_in_store(c, STORE_WRITE, gone_fn, &k, &e))
        sg_log(SG_LOG_WARN, "checkpoint not healed", "checkpoint", "s", row->name, "error", "e", &e, NULL);
    row->gone = true;
    row->is_default = false;
}

enum sg_code checkpoint_get(struct control *c, const char *name, struct store_checkpoint *out,
                            struct sg_error *e)
{
    enum sg_code rc = read_row(c, name, out, e);
    if (rc || out->gone)
        return rc;
    struct vercel_snapshot s;
    struct sg_error own;
    rc = vercel_snapshot_get(c->vercel, out->snapshot_id, &s, &own);
    if (rc == SG_E_SNAPSHOT_NOT_FOUND || (!rc && s.status != VERCEL_SNAPSHOT_CREATED))
        heal(c, out);
    if (!rc)
        vercel_snapshot_clear(&s);
    return SG_OK; /* an upstream that cannot be asked says nothing against it */
}

static enum sg_code base_of(const struct store_checkpoint *row, struct control_origin *out,
                            struct sg_error *e)
{
    const char *key = *row->image ? "image" : "runtime", *value = *row->image ? row->image : row->runtime;
    if (!*value)
        return SG_OK;
    out->base = json_pack("{ss}", key, value);
    return out->base ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

enum sg_code control_checkpoint_use(struct control *c, const char *name, const char *gone, bool or_base,
                                    struct control_origin *out, struct sg_error *e)
{
    struct store_checkpoint row;
    *out = (struct control_origin){0};
    enum sg_code rc = read_row(c, name, &row, e);
    if (rc == SG_E_CHECKPOINT_NOT_FOUND && !name && or_base) { /* no default: healed before, or never set */
        sg_error_clear(e);
        return SG_OK;
    }
    if (rc)
        return rc;
    if (gone && !row.gone && !strcmp(gone, row.snapshot_id))
        heal(c, &row);
    if (row.gone && or_base)
        return base_of(&row, out, e);
    if (row.gone)
        return sg_fail(e, SG_E_CHECKPOINT_GONE, SG_NOT_STARTED,
                       "the snapshot %s of the checkpoint %s is no more", row.snapshot_id, row.name);
    (void)snprintf(out->snapshot_id, sizeof out->snapshot_id, "%s", row.snapshot_id);
    (void)snprintf(out->region, sizeof out->region, "%s", row.region);
    (void)snprintf(out->architecture, sizeof out->architecture, "%s", row.architecture);
    return SG_OK;
}

/* ---- the rest ---- */

enum sg_code checkpoint_delete(struct control *c, const char *name, struct sg_error *e)
{
    struct call k = {.c = c, .name = name};
    enum sg_code rc = control_in_store(c, STORE_DURABLE, drop_fn, &k, e);
    if (!rc && k.found)
        control_sweep_kick(c);
    return rc;
}

enum sg_code checkpoint_default(struct control *c, const char *name, struct sg_error *e)
{
    struct store_checkpoint row;
    struct call k = {.c = c, .name = name};
    enum sg_code rc = name ? checkpoint_get(c, name, &row, e) : SG_OK;
    if (!rc && name && row.gone)
        rc = sg_fail(e, SG_E_CHECKPOINT_GONE, SG_NOT_SENT, "the snapshot %s of the checkpoint %s is no more",
                     row.snapshot_id, name);
    if (!rc)
        rc = control_in_store(c, STORE_WRITE, default_fn, &k, e);
    return rc || k.found ? rc : not_found(name, e);
}

enum sg_code checkpoint_list(struct control *c, const char *after, int64_t limit, store_checkpoint_fn *fn,
                             void *arg, struct sg_error *e)
{
    struct call k = {.c = c, .name = after, .limit = limit, .fn = fn, .arg = arg};
    return control_in_store(c, STORE_READ, list_fn, &k, e);
}

static const char *text(const char *s)
{
    return *s ? s : NULL;
}

json_t *checkpoint_record(const struct store_checkpoint *r)
{
    return json_pack("{ss,ss,ss,ss,sb,ss?,ss?,ss?,ss?,ss?,so,so}", "name", r->name, "snapshot_id",
                     r->snapshot_id, "sandbox", r->sandbox, "state", r->gone ? "gone" : "ready", "default",
                     (int)r->is_default, "owner", text(r->owner), "region", text(r->region), "architecture",
                     text(r->architecture), "image", text(r->image), "runtime", text(r->runtime),
                     "size_bytes", r->size_bytes >= 0 ? json_integer(r->size_bytes) : json_null(),
                     "created_at", control_moment(r->created_at_ms));
}
