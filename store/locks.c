#include "store/locks.h"

#include "base/crypto.h"
#include "store/db.h"

#include <string.h>

enum { ABANDONED_MS = 24 * 60 * 60 * 1000, TTL_MAX_MS = ABANDONED_MS };

enum sg_code store_now(struct store_db *db, int64_t *ms, struct sg_error *e)
{
    enum sg_code rc = db->now_ms ? SG_OK : db->backend->now(db, &db->now_ms, e);
    *ms = rc ? 0 : db->now_ms;
    return rc;
}

bool store_owner(char out[STORE_OWNER_TEXT])
{
    unsigned char raw[(STORE_OWNER_TEXT - 1) / 2];
    bool ok = sg_random(raw, sizeof raw);
    if (ok)
        sg_hex(out, raw, sizeof raw);
    return ok;
}

/* Now, and the end of what is taken now. */
static enum sg_code times(struct store_db *db, const char *name, int64_t ttl_ms, int64_t *now, int64_t *until,
                          struct sg_error *e)
{
    enum sg_code rc = strlen(name) > STORE_LOCK_NAME
                          ? sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the name of a lock is too long")
                          : store_now(db, now, e);
    *until = *now + (ttl_ms < TTL_MAX_MS ? ttl_ms : TTL_MAX_MS);
    return rc;
}

enum sg_code store_lock_take(struct store_db *db, const char *name, const char *owner, int64_t ttl_ms,
                             bool *taken, struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO locks (name, owner, held_until) VALUES ($1, $2, $3)"
        " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until"
        " WHERE locks.owner = excluded.owner OR locks.held_until <= $4";
    int64_t now = 0, until = 0, changed = 0;
    enum sg_code rc = times(db, name, ttl_ms, &now, &until, e);
    const struct db_value v[] = {db_text(name), db_text(owner), db_int(until), db_int(now)};
    if (!rc)
        rc = db_run(db, sql, v, 4, NULL, NULL, &changed, e);
    *taken = !rc && changed > 0;
    return rc;
}

enum sg_code store_lock_renew(struct store_db *db, const char *name, const char *owner, int64_t ttl_ms,
                              bool *held, struct sg_error *e)
{
    /* One that ended and was taken by nobody is still its holder's: nothing happened meanwhile. */
    static const char sql[] = "UPDATE locks SET held_until = $3 WHERE name = $1 AND owner = $2";
    int64_t now = 0, until = 0, changed = 0;
    enum sg_code rc = times(db, name, ttl_ms, &now, &until, e);
    const struct db_value v[] = {db_text(name), db_text(owner), db_int(until)};
    if (!rc)
        rc = db_run(db, sql, v, 3, NULL, NULL, &changed, e);
    *held = !rc && changed > 0;
    return rc;
}

enum sg_code store_lock_drop(struct store_db *db, const char *name, const char *owner, struct sg_error *e)
{
    const struct db_value v[] = {db_text(name), db_text(owner)};
    return db_run(db, "DELETE FROM locks WHERE name = $1 AND owner = $2", v, 2, NULL, NULL, NULL, e);
}

enum sg_code store_locks_prune(struct store_db *db, struct sg_error *e)
{
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v = db_int(now - ABANDONED_MS);
    return rc ? rc : db_run(db, "DELETE FROM locks WHERE held_until < $1", &v, 1, NULL, NULL, NULL, e);
}
