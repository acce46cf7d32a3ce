#include "control/allocate.h"

#include "control/cleanups.h"
#include "control/control.h"
#include "control/leases.h"
#include "control/settings.h"
#include "vercel/client.h"

#include "base/log.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    INTENT_SPARE_MAX_MS = 2 * 60 * 1000, /* what follows the call until it is kept */
};

/* ---- intent ---- */

enum sg_code allocation_intend(struct control *c, struct allocation *a, bool wanted, struct sg_error *e)
{
    struct sg_error own;
    if (a->keyed)
        return SG_OK;
    int64_t call_ms = vercel_create_timeout_ms(c->vercel);
    int64_t spare_ms = 2 * call_ms < INTENT_SPARE_MAX_MS ? 2 * call_ms : INTENT_SPARE_MAX_MS;
    enum sg_code rc =
        cleanup_intend(c, a->name, a->alloc, call_ms + spare_ms, "its creation was interrupted", &own);
    a->intended = !rc;
    if (!rc)
        return SG_OK;
    if (wanted) {
        *e = own;
        e->outcome = SG_NOT_SENT;
        return rc;
    }
    if (c->store)
        sg_log(SG_LOG_WARN, "allocating without a note in the store", "sandbox", "s", a->name, "error", "e",
               &own, NULL);
    return SG_OK;
}

/* ---- looking for it ---- */

/* Of a record under its name. */
static enum sg_code take(struct allocation *a, struct vercel_sandbox *s, struct sg_error *e)
{
    if (!control_is_alloc(s, a->alloc)) {
        vercel_sandbox_clear(s);
        return sg_fail(e, SG_E_SANDBOX_EXISTS, SG_NOT_STARTED, "a sandbox named %.63s exists", a->name);
    }
    vercel_sandbox_clear(&a->s);
    a->s = *s;
    a->made = true;
    return SG_OK;
}

enum sg_code allocation_find(struct control *c, struct allocation *a, struct sg_error *e)
{
    struct vercel_sandbox s;
    a->sent = a->again = true;
    enum sg_code rc = vercel_get(c->vercel, a->name, false, &s, e);
    if (rc == SG_E_SANDBOX_NOT_FOUND)
        return SG_OK;
    if (!rc)
        return take(a, &s, e);
    e->outcome = SG_OUTCOME_UNKNOWN; /* of an earlier run */
    return rc;
}

/* What is over cannot be what was asked for. */
static bool is_over(const struct vercel_sandbox *s)
{
    return s->session_status == VERCEL_FAILED || s->session_status == VERCEL_ABORTED ||
           s->session_status == VERCEL_STOPPED || s->session_status == VERCEL_STOPPING;
}

/* The answer to the POST was lost, or says that the upstream failed: whether it is there all the same.  `first` is what went
 * wrong; it stays unless the look tells better. */
static enum sg_code reconcile(struct control *c, struct allocation *a, struct sg_error *first)
{
    static const int pauses_ms[] = {0, 250, 750, 1500};
    /* a lost POST may still be on its way; one that was answered has come to its end */
    size_t looks = first->upstream_status >= 500 ? 2 : sizeof pauses_ms / sizeof *pauses_ms;
    if (first->outcome == SG_NOT_STARTED)
        looks = 1;
    for (size_t i = 0; i < looks; i++) {
        struct vercel_sandbox s;
        struct sg_error e;
        if (pauses_ms[i])
            (void)poll(NULL, 0, pauses_ms[i]);
        enum sg_code rc = vercel_get(c->vercel, a->name, false, &s, &e);
        if (!rc)
            rc = take(a, &s, &e);
        if (!rc && !is_over(&a->s)) {
            sg_log(SG_LOG_INFO, "found what a lost answer made", "sandbox", "s", a->name, NULL);
            return SG_OK;
        }
        if (rc == SG_E_SANDBOX_EXISTS)
            *first = e;
        if (rc != SG_E_SANDBOX_NOT_FOUND)
            break;
    }
    return first->code;
}

enum sg_code allocation_send(struct control *c, struct allocation *a, allocation_call *call, void *arg,
                             struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = call(c, arg, &s, e);
    a->sent = a->sent || !rc || e->outcome != SG_NOT_SENT;
    if (!rc) {
        vercel_sandbox_clear(&a->s);
        a->s = s;
        a->made = true;
        return SG_OK;
    }
    /* a refusal that cannot be read may be that of a name that is taken */
    if (rc == SG_E_UPSTREAM_BAD_RESPONSE || (e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED))
        return reconcile(c, a, e);
    if (rc == SG_E_SANDBOX_EXISTS && a->keyed) { /* it may be what an earlier run sent */
        struct sg_error own;
        if (!allocation_find(c, a, &own) && a->made)
            return SG_OK;
    }
    return rc;
}

static enum sg_code create_call(struct control *c, void *arg, struct vercel_sandbox *out, struct sg_error *e)
{
    return vercel_create(c->vercel, arg, out, e);
}

enum sg_code allocation_make(struct control *c, struct allocation *a, json_t *body, struct sg_error *e)
{
    return allocation_send(c, a, create_call, body, e);
}

/* ---- the end ---- */

enum sg_code allocation_keep(struct control *c, struct allocation *a, struct sg_error *e)
{
    if (!a->intended && !a->again)
        return SG_OK;
    enum sg_code rc = cleanup_keep(c, a->name, a->alloc, e);
    if (rc)
        e->outcome = SG_FINISHED;
    else
        a->intended = false;
    return rc;
}

static void say(struct sg_error *e, enum sg_outcome outcome, const char *what)
{
    char detail[sizeof e->detail];
    size_t n = strnlen(e->detail, sizeof e->detail);
    while (n && e->detail[n - 1] == '.')
        n--;
    (void)snprintf(detail, sizeof detail, "%.*s; %s", (int)(n > 160 ? 160 : n), e->detail, what);
    sg_text_mend(detail);
    memcpy(e->detail, detail, sizeof e->detail);
    e->outcome = outcome;
}

/* Nothing of it is there. */
static void drop_notes(struct control *c, struct allocation *a)
{
    struct sg_error own;
    if (a->intended && cleanup_forget(c, a->name, a->alloc, &own)) /* nothing is found then */
        sg_log(SG_LOG_WARN, "intent not forgotten", "sandbox", "s", a->name, "error", "e", &own, NULL);
    if (a->leased && lease_drop(c, a->alloc, &own))
        sg_log(SG_LOG_WARN, "lease not dropped", "sandbox", "s", a->name, "error", "e", &own, NULL);
    if (a->noted)
        settings_forget(c, a->alloc);
    a->intended = a->leased = a->noted = false;
}

static void remember(struct control *c, struct allocation *a, struct sg_error *e)
{
    struct sg_error own;
    if (a->noted)
        settings_forget(c, a->alloc);
    if (cleanup_sandbox(c, a->name, a->alloc, e->detail, &own))
        say(e, SG_OUTCOME_UNKNOWN,
            a->intended ? "what it may have made is not confirmed to be gone, it is taken away later"
                        : "what it may have made is not confirmed to be gone, and not remembered");
    else
        say(e, SG_OUTCOME_UNKNOWN,
            "what it may have made is not confirmed to be gone, it is remembered and taken away");
}

void allocation_undo(struct control *c, struct allocation *a, struct sg_error *e)
{
    if (a->made) {
        struct control_destroy d = {.name = a->name, .alloc = a->alloc};
        struct sg_error own;
        if (control_destroy_if(c, &d, &own)) {
            remember(c, a, e);
            return;
        }
        /* what an earlier run remembered has the tag of what a later one makes */
        a->intended = a->intended || a->again;
        drop_notes(c, a);
        say(e, SG_NOT_STARTED, "what was made was destroyed again");
    } else if (!a->sent || e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED) {
        drop_notes(c, a);
    } else if (!a->keyed) {
        remember(c, a, e);
    } /* else: who asks again with the key finds it */
}

bool allocation_timeout_refused(const struct sg_error *e, enum sg_code rc)
{
    return (rc == SG_E_UPSTREAM_REJECTED || rc == SG_E_PLAN_LIMIT) && e->outcome == SG_NOT_STARTED &&
           strcasestr(e->detail, "timeout");
}
