#include "control/session_start.h"

#include "control/names.h"
#include "control/settings.h"
#include "control/steps.h"
#include "control/tags.h"

#include "base/crypto.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INIT_PATIENCE_MS = 60 * 1000, ID_BASE = STEP_ID_BASE_MAX + 1 };

/* Ids that differ for each session, and for each try. */
static void id_base(char out[ID_BASE], const char *what, const char *session_id, int64_t n)
{
    unsigned char hash[32];
    char hex[2 * 8 + 1], text[256];
    (void)snprintf(text, sizeof text, "%s:%s", what, session_id);
    sg_sha256(text, strlen(text), hash);
    sg_hex(hex, hash, 8);
    (void)snprintf(out, ID_BASE, "%s-%s-%lld", what, hex, (long long)n);
}

/* ---- the directory ---- */

enum sg_code session_directory(struct control *c, const struct step_session *s, const char *dir,
                               struct sg_error *e)
{
    static const char as_user[] = "[ -d \"$1\" ] || mkdir -p -- \"$1\" 2>/dev/null || exit 9";
    static const char as_root[] = "mkdir -p -- \"$1\" && chown -- \"${SUDO_UID:-$SUDO_USER}\" \"$1\"";
    char base[ID_BASE], key[512];
    (void)snprintf(key, sizeof key, "%s:%.400s", s->session_id, dir);
    json_t *steps = json_pack("[{s[sssss]}]", "argv", "sh", "-c", as_user, "sh", dir);
    json_t *root = json_pack("[{s[sssss]sb}]", "argv", "sh", "-c", as_root, "sh", dir, "sudo", 1);
    enum sg_code rc =
        steps && root ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the directory");
    if (!rc) {
        id_base(base, "dir", key, 0);
        rc = steps_run(c, s, steps, base, NULL, NULL, e);
    }
    if (rc == SG_E_STEP_FAILED) {
        id_base(base, "dir", key, 1);
        rc = steps_run(c, s, root, base, NULL, NULL, e);
    }
    json_decref(steps);
    json_decref(root);
    return rc;
}

/* ---- init ---- */

struct mark {
    struct control *c;
    const char *alloc, *session_id;
    bool done;
};

static enum sg_code init_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct mark *m = arg;
    return store_sandbox_init(db, m->c->upstream, m->alloc, m->done, e);
}

static enum sg_code started_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct mark *m = arg;
    return store_sandbox_started(db, m->c->upstream, m->alloc, m->session_id, e);
}

static json_t *steps_of(const char *text)
{
    return text ? json_loads(text, 0, NULL) : NULL;
}

/* Under the lock: what the row says counts. */
static enum sg_code run_init(struct control *c, const struct step_session *s, const char *alloc, bool *ran,
                             struct sg_error *e)
{
    struct store_sandbox row;
    bool found;
    enum sg_code rc = settings_read(c, alloc, &row, &found, e);
    json_t *steps = !rc && found && !row.init_done ? steps_of(row.init) : NULL;
    if (steps) {
        char base[ID_BASE];
        struct sg_error own;
        id_base(base, "init", alloc, row.init_fails);
        rc = steps_run(c, s, steps, base, NULL, NULL, e);
        struct mark m = {.c = c, .alloc = alloc, .done = rc == SG_OK};
        *ran = m.done;
        /* whatever else went wrong says nothing about the steps: they are gone on with */
        if ((!rc || rc == SG_E_STEP_FAILED) && store_call(c->store, STORE_DURABLE, init_fn, &m, &own)) {
            sg_log(SG_LOG_WARN, "end of init not noted", "sandbox", "s", s->sandbox, "error", "e", &own,
                   NULL);
            if (!rc)
                rc = own.code, *e = own;
        }
    }
    json_decref(steps);
    store_sandbox_clear(&row);
    return rc;
}

enum sg_code session_init(struct control *c, const struct step_session *s, const char *alloc, bool *ran,
                          struct sg_error *e)
{
    struct name_lock lock;
    *ran = false;
    enum sg_code rc = control_lock(c, "init", alloc, INIT_PATIENCE_MS, &lock, e);
    if (rc)
        return rc;
    rc = run_init(c, s, alloc, ran, e);
    control_name_unlock(&lock);
    return rc;
}

/* ---- on_start ---- */

static enum sg_code run_on_start(struct control *c, const struct step_session *s, const char *alloc,
                                 const struct store_sandbox *row, struct sg_error *e)
{
    if (!row->on_start || (row->started && !strcmp(row->started, s->session_id)))
        return SG_OK;
    json_t *steps = steps_of(row->on_start);
    char base[ID_BASE];
    struct mark m = {.c = c, .alloc = alloc, .session_id = s->session_id};
    id_base(base, "start", s->session_id, 0);
    enum sg_code rc = steps_run(c, s, steps, base, NULL, NULL, e);
    json_decref(steps);
    struct sg_error own;
    /* a failed one is over as well: it is begun anew in the next session */
    if ((!rc || rc == SG_E_STEP_FAILED) && store_call(c->store, STORE_WRITE, started_fn, &m, &own))
        sg_log(SG_LOG_WARN, "end of on_start not noted", "sandbox", "s", s->sandbox, "error", "e", &own,
               NULL);
    return rc;
}

enum sg_code session_on_start(struct control *c, const struct step_session *s, const char *alloc,
                              struct sg_error *e)
{
    struct store_sandbox row;
    bool found;
    enum sg_code rc = settings_read(c, alloc, &row, &found, e);
    if (!rc && found)
        rc = run_on_start(c, s, alloc, &row, e);
    store_sandbox_clear(&row);
    return rc;
}

/* ---- later ---- */

struct later {
    struct control *c;
    char *name, *session_id, *cwd, *arch;
    char alloc[CONTROL_ALLOC_TEXT];
};

static void later_free(struct later *l)
{
    free(l->name);
    free(l->session_id);
    free(l->cwd);
    free(l->arch);
    free(l);
}

static void run_later(void *arg)
{
    struct later *l = arg;
    struct sg_error e;
    struct store_sandbox row;
    bool found;
    enum sg_code rc = settings_read(l->c, l->alloc, &row, &found, &e);
    if (!rc && found && row.on_start) {
        const char *dir = row.working_directory ? row.working_directory : l->cwd;
        const struct step_session s = {l->name, l->session_id, dir, l->arch};
        rc = run_on_start(l->c, &s, l->alloc, &row, &e);
    }
    if (rc)
        sg_log(SG_LOG_WARN, "on_start failed", "sandbox", "s", l->name, "session", "s", l->session_id,
               "error", "e", &e, NULL);
    store_sandbox_clear(&row);
    later_free(l);
}

static void begin_later(struct control *c, const char *name, const char *alloc, const char *session_id,
                        const char *cwd, const char *arch)
{
    struct later *l = calloc(1, sizeof *l);
    if (l) {
        *l = (struct later){.c = c,
                            .name = strdup(name),
                            .session_id = strdup(session_id),
                            .cwd = strdup(cwd),
                            .arch = arch ? strdup(arch) : NULL};
        (void)snprintf(l->alloc, sizeof l->alloc, "%s", alloc);
    }
    bool ok = l && l->name && l->session_id && l->cwd && (l->arch || !arch);
    if (ok && jobs_once(c->jobs, run_later, l))
        return;
    if (l)
        later_free(l);
    if (!jobs_stopping(c->jobs))
        sg_log(SG_LOG_WARN, "no room to run on_start", "sandbox", "s", name, NULL);
}

void session_start_later(struct control *c, const struct store_sandbox *row, const char *session_id,
                         const char *cwd, const char *arch)
{
    if (row->on_start && !(row->started && !strcmp(row->started, session_id)))
        begin_later(c, row->name, row->alloc, session_id, cwd, arch);
}

void session_began(struct control *c, const struct vercel_sandbox *s)
{
    const char *alloc = control_tag_of(s, CONTROL_TAG_ALLOC), *cwd = s->session_cwd ? s->session_cwd : s->cwd;
    if (alloc && c->store && s->session_id && cwd && s->session_status == VERCEL_RUNNING)
        begin_later(c, s->name, alloc, s->session_id, cwd, s->architecture);
}
