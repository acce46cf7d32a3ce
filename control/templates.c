#include "control/templates.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/json.h"
#include "control/control.h"
#include "control/flights.h"
#include "control/origins.h"
#include "control/prepare.h"
#include "control/retention.h"
#include "store/locks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_LIST = 100 };

struct row { /* a template, and what is prepared of it */
    const char *upstream, *name;
    struct store_template t;
    struct store_prep prep;
    bool found, prepared, made, builds;
};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the template");
}

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct row *r = arg;
    store_template_clear(&r->t); /* this may run again */
    r->prepared = false;
    enum sg_code rc = store_template_get(db, r->upstream, r->name, &r->t, &r->found, e);
    if (rc || !r->found)
        return rc;
    return store_prep_get(db, r->upstream, r->t.fingerprint, &r->prep, &r->prepared, e);
}

/* TEMPLATE_NOT_FOUND.  The row is cleared by store_template_clear(&r->t), also after a failure. */
static enum sg_code find(struct control *c, const char *name, struct row *r, struct sg_error *e)
{
    *r = (struct row){.upstream = c->upstream, .name = name};
    if (control_name_for_create(name, NULL))
        return sg_fail(e, SG_E_TEMPLATE_NOT_FOUND, SG_NOT_STARTED, "there is no template of this name");
    enum sg_code rc = control_in_store(c, STORE_READ, get_fn, r, e);
    if (!rc && !r->found)
        rc = sg_fail(e, SG_E_TEMPLATE_NOT_FOUND, SG_NOT_STARTED, "there is no template %.64s", name);
    return rc;
}

static enum sg_code parse(const struct row *r, struct template_spec *out, struct sg_error *e)
{
    json_t *body = json_loads(r->t.spec, JSON_ALLOW_NUL, NULL);
    if (!body)
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the template in the store cannot be read");
    enum sg_code rc = template_spec_parse(body, out, e);
    json_decref(body);
    return rc;
}

/* ---- records ---- */

static json_t *time_json(int64_t ms)
{
    char text[SG_TIME_TEXT];
    if (ms <= 0)
        return json_null();
    sg_time_format(ms, text);
    return json_string(text);
}

static json_t *text_json(const char *s)
{
    return *s ? json_string(s) : json_null();
}

static const char *state_name(const struct row *r)
{
    if (!r->prepared)
        return "unprepared";
    return r->prep.state == PREP_RUNNING ? "preparing" : r->prep.state == PREP_READY ? "ready" : "failed";
}

static int put_prepared(json_t *o, const struct store_prep *p)
{
    int bad = json_object_set_new(o, "started_at", time_json(p->started_at_ms));
    bad |= json_object_set_new(o, "ended_at", time_json(p->ended_at_ms));
    bad |= json_object_set_new(o, "log_bytes", json_integer(p->log_end));
    if (*p->error)
        bad |= json_object_set_new(o, "error", json_pack("{ssss}", "code", p->error, "detail", p->detail));
    if (p->state != PREP_READY)
        return bad;
    bad |= json_object_set_new(o, "identity", text_json(p->identity));
    bad |= json_object_set_new(o, "snapshot_id", text_json(p->snapshot_id));
    bad |= json_object_set_new(o, "region", text_json(p->region));
    bad |= json_object_set_new(o, "architecture", text_json(p->architecture));
    bad |= json_object_set_new(o, "image", text_json(p->image));
    return bad;
}

/* What was declared, with files told by their hashes. */
static int put_declared(json_t *o, const struct template_spec *s)
{
    json_t *declared = json_copy(s->asked);
    int bad = !declared;
    if (!bad && s->files)
        bad = json_object_set_new(declared, "files", template_files_told(s->files));
    return bad | json_object_set_new(o, "declared", declared);
}

/* spec NULL: without what it declares. */
static json_t *record(const struct row *r, const struct template_spec *spec)
{
    json_t *o =
        json_pack("{ssssss}", "name", r->t.name, "state", state_name(r), "fingerprint", r->t.fingerprint);
    int bad = json_object_set_new(o, "owner", text_json(r->t.owner));
    bad |= json_object_set_new(o, "created_at", time_json(r->t.made_at_ms));
    bad |= json_object_set_new(o, "updated_at", time_json(r->t.changed_at_ms));
    if (r->prepared)
        bad |= put_prepared(o, &r->prep);
    if (spec)
        bad |= put_declared(o, spec);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static enum sg_code tell(const struct row *r, json_t **out, struct sg_error *e)
{
    struct template_spec spec = {0};
    enum sg_code rc = parse(r, &spec, e);
    if (rc)
        return rc;
    *out = record(r, &spec);
    template_spec_clear(&spec);
    return *out ? SG_OK : no_memory(e);
}

/* ---- put, get, list, delete ---- */

static enum sg_code put_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct row *r = arg;
    enum sg_code rc = store_template_put(db, r->upstream, &r->t, &r->made, e);
    if (rc || r->builds)
        return rc;
    /* there is nothing to prepare, so that is done */
    struct store_prep_claim claim = {.fingerprint = r->t.fingerprint, .attempt = r->prep.attempt};
    rc = store_prep_claim(db, r->upstream, &claim, e);
    if (rc || claim.verdict != PREP_YOURS)
        return rc;
    bool held;
    return store_prep_end(db, r->upstream, &r->prep, &held, e);
}

enum sg_code control_template_put(struct control *c, const char *name, json_t *body, const char *owner,
                                  json_t **out, bool *made, struct sg_error *e)
{
    struct template_spec spec;
    struct row r = {.upstream = c->upstream, .name = name};
    enum sg_code rc = control_name_for_create(name, e);
    if (!rc)
        rc = template_spec_parse(body, &spec, e);
    if (rc)
        return rc;
    r.t.spec = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    (void)snprintf(r.t.name, sizeof r.t.name, "%s", name);
    (void)snprintf(r.t.owner, sizeof r.t.owner, "%s", owner ? owner : "");
    memcpy(r.t.fingerprint, spec.fingerprint, sizeof r.t.fingerprint);
    memcpy(r.prep.fingerprint, spec.fingerprint, sizeof r.prep.fingerprint);
    r.prep.state = PREP_READY;
    r.builds = spec.builds;
    if (!store_owner(r.prep.attempt)) {
        template_spec_clear(&spec);
        store_template_clear(&r.t);
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness");
    }
    rc = r.t.spec ? control_in_store(c, STORE_DURABLE, put_fn, &r, e) : no_memory(e);
    *made = r.made;
    template_spec_clear(&spec);
    store_template_clear(&r.t);
    if (rc)
        return rc;
    templates_sweep(c); /* what it was before is perhaps nobody's any more */
    return control_template_get(c, name, out, e);
}

enum sg_code control_template_get(struct control *c, const char *name, json_t **out, struct sg_error *e)
{
    struct row r;
    enum sg_code rc = find(c, name, &r, e);
    if (!rc)
        rc = tell(&r, out, e);
    store_template_clear(&r.t);
    return rc;
}

struct list {
    const char *upstream, *after;
    int64_t limit;
    struct row *rows;
    size_t n;
    bool more;
};

static enum sg_code list_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct list *l = arg;
    struct store_template *items = NULL;
    size_t n = 0;
    enum sg_code rc = store_template_list(db, l->upstream, l->after, l->limit + 1, &items, &n, e);
    l->more = (int64_t)n > l->limit;
    l->n = l->more ? (size_t)l->limit : n;
    for (size_t i = 0; !rc && i < l->n; i++) {
        struct row *r = &l->rows[i];
        *r = (struct row){.t = items[i], .found = true};
        rc = store_prep_get(db, l->upstream, r->t.fingerprint, &r->prep, &r->prepared, e);
    }
    free(items);
    return rc;
}

enum sg_code control_template_list(struct control *c, const char *cursor, int64_t limit, json_t **page,
                                   struct sg_error *e)
{
    if (limit < 1 || limit > SHORT_LIST)
        limit = SHORT_LIST;
    struct list l = {.upstream = c->upstream, .after = cursor, .limit = limit};
    json_t *items = json_array();
    l.rows = calloc((size_t)limit, sizeof *l.rows);
    enum sg_code rc = l.rows && items ? control_in_store(c, STORE_READ, list_fn, &l, e) : no_memory(e);
    for (size_t i = 0; !rc && i < l.n; i++)
        if (json_array_append_new(items, record(&l.rows[i], NULL)))
            rc = no_memory(e);
    if (!rc) {
        *page = json_pack("{sOss?}", "items", items, "next_cursor", l.more ? l.rows[l.n - 1].t.name : NULL);
        rc = *page ? SG_OK : no_memory(e);
    }
    json_decref(items);
    free(l.rows);
    return rc;
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct row *r = arg;
    return store_template_drop(db, r->upstream, r->name, &r->found, e);
}

enum sg_code control_template_delete(struct control *c, const char *name, struct sg_error *e)
{
    struct row r = {.upstream = c->upstream, .name = name};
    if (control_name_for_create(name, NULL))
        return SG_OK; /* cannot exist */
    enum sg_code rc = control_in_store(c, STORE_DURABLE, drop_fn, &r, e);
    if (!rc)
        templates_sweep(c);
    return rc;
}

/* ---- using it ---- */

static enum sg_code take_origin(const struct template_spec *spec, const struct store_prep *p,
                                struct control_origin *out, struct sg_error *e)
{
    *out = (struct control_origin){0};
    if (p) {
        (void)snprintf(out->snapshot_id, sizeof out->snapshot_id, "%s", p->snapshot_id);
        (void)snprintf(out->region, sizeof out->region, "%s", p->region);
        (void)snprintf(out->architecture, sizeof out->architecture, "%s", p->architecture);
        return SG_OK;
    }
    (void)snprintf(out->region, sizeof out->region, "%s", sg_jget_str(spec->create, "region", ""));
    (void)snprintf(out->architecture, sizeof out->architecture, "%s",
                   sg_jget_str(spec->create, "architecture", ""));
    out->base = spec->from ? json_deep_copy(spec->from) : NULL;
    return !spec->from || out->base ? SG_OK : no_memory(e);
}

enum sg_code control_template_use(struct control *c, const char *template_name, const char *gone,
                                  struct control_origin *out, struct sg_error *e)
{
    struct row r;
    struct template_spec spec = {0};
    struct store_prep prep;
    enum sg_code rc = find(c, template_name, &r, e);
    if (!rc)
        rc = parse(&r, &spec, e);
    if (rc) {
        store_template_clear(&r.t);
        return rc;
    }
    bool ready = r.prepared && r.prep.state == PREP_READY && (!gone || strcmp(gone, r.prep.snapshot_id) != 0);
    if (!spec.builds) {
        rc = take_origin(&spec, NULL, out, e);
    } else if (
        ready) { /* usable as far as is known: a create that is told otherwise comes again with it as `gone` */
        rc = take_origin(&spec, &r.prep, out, e);
    } else if (!c->templates) {
        rc = sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "nothing is there to prepare templates");
    } else {
        struct flight_wish w = {.spec = &spec, .owner = r.t.owner, .gone = gone};
        rc = flight_wait(c->templates, &w, &prep, e);
        if (!rc)
            rc = take_origin(NULL, &prep, out, e);
    }
    template_spec_clear(&spec);
    store_template_clear(&r.t);
    return rc;
}

/* ---- once more, in a sandbox that is there ---- */

/* Its running session; out is cleared by cached_session_clear. */
static enum sg_code running(struct control *c, const char *sandbox, bool resume, struct cached_session *out,
                            struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = control_name_for_lookup(sandbox, e);
    if (!rc)
        rc = vercel_get(c->vercel, sandbox, resume, &s, e);
    if (rc)
        return rc;
    enum vercel_status status = s.session_status != VERCEL_STATUS_OTHER ? s.session_status : s.status;
    control_observe(c, &s);
    vercel_sandbox_clear(&s);
    if (status == VERCEL_RUNNING && session_cache_get(c->sessions, sandbox, out))
        return SG_OK;
    bool moves = status == VERCEL_STOPPING || status == VERCEL_SNAPSHOTTING || status == VERCEL_PENDING;
    return sg_fail(e, moves ? SG_E_SANDBOX_TRANSITION : SG_E_SANDBOX_NOT_RUNNING, SG_NOT_SENT,
                   "the sandbox is %s", vercel_status_name(status));
}

static enum sg_code apply(struct control *c, const struct template_spec *spec, const struct step_session *s,
                          const char *nonce, struct sg_error *e)
{
    char id[48], random[33];
    if (!nonce && !sg_random_id(random, "", 24))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for an id");
    (void)snprintf(id, sizeof id, "apply-%.32s", nonce ? nonce : random);
    enum sg_code rc = steps_base_check(c, s, e);
    return rc ? rc : prepare_inside(c, spec, s, id, NULL, NULL, e);
}

enum sg_code control_template_apply(struct control *c, const char *sandbox, const char *name, bool resume,
                                    const char *nonce, json_t **told, struct sg_error *e)
{
    struct row r;
    struct template_spec spec = {0};
    struct cached_session session = {0};
    enum sg_code rc = find(c, name, &r, e);
    if (!rc)
        rc = parse(&r, &spec, e);
    if (!rc)
        rc = running(c, sandbox, resume, &session, e);
    const struct step_session s = {sandbox, session.session_id, session.cwd, session.arch};
    if (!rc)
        rc = apply(c, &spec, &s, nonce, e);
    if (!rc) {
        *told = json_pack("{ssssssss}", "sandbox", sandbox, "session_id", session.session_id, "template",
                          name, "fingerprint", spec.fingerprint);
        if (!*told)
            rc = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
    }
    cached_session_clear(&session);
    template_spec_clear(&spec);
    store_template_clear(&r.t);
    return rc;
}

/* ---- preparing, for the loop ---- */

struct template_wish {
    struct control *c;
    char name[TEMPLATE_NAME_TEXT];
    bool refresh;
    struct sg_task task;
    json_t *record;
    bool failed;
    struct sg_error error;
    control_template_fn *done; /* NULL: nobody waits any more */
    void *arg;
};

static void on_wished(struct sg_task *t)
{
    struct template_wish *w = (struct template_wish *)((char *)t - offsetof(struct template_wish, task));
    if (w->done)
        w->done(w->arg, w->failed ? NULL : json_incref(w->record), w->failed ? &w->error : NULL);
    json_decref(w->record);
    free(w);
}

static void wish_end(struct template_wish *w, const struct sg_error *e)
{
    w->failed = e != NULL;
    if (e)
        w->error = *e;
    sg_loop_post(w->c->loop, &w->task);
}

static void on_flown(void *arg, const struct flight_end *end)
{
    struct template_wish *w = arg;
    struct sg_error e = end->error;
    enum sg_code rc = end->code;
    if (!rc)
        rc = control_template_get(w->c, w->name, &w->record, &e);
    wish_end(w, rc ? &e : NULL);
}

static void wish_begin(void *arg)
{
    struct template_wish *w = arg;
    struct control *c = w->c;
    struct row r;
    struct template_spec spec = {0};
    struct sg_error e;
    enum sg_code rc = find(c, w->name, &r, &e);
    if (!rc)
        rc = parse(&r, &spec, &e);
    if (!rc && !spec.builds)
        rc = tell(&r, &w->record, &e);
    if (rc || !spec.builds) {
        template_spec_clear(&spec);
        store_template_clear(&r.t);
        wish_end(w, rc ? &e : NULL);
        return;
    }
    struct flight_wish f = {.spec = &spec, .owner = r.t.owner, .refresh = w->refresh, .verify = true};
    flight_join(c->templates, &f, on_flown, w);
    store_template_clear(&r.t);
}

struct template_wish *control_template_prepare(struct control *c, const char *name, bool refresh,
                                               control_template_fn *done, void *arg, struct sg_error *e)
{
    struct template_wish *w = calloc(1, sizeof *w);
    if (!w) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        return NULL;
    }
    if (strlen(name) >= sizeof w->name) {
        free(w);
        (void)sg_fail(e, SG_E_TEMPLATE_NOT_FOUND, SG_NOT_SENT, "there is no template of this name");
        return NULL;
    }
    *w = (struct template_wish){.c = c, .refresh = refresh, .task.fn = on_wished, .done = done, .arg = arg};
    memcpy(w->name, name, strlen(name) + 1);
    if (c->templates && jobs_once(c->jobs, wish_begin, w))
        return w;
    free(w);
    (void)sg_fail(e, SG_E_OVERLOADED, SG_NOT_SENT, "no thread is left to begin with");
    return NULL;
}

void control_template_unwish(struct template_wish *w)
{
    w->done = NULL;
}
