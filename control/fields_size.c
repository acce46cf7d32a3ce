#include "control/fields.h"

#include "base/json.h"

enum sg_code field_vcpus(const json_t *body, json_t *out, struct sg_error *e)
{
    int64_t vcpus = 0;
    enum sg_code rc = sg_json_int(body, "", "vcpus", 1, FIELD_VCPUS_MAX, &vcpus, e);
    if (!rc && vcpus > 1 && vcpus % 2)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/vcpus", "must be 1 or an even number up to %d",
                           FIELD_VCPUS_MAX);
    if (rc || !vcpus)
        return rc;
    return field_put(out, "resources", json_pack("{sI}", "vcpus", (json_int_t)vcpus), e);
}

enum sg_code field_timeout(const json_t *body, json_t *out, struct sg_error *e)
{
    int64_t ms = 0;
    enum sg_code rc = sg_json_int(body, "", "timeout_ms", FIELD_TIMEOUT_MIN_MS, FIELD_TIMEOUT_MAX_MS, &ms, e);
    return rc || !ms ? rc : field_put(out, "timeout", json_integer(ms), e);
}

enum sg_code field_persistent(const json_t *body, json_t *out, struct sg_error *e)
{
    bool persistent = false;
    enum sg_code rc = sg_json_bool(body, "", "persistent", &persistent, e);
    if (rc || !json_object_get(body, "persistent"))
        return rc;
    return field_put(out, "persistent", json_boolean(persistent), e);
}

enum sg_code field_retention(const json_t *body, struct field_retention *r, struct sg_error *e)
{
    static const char *const fields[] = {"keep", "expire_ms", "delete_evicted", NULL};
    json_t *snapshots = NULL;
    enum sg_code rc = sg_json_object(body, "", "snapshots", &snapshots, e);
    if (rc || !snapshots)
        return rc;
    rc = sg_json_only(snapshots, "/snapshots", fields, e);
    if (!rc)
        rc = sg_json_int(snapshots, "/snapshots", "keep", 1, FIELD_KEEP_MAX, &r->keep, e);
    if (!rc)
        rc = sg_json_int(snapshots, "/snapshots", "expire_ms", 0, FIELD_EXPIRE_MAX_MS, &r->expire_ms, e);
    if (!rc)
        rc = sg_json_bool(snapshots, "/snapshots", "delete_evicted", &r->delete_evicted, e);
    if (!rc && r->expire_ms && r->expire_ms < FIELD_EXPIRE_MIN_MS)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/expire_ms",
                           "must be 0 (never) or at least a day");
    return rc;
}

enum sg_code field_retention_put(const struct field_retention *r, json_t *out, struct sg_error *e)
{
    enum sg_code rc = field_put(out, "snapshotExpiration", json_integer(r->expire_ms), e);
    if (rc)
        return rc;
    return field_put(
        out, "keepLastSnapshots",
        json_pack("{sIsb}", "count", (json_int_t)r->keep, "deleteEvicted", (int)r->delete_evicted), e);
}
