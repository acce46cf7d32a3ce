/* SQLite as the store's database.  Source: sqlite.org, C interface and WAL mode. */
#include "store/db.h"

#include "base/clock.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    STATEMENTS_MAX = 48, /* prepared at a time and connection */
    BUSY_STEP_US = 3000, /* another process's lock is looked at again so soon */
    MAKING_TRIES = 100,
    VACUUM_PAGES = 4096, /* given back to the disk at a time */
};

struct statement {
    const char *sql; /* compared by address: statements are static */
    sqlite3_stmt *st;
};

struct sqlite_db {
    struct store_db db;
    sqlite3 *h;
    struct statement statements[STATEMENTS_MAX];
    size_t n;
    bool full_sync;
};

/* ---- errors ---- */

static enum sg_code unavailable(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "%s", what);
}

/* Says what a result means, and marks the connection when only a new one can help. */
static enum sg_code explain(struct sqlite_db *d, int rc, struct sg_error *e)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return unavailable(e, "the state file is locked by another process");
    case SQLITE_FULL:
        return unavailable(e, "the disk with the state file is full");
    case SQLITE_READONLY:
        d->db.broken = true;
        return unavailable(e, "the state file cannot be written");
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        d->db.broken = true;
        return unavailable(e, "the state file cannot be opened");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        d->db.broken = true;
        return unavailable(e, "the state file is damaged");
    case SQLITE_IOERR:
        d->db.broken = true;
        if (rc == SQLITE_IOERR_NOMEM)
            return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
        return unavailable(e, "the disk with the state file fails");
    case SQLITE_NOMEM:
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    default:
        sg_log(SG_LOG_ERROR, "store statement failed", "code", "i", (int64_t)rc, "message", "s",
               d->h ? sqlite3_errmsg(d->h) : sqlite3_errstr(rc), NULL);
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the state could not be read or written");
    }
}

/* ---- statements ---- */

/* `$1` is a name to SQLite, numbered by its first appearance; `?1` is the number itself. */
static char *with_question_marks(const char *sql)
{
    char *copy = strdup(sql);
    bool quoted = false;
    for (char *p = copy; p && *p; p++) {
        if (*p == '\'')
            quoted = !quoted;
        else if (*p == '$' && !quoted && isdigit((unsigned char)p[1]))
            *p = '?';
    }
    return copy;
}

static void forget_statements(struct sqlite_db *d)
{
    for (size_t i = 0; i < d->n; i++)
        sqlite3_finalize(d->statements[i].st);
    d->n = 0;
}

static enum sg_code prepared(struct sqlite_db *d, const char *sql, sqlite3_stmt **out, struct sg_error *e)
{
    for (size_t i = 0; i < d->n; i++) {
        if (d->statements[i].sql == sql) {
            *out = d->statements[i].st;
            return SG_OK;
        }
    }
    if (d->n == STATEMENTS_MAX)
        forget_statements(d);
    char *own = with_question_marks(sql);
    if (!own)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    int rc = sqlite3_prepare_v3(d->h, own, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    free(own);
    if (rc)
        return explain(d, rc, e);
    d->statements[d->n++] = (struct statement){sql, *out};
    return SG_OK;
}

static int bind_all(sqlite3_stmt *st, const struct db_value *values, size_t n)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct db_value *v = &values[i];
        int at = (int)i + 1;
        switch (v->type) {
        case DB_NULL:
            rc = sqlite3_bind_null(st, at);
            break;
        case DB_INT:
            rc = sqlite3_bind_int64(st, at, v->i);
            break;
        case DB_TEXT:
            rc = sqlite3_bind_text64(st, at, v->data, v->len, SQLITE_STATIC, SQLITE_UTF8);
            break;
        case DB_BYTES:
            rc = sqlite3_bind_blob64(st, at, v->data, v->len, SQLITE_STATIC);
            break;
        }
    }
    return rc;
}

static enum sg_code give_row(sqlite3_stmt *st, db_row_fn *row, void *arg, struct sg_error *e)
{
    struct db_value columns[DB_COLUMNS_MAX];
    int n = sqlite3_column_count(st);
    if (n > DB_COLUMNS_MAX)
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "a row of the state is too wide");
    for (int i = 0; i < n; i++) {
        struct db_value *v = &columns[i];
        *v = (struct db_value){.type = DB_NULL};
        switch (sqlite3_column_type(st, i)) {
        case SQLITE_INTEGER:
            *v = db_int(sqlite3_column_int64(st, i));
            break;
        case SQLITE_TEXT:
            v->type = DB_TEXT;
            v->data = sqlite3_column_text(st, i);
            v->len = (size_t)sqlite3_column_bytes(st, i);
            break;
        case SQLITE_BLOB:
            v->type = DB_BYTES;
            v->data = sqlite3_column_blob(st, i);
            v->len = (size_t)sqlite3_column_bytes(st, i);
            break;
        default:
            break;
        }
        if (v->type != DB_NULL && v->type != DB_INT && !v->data && v->len)
            return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
        if (v->type == DB_TEXT && !v->data)
            v->data = "";
    }
    return row(arg, columns, (size_t)n, e);
}

static enum sg_code sqlite_run(struct store_db *db, const char *sql, const struct db_value *values, size_t n,
                               db_row_fn *row, void *arg, int64_t *changed, struct sg_error *e)
{
    struct sqlite_db *d = (struct sqlite_db *)db;
    sqlite3_stmt *st = NULL;
    enum sg_code code = prepared(d, sql, &st, e);
    if (code)
        return code;
    int rc = bind_all(st, values, n);
    while (!rc && !code) {
        rc = sqlite3_step(st);
        if (rc != SQLITE_ROW)
            break;
        rc = SQLITE_OK;
        if (row)
            code = give_row(st, row, arg, e);
    }
    if (rc && rc != SQLITE_DONE)
        code = explain(d, rc, e);
    else if (!code && changed)
        *changed = sqlite3_changes64(d->h);
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    return code;
}

static int exec(struct sqlite_db *d, const char *sql)
{
    return sqlite3_exec(d->h, sql, NULL, NULL, NULL);
}

/* ---- transactions ---- */

static enum sg_code sqlite_begin(struct store_db *db, enum store_kind kind, struct sg_error *e)
{
    struct sqlite_db *d = (struct sqlite_db *)db;
    bool full = kind == STORE_DURABLE;
    int rc = SQLITE_OK;
    if (kind != STORE_READ && full != d->full_sync) {
        rc = exec(d, full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
        if (!rc)
            d->full_sync = full;
    }
    if (!rc)
        rc = exec(d, kind == STORE_READ ? "BEGIN" : "BEGIN IMMEDIATE");
    return rc ? explain(d, rc, e) : SG_OK;
}

/* It is the only one that writes meanwhile. */
static enum sg_code sqlite_begin_migration(struct store_db *db, struct sg_error *e)
{
    return sqlite_begin(db, STORE_DURABLE, e);
}

static void sqlite_rollback(struct store_db *db)
{
    struct sqlite_db *d = (struct sqlite_db *)db;
    if (!sqlite3_get_autocommit(d->h) && exec(d, "ROLLBACK"))
        d->db.broken = true;
}

static enum sg_code sqlite_commit(struct store_db *db, struct sg_error *e)
{
    struct sqlite_db *d = (struct sqlite_db *)db;
    int rc = exec(d, "COMMIT");
    return rc ? explain(d, rc, e) : SG_OK;
}

/* The file lies on this machine, and so does its clock. */
static enum sg_code sqlite_now(struct store_db *db, int64_t *ms, struct sg_error *e)
{
    (void)db;
    (void)e;
    *ms = sg_wall_ms();
    return SG_OK;
}

static void sqlite_tidy(struct store_db *db)
{
    char sql[48];
    (void)snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%d)", VACUUM_PAGES);
    (void)exec((struct sqlite_db *)db, sql);
}

/* ---- opening ---- */

static void sqlite_close(struct store_db *db)
{
    struct sqlite_db *d = (struct sqlite_db *)db;
    forget_statements(d);
    (void)sqlite3_close(d->h);
    free(d);
}

/* The directory it lies in, when only that is missing. */
static bool make_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash && slash != path ? strndup(path, (size_t)(slash - path)) : NULL;
    bool made = dir && mkdir(dir, 0700) == 0;
    int err = dir ? errno : ENOENT;
    free(dir);
    errno = err;
    return made;
}

/* The file, with a mode of our own from its first moment on.  The database's other files take it over.  One that is
 * there already is not opened: closing it would drop the locks that other connections of this process hold on it
 * (sqlite.org, "How To Corrupt An SQLite Database File", 2.2). */
static int make_or_look(const char *path, struct stat *st)
{
    static pthread_mutex_t making =
        PTHREAD_MUTEX_INITIALIZER; /* nobody uses what another thread has just made */
    pthread_mutex_lock(&making);
    int flags = O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = open(path, flags, 0600);
    if (fd < 0 && errno == ENOENT && make_directory(path))
        fd = open(path, flags, 0600);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR &&
        errno != ENAMETOOLONG) /* also where nothing may be made */
        fd = open(path, O_PATH | O_CLOEXEC);
    int err = fd < 0 || fstat(fd, st) ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    pthread_mutex_unlock(&making);
    return err;
}

static enum sg_code make_file(const char *path, struct sg_error *e)
{
    struct stat st = {0};
    int err = make_or_look(path, &st);
    if (!err && !S_ISREG(st.st_mode))
        err = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (!err && (st.st_mode & 077) != 0 && st.st_uid == geteuid())
        (void)chmod(path, 0600);
    if (!err)
        return SG_OK;
    bool missing = err == EACCES && access(path, F_OK) != 0;
    bool wrong =
        missing || err == ENOENT || err == ENOTDIR || err == EISDIR || err == EINVAL || err == ENAMETOOLONG;
    return sg_fail(e, wrong ? SG_E_INVALID_FIELD : SG_E_STORE_UNAVAILABLE, SG_NOT_SENT,
                   "the state file %.150s cannot be opened: %s", path,
                   err == EINVAL ? "it is not a regular file" : strerror(err));
}

/* Another process holds the lock.  SQLite's own handler waits longer and longer, so that whoever waits longest comes
 * last; this one keeps asking. */
static int on_busy(void *arg, int count)
{
    const struct sqlite_db *d = arg;
    const struct timespec t = {.tv_nsec = 1000L * (count < 10 ? BUSY_STEP_US / 10 : BUSY_STEP_US)};
    if (sg_mono_ms() >= d->db.deadline_ms)
        return 0;
    (void)nanosleep(&t, NULL);
    return 1;
}

static int set_up(struct sqlite_db *d, const struct store_options *o)
{
    char limit[64];
    (void)snprintf(limit, sizeof limit, "PRAGMA max_page_count=%lld", (long long)o->max_pages);
    int rc = sqlite3_busy_handler(d->h, on_busy, d);
    static const char *const pragmas[] = {
        "PRAGMA auto_vacuum=INCREMENTAL", /* counts only while the file is empty */
        "PRAGMA journal_mode=WAL",        "PRAGMA synchronous=NORMAL",
        "PRAGMA temp_store=MEMORY",       "PRAGMA journal_size_limit=16777216",
        "PRAGMA cache_size=-1024",
    };
    for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas && !rc; i++)
        rc = exec(d, pragmas[i]);
    if (!rc && o->max_pages > 0)
        rc = exec(d, limit);
    return rc;
}

static int open_handle(struct sqlite_db *d, const struct store_options *o)
{
    bool memory = !o->path || !*o->path;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    int rc = sqlite3_open_v2(memory ? ":memory:" : o->path, &d->h,
                             memory ? flags | SQLITE_OPEN_CREATE : flags, NULL);
    return rc ? rc : set_up(d, o);
}

/* Another gateway is making the database: the file is shorter than its first page says, or both want to change its
 * mode, for which SQLite does not wait. */
static bool being_made(const struct sqlite_db *d, int rc)
{
    return ((rc & 0xff) == SQLITE_BUSY || sqlite3_extended_errcode(d->h) == SQLITE_IOERR_SHORT_READ) &&
           sg_mono_ms() < d->db.deadline_ms;
}

static enum sg_code sqlite_open(const struct store_options *o, int64_t deadline_ms, struct store_db **out,
                                char why[DB_WHY], struct sg_error *e)
{
    bool memory = !o->path || !*o->path;
    enum sg_code code = memory ? SG_OK : make_file(o->path, e);
    (void)why; /* the error says all */
    if (code)
        return code;
    struct sqlite_db *d = calloc(1, sizeof *d);
    if (!d)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    d->db.backend = &sqlite_backend;
    d->db.deadline_ms = deadline_ms;
    int rc = open_handle(d, o);
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < MAKING_TRIES && rc && being_made(d, rc); i++) {
        (void)sqlite3_close(d->h);
        d->h = NULL;
        (void)nanosleep(&pause, NULL);
        rc = open_handle(d, o);
    }
    if (rc) {
        code = explain(d, rc, e);
        sqlite_close(&d->db);
    } else {
        *out = &d->db;
    }
    return code;
}

const struct db_backend sqlite_backend = {
    .name = "sqlite",
    .one_writer = true,
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .begin_migration = sqlite_begin_migration,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .run = sqlite_run,
    .now = sqlite_now,
    .tidy = sqlite_tidy,
};
