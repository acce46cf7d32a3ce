/* The sandbox in which a template is prepared. */
#include "control/prepare_impl.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "control/cleanups.h"
#include "control/fields.h"
#include "control/tags.h"
#include "vercel/snapshots.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOST_CREATE_MS = 5000,    /* a builder whose answer was lost is looked for so long */
    BEGIN_MS = 5 * 60 * 1000, /* for its session to run */
    POLL_MS = 500,
    SPARE_MS = 30 * 60 * 1000, /* the intended clean-up comes so long after the builder's own end */
};

static void keep_in_mind(struct prepare *p, const char *name, const char *alloc, const char *why)
{
    struct sg_error e;
    if (cleanup_sandbox(p->c, name, alloc, why, &e)) /* the one that was intended stays */
        sg_log(SG_LOG_WARN, "builder not remembered", "sandbox", "s", name, "error", "e", &e, NULL);
}

/* Its name is random and nobody else's, so it needs no comparison.  `late`: its create may still arrive. */
void prepare_remove_builder(struct prepare *p, const char *name, const char *alloc, bool late,
                            const char *why)
{
    struct sg_error e;
    enum sg_code rc = vercel_delete(p->c->vercel, name, false, &e);
    if ((rc && rc != SG_E_SANDBOX_NOT_FOUND) || (rc && late)) {
        keep_in_mind(p, name, alloc, why);
        return;
    }
    if (cleanup_forget(p->c, name, alloc, &e)) /* it is looked for in vain later on */
        sg_log(SG_LOG_WARN, "clean-up not forgotten", "sandbox", "s", name, "error", "e", &e, NULL);
}

void prepare_drop_snapshot(struct control *c, const char *id, const char *why)
{
    struct sg_error e;
    if (!cleanup_snapshot(c, id, why, &e))
        return;
    if (vercel_snapshot_delete(c->vercel, id, &e) && e.code != SG_E_SNAPSHOT_NOT_FOUND)
        sg_log(SG_LOG_ERROR, "snapshot left behind", "snapshot", "s", id, "error", "e", &e, NULL);
}

/* Afterwards no capture of it can begin any more. */
static void end_session(struct prepare *p, const char *name)
{
    struct vercel_sandbox s;
    struct sg_error e;
    if (vercel_get(p->c->vercel, name, false, &s, &e))
        return;
    if (s.session_id && vercel_stop(p->c->vercel, s.session_id, &e)) /* it ends with the builder anyhow */
        sg_log(SG_LOG_INFO, "builder not stopped", "sandbox", "s", name, "error", "e", &e, NULL);
    vercel_sandbox_clear(&s);
}

/* Snapshots of a builder that nobody knows of, or will. */
void prepare_drop_captures(struct prepare *p, const char *name, const char *why)
{
    struct vercel_snapshot_page page;
    struct sg_error e;
    end_session(p, name);
    if (vercel_snapshot_list(p->c->vercel, name, PREPARE_LIST_MAX, NULL, &page, &e))
        return;
    for (size_t i = 0; i < page.n; i++)
        if (page.items[i].status == VERCEL_SNAPSHOT_CREATED)
            prepare_drop_snapshot(p->c, page.items[i].id, why);
    vercel_snapshot_page_clear(&page);
}

/* What a gateway left that died while it prepared: the builder, and a capture that was not noted any more. */
void prepare_remove_left(struct prepare *p, const struct store_prep *was)
{
    static const char why[] = "the gateway that prepared a template has died";
    if (!*was->builder)
        return;
    prepare_drop_captures(p, was->builder, why);
    prepare_remove_builder(p, was->builder, was->alloc, true, why);
}

static enum sg_code builder_body(const struct prepare *p, json_t **out, struct sg_error *e)
{
    static const struct field_retention keep = {.keep = 1};
    json_t *body = json_deep_copy(p->o->spec->create), *tags = json_object();
    int bad = json_object_set_new(body, "name", json_string(p->row.builder));
    bad |= json_object_set_new(body, "persistent", json_false());
    bad |= json_object_set_new(body, "timeout", json_integer(p->o->spec->timeout_ms));
    /* whatever sandboxes made from it may reach later */
    bad |= json_object_set_new(body, "networkPolicy", json_pack("{ss}", "mode", "allow-all"));
    bad |= json_object_set(body, "tags", tags);
    enum sg_code rc = bad ? sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the builder") : SG_OK;
    if (!rc)
        rc = field_retention_put(&keep, body, e);
    if (!rc)
        rc = control_tags_add(tags, *p->o->owner ? p->o->owner : NULL, p->row.alloc, e);
    json_decref(tags);
    if (rc) {
        json_decref(body);
        return rc;
    }
    *out = body;
    return SG_OK;
}

static void take_builder(struct prepare *p, const struct vercel_sandbox *s)
{
    const char *cwd = s->session_cwd ? s->session_cwd : s->cwd;
    (void)snprintf(p->session_id, sizeof p->session_id, "%s", s->session_id ? s->session_id : "");
    (void)snprintf(p->row.region, sizeof p->row.region, "%s", s->region ? s->region : "");
    (void)snprintf(p->row.architecture, sizeof p->row.architecture, "%s",
                   s->architecture ? s->architecture : "");
    (void)snprintf(p->row.image, sizeof p->row.image, "%s", s->image ? s->image : "");
    free(p->cwd);
    p->cwd = cwd ? strdup(cwd) : NULL;
}

enum sg_code prepare_pause(struct prepare *p, struct sg_error *e)
{
    (void)poll(NULL, 0, POLL_MS);
    return prepare_go_on(p, e);
}

/* The create's answer was lost: it is found by its name, which nobody else has. */
static enum sg_code find_builder(struct prepare *p, struct vercel_sandbox *s, struct sg_error *e)
{
    struct sg_error why = *e, own;
    int64_t until = sg_mono_ms() + LOST_CREATE_MS;
    for (;;) {
        enum sg_code rc = vercel_get(p->c->vercel, p->row.builder, false, s, &own);
        if (!rc && control_is_alloc(s, p->row.alloc))
            return SG_OK;
        if (!rc)
            vercel_sandbox_clear(s);
        if (sg_mono_ms() >= until || prepare_pause(p, &own)) {
            *e = why;
            return e->code;
        }
    }
}

static bool is_over(enum vercel_status s)
{
    return s == VERCEL_STOPPED || s == VERCEL_FAILED || s == VERCEL_ABORTED || s == VERCEL_STOPPING ||
           s == VERCEL_SNAPSHOTTING;
}

/* Until its session runs. */
static enum sg_code await_builder(struct prepare *p, struct vercel_sandbox *s, struct sg_error *e)
{
    int64_t until = sg_mono_ms() + BEGIN_MS;
    enum sg_code rc = SG_OK;
    while (!rc) {
        enum vercel_status status = s->session_status != VERCEL_STATUS_OTHER ? s->session_status : s->status;
        take_builder(p, s);
        vercel_sandbox_clear(s);
        if (status == VERCEL_RUNNING && *p->session_id && p->cwd)
            return SG_OK;
        if (is_over(status) || sg_mono_ms() >= until)
            return sg_fail(e, SG_E_UPSTREAM_UNAVAILABLE, SG_STARTED, "the builder did not begin: it is %s",
                           vercel_status_name(status));
        rc = prepare_pause(p, e);
        if (!rc)
            rc = vercel_get(p->c->vercel, p->row.builder, false, s, e);
    }
    return rc;
}

enum sg_code prepare_allocate(struct prepare *p, bool *late, struct sg_error *e)
{
    char name[64];
    struct vercel_sandbox s;
    json_t *body = NULL;
    if (!sg_random_id(name, "template-", 20))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a name");
    (void)snprintf(p->row.builder, sizeof p->row.builder, "%s", name);
    enum sg_code rc = control_alloc(p->c, NULL, p->row.alloc, e);
    if (!rc)
        rc = builder_body(p, &body, e);
    if (!rc)
        rc = cleanup_intend(p->c, p->row.builder, p->row.alloc, p->o->spec->timeout_ms + SPARE_MS,
                            "the builder of a template", e);
    bool held = false;
    if (!rc)
        rc = prepare_note_builder(p, &held, e);
    if (!rc && !held)
        rc = sg_fail(e, SG_E_UPSTREAM_CONFLICT, SG_NOT_SENT, "another gateway took the preparation over");
    if (rc) {
        json_decref(body);
        return rc;
    }
    prepare_say(p, "allocating a builder");
    rc = vercel_create(p->c->vercel, body, &s, e);
    json_decref(body);
    if (rc && e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED) {
        *late = true;
        rc = find_builder(p, &s, e);
        *late = rc != SG_OK;
    }
    return rc ? rc : await_builder(p, &s, e);
}
