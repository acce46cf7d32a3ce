#include "base/json.h"
#include "control/keepalive.h"

enum sg_code keepalive_check(const json_t *value, const char *base, struct keepalive_wish *out,
                             struct sg_error *e)
{
    static const char *const fields[] = {"max_ms", NULL};
    *out = (struct keepalive_wish){0};
    if (json_is_boolean(value)) {
        out->mode = json_is_true(value) ? KEEPALIVE_IN_USE : KEEPALIVE_NEVER;
        return SG_OK;
    }
    if (!value || json_is_null(value))
        return SG_OK;
    if (!json_is_object(value))
        return sg_fail_field(e, SG_E_INVALID_FIELD, base, "must be true, false or {max_ms}");
    out->mode = KEEPALIVE_IN_USE;
    enum sg_code rc = sg_json_only(value, base, fields, e);
    return rc ? rc
              : sg_json_int(value, base, "max_ms", KEEPALIVE_MAX_MIN_MS, KEEPALIVE_MAX_MAX_MS, &out->max_ms,
                            e);
}

json_t *keepalive_json(const struct keepalive_wish *w)
{
    if (w->mode == KEEPALIVE_UNSAID)
        return json_null();
    if (w->mode == KEEPALIVE_NEVER)
        return json_false();
    return w->max_ms ? json_pack("{sI}", "max_ms", (json_int_t)w->max_ms) : json_true();
}
