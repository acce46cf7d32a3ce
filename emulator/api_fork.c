#include "emulator/api.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "emulator/lifecycle.h"
#include "emulator/policy.h"
#include "emulator/sandbox_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the source is configured to be, and where it would boot from. */
static int copy_source(struct request *rq, struct sandbox *source, struct sandbox *fork)
{
    pthread_mutex_lock(&source->lock);
    bool ok = settings_copy(&fork->set, &source->set);
    memcpy(fork->snapshot_id, source->snapshot_id, sizeof fork->snapshot_id);
    memcpy(fork->project, source->project, sizeof fork->project);
    pthread_mutex_unlock(&source->lock);
    return ok ? 0 : api_fail(&rq->err, 500, "internal_server_error", "no memory");
}

static int set_name(struct request *rq, struct sandbox *fork, const char *name)
{
    bool ok = sg_random_id(fork->uid, "u", 20);
    if (ok && name)
        snprintf(fork->name, sizeof fork->name, "%s", name);
    else if (ok)
        ok = sg_random_id(fork->name, "sandbox-", 16);
    fork->created_ms = fork->updated_ms = fork->status_ms = sg_wall_ms();
    return ok ? 0 : api_fail(&rq->err, 500, "internal_server_error", "no random numbers");
}

static int override(struct request *rq, struct sandbox *fork, const struct sandbox_request *in)
{
    struct settings *set = &fork->set;
    if (in->policy) {
        char *text = NULL;
        if (policy_response(in->policy, rq->emu->record_only, &text, &rq->err))
            return -1;
        free(set->policy_text);
        set->policy_text = text;
    }
    if (in->image) { /* another image has nothing to do with the source's files */
        if (settings_image(rq->emu, set, in->image, &rq->err))
            return -1;
        fork->snapshot_id[0] = '\0';
    }
    if (settings_apply(set, in, &rq->err) || settings_apply_maps(set, in, &rq->err))
        return -1;
    if (rq->version >= 3)
        settings_short_lived(set);
    return settings_check(rq->emu, fork->project, set, true, &rq->err);
}

static int make(struct request *rq, struct reply *rp, struct sandbox *source, struct sandbox *fork,
                const struct sandbox_request *in)
{
    if (copy_source(rq, source, fork) || set_name(rq, fork, in->name) || override(rq, fork, in))
        return -1;
    struct session *s = NULL;
    char snapshot[ID_TEXT];
    memcpy(snapshot, fork->snapshot_id, sizeof snapshot);
    if (lifecycle_create(rq->emu, fork, snapshot, &s, &rq->err))
        return -1;
    int rc = api_answer_sandbox(rq, rp, fork, s, NULL);
    session_unref(s);
    return rc;
}

int api_sandbox_fork(struct request *rq, struct reply *rp)
{
    struct sandbox_request in;
    const json_t *body = request_json(rq);
    if (!body || validate_fork(body, rq->version, &in, &rq->err))
        return -1;
    struct sandbox *source = state_sandbox(rq->emu->state, request_project(rq), rq->param[0]);
    if (!source)
        return api_fail(&rq->err, 404, "not_found", "Sandbox not found");
    struct sandbox *fork = sandbox_new();
    int rc = fork ? make(rq, rp, source, fork, &in)
                  : api_fail(&rq->err, 500, "internal_server_error", "no memory");
    sandbox_unref(source);
    if (fork)
        sandbox_unref(fork);
    return rc;
}
