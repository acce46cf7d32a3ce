#include "control/capture.h"

#include "control/control.h"
#include "control/names.h"
#include "control/record.h"

#include "base/clock.h"
#include "base/log.h"

#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOCK_PATIENCE_MS = 60 * 1000,
    MOVE_PATIENCE_MS = 5 * 60 * 1000,
    LOOK_FIRST_MS = 200,
    LOOK_MAX_MS = 2000,
    TRIES_MAX = 3,         /* the session ended by itself while it was asked for */
    FOUND_PAUSE_MS = 1000, /* a lost answer: the snapshot is looked for … */
    FOUND_MS = 60 * 1000,  /* … for so long */
};

void control_capture_clear(struct control_capture *k)
{
    free(k->image);
    free(k->runtime);
    k->image = k->runtime = NULL;
}

enum sg_code control_settled(struct control *c, const char *name, struct vercel_sandbox *out,
                             struct sg_error *e)
{
    int64_t until = sg_mono_ms() + MOVE_PATIENCE_MS;
    for (int pause = LOOK_FIRST_MS;; pause = pause * 3 / 2 < LOOK_MAX_MS ? pause * 3 / 2 : LOOK_MAX_MS) {
        enum sg_code rc = vercel_get(c->vercel, name, false, out, e);
        if (rc)
            return rc;
        enum vercel_status st = control_status(out);
        if (st != VERCEL_STOPPING && st != VERCEL_SNAPSHOTTING && st != VERCEL_PENDING)
            return SG_OK;
        vercel_sandbox_clear(out);
        if (sg_mono_ms() > until || jobs_stopping(c->jobs))
            return sg_fail(e, SG_E_SANDBOX_TRANSITION, SG_NOT_STARTED, "the sandbox is %s, which takes long",
                           vercel_status_name(st));
        (void)poll(NULL, 0, pause);
    }
}

/* ---- what has to come before a session ends: on the loop, waited for ---- */

struct before {
    struct sg_task task; /* first */
    struct control *c;
    const char *name;
    const struct control_session *session;
    bool inside, over;
    sem_t done;
};

static void on_before_done(void *arg)
{
    struct before *b = arg;
    b->over = true;
    if (!b->inside)
        sem_post(&b->done);
}

static void on_before(struct sg_task *task)
{
    struct before *b = (struct before *)task;
    const struct control_before_stop *how = &b->c->before_stop;
    b->inside = true;
    void *ticket = how->begin(how->arg, b->name, b->session, on_before_done, b);
    b->inside = false;
    if (!ticket || b->over)
        sem_post(&b->done);
}

static void before_end(struct control *c, const struct vercel_sandbox *s)
{
    const struct control_session session = {.session_id = s->session_id,
                                            .cwd = s->session_cwd ? s->session_cwd : s->cwd,
                                            .arch = s->architecture,
                                            .deadline_ms = control_deadline(s)};
    struct before b = {.task.fn = on_before, .c = c, .name = s->name, .session = &session};
    if (!c->before_stop.begin || !session.cwd || sem_init(&b.done, 0, 0) != 0)
        return;
    sg_loop_post(c->loop, &b.task);
    while (sem_wait(&b.done) != 0) /* EINTR */
        continue;
    sem_destroy(&b.done);
}

/* ---- one try ---- */

struct intent {
    struct control *c;
    struct store_capture row;
};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

static enum sg_code keep_text(char **to, const char *text, struct sg_error *e)
{
    free(*to);
    *to = text ? strdup(text) : NULL;
    return text && !*to ? no_memory(e) : SG_OK;
}

/* The capture that this session left, should there be one. */
static enum sg_code find(struct control *c, const char *name, const char *session_id,
                         struct vercel_snapshot *out, bool *found, struct sg_error *e)
{
    struct vercel_snapshot_page page;
    char id[SNAPSHOT_ID_TEXT] = "";
    *found = false;
    enum sg_code rc = vercel_snapshot_list(c->vercel, name, 50, NULL, &page, e); /* newest first */
    if (rc)
        return rc;
    for (size_t i = 0; i < page.n && !*id; i++) {
        const struct vercel_snapshot *s = &page.items[i];
        if (s->status == VERCEL_SNAPSHOT_CREATED && s->source_session_id &&
            !strcmp(s->source_session_id, session_id))
            (void)snprintf(id, sizeof id, "%s", s->id);
    }
    vercel_snapshot_page_clear(&page);
    if (!*id)
        return SG_OK;
    rc = vercel_snapshot_get(c->vercel, id, out, e);
    *found = !rc;
    return rc;
}

/* The answer was lost: the session ends with a snapshot, or goes on without one. */
static enum sg_code reconcile(struct control *c, const char *name, const char *session_id,
                              struct vercel_snapshot *out, struct sg_error *e)
{
    const struct sg_error first = *e;
    int64_t until = sg_mono_ms() + FOUND_MS;
    do {
        struct sg_error own;
        struct vercel_sandbox s;
        bool found = false;
        if (!control_settled(c, name, &s, &own)) {
            bool goes_on =
                control_status(&s) == VERCEL_RUNNING && s.session_id && !strcmp(s.session_id, session_id);
            vercel_sandbox_clear(&s);
            if (!goes_on && !find(c, name, session_id, out, &found, &own) && found)
                return SG_OK;
        }
        (void)poll(NULL, 0, FOUND_PAUSE_MS);
    } while (sg_mono_ms() < until && !jobs_stopping(c->jobs));
    *e = first;
    return e->code;
}

static enum sg_code intend_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct intent *i = arg;
    return store_capture_put(db, i->c->upstream, &i->row, i->c->capture_named_ms, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct intent *i = arg;
    bool had;
    return store_capture_drop(db, i->c->upstream, i->row.session_id, &had, e);
}

static enum sg_code intend(struct control *c, const struct control_capture *k, store_fn *fn,
                           struct sg_error *e)
{
    struct intent i = {.c = c};
    if (!k->intend)
        return SG_OK;
    (void)snprintf(i.row.session_id, sizeof i.row.session_id, "%s", k->session_id);
    (void)snprintf(i.row.sandbox, sizeof i.row.sandbox, "%s", k->sandbox);
    return control_in_store(c, STORE_DURABLE, fn, &i, e);
}

static enum sg_code take(struct control *c, struct control_capture *k, const struct vercel_sandbox *s,
                         struct vercel_snapshot *out, struct sg_error *e)
{
    (void)snprintf(k->session_id, sizeof k->session_id, "%s", s->session_id);
    enum sg_code rc = intend(c, k, intend_fn, e);
    if (rc)
        return rc;
    before_end(c, s);
    rc = vercel_snapshot_take(c->vercel, k->session_id, k->expire_ms, out, e);
    session_cache_forget(c->sessions, k->sandbox);
    if (rc && e->outcome == SG_OUTCOME_UNKNOWN)
        rc = reconcile(c, k->sandbox, k->session_id, out, e);
    k->made = !rc;
    struct sg_error own;
    if (rc && e->outcome != SG_OUTCOME_UNKNOWN && intend(c, k, drop_fn, &own))
        sg_log(SG_LOG_WARN, "end of a capture not noted", "sandbox", "s", k->sandbox, "error", "e", &own,
               NULL);
    return rc;
}

/* Of one that does not run: what it would resume from is what it holds. */
static enum sg_code current(struct control *c, const struct vercel_sandbox *s, struct vercel_snapshot *out,
                            struct sg_error *e)
{
    if (!s->current_snapshot_id)
        return sg_fail(e, SG_E_NOT_RESUMABLE, SG_NOT_SENT,
                       "the sandbox is %s and has no snapshot: there is nothing to capture",
                       vercel_status_name(control_status(s)));
    enum sg_code rc = vercel_snapshot_get(c->vercel, s->current_snapshot_id, out, e);
    if (rc == SG_E_SNAPSHOT_NOT_FOUND || (!rc && out->status != VERCEL_SNAPSHOT_CREATED)) {
        rc = sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_SENT,
                     "the snapshot %s that the sandbox would resume from is no more", s->current_snapshot_id);
        vercel_snapshot_clear(out);
    }
    return rc;
}

static enum sg_code try_once(struct control *c, struct control_capture *k, struct vercel_snapshot *out,
                             struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = control_settled(c, k->sandbox, &s, e);
    if (rc)
        return rc;
    k->created_at_ms = s.created_at;
    rc = control_guard(c, k->sandbox, &s, e);
    if (!rc)
        rc = keep_text(&k->image, s.image, e);
    if (!rc)
        rc = keep_text(&k->runtime, s.runtime, e);
    if (!rc && s.session_id && control_status(&s) == VERCEL_RUNNING) {
        rc = take(c, k, &s, out, e);
    } else if (!rc) {
        rc = current(c, &s, out, e);
        if (!rc && out->expires_at >= 0 && k->expire_ms == 0) { /* it would go: a capture of its own stays */
            vercel_snapshot_clear(out);
            vercel_sandbox_clear(&s);
            rc = vercel_get(c->vercel, k->sandbox, true, &s, e);
            if (!rc)
                rc = s.session_id ? take(c, k, &s, out, e) : no_memory(e);
        }
    }
    vercel_sandbox_clear(&s);
    return rc;
}

static void start_again(struct control *c, struct control_capture *k)
{
    struct vercel_sandbox s;
    if (vercel_get(c->vercel, k->sandbox, true, &s, &k->resume_error))
        return;
    k->resumed = true;
    control_observe(c, &s);
    vercel_sandbox_clear(&s);
}

enum sg_code control_capture(struct control *c, struct control_capture *k, struct vercel_snapshot *out,
                             struct sg_error *e)
{
    struct name_lock lock;
    *out = (struct vercel_snapshot){0};
    enum sg_code rc = control_name_for_lookup(k->sandbox, e);
    if (!rc)
        rc = control_name_lock(c, k->sandbox, LOCK_PATIENCE_MS, &lock, e);
    if (rc)
        return rc;
    for (int i = 0; i < TRIES_MAX; i++) {
        rc = try_once(c, k, out, e);
        if (rc != SG_E_STALE_SESSION && rc != SG_E_SANDBOX_TRANSITION)
            break;
    }
    control_name_unlock(&lock);
    bool ran = *k->session_id != '\0';
    if (!rc && ran && k->resume)
        start_again(c, k);
    return rc;
}
