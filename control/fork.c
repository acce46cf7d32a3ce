#include "control/fork.h"

#include "control/allocate.h"
#include "control/control.h"
#include "control/create_spec.h"
#include "control/fields.h"
#include "control/names.h"
#include "control/record.h"
#include "control/settings.h"
#include "control/snapshot_record.h"

#include "base/crypto.h"
#include "base/json.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_PATIENCE_MS = 20 * 1000, MADE_NAME_HEX = 20 };

struct spec {
    json_t *out; /* the body to send */
    char name[CREATE_NAME_TEXT];
    bool capture, resume;
    bool keep_stated;
};

struct forking {
    struct control *c;
    struct control_fork *k;
    struct spec spec;
    struct vercel_sandbox source;
    struct allocation a;
    struct control_capture capture;
    char snapshot_id[SNAPSHOT_ID_TEXT]; /* that the source's current one is; "": none */
    int64_t snapshot_expires_at;        /* -1: never, or not known */
    bool pinned;
};

static enum sg_code no_memory(struct sg_error *e, enum sg_outcome outcome)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the answer");
}

/* ---- what is asked ---- */

static enum sg_code read_name(const json_t *body, const char *alloc, struct spec *s, struct sg_error *e)
{
    const char *name = NULL;
    enum sg_code rc = sg_json_str(body, "", "name", 1024, &name, e);
    if (rc)
        return rc;
    if (name) {
        if (field_has_nul(json_object_get(body, "name")))
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/name", "must not hold NUL");
        rc = control_name_for_create(name, e);
        if (!rc)
            (void)snprintf(s->name, sizeof s->name, "%s", name);
        return rc;
    }
    (void)snprintf(s->name, sizeof s->name, "sb-%.*s", MADE_NAME_HEX,
                   alloc); /* the same for the same nonce */
    return SG_OK;
}

/* It shares its first snapshot with the source: it must neither evict it nor let it expire. */
static enum sg_code read_retention(const json_t *body, struct spec *s, struct sg_error *e)
{
    struct field_retention r = {.keep = 1};
    enum sg_code rc = field_retention(body, &r, e);
    if (!rc && r.expire_ms)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/expire_ms",
                           "must be 0 in a fork: others may start from its snapshot");
    if (!rc && r.delete_evicted)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/delete_evicted",
                           "must be false in a fork: others may start from its snapshot");
    s->keep_stated = json_object_get(json_object_get(body, "snapshots"), "delete_evicted") != NULL;
    return rc ? rc : field_retention_put(&r, s->out, e);
}

static enum sg_code read_spec(const struct control_fork *k, const char *alloc, struct spec *s,
                              struct sg_error *e)
{
    static const char *const known[] = {"name",       "vcpus",  "timeout_ms",       "ports",      "env",
                                        "tags",       "region", "failover_regions", "persistent", "snapshots",
                                        "network_id", "mounts", "network_policy",   "capture",    "resume",
                                        NULL};
    static enum sg_code (*const fields[])(const json_t *, json_t *, struct sg_error *) = {
        field_vcpus, field_timeout, field_persistent, field_ports,      field_env,
        field_tags,  field_mounts,  field_region,     field_network_id, field_network_policy,
    };
    s->out = json_object();
    enum sg_code rc = s->out ? sg_json_only(k->body, "", known, e) : no_memory(e, SG_NOT_SENT);
    if (!rc)
        rc = read_name(k->body, alloc, s, e);
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !rc; i++)
        rc = fields[i](k->body, s->out, e);
    if (!rc)
        rc = field_failover_regions(k->body, sg_jget_str(s->out, "region", NULL), s->out, e);
    if (!rc)
        rc = read_retention(k->body, s, e);
    if (!rc)
        rc = sg_json_bool(k->body, "", "capture", &s->capture, e);
    if (!rc)
        rc = sg_json_bool(k->body, "", "resume", &s->resume, e);
    if (!rc && s->resume && !s->capture)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/resume", "only with capture: it starts the source again");
    return rc ? rc : field_put(s->out, "name", json_string(s->name), e);
}

/* The source's tags would be copied with the gateway's own: the fork's are always stated. */
static enum sg_code put_tags(struct forking *f, struct sg_error *e)
{
    json_t *tags = json_incref(json_object_get(f->spec.out, "tags"));
    const struct sg_jnode *from = f->source.tags;
    if (!tags && (tags = json_object()) && from) {
        const struct sg_jnode *end = from + from->span;
        for (const struct sg_jnode *key = from + 1; key < end; key += 1 + key[1].span)
            if (key[1].type == SG_JSTRING && !control_tag_reserved(key->u.text) &&
                json_object_set_new(tags, key->u.text, json_string(key[1].u.text))) {
                json_decref(tags);
                return no_memory(e, SG_NOT_SENT);
            }
    }
    if (!tags)
        return no_memory(e, SG_NOT_SENT);
    enum sg_code rc = control_tags_add(tags, f->k->owner, f->a.alloc, e);
    if (rc)
        json_decref(tags);
    return rc ? rc : field_put(f->spec.out, "tags", tags, e);
}

/* ---- what it begins from ---- */

static enum sg_code pin_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct forking *f = arg;
    return store_snapshot_name_put(db, f->c->upstream, f->snapshot_id, SNAPSHOT_BY_SANDBOX, f->spec.name, e);
}

static enum sg_code unpin_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct forking *f = arg;
    return store_snapshot_name_drop(db, f->c->upstream, f->snapshot_id, SNAPSHOT_BY_SANDBOX, f->spec.name, e);
}

/* Without a store nobody sweeps either: the fork is seen in the upstream's list by then. */
static enum sg_code pin(struct forking *f, const char *snapshot_id, struct sg_error *e)
{
    struct sg_error own;
    (void)snprintf(f->snapshot_id, sizeof f->snapshot_id, "%s", snapshot_id);
    enum sg_code rc = control_in_store(f->c, STORE_WRITE, pin_fn, f, &own);
    f->pinned = !rc;
    if (!rc || rc == SG_E_STORE_UNAVAILABLE)
        return SG_OK;
    *e = own;
    return rc;
}

/* The source as it is, guarded, and its snapshot named. */
static enum sg_code prepare_source(struct forking *f, struct sg_error *e)
{
    struct control_capture *cap = &f->capture;
    enum sg_code rc = SG_OK;
    if (f->spec.capture) {
        struct vercel_snapshot s;
        *cap = (struct control_capture){.sandbox = f->k->source,
                                        .intend = f->c->store != NULL, /* it goes when nobody stands on it */
                                        .resume = f->spec.resume};
        rc = control_capture(f->c, cap, &s, e);
        if (!rc)
            vercel_snapshot_clear(&s);
    }
    if (!rc)
        rc = control_settled(f->c, f->k->source, &f->source, e);
    if (!rc)
        rc = control_guard(f->c, f->k->source, &f->source, e);
    if (!rc && f->source.current_snapshot_id)
        rc = pin(f, f->source.current_snapshot_id, e);
    return rc ? rc : put_tags(f, e);
}

/* ---- the transaction ---- */

static enum sg_code send_fork(struct control *c, void *arg, struct vercel_sandbox *out, struct sg_error *e)
{
    const struct forking *f = arg;
    return vercel_fork(c->vercel, f->k->source, f->spec.out, out, e);
}

/* What the gateway knows of the source holds for the fork: where its programs begin. */
static enum sg_code note(struct forking *f, struct sg_error *e)
{
    struct store_sandbox row = {0}, from = {0};
    const char *alloc = control_tag_of(&f->source, CONTROL_TAG_ALLOC);
    bool found = false;
    struct sg_error own;
    if (alloc && settings_read(f->c, alloc, &from, &found, &own))
        found = false;
    if (found) {
        row.working_directory = from.working_directory;
        row.web_port = from.web_port;
        row.keep_alive = from.keep_alive;
    }
    (void)snprintf(row.name, sizeof row.name, "%s", f->spec.name);
    (void)snprintf(row.alloc, sizeof row.alloc, "%s", f->a.alloc);
    row.init_done = true;
    enum sg_code rc = settings_put(f->c, &row, &own);
    if (rc && row.working_directory)
        *e = own; /* its programs would begin elsewhere */
    else
        rc = SG_OK;
    store_sandbox_clear(&from);
    return rc;
}

static enum sg_code settle(struct forking *f, struct sg_error *e)
{
    const struct control_fork *k = f->k;
    const char *began = f->a.s.session_snapshot_id ? f->a.s.session_snapshot_id : f->a.s.current_snapshot_id;
    enum sg_code rc = SG_OK;
    if (began && strcmp(began, f->snapshot_id) != 0) /* the source was stopped meanwhile */
        rc = pin(f, began, e);
    if (!rc)
        rc = note(f, e);
    if (!rc && !k->nonce && k->gone && k->gone(k->gone_arg))
        rc = sg_fail(e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    if (!rc && !f->spec.keep_stated)
        control_retention_watch(f->c, f->spec.name, f->a.s.created_at);
    return rc ? rc : allocation_keep(f->c, &f->a, e);
}

static enum sg_code transact(struct forking *f, struct sg_error *e)
{
    enum sg_code rc = allocation_intend(f->c, &f->a, false, e);
    if (!rc && f->k->again)
        rc = allocation_find(f->c, &f->a, e); /* an earlier run may have made it */
    if (!rc && f->a.made) {
        rc = vercel_get(f->c->vercel, f->k->source, false, &f->source, e);
        if (rc == SG_E_SANDBOX_NOT_FOUND) /* gone meanwhile: the fork is there nevertheless */
            rc = SG_OK;
    } else if (!rc) {
        rc = prepare_source(f, e);
        if (!rc)
            rc = allocation_send(f->c, &f->a, send_fork, f, e);
    }
    return rc ? rc : settle(f, e);
}

/* ---- the answer ---- */

static const char *warning(const struct forking *f)
{
    if (!*f->snapshot_id)
        return "the source has no snapshot: the fork begins with the source's image, without its files";
    if (!f->spec.capture && control_status(&f->source) == VERCEL_RUNNING)
        return "the source is running: the fork has its files as they were at its last snapshot";
    return NULL;
}

static void look_at_snapshot(struct forking *f)
{
    struct vercel_snapshot s;
    struct sg_error e;
    f->snapshot_expires_at = -1;
    if (!*f->snapshot_id || vercel_snapshot_get(f->c->vercel, f->snapshot_id, &s, &e))
        return;
    f->snapshot_expires_at = s.expires_at;
    vercel_snapshot_clear(&s);
}

static enum sg_code tell(struct forking *f, struct sg_error *e)
{
    const char *id = *f->snapshot_id ? f->snapshot_id : NULL, *text = warning(f);
    look_at_snapshot(f);
    json_t *r = control_record_now(f->c, &f->a.s);
    json_t *more =
        json_pack("{sb,ss,ss?,so,sb,sb,ss?}", "created", 1, "source", f->k->source, "source_snapshot_id", id,
                  "source_snapshot_expires_at", control_moment(f->snapshot_expires_at), "captured",
                  (int)f->capture.made, "live_state_included", (int)f->capture.made, "warning", text);
    int bad = !r || !more || json_object_update(r, more);
    json_decref(more);
    if (bad) {
        json_decref(r);
        return no_memory(e, SG_FINISHED);
    }
    f->k->record = r;
    return SG_OK;
}

static enum sg_code fork_it(struct forking *f, struct sg_error *e)
{
    struct name_lock lock;
    enum sg_code rc = control_name_lock(f->c, f->spec.name, NAME_PATIENCE_MS, &lock, e);
    if (rc)
        return rc;
    rc = transact(f, e);
    control_name_unlock(&lock);
    if (rc) {
        struct sg_error own;
        allocation_undo(f->c, &f->a, e);
        if (f->pinned && e->outcome != SG_OUTCOME_UNKNOWN &&
            control_in_store(f->c, STORE_WRITE, unpin_fn, f, &own))
            sg_log(SG_LOG_WARN, "name of a snapshot left", "snapshot", "s", f->snapshot_id, "error", "e",
                   &own, NULL);
        return rc;
    }
    control_observe(f->c, &f->a.s);
    return tell(f, e);
}

enum sg_code control_fork(struct control *c, struct control_fork *k, struct sg_error *e)
{
    struct forking f = {.c = c, .k = k, .a.keyed = k->nonce != NULL};
    k->record = NULL;
    k->name[0] = '\0';
    enum sg_code rc = control_name_for_lookup(k->source, e);
    if (!rc)
        rc = control_alloc(c, k->nonce, f.a.alloc, e);
    if (!rc)
        rc = read_spec(k, f.a.alloc, &f.spec, e);
    f.a.name = f.spec.name;
    if (!rc && !strcmp(f.spec.name, k->source))
        rc = sg_fail(e, SG_E_SANDBOX_EXISTS, SG_NOT_SENT, "the source has this name");
    else if (!rc)
        rc = fork_it(&f, e);
    if (!rc || rc == SG_E_SANDBOX_EXISTS)
        (void)snprintf(k->name, sizeof k->name, "%s", f.spec.name);
    if (rc == SG_E_SNAPSHOT_GONE && *f.snapshot_id && !strstr(e->detail, f.snapshot_id))
        rc = sg_fail(e, rc, e->outcome, "the snapshot %s that the source would resume from is no more",
                     f.snapshot_id);
    json_decref(f.spec.out);
    control_capture_clear(&f.capture);
    vercel_sandbox_clear(&f.source);
    vercel_sandbox_clear(&f.a.s);
    return rc;
}
