#include "emulator/state.h"
#include "base/clock.h"
#include "emulator/drives.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char *const status_names[] = {"pending", "running", "stopping",    "stopped",
                                           "failed",  "aborted", "snapshotting"};

const char *status_name(enum status s)
{
    return status_names[s];
}

bool status_from_name(const char *name, enum status *out)
{
    for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++)
        if (!strcmp(status_names[i], name)) {
            *out = (enum status)i;
            return true;
        }
    return false;
}

bool status_ended(enum status s)
{
    return s == ST_STOPPED || s == ST_FAILED || s == ST_ABORTED;
}

static int cond_init_monotonic(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);
    if (err)
        return err;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return err;
}

struct state *state_new(const char *state_dir, char err[256])
{
    struct state *st = calloc(1, sizeof *st);
    if (!st) {
        snprintf(err, 256, "no memory");
        return NULL;
    }
    snprintf(st->dir, sizeof st->dir, "%s/meta", state_dir);
    if (mkdir(st->dir, 0700) && errno != EEXIST) {
        snprintf(err, 256, "cannot make the directory %.180s: %s", st->dir, strerror(errno));
        free(st);
        return NULL;
    }
    pthread_mutex_init(&st->lock, NULL);
    cond_init_monotonic(&st->changed);
    strmap_init(&st->sandboxes);
    strmap_init(&st->sessions);
    strmap_init(&st->snapshots);
    strmap_init(&st->drives);
    return st;
}

static bool drop_sandbox(void *arg, void *value)
{
    (void)arg;
    struct sandbox *sb = value;
    if (sb->current)
        session_unref(sb->current); /* breaks the circle sandbox - session */
    sb->current = NULL;
    sandbox_unref(sb);
    return true;
}

static bool drop_session(void *arg, void *value)
{
    (void)arg;
    session_unref(value);
    return true;
}

static bool drop_snapshot(void *arg, void *value)
{
    (void)arg;
    snapshot_unref(value);
    return true;
}

static bool drop_drive(void *arg, void *value)
{
    (void)arg;
    drive_unref(value);
    return true;
}

void state_free(struct state *st)
{
    if (!st)
        return;
    strmap_each(&st->sandboxes, drop_sandbox, NULL);
    strmap_each(&st->sessions, drop_session, NULL);
    strmap_each(&st->snapshots, drop_snapshot, NULL);
    strmap_each(&st->drives, drop_drive, NULL);
    strmap_free(&st->sandboxes);
    strmap_free(&st->sessions);
    strmap_free(&st->snapshots);
    strmap_free(&st->drives);
    pthread_cond_destroy(&st->changed);
    pthread_mutex_destroy(&st->lock);
    free(st);
}

struct sandbox *sandbox_new(void)
{
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb)
        return NULL;
    atomic_init(&sb->refs, 1);
    pthread_mutex_init(&sb->op, NULL);
    pthread_mutex_init(&sb->lock, NULL);
    pthread_cond_init(&sb->idle, NULL);
    return sb;
}

struct sandbox *sandbox_ref(struct sandbox *sb)
{
    atomic_fetch_add(&sb->refs, 1);
    return sb;
}

void settings_free(struct settings *s)
{
    free(s->policy_text);
    json_decref(s->env);
    json_decref(s->tags);
    memset(s, 0, sizeof *s);
}

void sandbox_unref(struct sandbox *sb)
{
    if (atomic_fetch_sub(&sb->refs, 1) != 1)
        return;
    settings_free(&sb->set);
    pthread_cond_destroy(&sb->idle);
    pthread_mutex_destroy(&sb->lock);
    pthread_mutex_destroy(&sb->op);
    free(sb);
}

struct session *session_new(struct sandbox *sb)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->sandbox = sandbox_ref(sb);
    return s;
}

struct session *session_ref(struct session *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void session_unref(struct session *s)
{
    if (atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    sandbox_unref(s->sandbox);
    free(s->policy_text);
    free(s);
}

struct snapshot *snapshot_new(void)
{
    struct snapshot *sn = calloc(1, sizeof *sn);
    if (sn)
        atomic_init(&sn->refs, 1);
    return sn;
}

struct snapshot *snapshot_ref(struct snapshot *sn)
{
    atomic_fetch_add(&sn->refs, 1);
    return sn;
}

struct drive *drive_new(void)
{
    struct drive *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    atomic_init(&d->refs, 1);
    pthread_rwlock_init(&d->content, NULL);
    return d;
}

struct drive *drive_ref(struct drive *d)
{
    atomic_fetch_add(&d->refs, 1);
    return d;
}

void drive_unref(struct drive *d)
{
    if (atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    pthread_rwlock_destroy(&d->content);
    free(d);
}

void snapshot_unref(struct snapshot *sn)
{
    if (atomic_fetch_sub(&sn->refs, 1) == 1)
        free(sn);
}

static void sandbox_key(char *out, size_t cap, const char *project, const char *name)
{
    snprintf(out, cap, "%s/%s", project, name); /* names have no slash, so the last one divides */
}

struct by_name {
    const char *name;
    struct sandbox *found;
};

static bool match_name(void *arg, void *value)
{
    struct by_name *q = arg;
    struct sandbox *sb = value;
    if (!strcmp(sb->name, q->name))
        q->found = sb;
    return !q->found;
}

struct sandbox *state_sandbox(struct state *st, const char *project, const char *name)
{
    char key[PROJECT_TEXT + NAME_TEXT + 1];
    struct sandbox *sb;
    pthread_mutex_lock(&st->lock);
    if (*project) {
        sandbox_key(key, sizeof key, project, name);
        sb = strmap_get(&st->sandboxes, key);
    } else {
        struct by_name q = {.name = name};
        strmap_each(&st->sandboxes, match_name, &q);
        sb = q.found;
    }
    if (sb)
        sandbox_ref(sb);
    pthread_mutex_unlock(&st->lock);
    return sb;
}

struct session *state_session(struct state *st, const char *id)
{
    pthread_mutex_lock(&st->lock);
    struct session *s = strmap_get(&st->sessions, id);
    if (s)
        session_ref(s);
    pthread_mutex_unlock(&st->lock);
    return s;
}

struct snapshot *state_snapshot(struct state *st, const char *id)
{
    pthread_mutex_lock(&st->lock);
    struct snapshot *sn = strmap_get(&st->snapshots, id);
    if (sn)
        snapshot_ref(sn);
    pthread_mutex_unlock(&st->lock);
    return sn;
}

int state_add_sandbox(struct state *st, struct sandbox *sb)
{
    char key[PROJECT_TEXT + NAME_TEXT + 1];
    bool no_memory;
    sandbox_key(key, sizeof key, sb->project, sb->name);
    pthread_mutex_lock(&st->lock);
    bool ok = strmap_add(&st->sandboxes, key, sb, &no_memory);
    if (ok)
        sandbox_ref(sb);
    pthread_mutex_unlock(&st->lock);
    return ok ? 0 : no_memory ? ENOMEM : EEXIST;
}

int state_add_session(struct state *st, struct session *s)
{
    bool no_memory;
    pthread_mutex_lock(&st->lock);
    bool ok = strmap_add(&st->sessions, s->id, s, &no_memory);
    if (ok)
        session_ref(s);
    pthread_mutex_unlock(&st->lock);
    return ok ? 0 : no_memory ? ENOMEM : EEXIST;
}

int state_add_snapshot(struct state *st, struct snapshot *sn)
{
    bool no_memory;
    pthread_mutex_lock(&st->lock);
    bool ok = strmap_add(&st->snapshots, sn->id, sn, &no_memory);
    if (ok)
        snapshot_ref(sn);
    pthread_mutex_unlock(&st->lock);
    return ok ? 0 : no_memory ? ENOMEM : EEXIST;
}

void state_remove_sandbox(struct state *st, struct sandbox *sb)
{
    char key[PROJECT_TEXT + NAME_TEXT + 1];
    sandbox_key(key, sizeof key, sb->project, sb->name);
    pthread_mutex_lock(&st->lock);
    void *found = strmap_get(&st->sandboxes, key);
    if (found == sb)
        strmap_remove(&st->sandboxes, key);
    pthread_mutex_unlock(&st->lock);
    if (found == sb)
        sandbox_unref(sb);
}

/* ---- collections ---- */

struct collect {
    const char *project, *name, *uid;
    bool (*want)(const struct collect *c, void *value);
    void *(*ref)(void *value);
    void **items;
    size_t n;
};

static bool collect_one(void *arg, void *value)
{
    struct collect *c = arg;
    if (!c->want(c, value))
        return true;
    c->items[c->n++] = c->ref(value);
    return true;
}

static void *collect(struct state *st, struct strmap *m, struct collect *c, size_t *n)
{
    pthread_mutex_lock(&st->lock);
    c->items = calloc(m->count + 1, sizeof(void *));
    if (c->items)
        strmap_each(m, collect_one, c);
    pthread_mutex_unlock(&st->lock);
    *n = c->items ? c->n : SIZE_MAX;
    return c->items;
}

static bool want_sandbox(const struct collect *c, void *value)
{
    const struct sandbox *sb = value;
    return !*c->project || !strcmp(sb->project, c->project);
}

static bool want_session(const struct collect *c, void *value)
{
    const struct sandbox *sb = ((const struct session *)value)->sandbox;
    return (!*c->project || !strcmp(sb->project, c->project)) && (!*c->name || !strcmp(sb->name, c->name));
}

static bool want_snapshot(const struct collect *c, void *value)
{
    const struct snapshot *sn = value;
    return !sn->evicted && (!*c->project || !strcmp(sn->project, c->project)) &&
           (!c->uid || !strcmp(sn->sandbox_uid, c->uid));
}

static void *ref_sandbox(void *v)
{
    return sandbox_ref(v);
}

static void *ref_session(void *v)
{
    return session_ref(v);
}

static void *ref_snapshot(void *v)
{
    return snapshot_ref(v);
}

struct sandbox **state_all_sandboxes(struct state *st, const char *project, size_t *n)
{
    struct collect c = {.project = project, .want = want_sandbox, .ref = ref_sandbox};
    return collect(st, &st->sandboxes, &c, n);
}

struct session **state_all_sessions(struct state *st, const char *project, const char *sandbox_name,
                                    size_t *n)
{
    struct collect c = {.project = project, .name = sandbox_name, .want = want_session, .ref = ref_session};
    return collect(st, &st->sessions, &c, n);
}

struct snapshot **state_all_snapshots(struct state *st, const char *project, const char *sandbox_name,
                                      size_t *n)
{
    struct collect c = {.project = project, .want = want_snapshot, .ref = ref_snapshot};
    struct sandbox *sb = NULL;
    if (*sandbox_name) {
        /* a deleted sandbox's snapshots are not listed under its name, nor under a namesake's */
        sb = state_sandbox(st, project, sandbox_name);
        c.uid = sb ? sb->uid : "";
    }
    struct snapshot **all = collect(st, &st->snapshots, &c, n);
    if (sb)
        sandbox_unref(sb);
    return all;
}

bool snapshot_usable(const struct snapshot *sn)
{
    return !sn->deleted && (!sn->expiration_ms || sg_wall_ms() < sn->last_used_ms + sn->expiration_ms);
}
