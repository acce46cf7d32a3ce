#include "control/prepare_impl.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "control/sweep.h"
#include "vercel/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void identify(struct prepare *p)
{
    unsigned char digest[32];
    char text[TEMPLATE_PRINT_TEXT + sizeof p->row.image + 64];
    (void)snprintf(text, sizeof text, "%s\n%s\n%s\n%s", p->row.fingerprint, p->row.image, p->row.region,
                   p->row.architecture);
    sg_sha256(text, strlen(text), digest);
    sg_hex(p->row.identity, digest, sizeof digest);
}

enum sg_code prepare_usable(struct control *c, const char *snapshot_id, struct sg_error *e)
{
    struct vercel_snapshot s;
    enum sg_code rc = vercel_snapshot_get(c->vercel, snapshot_id, &s, e);
    if (rc == SG_E_SNAPSHOT_NOT_FOUND)
        return sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_STARTED, "snapshot %.64s is gone", snapshot_id);
    if (rc)
        return rc;
    bool usable = s.status == VERCEL_SNAPSHOT_CREATED;
    vercel_snapshot_clear(&s);
    return usable ? SG_OK
                  : sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_STARTED, "snapshot %.64s is gone", snapshot_id);
}

/* Everything was resolved to what it was before, and that is still there. */
static bool nothing_new(struct prepare *p)
{
    const struct store_prep *was = p->o->was;
    struct sg_error e;
    return p->o->refresh && was->state == PREP_READY && !strcmp(was->identity, p->row.identity) &&
           !prepare_usable(p->c, was->snapshot_id, &e);
}

static enum sg_code build(struct prepare *p, bool *late, struct sg_error *e)
{
    enum sg_code rc = prepare_allocate(p, late, e);
    if (rc)
        return rc;
    identify(p);
    if (nothing_new(p)) {
        prepare_say(p, "nothing has changed");
        (void)snprintf(p->row.snapshot_id, sizeof p->row.snapshot_id, "%s", p->o->was->snapshot_id);
        return SG_OK;
    }
    const struct step_session s = {.sandbox = p->row.builder,
                                   .session_id = p->session_id,
                                   .cwd = p->cwd,
                                   .arch = *p->row.architecture ? p->row.architecture : NULL};
    char id[40];
    (void)snprintf(id, sizeof id, "tmpl-%.24s", p->row.attempt);
    rc = steps_base_check(p->c, &s, e);
    if (!rc)
        rc = prepare_inside(p->c, p->o->spec, &s, id, prepare_output_inside, p, e);
    if (!rc)
        rc = prepare_go_on(p, e);
    if (!rc)
        rc = steps_base_check_again(p->c, &s, e); /* the steps may have taken something away */
    if (!rc)
        rc = prepare_capture(p, e);
    if (!rc)
        identify(p);
    return rc;
}

/* What the caller is told of a failure: not what it was of the builder, which is nobody's business. */
static void translate(struct sg_error *e)
{
    char why[sizeof e->detail];
    switch ((int)e->code) {
    case SG_E_STEP_FAILED:
        e->code = SG_E_TEMPLATE_FAILED;
        break;
    case SG_E_STALE_SESSION: /* its time ran out, or somebody deleted it */
    case SG_E_SANDBOX_NOT_RUNNING:
    case SG_E_SANDBOX_NOT_FOUND:
    case SG_E_SANDBOX_TRANSITION:
    case SG_E_UPSTREAM_NOT_FOUND:
        (void)snprintf(why, sizeof why, "%s", e->detail);
        (void)sg_fail(e, SG_E_TEMPLATE_FAILED, e->outcome, "the builder ended before it was done: %.180s",
                      why);
        break;
    default:
        break;
    }
}

static void note_failure(struct prepare *p, struct sg_error *e)
{
    const struct store_prep *was = p->o->was;
    translate(e);
    const struct sg_error_row *row = sg_error_row(e->code);
    e->outcome = SG_NOT_STARTED; /* of what the caller wants it for */
    prepare_say(p, "failed: %.300s", e->detail);
    if (p->o->refresh && was->state == PREP_READY) { /* what there was is as good as before */
        char attempt[TEMPLATE_ATTEMPT_TEXT];
        memcpy(attempt, p->row.attempt, sizeof attempt);
        p->row = *was;
        memcpy(p->row.attempt, attempt, sizeof attempt);
    } else {
        p->row.state = PREP_FAILED;
        p->row.snapshot_id[0] = '\0';
    }
    (void)snprintf(p->row.error, sizeof p->row.error, "%s", row ? row->code : "internal");
    (void)snprintf(p->row.detail, sizeof p->row.detail, "%s", e->detail);
}

/* Into the store; what cannot be noted is taken away again. */
static enum sg_code finish(struct prepare *p, enum sg_code rc, struct sg_error *e)
{
    struct sg_error own;
    const char *made = *p->row.snapshot_id ? p->row.snapshot_id : NULL;
    char snapshot[TEMPLATE_ID_TEXT] = "", builder[64], alloc[65];
    const struct store_prep *was = p->o->was;
    (void)snprintf(builder, sizeof builder, "%s", p->row.builder);
    (void)snprintf(alloc, sizeof alloc, "%s", p->row.alloc);
    if (made && strcmp(made, was->snapshot_id) != 0)
        (void)snprintf(snapshot, sizeof snapshot, "%s", made);
    if (rc == SG_E_DRAINING ||
        (rc && atomic_load(&p->lost))) { /* what is ready, the store says whose it is */
        prepare_flush(p);
        if (prepare_note_leave(p, &own)) /* the next one waits until the hold runs out */
            sg_log(SG_LOG_WARN, "preparation not left", "error", "e", &own, NULL);
    } else {
        const char *old = NULL;
        bool held = false;
        if (rc)
            note_failure(p, e);
        else
            p->row.state = PREP_READY;
        if (*was->snapshot_id && strcmp(p->row.snapshot_id, was->snapshot_id) != 0)
            old = was->snapshot_id;
        if (!rc)
            prepare_say(p, "ready");
        prepare_flush(p);
        enum sg_code noted = prepare_note_end(p, builder, alloc, old, &held, &own);
        if (!noted && !held)
            noted = sg_fail(&own, SG_E_UPSTREAM_CONFLICT, SG_NOT_STARTED,
                            "another gateway took the preparation over");
        if (!rc && noted) {
            *e = own;
            rc = noted;
        }
    }
    if (rc && *snapshot)
        prepare_drop_snapshot(p->c, snapshot, "its preparation failed");
    (void)snprintf(p->row.builder, sizeof p->row.builder, "%s", builder);
    (void)snprintf(p->row.alloc, sizeof p->row.alloc, "%s", alloc);
    return rc ? e->code : SG_OK;
}

enum sg_code prepare_run(struct prepares *all, const struct prepare_order *o, struct store_prep *out,
                         struct sg_error *e)
{
    struct prepare p = {.all = all, .c = all->c, .o = o, .flushed_ms = sg_mono_ms()};
    bool late = false;
    (void)snprintf(p.row.fingerprint, sizeof p.row.fingerprint, "%s", o->spec->fingerprint);
    (void)snprintf(p.row.attempt, sizeof p.row.attempt, "%s", o->attempt);
    sg_buf_init(&p.log, TEMPLATE_LOG_PIECE);
    prepare_add(&p);
    prepare_remove_left(&p, o->was);
    enum sg_code rc = build(&p, &late, e);
    rc = finish(&p, rc, e);
    prepare_take_off(&p);
    if (*p.row.builder && p.in_doubt)
        prepare_drop_captures(&p, p.row.builder, "its preparation failed");
    if (*p.row.builder)
        prepare_remove_builder(&p, p.row.builder, p.row.alloc, late, "the builder of a template");
    control_sweep_kick(p.c);
    if (!rc)
        *out = p.row;
    sg_buf_free(&p.log);
    free(p.cwd);
    return rc;
}

void prepare_abandon(struct prepares *all, const char *attempt, const struct store_prep *was)
{
    const struct prepare_order o = {.attempt = attempt, .was = was, .owner = ""};
    struct prepare p = {.all = all, .c = all->c, .o = &o};
    struct sg_error e;
    (void)snprintf(p.row.fingerprint, sizeof p.row.fingerprint, "%s", was->fingerprint);
    (void)snprintf(p.row.attempt, sizeof p.row.attempt, "%s", attempt);
    sg_buf_init(&p.log, TEMPLATE_LOG_PIECE);
    prepare_add(&p);
    prepare_remove_left(&p, was);
    (void)sg_fail(&e, PREPARE_ABANDONED, SG_NOT_STARTED, "the gateway that prepared it has died");
    if (finish(&p, e.code, &e) == PREPARE_ABANDONED)
        sg_log(SG_LOG_WARN, "preparation abandoned", "fingerprint", "s", was->fingerprint, NULL);
    prepare_take_off(&p);
    sg_buf_free(&p.log);
}
