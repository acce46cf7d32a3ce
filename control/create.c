#include "control/create.h"

#include "control/allocate.h"
#include "control/control.h"
#include "control/create_spec.h"
#include "control/leases.h"
#include "control/names.h"
#include "control/origins.h"
#include "control/record.h"
#include "control/retention.h"
#include "control/session_start.h"
#include "control/settings.h"
#include "control/tags.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_PATIENCE_MS = 20 * 1000,
    TAKEN_BUT_UNSEEN_MS = 5000,
    PENDING_MS = 20 * 1000,
    LEASE_REFRESH_MS = 2000, /* what comes after the allocation takes longer: the lease begins anew */
};

static enum sg_code no_memory(struct sg_error *e, enum sg_outcome outcome)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the answer");
}

static bool is_running(const struct vercel_sandbox *s)
{
    return s->session_id && (s->session_cwd || s->cwd) && s->session_status == VERCEL_RUNNING;
}

/* ---- the answer ---- */

static enum sg_code tell(struct control *c, struct control_create *k, const struct vercel_sandbox *s,
                         const struct create_spec *ignoring, struct sg_error *e)
{
    json_t *r = control_record_now(c, s);
    int bad = !r || json_object_set_new(r, "created", json_boolean(k->created));
    if (!bad && ignoring)
        bad = json_object_set_new(r, "ignored", create_spec_ignored(ignoring));
    if (bad) {
        json_decref(r);
        return no_memory(e, k->created ? SG_FINISHED : SG_NOT_STARTED);
    }
    k->record = r;
    return SG_OK;
}

/* ---- what is run in it ---- */

static struct step_session session_of(const struct vercel_sandbox *s, const char *dir)
{
    return (struct step_session){s->name, s->session_id,
                                 dir ? dir : (s->session_cwd ? s->session_cwd : s->cwd), s->architecture};
}

/* Init, and what is to run in this session.  Whatever fails of it, the sandbox stays. */
static enum sg_code start_session(struct control *c, const struct vercel_sandbox *s, const char *alloc,
                                  const struct store_sandbox *row, struct sg_error *e)
{
    const struct step_session session = session_of(s, row->working_directory);
    bool ran = false;
    enum sg_code rc = SG_OK;
    if (row->init && !row->init_done)
        rc = session_init(c, &session, alloc, &ran, e);
    if (!rc && row->on_start)
        rc = session_on_start(c, &session, alloc, e);
    if (rc)
        e->outcome = SG_FINISHED; /* of the creation: the sandbox is there */
    return rc;
}

/* ---- one that is there already ---- */

static bool took_part(const struct vercel_sandbox *s, char alloc[CONTROL_ALLOC_TEXT])
{
    const char *tag = control_tag_of(s, CONTROL_TAG_ALLOC);
    return tag && snprintf(alloc, CONTROL_ALLOC_TEXT, "%s", tag) < CONTROL_ALLOC_TEXT;
}

/* Init that has not succeeded by now is begun anew. */
static enum sg_code catch_up(struct control *c, const struct vercel_sandbox *s, struct sg_error *e)
{
    char alloc[CONTROL_ALLOC_TEXT];
    struct store_sandbox row = {0};
    struct sg_error own;
    bool found = false;
    enum sg_code rc = SG_OK;
    if (!c->store || !took_part(s, alloc))
        return SG_OK;
    if (settings_read(c, alloc, &row, &found, &own)) {
        sg_log(SG_LOG_WARN, "what is kept of a sandbox cannot be read", "sandbox", "s", s->name, "error", "e",
               &own, NULL);
        return SG_OK; /* it is there, which is what was asked */
    }
    if (found && row.init && !row.init_done && is_running(s))
        rc = start_session(c, s, alloc, &row, e);
    store_sandbox_clear(&row);
    return rc;
}

/* Of one that somebody else creates just now: until its session runs, which is soon. */
static void await_running(struct control *c, struct vercel_sandbox *s)
{
    int64_t until = sg_mono_ms() + PENDING_MS;
    for (int pause_ms = 50; s->session_status == VERCEL_PENDING && sg_mono_ms() < until; pause_ms *= 2) {
        struct vercel_sandbox next;
        struct sg_error e;
        (void)poll(NULL, 0, pause_ms);
        if (vercel_get(c->vercel, s->name, false, &next, &e))
            return;
        vercel_sandbox_clear(s);
        *s = next;
    }
}

/* SANDBOX_NOT_FOUND: it is not there. */
static enum sg_code existing(struct control *c, struct control_create *k, const struct create_spec *spec,
                             struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = vercel_get(c->vercel, spec->name, spec->resume, &s, e);
    if (rc) {
        if (!spec->resume || e->outcome == SG_NOT_SENT)
            e->outcome = SG_NOT_STARTED; /* nothing was created, whatever became of this look */
        return rc;
    }
    (void)snprintf(k->name, sizeof k->name, "%s", s.name);
    await_running(c, &s);
    rc = catch_up(c, &s, e);
    control_observe(c, &s);
    if (!rc)
        rc = tell(c, k, &s, spec, e);
    vercel_sandbox_clear(&s);
    return rc;
}

/* ---- what it starts from ---- */

static bool has_origin(const struct create_spec *spec)
{
    return spec->template_name || spec->checkpoint;
}

/* Puts the snapshot of a template or checkpoint into the body; `gone`: one that turned out not to be there. */
static enum sg_code use_origin(struct control *c, struct create_spec *spec, const char *gone,
                               struct control_origin *o, struct sg_error *e)
{
    struct control_origin next = {0};
    enum sg_code rc = spec->template_name
                          ? control_template_use(c, spec->template_name, gone, &next, e)
                          : control_checkpoint_use(c, spec->checkpoint_name, gone, spec->or_base, &next, e);
    control_origin_clear(o);
    *o = next;
    if (rc)
        return rc;
    json_t *up = spec->upstream;
    bool snapshot;
    json_object_del(up, "source");
    if (!*o->snapshot_id)
        return o->base ? create_source_parse(o->base, "", up, &snapshot, e) : SG_OK;
    if (json_object_set_new(up, "source",
                            json_pack("{ssss}", "type", "snapshot", "snapshotId", o->snapshot_id)))
        return no_memory(e, SG_NOT_SENT);
    /* where the snapshot is, unless the caller says something else */
    if (*o->region && !json_object_get(up, "region") &&
        json_object_set_new(up, "region", json_string(o->region)))
        return no_memory(e, SG_NOT_SENT);
    return SG_OK;
}

/* ---- after the allocation ---- */

static void copy_row(struct store_sandbox *row, const struct create_spec *spec, const char *alloc)
{
    *row = (struct store_sandbox){
        .working_directory = spec->working_directory ? strdup(spec->working_directory) : NULL,
        .init = spec->init ? json_dumps(spec->init, JSON_COMPACT) : NULL,
        .on_start = spec->on_start ? json_dumps(spec->on_start, JSON_COMPACT) : NULL,
        .template_name = spec->template_name ? strdup(spec->template_name) : NULL,
        .checkpoint = spec->checkpoint ? strdup(spec->checkpoint_name ? spec->checkpoint_name : "") : NULL,
        .web_port = spec->web_port,
        .keep_alive = spec->keep_alive,
        .keep_alive_max_ms = spec->keep_alive_max_ms,
    };
    (void)snprintf(row->name, sizeof row->name, "%s", spec->name);
    (void)snprintf(row->alloc, sizeof row->alloc, "%s", alloc);
}

static bool whole(const struct store_sandbox *row, const struct create_spec *spec)
{
    return (row->working_directory || !spec->working_directory) && (row->init || !spec->init) &&
           (row->on_start || !spec->on_start) && (row->template_name || !spec->template_name) &&
           (row->checkpoint || !spec->checkpoint);
}

/* What is kept of it, before it is there: whoever gets it meanwhile finds it. */
static enum sg_code note(struct control *c, const struct create_spec *spec, struct allocation *a,
                         struct store_sandbox *row, struct sg_error *e)
{
    struct sg_error own;
    copy_row(row, spec, a->alloc);
    if (!whole(row, spec))
        return no_memory(e, SG_NOT_SENT);
    enum sg_code rc = settings_put(c, row, &own);
    a->noted = !rc;
    if (rc && create_spec_needs_store(spec)) {
        *e = own;
        e->outcome = SG_NOT_SENT;
        return rc;
    }
    if (rc)
        sg_log(SG_LOG_WARN, "a sandbox is not noted in the store", "sandbox", "s", spec->name, "error", "e",
               &own, NULL);
    return SG_OK;
}

/* Nobody will ever know of what is made. */
static bool client_left(const struct control_create *k)
{
    return !k->nonce && k->gone && k->gone(k->gone_arg);
}

/* The last before it is kept: whoever is told of the sandbox is told for good. */
static enum sg_code settle(struct control *c, struct control_create *k, const struct create_spec *spec,
                           struct allocation *a, struct sg_error *e)
{
    enum sg_code rc = SG_OK;
    if (a->noted)
        settings_made(c, spec->name, a->alloc);
    if (spec->working_directory) {
        const struct step_session session = session_of(&a->s, NULL);
        rc = session_directory(c, &session, spec->working_directory, e);
        if (rc == SG_E_STEP_FAILED) {
            char why[160];
            (void)snprintf(why, sizeof why, "%.159s", e->detail);
            rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/working_directory", "cannot be made: %s", why);
        }
    }
    if (!rc && spec->lease_ms)
        rc = lease_seen(c, a->s.name, a->alloc, spec->lease_ms, e);
    if (!rc && client_left(k))
        rc = sg_fail(e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    if (!rc)
        rc = allocation_keep(c, a, e);
    return rc;
}

/* It is kept: what is run in it may fail without taking it away. */
static enum sg_code finish(struct control *c, struct control_create *k, const struct create_spec *spec,
                           struct allocation *a, const struct store_sandbox *row, struct sg_error *e)
{
    int64_t began = sg_mono_ms();
    k->created = true;
    (void)snprintf(k->name, sizeof k->name, "%s", a->s.name);
    control_observe(c, &a->s);
    enum sg_code rc = SG_OK;
    if (spec->lease_ms && (spec->init || spec->on_start))
        rc = lease_hold(c, a->alloc, spec->lease_ms + 2 * (int64_t)STEP_TIMEOUT_MAX_MS, e);
    if (!rc)
        rc = start_session(c, &a->s, a->alloc, row, e);
    struct sg_error own;
    if (spec->lease_ms && sg_mono_ms() - began > LEASE_REFRESH_MS &&
        lease_seen(c, a->s.name, a->alloc, spec->lease_ms, &own) && !rc) {
        *e = own;
        rc = own.code;
    }
    return rc ? rc : tell(c, k, &a->s, NULL, e);
}

/* ---- the transaction ---- */

static enum sg_code prepare(struct control *c, const struct control_create *k, struct create_spec *spec,
                            struct allocation *a, struct control_origin *o, struct sg_error *e)
{
    enum sg_code rc = control_alloc(c, k->nonce, a->alloc, e);
    if (!rc && has_origin(spec))
        rc = use_origin(c, spec, NULL, o, e);
    json_t *tags = json_object_get(spec->upstream, "tags");
    if (!rc && !tags) {
        tags = json_object();
        if (json_object_set_new(spec->upstream, "tags", tags))
            rc = no_memory(e, SG_NOT_SENT);
    }
    if (!rc)
        rc = control_tags_add(tags, k->owner, a->alloc, e);
    if (!rc && spec->lease_ms && !spec->timeout_stated &&
        json_object_set_new(spec->upstream, "timeout", json_integer(lease_timeout_ms(spec->lease_ms))))
        rc = no_memory(e, SG_NOT_SENT);
    return rc;
}

static const json_t *snapshot_source(const struct create_spec *spec)
{
    return json_object_get(json_object_get(spec->upstream, "source"), "snapshotId");
}

/* A snapshot that the caller names by its id: from now on it is not evicted by the sandbox that it came from, nor swept. */
static enum sg_code give_snapshot(struct control *c, const struct create_spec *spec, struct sg_error *e)
{
    const char *id = has_origin(spec) ? NULL : json_string_value(snapshot_source(spec));
    enum sg_code rc = id ? control_snapshot_give(c, id, e) : SG_OK;
    if (rc == SG_E_SNAPSHOT_NOT_FOUND)
        rc = sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_STARTED, "there is no snapshot %s (any more)", id);
    if (rc)
        e->outcome = SG_NOT_STARTED;
    return rc;
}

/* One that does not evict since it starts from a snapshot, and not because its caller wants that. */
static void watch_retention(struct control *c, const struct create_spec *spec, const struct allocation *a)
{
    const json_t *stated = json_object_get(json_object_get(spec->asked, "snapshots"), "delete_evicted");
    if (snapshot_source(spec) && !stated)
        control_retention_watch(c, a->s.name, a->s.created_at);
}

/* One POST, or two where the first was refused for something that can be helped. */
static enum sg_code allocate(struct control *c, struct create_spec *spec, struct allocation *a,
                             struct control_origin *o, struct sg_error *e)
{
    enum sg_code rc = give_snapshot(c, spec, e);
    if (!rc)
        rc = allocation_make(c, a, spec->upstream, e);
    if (allocation_timeout_refused(e, rc) && !spec->timeout_stated &&
        json_integer_value(json_object_get(spec->upstream, "timeout")) > CREATE_TIMEOUT_SMALL_MS) {
        if (json_object_set_new(spec->upstream, "timeout", json_integer(CREATE_TIMEOUT_SMALL_MS)))
            return no_memory(e, SG_NOT_STARTED);
        rc = allocation_make(c, a, spec->upstream, e);
    }
    if (rc == SG_E_SNAPSHOT_GONE && *o->snapshot_id) {
        char gone[ORIGIN_ID_TEXT];
        memcpy(gone, o->snapshot_id, sizeof gone);
        rc = use_origin(c, spec, gone, o, e);
        if (!rc)
            rc = allocation_make(c, a, spec->upstream, e);
    }
    return rc;
}

/* Under the name's lock. */
static enum sg_code transact(struct control *c, struct control_create *k, struct create_spec *spec,
                             struct allocation *a, struct control_origin *o, struct store_sandbox *row,
                             struct sg_error *e)
{
    enum sg_code rc = note(c, spec, a, row, e);
    if (!rc)
        rc = allocation_intend(c, a, create_spec_needs_store(spec), e);
    if (!rc && spec->lease_ms) {
        rc = lease_begin(c, spec->name, a->alloc, spec->lease_ms, e);
        a->leased = !rc;
    }
    if (!rc && k->again)
        rc = allocation_find(c, a, e); /* an earlier run may have made it */
    if (!rc && !a->made)
        rc = allocate(c, spec, a, o, e);
    if (!rc)
        watch_retention(c, spec, a);
    return rc ? rc : settle(c, k, spec, a, e);
}

static enum sg_code create(struct control *c, struct control_create *k, struct create_spec *spec,
                           struct sg_error *e)
{
    struct allocation a = {.name = spec->name, .keyed = k->nonce != NULL};
    struct control_origin o = {0};
    struct store_sandbox row = {0};
    struct name_lock lock = {0};
    enum sg_code rc = prepare(c, k, spec, &a, &o, e);
    if (!rc && (!spec->made_name || k->again)) /* nobody else has a name that was just made up */
        rc = control_name_lock(c, spec->name, NAME_PATIENCE_MS, &lock, e);
    bool begun = !rc;
    if (!rc)
        rc = transact(c, k, spec, &a, &o, &row, e);
    control_name_unlock(&lock);
    if (rc && begun) /* takes the lock itself */
        allocation_undo(c, &a, e);
    if (rc == SG_E_SANDBOX_EXISTS)
        (void)snprintf(k->name, sizeof k->name, "%s", spec->name);
    k->blank = !spec->shared || (has_origin(spec) && !*o.snapshot_id);
    if (!rc) {
        rc = finish(c, k, spec, &a, &row, e);
        if (!spec->get_if_exists && client_left(k)) { /* others were told of one that is to be got */
            json_decref(k->record);
            k->record = NULL;
            rc = sg_fail(e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
            allocation_undo(c, &a, e);
        }
    }
    store_sandbox_clear(&row);
    control_origin_clear(&o);
    vercel_sandbox_clear(&a.s);
    return rc;
}

/* Get or create.  A name may be taken and yet not to be seen: somebody is creating or destroying it at this moment.
 * Both end soon, and then it can be got or created. */
static enum sg_code get_or_create(struct control *c, struct control_create *k, struct create_spec *spec,
                                  struct sg_error *e)
{
    int64_t until = sg_mono_ms() + TAKEN_BUT_UNSEEN_MS;
    for (int pause_ms = 10;; pause_ms *= 2) {
        enum sg_code rc = k->again ? SG_E_SANDBOX_NOT_FOUND : existing(c, k, spec, e);
        if (rc == SG_E_SANDBOX_NOT_FOUND)
            rc = create(c, k, spec, e);
        if (rc != SG_E_SANDBOX_EXISTS)
            return rc;
        k->again = false; /* it is another one's */
        rc = existing(c, k, spec, e);
        if (rc != SG_E_SANDBOX_NOT_FOUND || sg_mono_ms() + pause_ms > until)
            return rc;
        (void)poll(NULL, 0, pause_ms);
    }
}

enum sg_code control_create(struct control *c, struct control_create *k, struct sg_error *e)
{
    struct create_spec spec;
    k->record = NULL;
    k->created = k->blank = false;
    k->name[0] = '\0';
    enum sg_code rc = create_spec_parse(k->body, k->nonce, &spec, e);
    if (rc)
        return rc;
    rc = spec.get_if_exists ? get_or_create(c, k, &spec, e) : create(c, k, &spec, e);
    create_spec_clear(&spec);
    return rc;
}
