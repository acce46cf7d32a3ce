#include "control/record.h"

#include "base/clock.h"
#include "base/json_write.h"
#include "control/tags.h"

#include <jansson.h>
#include <string.h>

enum { USUAL_SIZE = 1024 };

static void add_text(struct sg_buf *o, const char *key, const char *s)
{
    sg_jw_key(o, key);
    sg_jw_text(o, s);
}

static void add_bool(struct sg_buf *o, const char *key, bool v)
{
    sg_jw_key(o, key);
    sg_jw_bool(o, v);
}

static void add_number(struct sg_buf *o, const char *key, int64_t n)
{
    sg_jw_key(o, key);
    if (n >= 0)
        sg_jw_int(o, n);
    else
        sg_jw_text(o, NULL);
}

static void add_moment(struct sg_buf *o, const char *key, int64_t wall_ms)
{
    char out[SG_TIME_TEXT];
    if (wall_ms > 0)
        sg_time_format(wall_ms, out);
    add_text(o, key, wall_ms > 0 ? out : NULL);
}

/* A later member of the same name counts. */
static bool overridden(const struct sg_jnode *k, const struct sg_jnode *end)
{
    for (const struct sg_jnode *later = k + 1 + k[1].span; later < end; later += 1 + later[1].span)
        if (strcmp(later->u.text, k->u.text) == 0)
            return true;
    return false;
}

/* Tags are texts; anything else there is not told, nor are the gateway's own. */
static void add_tags(struct sg_buf *o, const struct sg_jnode *tags)
{
    sg_jw_key(o, "tags");
    (void)sg_buf_adds(o, "{");
    const struct sg_jnode *end = tags ? tags + tags->span : NULL;
    for (const struct sg_jnode *k = tags ? tags + 1 : NULL; k < end; k += 1 + k[1].span)
        if (sg_jn_is(k + 1, SG_JSTRING) && !control_tag_reserved(k->u.text) && !overridden(k, end))
            add_text(o, k->u.text, k[1].u.text);
    (void)sg_buf_adds(o, "}");
}

static void add_retention(struct sg_buf *o, const struct vercel_sandbox *s)
{
    sg_jw_key(o, "snapshots");
    (void)sg_buf_adds(o, "{");
    add_number(o, "keep", s->keep_count);
    add_number(o, "expire_ms", s->snapshot_expiration_ms);
    if (s->keep_delete_evicted < 0)
        add_text(o, "delete_evicted", NULL);
    else
        add_bool(o, "delete_evicted", s->keep_delete_evicted);
    (void)sg_buf_adds(o, "}");
}

static void add_routes(struct sg_buf *o, const struct vercel_sandbox *s)
{
    sg_jw_key(o, "routes");
    (void)sg_buf_adds(o, "[");
    for (size_t i = 0; i < s->nroutes; i++) {
        sg_jw_next(o);
        (void)sg_buf_adds(o, "{");
        add_number(o, "port", s->routes[i].port);
        add_text(o, "url", s->routes[i].url);
        (void)sg_buf_adds(o, "}");
    }
    (void)sg_buf_adds(o, "]");
}

void control_record_write(const struct vercel_sandbox *s, int64_t observed_ms, struct sg_buf *o)
{
    /* the session's own status is the live one; the sandbox's may lag behind it */
    enum vercel_status status = s->session_status != VERCEL_STATUS_OTHER ? s->session_status : s->status;
    (void)sg_buf_reserve(o, USUAL_SIZE);
    (void)sg_buf_adds(o, "{");
    add_text(o, "name", s->name);
    add_text(o, "status", vercel_status_name(status));
    add_text(o, "session_id", s->session_id);
    add_bool(o, "persistent", s->persistent);
    add_text(o, "image", s->image);
    add_text(o, "runtime", s->runtime);
    add_text(o, "region", s->region);
    add_number(o, "vcpus", s->vcpus);
    add_number(o, "memory_mb", s->memory_mb);
    add_number(o, "timeout_ms", s->timeout_ms);
    add_text(o, "working_directory", s->session_cwd ? s->session_cwd : s->cwd);
    add_moment(o, "created_at", s->created_at);
    add_moment(o, "updated_at", s->updated_at);
    add_moment(o, "expires_at", s->expires_at);
    add_moment(o, "observed_at", observed_ms);
    add_tags(o, s->tags);
    add_retention(o, s);
    add_text(o, "current_snapshot_id", s->current_snapshot_id);
    add_routes(o, s);
    add_text(o, "upstream", "default");
    (void)sg_buf_adds(o, "}");
}

json_t *control_record(const struct vercel_sandbox *s, int64_t observed_ms)
{
    struct sg_buf text;
    sg_buf_init(&text, CONTROL_RECORD_MAX);
    control_record_write(s, observed_ms, &text);
    json_t *o = text.failed ? NULL : json_loadb(text.data, text.len, 0, NULL);
    sg_buf_free(&text);
    return o;
}
