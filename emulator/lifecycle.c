#include "emulator/lifecycle.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "emulator/box.h"
#include "emulator/command.h"
#include "emulator/drives.h"
#include "emulator/layers.h"
#include "emulator/persist.h"
#include "emulator/snapshots.h"
#include "emulator/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- who may use a box ---- */

static int refuse(enum status st, struct api_error *e)
{
    switch (st) {
    case ST_RUNNING:
        return 0;
    case ST_STOPPING:
        return api_fail(e, 422, "sandbox_stopping", "Sandbox is stopping and is not accepting commands.");
    case ST_SNAPSHOTTING:
        return api_fail(e, 422, "sandbox_snapshotting",
                        "Sandbox is creating a snapshot and will be stopped shortly.");
    case ST_PENDING:
        return api_fail(e, 409, "conflict", "Sandbox is not running yet.");
    case ST_STOPPED:
    case ST_FAILED:
    case ST_ABORTED:
    default:
        return api_fail(e, 410, "sandbox_stopped",
                        "Sandbox has stopped execution and is no longer available.");
    }
}

int session_check(struct session *s, struct api_error *e)
{
    pthread_mutex_lock(&s->sandbox->lock);
    enum status st = s->status;
    pthread_mutex_unlock(&s->sandbox->lock);
    return refuse(st, e);
}

int session_enter(struct session *s, struct api_error *e)
{
    pthread_mutex_lock(&s->sandbox->lock);
    int rc = refuse(s->status, e);
    if (!rc)
        s->users++;
    pthread_mutex_unlock(&s->sandbox->lock);
    return rc;
}

void session_leave(struct session *s)
{
    pthread_mutex_lock(&s->sandbox->lock);
    if (--s->users == 0)
        pthread_cond_broadcast(&s->sandbox->idle);
    pthread_mutex_unlock(&s->sandbox->lock);
}

void session_add_upload(struct session *s, struct upload *u)
{
    pthread_mutex_lock(&s->sandbox->lock);
    u->next = s->uploads;
    s->uploads = u;
    if (s->status != ST_RUNNING)
        shutdown(u->fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->sandbox->lock);
}

void session_remove_upload(struct session *s, struct upload *u)
{
    pthread_mutex_lock(&s->sandbox->lock);
    for (struct upload **p = &s->uploads; *p; p = &(*p)->next)
        if (*p == u) {
            *p = u->next;
            break;
        }
    pthread_mutex_unlock(&s->sandbox->lock);
}

/* ---- boot ---- */

static void live_remove(struct state *st, struct session *s)
{
    pthread_mutex_lock(&st->lock);
    for (struct session **p = &st->live; *p; p = &(*p)->live_next)
        if (*p == s) {
            *p = s->live_next;
            break;
        }
    pthread_cond_broadcast(&st->changed);
    pthread_mutex_unlock(&st->lock);
}

void lifecycle_deadline_changed(struct emulator *emu)
{
    pthread_mutex_lock(&emu->state->lock);
    pthread_cond_broadcast(&emu->state->changed);
    pthread_mutex_unlock(&emu->state->lock);
}

static struct session *new_session(struct sandbox *sb, const char *source)
{
    struct session *s = session_new(sb);
    if (!s)
        return NULL;
    s->status = ST_PENDING;
    s->requested_ms = s->created_ms = s->updated_ms = sg_wall_ms();
    snprintf(s->source_snapshot, sizeof s->source_snapshot, "%s", source);
    bool ok = sg_random_id(s->id, "sbx_", 28);
    pthread_mutex_lock(&sb->lock);
    s->vcpus = sb->set.vcpus;
    s->region = sb->set.region;
    s->timeout_ms = sb->set.timeout_ms;
    s->nboot_ports = sb->set.nroutes;
    for (unsigned i = 0; i < s->nboot_ports; i++)
        s->boot_ports[i] = sb->set.routes[i].port;
    memcpy(s->runtime, sb->set.runtime, sizeof s->runtime);
    s->policy_text = strdup(sb->set.policy_text);
    pthread_mutex_unlock(&sb->lock);
    if (!ok || !s->policy_text) {
        session_unref(s);
        return NULL;
    }
    return s;
}

/* Enters the session into the live list, which protects its source's layers, and touches the source. */
static int claim_source(struct emulator *emu, struct session *s, const char *ids[CHAIN_MAX], char base[64],
                        struct api_error *e)
{
    struct state *st = emu->state;
    struct snapshot *sn = NULL;
    const char *chain_base = NULL;
    int n = 0;
    unsigned running = 0;
    pthread_mutex_lock(&st->lock);
    if (*s->source_snapshot) {
        sn = strmap_get(&st->snapshots, s->source_snapshot);
        n = sn && snapshot_usable(sn) ? snapshots_chain(st, sn->id, ids, &chain_base) : CHAIN_GONE;
    }
    bool elsewhere = n >= 0 && sn && !(sn->regions & UINT32_C(1) << s->region);
    for (const struct session *x = st->live; x; x = x->live_next)
        running++;
    bool full = running >= emu->plan->running_max;
    if (n >= 0 && !elsewhere && !full) {
        s->live_next = st->live;
        st->live = s;
        if (chain_base)
            snprintf(base, 64, "%s", chain_base);
        if (sn) {
            sn->last_used_ms = sg_wall_ms();
            snapshot_ref(sn);
        }
    }
    pthread_mutex_unlock(&st->lock);
    if (n == CHAIN_TOO_LONG) /* not as if it were gone: clients delete the sandbox then */
        return api_fail(e, 500, "internal_server_error",
                        "The files of snapshot '%s' lie in more than %d layers, which cannot be mounted.",
                        s->source_snapshot, CHAIN_MAX);
    if (n < 0)
        return api_fail(e, 410, "snapshot_not_found", "Snapshot '%s' not found.", s->source_snapshot);
    if (elsewhere)
        return api_fail(e, 422, "snapshot_region_mismatch",
                        "Snapshot '%s' is not available in the region %s.", s->source_snapshot,
                        region_name(s->region));
    if (full)
        return api_fail(e, 429, "too_many_requests", "The concurrency limit has been exceeded.");
    if (sn) {
        persist_snapshot(st, sn);
        snapshot_unref(sn);
    }
    return n;
}

/* What was begun for a box that does not come. */
static void abandon_box(struct emulator *emu, struct session *s)
{
    if (s->pump)
        pump_finish(s->pump);
    s->pump = NULL;
    drives_detach(emu, s);
    layers_session_drop(emu->layers, s->id);
    live_remove(emu->state, s);
}

static int start_box(struct emulator *emu, struct session *s, struct api_error *e)
{
    struct drive_binding drives = {.n = 0};
    const char *ids[CHAIN_MAX], *const *lower = NULL;
    struct layers_session dirs;
    char text[BOX_TEXT] = "", base[64];
    snprintf(base, sizeof base, "%s", s->sandbox->set.base);
    int n = claim_source(emu, s, ids, base, e);
    if (n < 0)
        return -1;
    const char *what = "session directory";
    int err = layers_session_make(emu->layers, s->id, &dirs);
    if (!err) {
        what = "layers";
        err = layers_lower(emu->layers, base, ids, (size_t)n, &lower);
    }
    if (!err) {
        s->pump = pump_start(s);
        err = s->pump ? 0 : ENOMEM;
        what = "output thread";
    }
    if (!err && drives_attach(emu, s, &drives, e)) {
        free((void *)(uintptr_t)lower);
        abandon_box(emu, s);
        return -1;
    }
    if (!err) {
        struct box_spec spec = {.lower = lower,
                                .upper = dirs.upper,
                                .work = dirs.work,
                                .mount = dirs.mount,
                                .hostname = s->id + 4,
                                .vcpus = (unsigned)s->vcpus,
                                .mounts = drives.mounts,
                                .n_mounts = drives.n,
                                .on_exit = command_on_exit,
                                .on_exit_arg = s};
        err = box_create(emu->host, &spec, &s->box, text);
        what = text;
    }
    free((void *)(uintptr_t)lower);
    if (!err) {
        drives_started(emu, s);
        return 0;
    }
    abandon_box(emu, s);
    sg_log(SG_LOG_ERROR, "boot_failed", "session", "s", s->id, "what", "s", what, "error", "s", strerror(err),
           NULL);
    if (drives.n &&
        err == ENOTDIR) /* a file is where a drive shall be: nothing that goes away by trying again */
        return api_fail(e, 400, "bad_request", "The sandbox could not be started: %s.", what);
    return api_fail(e, 500, "internal_server_error", "The sandbox could not be started: %s: %s.", what,
                    strerror(err));
}

static void forget_session(struct emulator *emu, struct session *s)
{
    pthread_mutex_lock(&emu->state->lock);
    bool mine = strmap_remove(&emu->state->sessions, s->id) != NULL;
    pthread_mutex_unlock(&emu->state->lock);
    persist_forget_session(emu->state, s);
    if (mine)
        session_unref(s);
}

/* With `op`: a new running session, counted.  The sandbox then points at it; on failure it points where it
 * did, except that a session that got as far as its box stays behind as failed. */
static struct session *boot(struct emulator *emu, struct sandbox *sb, const char *source, struct api_error *e)
{
    struct session *s = new_session(sb, source);
    if (!s) {
        api_fail(e, 500, "internal_server_error", "no memory");
        return NULL;
    }
    pthread_mutex_lock(&sb->lock);
    struct session *before = sb->current;
    sb->current = session_ref(s);
    sb->status_ms = s->created_ms;
    pthread_mutex_unlock(&sb->lock);
    if (state_add_session(emu->state, s))
        api_fail(e, 500, "internal_server_error", "no memory");
    else if (!start_box(emu, s, e))
        goto running;
    pthread_mutex_lock(&sb->lock);
    s->status = ST_FAILED;
    s->updated_ms = sg_wall_ms();
    struct session *drop = sb->current;
    sb->current = before;
    pthread_mutex_unlock(&sb->lock);
    session_unref(drop);
    if (e->status < 500)
        forget_session(emu, s); /* it was refused: it never was */
    else
        persist_session(emu->state, s);
    session_unref(s);
    return NULL;
running:
    pthread_mutex_lock(&sb->lock);
    s->status = ST_RUNNING;
    s->started_ms = s->updated_ms = sb->status_ms = sb->updated_ms = sg_wall_ms();
    s->started_mono = sg_mono_ms();
    pthread_mutex_unlock(&sb->lock);
    if (before)
        session_unref(before);
    lifecycle_deadline_changed(emu);
    persist_session(emu->state, s);
    persist_sandbox(emu->state, sb);
    return s;
}

static void forget_sessions(struct emulator *emu, struct sandbox *sb);

int lifecycle_name_taken(const char *name, struct api_error *e)
{
    api_fail(e, 400, "bad_request",
             "A sandbox with the name '%s' already exists for this project. Use GET "
             "/sandboxes/:name to resume it or delete it first.",
             name);
    e->name_taken = true;
    return -1;
}

int lifecycle_create(struct emulator *emu, struct sandbox *sb, const char *source, struct session **out,
                     struct api_error *e)
{
    if (atomic_load(&emu->closing))
        return api_fail(e, 503, "service_unavailable", "The emulator is shutting down.");
    pthread_mutex_lock(&sb->op);
    int err = state_add_sandbox(emu->state, sb);
    if (err) {
        pthread_mutex_unlock(&sb->op);
        if (err == ENOMEM)
            return api_fail(e, 500, "internal_server_error", "no memory");
        return lifecycle_name_taken(sb->name, e);
    }
    *out = boot(emu, sb, source, e);
    if (!*out) {
        sb->deleted = true;
        forget_sessions(emu, sb);
        state_remove_sandbox(emu->state, sb);
    }
    pthread_mutex_unlock(&sb->op);
    return *out ? 0 : -1;
}

int lifecycle_resume(struct emulator *emu, struct sandbox *sb, struct session **out, bool *resumed,
                     struct api_error *e)
{
    int rc = -1;
    *resumed = false;
    pthread_mutex_lock(&sb->op); /* waits for a stop or another resume to finish */
    pthread_mutex_lock(&sb->lock);
    struct session *current =
        sb->current && sb->current->status == ST_RUNNING ? session_ref(sb->current) : NULL;
    char source[ID_TEXT];
    memcpy(source, sb->snapshot_id, sizeof source);
    bool deleted = sb->deleted;
    pthread_mutex_unlock(&sb->lock);
    if (deleted) {
        api_fail(e, 404, "not_found", "Sandbox not found");
    } else if (current) {
        *out = current;
        rc = 0;
    } else if (atomic_load(&emu->closing)) {
        api_fail(e, 503, "service_unavailable", "The emulator is shutting down.");
    } else if (!*source) {
        api_fail(e, 400, "bad_request", "Cannot resume sandbox: no snapshot available.");
    } else {
        *out = boot(emu, sb, source, e);
        *resumed = *out != NULL;
        rc = *out ? 0 : -1;
    }
    if (deleted && current)
        session_unref(current);
    pthread_mutex_unlock(&sb->op);
    return rc;
}

/* ---- stop ---- */

/* With `op`: takes the box away from everybody.  False when there was nothing to stop. */
static bool begin_stop(struct session *s, enum stop_kind kind, struct box **box)
{
    struct sandbox *sb = s->sandbox;
    pthread_mutex_lock(&sb->lock);
    bool late = kind != STOP_TIMEOUT || sg_mono_ms() >= s->started_mono + s->timeout_ms;
    if (s->status != ST_RUNNING || !late) {
        s->stop_thread = s->stop_thread && kind != STOP_TIMEOUT;
        pthread_mutex_unlock(&sb->lock);
        return false;
    }
    s->status = kind == STOP_SNAPSHOT ? ST_SNAPSHOTTING : ST_STOPPING;
    s->requested_stop_ms = s->updated_ms = sb->status_ms = sg_wall_ms();
    for (struct upload *u = s->uploads; u; u = u->next)
        shutdown(u->fd, SHUT_RDWR);
    terminal_session_stopping(s);
    while (s->users)
        pthread_cond_wait(&sb->idle, &sb->lock);
    for (struct command *c = s->commands; c; c = c->next)
        command_mark_cut(c);
    *box = s->box;
    pthread_mutex_unlock(&sb->lock);
    return true;
}

/* Seals what the session wrote; NULL when that failed or nothing is wanted. */
static struct snapshot *keep_files(struct emulator *emu, struct session *s, bool wanted, bool manual,
                                   int64_t expiration_ms)
{
    char id[ID_TEXT];
    uint64_t size = 0;
    if (!wanted || !sg_random_id(id, "snap_", 28)) {
        layers_session_drop(emu->layers, s->id);
        return NULL;
    }
    int err = layers_seal(emu->layers, s->id, id, &size);
    if (err) {
        sg_log(SG_LOG_ERROR, "snapshot_failed", "session", "s", s->id, "error", "s", strerror(err), NULL);
        return NULL;
    }
    return snapshots_record(emu, s, id, size, manual, expiration_ms);
}

static void end_session(struct session *s, int64_t cpu_ms, const struct snapshot *sn)
{
    struct sandbox *sb = s->sandbox;
    pthread_mutex_lock(&sb->lock);
    int64_t now = sg_wall_ms();
    s->status = ST_STOPPED;
    s->box = NULL;
    s->pump = NULL;
    s->stopped_ms = s->updated_ms = sb->status_ms = sb->updated_ms = now;
    s->duration_ms = sg_mono_ms() - s->started_mono;
    s->cpu_ms = cpu_ms;
    if (sn)
        s->snapshotted_ms = s->requested_stop_ms;
    sb->total_cpu_ms += cpu_ms;
    sb->total_duration_ms += s->duration_ms;
    sb->total_ingress += atomic_load(&s->ingress);
    sb->total_egress += atomic_load(&s->egress);
    pthread_mutex_unlock(&sb->lock);
}

/* With `op`. */
static int stop_locked(struct emulator *emu, struct session *s, enum stop_kind kind, int64_t expiration_ms,
                       struct snapshot **snapshot, struct api_error *e)
{
    struct box *box = NULL;
    struct sandbox *sb = s->sandbox;
    if (!begin_stop(s, kind, &box))
        return kind == STOP_SNAPSHOT ? session_check(s, e) : 0;
    int64_t cpu_ms = (int64_t)(box_cpu_us(box) / 1000);
    box_stop(box);
    pump_finish(s->pump);
    drives_detach(emu, s);
    pthread_mutex_lock(&sb->lock);
    bool persistent = sb->set.persistent;
    pthread_mutex_unlock(&sb->lock);
    bool manual = kind == STOP_SNAPSHOT;
    bool wanted = kind != STOP_DISCARD && (manual || persistent);
    struct snapshot *sn = keep_files(emu, s, wanted, manual, expiration_ms);
    end_session(s, cpu_ms, sn);
    live_remove(emu->state, s);
    command_drop_all(s);
    persist_session(emu->state, s);
    persist_sandbox(emu->state, sb);
    *snapshot = sn;
    if (wanted && !sn)
        return api_fail(e, 500, "internal_server_error",
                        "The session has stopped, but its snapshot could not be kept.");
    return 0;
}

int lifecycle_stop(struct emulator *emu, struct session *s, enum stop_kind kind, int64_t expiration_ms,
                   struct snapshot **snapshot, struct api_error *e)
{
    *snapshot = NULL;
    pthread_mutex_lock(&s->sandbox->op);
    int rc = stop_locked(emu, s, kind, expiration_ms, snapshot, e);
    pthread_mutex_unlock(&s->sandbox->op);
    return rc;
}

/* ---- delete ---- */

/* With `op`: all sessions of a sandbox leave the table. */
static void forget_sessions(struct emulator *emu, struct sandbox *sb)
{
    size_t n;
    struct session **all = state_all_sessions(emu->state, sb->project, sb->name, &n);
    for (size_t i = 0; all && i < n; i++) {
        if (all[i]->sandbox == sb)
            forget_session(emu, all[i]);
        session_unref(all[i]);
    }
    free(all);
}

int lifecycle_delete(struct emulator *emu, struct sandbox *sb, bool orphan_snapshots, struct api_error *e)
{
    struct snapshot *none = NULL;
    pthread_mutex_lock(&sb->op);
    pthread_mutex_lock(&sb->lock);
    bool deleted = sb->deleted;
    struct session *current = sb->current ? session_ref(sb->current) : NULL;
    pthread_mutex_unlock(&sb->lock);
    if (deleted) {
        pthread_mutex_unlock(&sb->op);
        if (current)
            session_unref(current);
        return api_fail(e, 404, "not_found", "Sandbox not found");
    }
    int rc = current ? stop_locked(emu, current, STOP_DISCARD, -1, &none, e) : 0;
    pthread_mutex_lock(&sb->lock);
    sb->deleted = true;
    pthread_mutex_unlock(&sb->lock);
    state_remove_sandbox(emu->state, sb);
    forget_sessions(emu, sb);
    persist_forget_sandbox(emu->state, sb);
    pthread_mutex_unlock(&sb->op);
    if (current)
        session_unref(current);
    if (orphan_snapshots)
        snapshots_delete_orphans(emu, sb->uid);
    return rc;
}

void lifecycle_delete_snapshot(struct emulator *emu, struct snapshot *sn)
{
    snapshots_delete(emu, sn);
}

/* ---- after the death of another emulator ---- */

static void adopt_orphan(void *arg, const char *session_id)
{
    struct emulator *emu = arg;
    struct session *s = state_session(emu->state, session_id);
    if (!s || status_ended(s->status)) {
        layers_session_drop(emu->layers, session_id);
    } else {
        struct snapshot *sn = keep_files(emu, s, s->sandbox->set.persistent, false, -1);
        sg_log(SG_LOG_INFO, "session_recovered", "session", "s", session_id, "snapshot", "s",
               sn ? sn->id : NULL, NULL);
        if (sn) {
            persist_sandbox(emu->state, s->sandbox);
            snapshot_unref(sn);
        }
    }
    if (s)
        session_unref(s);
}

void lifecycle_recover(struct emulator *emu)
{
    layers_each_orphan(emu->layers, adopt_orphan, emu);
    size_t n;
    struct session **all = state_all_sessions(emu->state, "", "", &n);
    for (size_t i = 0; all && i < n; i++) {
        struct session *s = all[i];
        if (!status_ended(s->status)) {
            s->status = ST_ABORTED;
            s->aborted_ms = s->updated_ms = s->sandbox->status_ms = sg_wall_ms();
            persist_session(emu->state, s);
            persist_sandbox(emu->state, s->sandbox);
        }
        session_unref(s);
    }
    free(all);
    snapshots_sweep(emu);
    drives_recover(emu);
}
