#include "control/snapshot_record.h"

#include "base/clock.h"

#include <string.h>

json_t *control_moment(int64_t wall_ms)
{
    char text[SG_TIME_TEXT];
    if (wall_ms <= 0)
        return json_null();
    sg_time_format(wall_ms, text);
    return json_string(text);
}

static json_t *number(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

/* "automatic" when a session's end made it, "manual" when somebody asked for it. */
static const char *creation(const struct vercel_snapshot *s)
{
    return s->creation_method &&
                   (!strcmp(s->creation_method, "automatic") || !strcmp(s->creation_method, "manual"))
               ? s->creation_method
               : NULL;
}

json_t *control_snapshot_record(const struct vercel_snapshot *s)
{
    json_t *regions = json_array();
    for (size_t i = 0; regions && s->regions[i]; i++)
        if (json_array_append_new(regions, json_string(s->regions[i]))) {
            json_decref(regions);
            regions = NULL;
        }
    return json_pack("{ss,ss,ss?,ss?,ss?,ss?,so,ss?,so,so,so,so,so}", "id", s->id, "status",
                     vercel_snapshot_status_name(s->status), "creation", creation(s), "session_id",
                     s->source_session_id, "parent_id", s->parent_id, "region", s->region, "regions", regions,
                     "architecture", s->architecture, "size_bytes", number(s->size_bytes), "created_at",
                     control_moment(s->created_at), "updated_at", control_moment(s->updated_at),
                     "last_used_at", control_moment(s->last_used_at), "expires_at",
                     control_moment(s->expires_at));
}

json_t *control_session_record(const struct vercel_session *s)
{
    return json_pack("{ss,ss,ss?,ss?,so,so,so,so,so,so}", "id", s->id, "status",
                     vercel_status_name(s->status), "region", s->region, "source_snapshot_id",
                     s->source_snapshot_id, "created_at", control_moment(s->created_at), "started_at",
                     control_moment(s->started_at), "stopped_at", control_moment(s->stopped_at), "timeout_ms",
                     number(s->timeout_ms), "vcpus", number(s->vcpus), "memory_mb", number(s->memory_mb));
}
