#include "control/names.h"

#include "control/control.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 500 };

struct names {
    pthread_mutex_t lock; /* guards the list; not held over calls of the store */
    struct name_lock *held;
    struct job *job; /* renews; made with the first lock */
};

struct names *names_new(void)
{
    struct names *n = calloc(1, sizeof *n);
    if (n && pthread_mutex_init(&n->lock, NULL)) {
        free(n);
        return NULL;
    }
    return n;
}

void names_free(struct names *n)
{
    if (!n)
        return;
    pthread_mutex_destroy(&n->lock);
    free(n);
}

struct call {
    char name[STORE_LOCK_NAME + 1], owner[STORE_OWNER_TEXT];
    bool yes;
};

static enum sg_code take_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_lock_take(db, k->name, k->owner, NAME_LOCK_MS, &k->yes, e);
}

static enum sg_code renew_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_lock_renew(db, k->name, k->owner, NAME_LOCK_MS, &k->yes, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_lock_drop(db, k->name, k->owner, e);
}

/* ---- renewal ---- */

/* The i-th of those that are held. */
static bool nth(struct names *n, size_t i, struct call *out)
{
    pthread_mutex_lock(&n->lock);
    const struct name_lock *l = n->held;
    while (l && i--)
        l = l->next;
    if (l) {
        memcpy(out->name, l->name, sizeof out->name);
        memcpy(out->owner, l->owner, sizeof out->owner);
    }
    pthread_mutex_unlock(&n->lock);
    return l != NULL;
}

/* One that goes from the list meanwhile moves others ahead, of which one may be left out: it has three more turns. */
static void renew_all(void *arg)
{
    struct control *c = arg;
    struct call k = {0};
    for (size_t i = 0; nth(c->names, i, &k); i++) {
        struct sg_error e;
        if (store_call(c->store, STORE_WRITE, renew_fn, &k, &e))
            sg_log(SG_LOG_WARN, "lock of a name not renewed", "name", "s", k.name, "error", "e", &e, NULL);
    }
}

bool names_start(struct control *c)
{
    if (!c->store)
        return true;
    c->names->job = job_add(c->jobs, "names", NAME_LOCK_RENEW_MS, renew_all, c);
    return c->names->job != NULL;
}

static void list_add(struct names *n, struct name_lock *l)
{
    pthread_mutex_lock(&n->lock);
    l->prev = NULL;
    l->next = n->held;
    if (n->held)
        n->held->prev = l;
    n->held = l;
    pthread_mutex_unlock(&n->lock);
}

static void list_remove(struct names *n, struct name_lock *l)
{
    pthread_mutex_lock(&n->lock);
    *(l->prev ? &l->prev->next : &n->held) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    pthread_mutex_unlock(&n->lock);
}

/* ---- taking ---- */

/* A long one is told by its hash. */
static void name_it(const struct control *c, const char *kind, const char *name,
                    char out[STORE_LOCK_NAME + 1])
{
    char whole[1024], hex[65];
    unsigned char hash[32];
    int n = snprintf(whole, sizeof whole, "%s:%s:%s", kind, c->upstream, name);
    if (n >= 0 && n <= STORE_LOCK_NAME) {
        memcpy(out, whole, (size_t)n + 1);
        return;
    }
    sg_sha256(whole, strlen(whole), hash);
    sg_hex(hex, hash, sizeof hash);
    (void)snprintf(out, STORE_LOCK_NAME + 1, "%s:%s", kind, hex);
}

enum sg_code control_lock(struct control *c, const char *kind, const char *name, int64_t patience_ms,
                          struct name_lock *l, struct sg_error *e)
{
    struct call k = {0};
    struct sg_error own;
    memset(l, 0, sizeof *l);
    if (!c->store)
        return SG_OK;
    if (!store_owner(k.owner))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a lock");
    name_it(c, kind, name, k.name);
    int64_t until = sg_mono_ms() + patience_ms;
    for (int64_t pause = PAUSE_FIRST_MS;; pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS) {
        if (store_call(c->store, STORE_WRITE, take_fn, &k, &own)) {
            sg_log(SG_LOG_WARN, "going on without a lock", "of", "s", k.name, "error", "e", &own, NULL);
            return SG_OK;
        }
        if (k.yes)
            break;
        if (jobs_stopping(c->jobs))
            return sg_fail(e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
        if (sg_mono_ms() + pause > until)
            return sg_fail(e, SG_E_SANDBOX_TRANSITION, SG_NOT_SENT,
                           "somebody else is at work on the %s of this name just now", kind);
        (void)poll(NULL, 0, (int)pause);
    }
    l->c = c;
    memcpy(l->name, k.name, sizeof l->name);
    memcpy(l->owner, k.owner, sizeof l->owner);
    l->held = true;
    list_add(c->names, l);
    return SG_OK;
}

enum sg_code control_name_lock(struct control *c, const char *name, int64_t patience_ms, struct name_lock *l,
                               struct sg_error *e)
{
    return control_lock(c, "sandbox", name, patience_ms, l, e);
}

void control_name_unlock(struct name_lock *l)
{
    if (!l->held)
        return;
    struct call k = {0};
    struct sg_error e;
    l->held = false;
    list_remove(l->c->names, l);
    memcpy(k.name, l->name, sizeof k.name);
    memcpy(k.owner, l->owner, sizeof k.owner);
    if (store_call(l->c->store, STORE_WRITE, drop_fn, &k, &e)) /* then its time runs out */
        sg_log(SG_LOG_WARN, "lock of a name not given back", "name", "s", k.name, "error", "e", &e, NULL);
}
