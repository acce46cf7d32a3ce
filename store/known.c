#include "store/known.h"

#include "store/db.h"

static enum sg_code on_any(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)c;
    (void)n;
    (void)e;
    *(bool *)arg = true;
    return SG_OK;
}

enum sg_code store_known(struct store_db *db, const char *upstream, const char *alloc, bool *known,
                         struct sg_error *e)
{
    static const char *const tables[] = {
        "SELECT 1 FROM sandboxes WHERE upstream = $1 AND alloc = $2",
        "SELECT 1 FROM leases WHERE upstream = $1 AND alloc = $2",
        "SELECT 1 FROM cleanups WHERE upstream = $1 AND alloc = $2 LIMIT 1",
        "SELECT 1 FROM template_preps WHERE upstream = $1 AND alloc = $2 LIMIT 1",
    };
    const struct db_value v[] = {db_text(upstream), db_text(alloc)};
    enum sg_code rc = SG_OK;
    *known = false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !rc && !*known; i++)
        rc = db_run(db, tables[i], v, 2, on_any, known, NULL, e);
    return rc;
}
