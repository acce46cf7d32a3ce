#include "store/db.h"

#include "base/ws_codec.h"

#include <string.h>

enum sg_code db_run(struct store_db *db, const char *sql, const struct db_value *values, size_t n,
                    db_row_fn *row, void *arg, int64_t *changed, struct sg_error *e)
{
    /* One database keeps what it is given, the other fails: neither is asked for what is no text. */
    for (size_t i = 0; i < n; i++)
        if (values[i].type == DB_TEXT && !ws_codec_utf8(values[i].data, values[i].len))
            return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_STARTED, "a text is not UTF-8");
    return db->backend->run(db, sql, values, n, row, arg, changed, e);
}

struct db_value db_int(int64_t i)
{
    return (struct db_value){.type = DB_INT, .i = i};
}

struct db_value db_u64(uint64_t n)
{
    return db_int(n > INT64_MAX ? INT64_MAX : (int64_t)n);
}

struct db_value db_text(const char *s)
{
    if (!s)
        return (struct db_value){.type = DB_NULL};
    return (struct db_value){.type = DB_TEXT, .data = s, .len = strlen(s)};
}

struct db_value db_bytes(const void *p, size_t n)
{
    return (struct db_value){.type = DB_BYTES, .data = n ? p : "", .len = n};
}

int64_t db_get_int(const struct db_value *v)
{
    return v->type == DB_INT ? v->i : 0;
}

uint64_t db_get_u64(const struct db_value *v)
{
    return v->type == DB_INT && v->i > 0 ? (uint64_t)v->i : 0;
}

const char *db_get_text(const struct db_value *v)
{
    return v->type == DB_TEXT ? v->data : "";
}
