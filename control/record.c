#include "control/record.h"

#include "control/control.h"
#include "control/keepalive.h"
#include "control/tags.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/json_write.h"

#include <jansson.h>
#include <stdlib.h>
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

/* What counts: snapshots that are kept may have a time of their own, and what is evicted is deleted unless it is said that it
 * is not. */
static void add_retention(struct sg_buf *o, const struct vercel_sandbox *s)
{
    bool kept = s->keep_count >= 0;
    sg_jw_key(o, "snapshots");
    (void)sg_buf_adds(o, "{");
    add_number(o, "keep", s->keep_count);
    add_number(o, "expire_ms",
               kept && s->keep_expiration_ms >= 0 ? s->keep_expiration_ms : s->snapshot_expiration_ms);
    if (kept)
        add_bool(o, "delete_evicted", s->keep_delete_evicted != 0);
    else
        add_text(o, "delete_evicted", NULL);
    (void)sg_buf_adds(o, "}");
}

static void add_failover(struct sg_buf *o, const struct sg_jnode *regions)
{
    sg_jw_key(o, "failover_regions");
    (void)sg_buf_adds(o, "[");
    const struct sg_jnode *end = regions ? regions + regions->span : NULL;
    for (const struct sg_jnode *v = regions ? regions + 1 : NULL; v < end; v += v->span)
        if (sg_jn_is(v, SG_JSTRING)) {
            sg_jw_next(o);
            sg_jw_text(o, v->u.text);
        }
    (void)sg_buf_adds(o, "]");
}

/* A mode that is missing is read-write; read-only is the older word for snapshot. */
static void add_mounts(struct sg_buf *o, const struct sg_jnode *mounts)
{
    sg_jw_key(o, "mounts");
    (void)sg_buf_adds(o, "{");
    const struct sg_jnode *end = mounts ? mounts + mounts->span : NULL;
    for (const struct sg_jnode *k = mounts ? mounts + 1 : NULL; k < end; k += 1 + k[1].span) {
        const char *mode = sg_jn_str(k + 1, "mode", "read-write");
        if (!sg_jn_is(k + 1, SG_JOBJECT) || overridden(k, end))
            continue;
        sg_jw_key(o, k->u.text);
        (void)sg_buf_adds(o, "{");
        add_text(o, "drive", sg_jn_str(k + 1, "drive", NULL));
        add_text(o, "mode", strcmp(mode, "read-only") == 0 ? "snapshot" : mode);
        (void)sg_buf_adds(o, "}");
    }
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

enum vercel_status control_status(const struct vercel_sandbox *s)
{
    return s->session_status != VERCEL_STATUS_OTHER ? s->session_status : s->status;
}

int64_t control_deadline(const struct vercel_sandbox *s)
{
    if (s->session_started_at <= 0 || s->session_timeout_ms <= 0 ||
        s->session_timeout_ms > INT64_MAX - s->session_started_at)
        return 0;
    return s->session_started_at + s->session_timeout_ms;
}

/* When the running session ends. */
static int64_t expiry(const struct vercel_sandbox *s)
{
    if (s->expires_at > 0 || control_status(s) != VERCEL_RUNNING)
        return s->expires_at;
    return control_deadline(s);
}

/* ---- the entity tag ---- */

static void etag_of(const char *text, size_t len, char etag[CONTROL_ETAG_LEN + 1])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char sum[32];
    sg_sha256(text, len, sum);
    for (size_t i = 0; i < CONTROL_ETAG_LEN; i++)
        etag[i] = letters[sum[i] & 63];
    etag[CONTROL_ETAG_LEN] = '\0';
}

bool control_record_etag(const json_t *record, char etag[CONTROL_ETAG_LEN + 1])
{
    static const char *const not_of_it[] = {"observed_at", "created", "ignored", "resumed", "next_session"};
    json_t *copy = json_copy((json_t *)(uintptr_t)record);
    for (size_t i = 0; copy && i < sizeof not_of_it / sizeof *not_of_it; i++)
        (void)json_object_del(copy, not_of_it[i]);
    char *text = copy ? json_dumps(copy, JSON_COMPACT) : NULL;
    json_decref(copy);
    if (!text)
        return false;
    etag_of(text, strlen(text) - 1, etag); /* without the last brace, as it is written */
    free(text);
    return true;
}

/* ---- what only the gateway knows ---- */

static const char *directory(const struct vercel_sandbox *s, const struct store_sandbox *known)
{
    if (known && known->working_directory)
        return known->working_directory;
    return s->session_cwd ? s->session_cwd : s->cwd;
}

static const char *init_state(const struct store_sandbox *k)
{
    return !k->init ? NULL : k->init_done ? "done" : k->init_fails ? "failed" : "pending";
}

static const char *start_state(const struct vercel_sandbox *s, const struct store_sandbox *k)
{
    if (!k->on_start)
        return NULL;
    return k->started && s->session_id && strcmp(k->started, s->session_id) == 0 ? "done" : "pending";
}

/* null: nothing was said; {max_ms}: as long as it is in use, but no longer. */
static void add_keep_alive(struct sg_buf *o, const struct store_sandbox *k)
{
    int64_t mode = k ? k->keep_alive : KEEPALIVE_UNSAID;
    if (mode == KEEPALIVE_IN_USE && k->keep_alive_max_ms > 0) {
        sg_jw_key(o, "keep_alive");
        (void)sg_buf_adds(o, "{");
        add_number(o, "max_ms", k->keep_alive_max_ms);
        (void)sg_buf_adds(o, "}");
    } else if (mode == KEEPALIVE_IN_USE || mode == KEEPALIVE_NEVER) {
        add_bool(o, "keep_alive", mode == KEEPALIVE_IN_USE);
    } else {
        add_text(o, "keep_alive", NULL);
    }
}

static void add_known(struct sg_buf *o, const struct vercel_sandbox *s, const struct store_sandbox *k)
{
    add_number(o, "web_port", k && k->web_port ? k->web_port : -1);
    add_keep_alive(o, k);
    add_text(o, "init", k ? init_state(k) : NULL);
    add_text(o, "on_start", k ? start_state(s, k) : NULL);
    add_text(o, "template", k ? k->template_name : NULL);
    add_text(o, "checkpoint", k ? k->checkpoint : NULL);
}

/* ---- the whole ---- */

void control_record_write(const struct vercel_sandbox *s, const struct store_sandbox *known,
                          int64_t observed_ms, struct sg_buf *o, char etag[CONTROL_ETAG_LEN + 1])
{
    size_t start = o->len;
    (void)sg_buf_reserve(o, USUAL_SIZE);
    (void)sg_buf_adds(o, "{");
    add_text(o, "name", s->name);
    add_text(o, "status", vercel_status_name(control_status(s)));
    add_text(o, "session_id", s->session_id);
    add_text(o, "owner", control_tag_of(s, CONTROL_TAG_OWNER));
    add_bool(o, "persistent", s->persistent);
    add_text(o, "image", s->image);
    add_text(o, "runtime", s->runtime);
    add_text(o, "architecture", s->architecture);
    add_text(o, "region", s->region);
    add_failover(o, s->failover_regions);
    add_text(o, "network_id", s->network_id);
    add_number(o, "vcpus", s->vcpus);
    add_number(o, "memory_mb", s->memory_mb);
    add_number(o, "timeout_ms", s->timeout_ms);
    add_text(o, "working_directory", directory(s, known));
    add_mounts(o, s->mounts);
    add_moment(o, "created_at", s->created_at);
    add_moment(o, "updated_at", s->updated_at);
    add_moment(o, "status_changed_at", s->status_updated_at);
    add_moment(o, "expires_at", expiry(s));
    add_tags(o, s->tags);
    add_retention(o, s);
    add_text(o, "current_snapshot_id", s->current_snapshot_id);
    add_routes(o, s);
    add_known(o, s, known);
    add_text(o, "upstream", "default");
    if (etag && !o->failed)
        etag_of(o->data + start, o->len - start, etag);
    add_moment(o, "observed_at", observed_ms); /* the last, for all before it is what the tag is of */
    (void)sg_buf_adds(o, "}");
}

json_t *control_record(const struct vercel_sandbox *s, const struct store_sandbox *known, int64_t observed_ms)
{
    struct sg_buf text;
    sg_buf_init(&text, CONTROL_RECORD_MAX);
    control_record_write(s, known, observed_ms, &text, NULL);
    json_t *o = text.failed ? NULL : json_loadb(text.data, text.len, 0, NULL);
    sg_buf_free(&text);
    return o;
}
