/* What a database must be able to do for the store, and how its statements are run.  Private to store/.
 *
 * Statements are static strings with the placeholders $1, $2, …; types are BIGINT, TEXT and BYTEA.  A connection is
 * used by one thread at a time.
 */
#ifndef SG_STORE_DB_H
#define SG_STORE_DB_H

#include "store/store.h"

enum {
    DB_PARAMETERS_MAX = 64,
    DB_COLUMNS_MAX = 64,
    DB_WHY = 512,
};

enum db_type { DB_NULL, DB_INT, DB_TEXT, DB_BYTES };

struct db_value {
    enum db_type type;
    int64_t i;
    const void *data; /* TEXT is NUL-terminated where it was read */
    size_t len;
};

/* One row; its values are valid during the call.  An error ends the statement with it. */
typedef enum sg_code db_row_fn(void *arg, const struct db_value *columns, size_t n, struct sg_error *e);

struct db_backend {
    const char *name;
    bool one_writer; /* at a time: whoever waits for its turn waits in the gateway, in order */
    /* Connects, and sets the connection up.  `why` is for the log alone: the database's own words, without secrets. */
    enum sg_code (*open)(const struct store_options *o, int64_t deadline_ms, struct store_db **out,
                         char why[DB_WHY], struct sg_error *e);
    void (*close)(struct store_db *db);
    /* A transaction; or one in which no other connection brings the tables to a version. */
    enum sg_code (*begin)(struct store_db *db, enum store_kind kind, struct sg_error *e);
    enum sg_code (*begin_migration)(struct store_db *db, struct sg_error *e);
    /* Outcome UNKNOWN: it may have happened. */
    enum sg_code (*commit)(struct store_db *db, struct sg_error *e);
    void (*rollback)(struct store_db *db);
    enum sg_code (*run)(struct store_db *db, const char *sql, const struct db_value *values, size_t n,
                        db_row_fn *row, void *arg, int64_t *changed, struct sg_error *e);
    /* Its wall clock, milliseconds. */
    enum sg_code (*now)(struct store_db *db, int64_t *ms, struct sg_error *e);
    /* Gives freed room back to the disk, some of it; outside of transactions. */
    void (*tidy)(struct store_db *db);
};
extern const struct db_backend sqlite_backend, postgres_backend;

struct store_db { /* first member of a backend's own */
    const struct db_backend *backend;
    int64_t deadline_ms; /* monotonic; of what is being done */
    bool broken;         /* of no more use: closed instead of given back */
    bool again;          /* nothing happened, and the same may succeed if it is done once more */
    bool untidy;         /* much was removed: tidy is called after the commit */
    int64_t now_ms;      /* of this transaction, once somebody asked; 0: nobody did */
};

/* Runs one statement.  row and changed may be NULL. */
SG_MUST_CHECK enum sg_code db_run(struct store_db *db, const char *sql, const struct db_value *values,
                                  size_t n, db_row_fn *row, void *arg, int64_t *changed, struct sg_error *e);

struct db_value db_int(int64_t i);
struct db_value db_u64(uint64_t n);     /* at most INT64_MAX is kept */
struct db_value db_text(const char *s); /* NULL: null */
struct db_value db_bytes(const void *p, size_t n);
/* Of foreign rows: 0 and "" where the type is another one. */
int64_t db_get_int(const struct db_value *v);
uint64_t db_get_u64(const struct db_value *v); /* negative ones are 0 */
const char *db_get_text(const struct db_value *v);

/* Brings the tables to this version. */
SG_MUST_CHECK enum sg_code db_migrate(struct store_db *db, struct sg_error *e);

#endif
