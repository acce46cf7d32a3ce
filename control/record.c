#include "control/record.h"

#include "base/clock.h"
#include "base/json.h"

static json_t *text(const char *s)
{
    return s ? json_string(s) : json_null();
}

static json_t *number(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

static json_t *moment(int64_t wall_ms)
{
    if (wall_ms <= 0)
        return json_null();
    char out[SG_TIME_TEXT];
    sg_time_format(wall_ms, out);
    return json_string(out);
}

static json_t *retention(const struct vercel_sandbox *s)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "keep", number(s->keep_count));
    bad |= json_object_set_new(o, "expire_ms", number(s->snapshot_expiration_ms));
    bad |= json_object_set_new(
        o, "delete_evicted", s->keep_delete_evicted < 0 ? json_null() : json_boolean(s->keep_delete_evicted));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *routes(const struct vercel_sandbox *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->nroutes && list; i++) {
        json_t *one = json_pack("{siss?}", "port", s->routes[i].port, "url", s->routes[i].url);
        if (json_array_append_new(list, one)) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

json_t *control_record(const struct vercel_sandbox *s, int64_t observed_ms)
{
    json_t *o = json_object();
    if (!o)
        return NULL;
    /* the session's own status is the live one; the sandbox's may lag behind it */
    enum vercel_status status = s->session_status != VERCEL_STATUS_OTHER ? s->session_status : s->status;
    const char *cwd = s->session_cwd ? s->session_cwd : s->cwd;
    struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"name", text(s->name)},
        {"status", json_string(vercel_status_name(status))},
        {"session_id", text(s->session_id)},
        {"persistent", json_boolean(s->persistent)},
        {"image", text(s->image)},
        {"runtime", text(s->runtime)},
        {"region", text(s->region)},
        {"vcpus", number(s->vcpus)},
        {"memory_mb", number(s->memory_mb)},
        {"timeout_ms", number(s->timeout_ms)},
        {"working_directory", text(cwd)},
        {"created_at", moment(s->created_at)},
        {"updated_at", moment(s->updated_at)},
        {"expires_at", moment(s->expires_at)},
        {"observed_at", moment(observed_ms)},
        {"tags", s->tags ? json_deep_copy(s->tags) : json_object()},
        {"snapshots", retention(s)},
        {"current_snapshot_id", text(s->current_snapshot_id)},
        {"routes", routes(s)},
        {"upstream", json_string("default")},
    };
    int bad = 0; /* a NULL value makes json_object_set_new fail; the others are still taken over */
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        bad |= json_object_set_new(o, members[i].key, members[i].value);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}
