/* The tables, one step after the other.  A step that was released is never changed: the next one follows it. */
#include "store/db.h"

#include "base/clock.h"

static const char *const steps[] = {
    /* 1: processes as they were last seen.  how 0: not known to have ended.  flags: see processes.c. */
    "CREATE TABLE processes ("
    " upstream TEXT NOT NULL, sandbox TEXT NOT NULL, session_id TEXT NOT NULL, process_id TEXT NOT NULL,"
    " state BIGINT NOT NULL, how BIGINT NOT NULL, value BIGINT NOT NULL, flags BIGINT NOT NULL,"
    " started_ms BIGINT NOT NULL, duration_ms BIGINT NOT NULL, pid BIGINT NOT NULL, input BIGINT NOT NULL,"
    " out_end BIGINT NOT NULL, err_end BIGINT NOT NULL,"
    " made_at BIGINT NOT NULL, saved_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,"
    " PRIMARY KEY (session_id, process_id))",
    /* 2 */
    "CREATE INDEX processes_by_sandbox ON processes (upstream, sandbox, process_id, made_at)",
    /* 3 */
    "CREATE INDEX processes_by_expiry ON processes (expires_at)",
    /* 4: the last bytes of their output: first_at up to end_at */
    "CREATE TABLE process_tails ("
    " session_id TEXT NOT NULL, process_id TEXT NOT NULL, stream BIGINT NOT NULL,"
    " first_at BIGINT NOT NULL, end_at BIGINT NOT NULL, saved_at BIGINT NOT NULL, size BIGINT NOT NULL,"
    " bytes BYTEA NOT NULL,"
    " PRIMARY KEY (session_id, process_id, stream))",
    /* 5: the sum of all sizes, and the oldest of them, without reading the bytes */
    "CREATE INDEX process_tails_by_age ON process_tails (saved_at, size)",
    /* 6: sessions in which processes were started.  deadline 0: not known. */
    "CREATE TABLE session_watch ("
    " session_id TEXT NOT NULL PRIMARY KEY, upstream TEXT NOT NULL, sandbox TEXT NOT NULL,"
    " cwd TEXT NOT NULL, arch TEXT, deadline BIGINT NOT NULL, made_at BIGINT NOT NULL)",
    /* 7: what is to be taken away.  kind, target, alloc: see cleanups.h. */
    "CREATE TABLE cleanups ("
    " upstream TEXT NOT NULL, kind BIGINT NOT NULL, target TEXT NOT NULL, alloc TEXT NOT NULL,"
    " why TEXT NOT NULL, made_at BIGINT NOT NULL, next_at BIGINT NOT NULL, lost_until BIGINT NOT NULL,"
    " tries BIGINT NOT NULL, claimed_by TEXT NOT NULL, claimed_until BIGINT NOT NULL,"
    " PRIMARY KEY (upstream, kind, target, alloc))",
    /* 8 */
    "CREATE INDEX cleanups_by_time ON cleanups (upstream, next_at)",
    /* 9 */
    "CREATE INDEX cleanups_by_alloc ON cleanups (upstream, alloc)",
    /* 10: values that are made once for all gateways that share the database */
    "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value BYTEA NOT NULL)",
    /* 11: who holds what, until when by the database's clock */
    "CREATE TABLE locks (name TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, held_until BIGINT NOT NULL)",
    /* 12 */
    "CREATE INDEX locks_by_end ON locks (held_until)",
    /* 13: leases of sandboxes.  seen_at 0, pending 1: not known to be there. */
    "CREATE TABLE leases ("
    " upstream TEXT NOT NULL, alloc TEXT NOT NULL, sandbox TEXT NOT NULL, ttl_ms BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL, seen_at BIGINT NOT NULL, pending BIGINT NOT NULL,"
    " PRIMARY KEY (upstream, alloc))",
    /* 14 */
    "CREATE INDEX leases_by_time ON leases (upstream, expires_at)",
    /* 15 */
    "CREATE INDEX leases_by_name ON leases (upstream, sandbox)",
    /* 16: what only the gateway knows of a sandbox */
    "CREATE TABLE sandboxes ("
    " upstream TEXT NOT NULL, alloc TEXT NOT NULL, sandbox TEXT NOT NULL, working_directory TEXT,"
    " web_port BIGINT NOT NULL, init TEXT, init_done BIGINT NOT NULL, init_fails BIGINT NOT NULL,"
    " on_start TEXT, started TEXT, keep_alive BIGINT NOT NULL, keep_alive_max_ms BIGINT NOT NULL, template "
    "TEXT, checkpoint TEXT,"
    " made_at BIGINT NOT NULL,"
    " PRIMARY KEY (upstream, alloc))",
    /* 17 */
    "CREATE INDEX sandboxes_by_name ON sandboxes (upstream, sandbox)",
    /* 18: requests with an Idempotency-Key.  state: 1 runs, 2 is nobody's, 3 was answered. */
    "CREATE TABLE idempotency ("
    " upstream TEXT NOT NULL, principal TEXT NOT NULL, id TEXT NOT NULL, request TEXT NOT NULL,"
    " nonce TEXT NOT NULL, operation TEXT NOT NULL, state BIGINT NOT NULL, runs BIGINT NOT NULL,"
    " owner TEXT NOT NULL, beat_at BIGINT NOT NULL, note TEXT NOT NULL, answered BIGINT NOT NULL,"
    " status BIGINT NOT NULL, type BIGINT NOT NULL, head TEXT NOT NULL, body BYTEA, size BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL, PRIMARY KEY (upstream, principal, id))",
    /* 19 */
    "CREATE INDEX idempotency_by_operation ON idempotency (upstream, principal, operation)",
    /* 20: also the sum of all sizes, without reading the answers */
    "CREATE INDEX idempotency_by_expiry ON idempotency (expires_at, size)",
    /* 21: templates: the name of declared inputs; fingerprint: of what counts of them */
    "CREATE TABLE templates ("
    " upstream TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, fingerprint TEXT NOT NULL,"
    " made_at BIGINT NOT NULL, changed_at BIGINT NOT NULL, spec TEXT NOT NULL,"
    " PRIMARY KEY (upstream, name))",
    /* 22 */
    "CREATE INDEX templates_by_fingerprint ON templates (upstream, fingerprint)",
    /* 23: what was prepared for them.  state, attempt, held_until: see templates.h. */
    "CREATE TABLE template_preps ("
    " upstream TEXT NOT NULL, fingerprint TEXT NOT NULL, state BIGINT NOT NULL, attempt TEXT NOT NULL,"
    " held_until BIGINT NOT NULL, builder TEXT NOT NULL, alloc TEXT NOT NULL, snapshot_id TEXT NOT NULL,"
    " identity TEXT NOT NULL, region TEXT NOT NULL, architecture TEXT NOT NULL, image TEXT NOT NULL,"
    " error TEXT NOT NULL, detail TEXT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT NOT NULL,"
    " log_end BIGINT NOT NULL, PRIMARY KEY (upstream, fingerprint))",
    /* 24 */
    "CREATE INDEX template_preps_by_state ON template_preps (upstream, state, held_until)",
    /* 25 */
    "CREATE INDEX template_preps_by_snapshot ON template_preps (upstream, snapshot_id)",
    /* 26: what the steps of one preparation said: first_at up to end_at */
    "CREATE TABLE template_logs ("
    " upstream TEXT NOT NULL, attempt TEXT NOT NULL, first_at BIGINT NOT NULL, end_at BIGINT NOT NULL,"
    " bytes BYTEA NOT NULL, PRIMARY KEY (upstream, attempt, first_at))",
    /* 27: who needs a snapshot.  kind 0: it is being deleted, until made_at; else see snapshot_names.h. */
    "CREATE TABLE snapshot_names ("
    " upstream TEXT NOT NULL, snapshot_id TEXT NOT NULL, kind BIGINT NOT NULL, name TEXT NOT NULL,"
    " made_at BIGINT NOT NULL, PRIMARY KEY (upstream, snapshot_id, kind, name))",
    /* 28 */
    "CREATE INDEX snapshot_names_by_name ON snapshot_names (upstream, kind, name)",
    /* 29: sandboxes whose superseded snapshots the gateway sweeps.  created_at, swept: see retention.h. */
    "CREATE TABLE retention ("
    " upstream TEXT NOT NULL, sandbox TEXT NOT NULL, created_at BIGINT NOT NULL, swept TEXT NOT NULL,"
    " PRIMARY KEY (upstream, sandbox))",
    /* 30: snapshots that go when nobody needs them.  sandbox not '': only if that one is no more. */
    "CREATE TABLE snapshot_releases ("
    " upstream TEXT NOT NULL, snapshot_id TEXT NOT NULL, sandbox TEXT NOT NULL, created_at BIGINT NOT NULL,"
    " next_at BIGINT NOT NULL, tries BIGINT NOT NULL, PRIMARY KEY (upstream, snapshot_id))",
    /* 31 */
    "CREATE INDEX snapshot_releases_by_time ON snapshot_releases (upstream, next_at)",
    /* 32: named captures; size -1: not known */
    "CREATE TABLE checkpoints ("
    " upstream TEXT NOT NULL, name TEXT NOT NULL, snapshot_id TEXT NOT NULL, sandbox TEXT NOT NULL,"
    " sandbox_created_at BIGINT NOT NULL, owner TEXT NOT NULL, region TEXT NOT NULL,"
    " architecture TEXT NOT NULL, image TEXT NOT NULL, runtime TEXT NOT NULL, size BIGINT NOT NULL,"
    " created_at BIGINT NOT NULL, made BIGINT NOT NULL, gone BIGINT NOT NULL, is_default BIGINT NOT NULL,"
    " PRIMARY KEY (upstream, name))",
    /* 33: captures that are under way, by the session that they end */
    "CREATE TABLE captures ("
    " upstream TEXT NOT NULL, session_id TEXT NOT NULL, sandbox TEXT NOT NULL, due_at BIGINT NOT NULL,"
    " PRIMARY KEY (upstream, session_id))",
    /* 34 */
    "CREATE INDEX captures_by_time ON captures (upstream, due_at)",
};
enum { STEPS = sizeof steps / sizeof *steps };

static enum sg_code on_version(void *arg, const struct db_value *columns, size_t n, struct sg_error *e)
{
    int64_t *version = arg;
    (void)n;
    (void)e;
    *version = db_get_int(&columns[0]);
    return SG_OK;
}

static enum sg_code step(struct store_db *db, int64_t version, struct sg_error *e)
{
    enum sg_code rc = db_run(db, steps[version - 1], NULL, 0, NULL, NULL, NULL, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_int(version), db_int(sg_wall_ms())};
    return db_run(db, "INSERT INTO schema_migrations (version, applied_at) VALUES ($1, $2)", v, 2, NULL, NULL,
                  NULL, e);
}

enum sg_code db_migrate(struct store_db *db, struct sg_error *e)
{
    int64_t version = 0;
    enum sg_code rc = db_run(db,
                             "CREATE TABLE IF NOT EXISTS schema_migrations"
                             " (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)",
                             NULL, 0, NULL, NULL, NULL, e);
    if (!rc)
        rc = db_run(db, "SELECT COALESCE(MAX(version), 0) FROM schema_migrations", NULL, 0, on_version,
                    &version, NULL, e);
    if (!rc && version > STEPS)
        rc = sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                     "the state was made by a newer version (%lld; this one knows %d)", (long long)version,
                     STEPS);
    while (!rc && version < STEPS)
        rc = step(db, ++version, e);
    return rc;
}
