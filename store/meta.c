#include "store/meta.h"

#include "base/crypto.h"
#include "store/db.h"

#include <string.h>

struct wanted {
    void *out;
    size_t len;
    bool found, fits;
};

static enum sg_code on_value(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct wanted *w = arg;
    (void)n;
    (void)e;
    w->found = true;
    w->fits = c[0].type == DB_BYTES && c[0].len == w->len;
    if (w->fits)
        memcpy(w->out, c[0].data, w->len);
    return SG_OK;
}

static enum sg_code look(struct store_db *db, const char *name, struct wanted *w, struct sg_error *e)
{
    const struct db_value v = db_text(name);
    enum sg_code rc = db_run(db, "SELECT value FROM meta WHERE name = $1", &v, 1, on_value, w, NULL, e);
    if (!rc && w->found && !w->fits)
        rc = sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "a value of the state has another form than expected");
    return rc;
}

static enum sg_code make(struct store_db *db, const char *name, size_t len, struct sg_error *e)
{
    unsigned char fresh[STORE_META_SECRET_MAX];
    if (len > sizeof fresh || !sg_random(fresh, len))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "no random bytes");
    const struct db_value v[] = {db_text(name), db_bytes(fresh, len)};
    enum sg_code rc =
        db_run(db, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", v, 2, NULL,
               NULL, NULL, e);
    explicit_bzero(fresh, sizeof fresh);
    return rc;
}

enum sg_code store_meta_secret(struct store_db *db, const char *name, void *out, size_t len,
                               struct sg_error *e)
{
    struct wanted w = {.out = out, .len = len};
    enum sg_code rc = look(db, name, &w, e);
    if (rc || w.found)
        return rc;
    rc = make(db, name, len, e);
    if (!rc)
        rc = look(db, name, &w, e);
    if (!rc && !w.found)
        rc = sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "a value of the state was not kept");
    return rc;
}
