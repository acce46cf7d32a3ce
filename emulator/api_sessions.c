#include "emulator/api.h"
#include "base/clock.h"
#include "emulator/lifecycle.h"
#include "emulator/persist.h"
#include "emulator/policy.h"
#include "emulator/render.h"
#include "emulator/terminal.h"
#include "emulator/validate.h"

#include <stdlib.h>
#include <string.h>

static const int64_t week_ms = 7 * INT64_C(86400000);

static void add_session(struct sg_buf *out, struct session *s)
{
    pthread_mutex_lock(&s->sandbox->lock);
    render_session(out, s);
    pthread_mutex_unlock(&s->sandbox->lock);
}

static void add_snapshot(struct request *rq, struct sg_buf *out, struct snapshot *sn)
{
    pthread_mutex_lock(&rq->emu->state->lock);
    render_snapshot(out, sn);
    pthread_mutex_unlock(&rq->emu->state->lock);
}

int api_session_get(struct request *rq, struct reply *rp)
{
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    sg_buf_adds(&rp->body, "{\"session\":");
    pthread_mutex_lock(&s->sandbox->lock);
    render_session(&rp->body, s);
    sg_buf_adds(&rp->body, ",\"routes\":");
    render_routes(&rp->body, s->sandbox, rq->emu->route_domain);
    pthread_mutex_unlock(&s->sandbox->lock);
    sg_buf_adds(&rp->body, "}");
    session_unref(s);
    return 0;
}

static int by_creation(const struct session *x, const struct session *y)
{
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int oldest_first(const void *a, const void *b)
{
    return by_creation(*(struct session *const *)a, *(struct session *const *)b);
}

static int newest_first(const void *a, const void *b)
{
    return -oldest_first(a, b);
}

static const char *session_id(void *item)
{
    return ((struct session *)item)->id;
}

int api_session_list(struct request *rq, struct reply *rp)
{
    size_t n;
    struct page page;
    int order = api_order(rq);
    if (!order)
        return -1;
    struct session **all =
        state_all_sessions(rq->emu->state, request_project(rq), request_query(rq, "name"), &n);
    if (!all)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    qsort(all, n, sizeof(struct session *), order > 0 ? oldest_first : newest_first);
    int rc = api_page(rq, n, session_id, (void **)all, &page);
    if (!rc) {
        sg_buf_adds(&rp->body, "{\"sessions\":[");
        for (size_t i = page.from; i < page.to; i++) {
            if (i > page.from)
                sg_buf_adds(&rp->body, ",");
            add_session(&rp->body, all[i]);
        }
        sg_buf_adds(&rp->body, "],");
        render_pagination(&rp->body, page.to - page.from, page.more ? all[page.to - 1]->id : NULL);
        sg_buf_adds(&rp->body, "}");
    }
    for (size_t i = 0; i < n; i++)
        session_unref(all[i]);
    free(all);
    return rc;
}

int api_session_stop(struct request *rq, struct reply *rp)
{
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    struct snapshot *sn = NULL;
    int rc = lifecycle_stop(rq->emu, s, STOP_REQUEST, -1, &sn, &rq->err);
    if (!rc) {
        sg_buf_adds(&rp->body, "{\"session\":");
        pthread_mutex_lock(&s->sandbox->lock);
        render_session(&rp->body, s);
        sg_buf_adds(&rp->body, ",\"sandbox\":");
        render_sandbox(&rp->body, s->sandbox);
        pthread_mutex_unlock(&s->sandbox->lock);
        if (sn) {
            sg_buf_adds(&rp->body, ",\"snapshot\":");
            add_snapshot(rq, &rp->body, sn);
        }
        sg_buf_adds(&rp->body, "}");
    }
    if (sn)
        snapshot_unref(sn);
    session_unref(s);
    return rc;
}

int api_session_snapshot(struct request *rq, struct reply *rp)
{
    static const char *const members[] = {"expiration", NULL};
    const json_t *body = request_json(rq);
    if (!body || validate_only(body, members, &rq->err))
        return -1;
    int64_t expiration = -1;
    const json_t *v = json_object_get(body, "expiration");
    if (v && validate_expiration("expiration", v, &expiration, &rq->err))
        return -1;
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    if (rq->version >= 3 && expiration < 0) { /* v3 has a shorter default */
        pthread_mutex_lock(&s->sandbox->lock);
        expiration = s->sandbox->set.expiration_said ? -1 : week_ms;
        pthread_mutex_unlock(&s->sandbox->lock);
    }
    struct snapshot *sn = NULL;
    int rc = session_check(s, &rq->err);
    if (!rc)
        rc = lifecycle_stop(rq->emu, s, STOP_SNAPSHOT, expiration, &sn, &rq->err);
    if (!rc && !sn) /* another stop was faster */
        rc = api_fail(&rq->err, 410, "sandbox_stopped",
                      "Sandbox has stopped execution and is no longer available");
    if (!rc) {
        rp->status = 201;
        sg_buf_adds(&rp->body, "{\"snapshot\":");
        add_snapshot(rq, &rp->body, sn);
        sg_buf_adds(&rp->body, ",\"session\":");
        add_session(&rp->body, s);
        sg_buf_adds(&rp->body, "}");
    }
    if (sn)
        snapshot_unref(sn);
    session_unref(s);
    return rc;
}

/* {"session":…} of a session that runs, after `change` under its lock. */
static int change_running(struct request *rq, struct reply *rp,
                          int (*change)(struct request *rq, struct session *s, void *arg), void *arg)
{
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    int rc = session_check(s, &rq->err);
    if (!rc) {
        pthread_mutex_lock(&s->sandbox->lock);
        rc = change(rq, s, arg);
        if (!rc) {
            s->updated_ms = sg_wall_ms();
            sg_buf_adds(&rp->body, "{\"session\":");
            render_session(&rp->body, s);
            sg_buf_adds(&rp->body, "}");
        }
        pthread_mutex_unlock(&s->sandbox->lock);
    }
    if (!rc) /* the session's file catches up when it stops; after a crash it counts as aborted anyway */
        lifecycle_deadline_changed(rq->emu);
    session_unref(s);
    return rc;
}

static int extend(struct request *rq, struct session *s, void *arg)
{
    int64_t ms = *(int64_t *)arg;
    int64_t most = rq->emu->plan->session_max_ms - s->timeout_ms;
    if (ms > most && !terminal_connected(s)) /* someone at a terminal does not survive a refusal */
        return api_fail(&rq->err, 400, "sandbox_timeout_invalid",
                        "The extension would exceed maximum execution timeout");
    s->timeout_ms += ms <= most ? ms : most > 0 ? most : 0;
    return 0;
}

int api_session_extend(struct request *rq, struct reply *rp)
{
    static const char *const members[] = {"duration", NULL};
    const json_t *body = request_json(rq);
    int64_t ms;
    if (!body || validate_only(body, members, &rq->err) ||
        validate_int("duration", json_object_get(body, "duration"), 1000, INT64_C(1) << 52, &ms, &rq->err))
        return -1;
    return change_running(rq, rp, extend, &ms);
}

static int replace_policy(struct request *rq, struct session *s, void *arg)
{
    (void)rq;
    char **text = arg;
    free(s->policy_text);
    s->policy_text = *text;
    *text = NULL;
    return 0;
}

int api_session_policy(struct request *rq, struct reply *rp)
{
    char *text = NULL;
    const json_t *body = request_json(rq);
    if (!body || policy_response(body, rq->emu->record_only, &text, &rq->err))
        return -1;
    int rc = change_running(rq, rp, replace_policy, &text);
    free(text);
    return rc;
}
