/* POST …/processes/{id}/cancel, /resize and /ack, PATCH …/processes/{id}: how a process goes on, and how it ends. */
#include "routes/handlers.h"

#include "base/json.h"
#include "routes/process_act.h"
#include "routes/spec.h"

#include <signal.h>
#include <string.h>

static enum sg_code check_head(struct exchange *ex, struct sg_error *e)
{
    static const char *const query[] = {"session", NULL};
    enum sg_code rc = ex_query_only(ex, query, e);
    if (!rc)
        rc = process_id(ex, e);
    return rc || strcmp(ex->method, "POST") != 0 ? rc : process_take_resume(ex, e);
}

static void begin_or_fail(struct exchange *ex, const struct process_act *p, enum sg_code rc,
                          const struct sg_error *e)
{
    if (rc)
        ex_fail(ex, e);
    else
        process_act_begin(ex, p);
}

/* ---- cancel: a signal now, KILL after the grace ---- */

static enum sg_code send_cancel(struct process_act *p, const struct process_target *t, process_act_fn *done,
                                struct sg_error *e)
{
    return process_cancel(p->act.gw->relay, t, p->signal, p->grace_ms, done, p, e);
}

void route_process_cancel(struct exchange *ex)
{
    static const char *const fields[] = {"signal", "grace_ms", NULL};
    struct process_act p = {
        .send = send_cancel, .steps = 1, .status = 202, .signal = SIGTERM, .grace_ms = SPEC_GRACE_DEFAULT_MS};
    struct sg_error e;
    const json_t *signal = json_object_get(ex->body, "signal");
    enum sg_code rc = check_head(ex, &e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, &e);
    if (!rc && signal)
        rc = spec_signal(signal, "/signal", &p.signal, &e);
    if (!rc)
        rc = sg_json_int(ex->body, "", "grace_ms", 0, SPEC_GRACE_MAX_MS, &p.grace_ms, &e);
    begin_or_fail(ex, &p, rc, &e);
}

/* ---- resize ---- */

static enum sg_code send_resize(struct process_act *p, const struct process_target *t, process_act_fn *done,
                                struct sg_error *e)
{
    return process_resize(p->act.gw->relay, t, p->cols, p->rows, done, p, e);
}

void route_process_resize(struct exchange *ex)
{
    struct process_act p = {.send = send_resize, .steps = 1, .status = 204};
    struct sg_error e;
    enum sg_code rc = check_head(ex, &e);
    if (!rc)
        rc = spec_size(ex->body, "", &p.cols, &p.rows, &e);
    begin_or_fail(ex, &p, rc, &e);
}

/* ---- ack: output received, of lossless retention ---- */

static enum sg_code send_ack(struct process_act *p, const struct process_target *t, process_act_fn *done,
                             struct sg_error *e)
{
    return process_ack(p->act.gw->relay, t, p->received, done, p, e);
}

static enum sg_code parse_ack(const json_t *body, uint64_t received[2], struct sg_error *e)
{
    static const char *const fields[] = {"stdout", "stderr", "pty", NULL};
    int64_t n[3] = {0};
    if (!json_object_size(body))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdout",
                             "an offset of stdout, stderr or pty is required");
    enum sg_code rc = sg_json_only(body, "", fields, e);
    for (int i = 0; i < 3 && !rc; i++)
        rc = sg_json_int(body, "", fields[i], 0, SPEC_OFFSET_MAX, &n[i], e);
    if (!rc && json_object_get(body, "pty") && json_object_size(body) > 1)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/pty", "a terminal has no other stream");
    received[0] = (uint64_t)(n[0] ? n[0] : n[2]);
    received[1] = (uint64_t)n[1];
    return rc;
}

void route_process_ack(struct exchange *ex)
{
    struct process_act p = {.send = send_ack, .steps = 1, .status = 204};
    struct sg_error e;
    enum sg_code rc = check_head(ex, &e);
    if (!rc)
        rc = parse_ack(ex->body, p.received, &e);
    begin_or_fail(ex, &p, rc, &e);
}

/* ---- PATCH: lease and on_disconnect ---- */

static enum sg_code send_scope(struct process_act *p, const struct process_target *t, process_act_fn *done,
                               struct sg_error *e)
{
    if (p->step == 0 && p->lease_ms >= 0)
        return process_lease(p->act.gw->relay, t, p->lease_ms, done, p, e);
    return process_unattended(p->act.gw->relay, t, p->unattended_ms, done, p, e);
}

static enum sg_code parse_scope(const json_t *body, struct process_act *p, struct sg_error *e)
{
    static const char *const fields[] = {"lease", "on_disconnect", NULL};
    const json_t *lease = json_object_get(body, "lease"), *left = json_object_get(body, "on_disconnect");
    enum sg_code rc = sg_json_only(body, "", fields, e);
    if (rc)
        return rc;
    if (!lease && !left)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/lease", "lease or on_disconnect is required");
    if (json_is_null(lease))
        p->lease_ms = 0;
    else if (lease)
        rc = spec_lease(lease, "/lease", &p->lease_ms, e);
    if (!rc && left)
        rc = spec_on_disconnect(left, "/on_disconnect", &p->unattended_ms, e);
    p->steps = (lease != NULL) + (left != NULL);
    return rc;
}

void route_process_patch(struct exchange *ex)
{
    struct process_act p = {.send = send_scope, .status = 204, .lease_ms = -1, .unattended_ms = -1};
    struct sg_error e;
    enum sg_code rc = check_head(ex, &e);
    if (!rc)
        rc = parse_scope(ex->body, &p, &e);
    begin_or_fail(ex, &p, rc, &e);
}
