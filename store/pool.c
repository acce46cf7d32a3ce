#include "store/internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* With the lock held.  False: it is past the deadline. */
static bool wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ms)
{
    struct timespec t = {.tv_sec = (time_t)(deadline_ms / 1000),
                         .tv_nsec = (long)(deadline_ms % 1000) * 1000000};
    return pthread_cond_timedwait(cond, lock, &t) == 0 || sg_mono_ms() < deadline_ms;
}

/* ---- whose turn it is ---- */

static bool cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t clock;
    if (pthread_condattr_init(&clock))
        return false;
    bool ok = pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 && pthread_cond_init(cond, &clock) == 0;
    pthread_condattr_destroy(&clock);
    return ok;
}

static void forget_turn(struct store *s, const struct turn *t)
{
    struct turn **at = &s->first_turn;
    while (*at && *at != t)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = t->next;
    if (!*at)
        s->last_turn = at;
}

/* With the lock held: in the line until it is handed over. */
static bool wait_for_turn(struct store *s, int64_t deadline_ms)
{
    struct turn t = {.next = NULL};
    bool patient = cond_init(&t.mine);
    if (!patient)
        return false;
    *s->last_turn = &t;
    s->last_turn = &t.next;
    while (!t.given && patient)
        patient = wait_until(&t.mine, &s->lock, deadline_ms);
    if (!t.given)
        forget_turn(s, &t);
    pthread_cond_destroy(&t.mine);
    return t.given;
}

enum sg_code pool_turn_take(struct store *s, int64_t deadline_ms, struct sg_error *e)
{
    pthread_mutex_lock(&s->lock);
    bool mine = !s->writing || wait_for_turn(s, deadline_ms);
    if (mine)
        s->writing = true;
    pthread_mutex_unlock(&s->lock);
    return mine ? SG_OK
                : sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED,
                          "too much waits to be written to the state");
}

/* Handed to whoever waits longest; nobody who comes now gets ahead of them. */
void pool_turn_give(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    struct turn *t = s->first_turn;
    if (t) {
        s->first_turn = t->next;
        if (!s->first_turn)
            s->last_turn = &s->first_turn;
        t->given = true;
        pthread_cond_signal(&t->mine);
    } else {
        s->writing = false;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- opening ---- */

static enum sg_code migrate(struct store_db *db, struct sg_error *e)
{
    enum sg_code rc = db->backend->begin_migration(db, e);
    if (!rc)
        rc = db_migrate(db, e);
    if (!rc)
        rc = db->backend->commit(db, e);
    if (rc)
        db->backend->rollback(db);
    return rc;
}

static enum sg_code open_once(struct store *s, bool migrated, int64_t deadline_ms, struct store_db **out,
                              bool *again, char why[DB_WHY], struct sg_error *e)
{
    struct store_db *db = NULL;
    enum sg_code rc = s->backend->open(&s->options, deadline_ms, &db, why, e);
    *again = false;
    if (rc)
        return rc;
    db->deadline_ms = deadline_ms;
    rc = migrated ? SG_OK : migrate(db, e);
    if (rc) {
        *again = db->again;
        db->backend->close(db);
    } else {
        *out = db;
    }
    return rc;
}

static enum sg_code open_one(struct store *s, bool migrated, int64_t deadline_ms, struct store_db **out,
                             char why[DB_WHY], struct sg_error *e)
{
    bool again;
    enum sg_code rc = open_once(s, migrated, deadline_ms, out, &again, why, e);
    return rc && again ? open_once(s, migrated, deadline_ms, out, &again, why, e) : rc;
}

/* Says once that the database cannot be used, and why. */
static void lost(const struct store *s, const char *why, const struct sg_error *e)
{
    sg_log(SG_LOG_ERROR, "store unavailable", "database", "s", s->backend->name, "path", "s", s->path,
           "error", "e", e, "message", "s", *why ? why : NULL, NULL);
}

static void note_failure(struct store *s, const char *why, struct sg_error *e)
{
    if (e->code == SG_E_INVALID_FIELD && s->opened)
        e->code = SG_E_STORE_UNAVAILABLE; /* it was right when we started */
    bool told = s->closed_until_ms && s->why.code == e->code && strcmp(s->why.detail, e->detail) == 0;
    if (e->code != SG_E_INVALID_FIELD && !told) /* that one is said by whoever opens it */
        lost(s, why, e);
    s->closed_until_ms = sg_mono_ms() + STORE_REOPEN_MS;
    s->why = *e;
}

static void note_success(struct store *s)
{
    if (s->closed_until_ms)
        sg_log(SG_LOG_INFO, "store available", "database", "s", s->backend->name, "path", "s", s->path, NULL);
    s->opened = s->migrated = true;
    s->closed_until_ms = 0;
}

/* With the lock held, which is given up while the database is opened.  One that could not be opened is tried by one
 * caller at a time; the others are told what the last one found. */
static enum sg_code open_locked(struct store *s, int64_t deadline_ms, struct store_db **out,
                                struct sg_error *e)
{
    if (s->closed_until_ms && (s->opening || sg_mono_ms() < s->closed_until_ms)) {
        *e = s->why;
        return e->code;
    }
    bool migrated = s->migrated, probe = s->closed_until_ms != 0;
    char why[DB_WHY] = "";
    struct sg_error own;
    sg_error_clear(&own);
    s->nopen++;
    s->opening = s->opening || probe;
    pthread_mutex_unlock(&s->lock);
    enum sg_code rc = open_one(s, migrated, deadline_ms, out, why, &own);
    pthread_mutex_lock(&s->lock);
    if (probe)
        s->opening = false;
    if (!rc) {
        note_success(s);
        return SG_OK;
    }
    s->nopen--;
    note_failure(s, why, &own);
    pthread_cond_signal(&s->given_back); /* whoever waits may try */
    *e = own;
    return own.code;
}

/* ---- connections ---- */

static enum sg_code all_in_use(struct sg_error *e)
{
    return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "all connections to the database are in use");
}

enum sg_code pool_take(struct store *s, int64_t deadline_ms, struct store_db **out, struct sg_error *e)
{
    enum sg_code rc = SG_OK;
    bool patient = true;
    pthread_mutex_lock(&s->lock);
    while (!s->nidle && s->nopen == s->max_open && patient)
        patient = wait_until(&s->given_back, &s->lock, deadline_ms);
    if (s->nidle)
        *out = s->idle[--s->nidle];
    else
        rc = s->nopen < s->max_open ? open_locked(s, deadline_ms, out, e) : all_in_use(e);
    pthread_mutex_unlock(&s->lock);
    if (!rc)
        (*out)->deadline_ms = deadline_ms;
    return rc;
}

void pool_give(struct store *s, struct store_db *db)
{
    bool broken = db->broken;
    if (broken)
        db->backend->close(db);
    pthread_mutex_lock(&s->lock);
    if (broken) {
        s->nopen--;
        s->migrated = false; /* whatever broke it: what is opened next may be another database */
    } else {
        s->idle[s->nidle++] = db;
    }
    pthread_cond_signal(&s->given_back);
    pthread_mutex_unlock(&s->lock);
}

bool pool_init(struct store *s)
{
    s->idle = calloc((size_t)s->max_open, sizeof(struct store_db *));
    s->last_turn = &s->first_turn;
    return s->idle && pthread_mutex_init(&s->lock, NULL) == 0 && cond_init(&s->given_back);
}

void pool_free(struct store *s)
{
    while (s->nidle) {
        struct store_db *db = s->idle[--s->nidle];
        db->backend->close(db);
    }
    free((void *)s->idle);
    pthread_cond_destroy(&s->given_back);
    pthread_mutex_destroy(&s->lock);
}
