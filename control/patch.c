#include "control/patch.h"

#include "control/control.h"
#include "control/fields.h"
#include "control/keepalive.h"
#include "control/look.h"
#include "control/names.h"
#include "control/record.h"
#include "control/retention.h"
#include "control/settings.h"
#include "control/tags.h"
#include "vercel/snapshots.h"

#include "base/clock.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { LOCK_PATIENCE_MS = 15 * 1000 };

static const char *const fields[] = {
    "vcpus",      "timeout_ms",       "ports",      "web_port",          "tags",
    "env",        "mounts",           "region",     "persistent",        "snapshots",
    "network_id", "failover_regions", "keep_alive", "working_directory", "current_snapshot_id",
    NULL};

struct change {
    struct control *c;
    struct control_patch *p;
    json_t *wish; /* all that is asked for of the upstream, in its form */
    json_t *send; /* what of it differs */
    bool sets_directory;
    const char *directory; /* "": the upstream's own */
    json_t *keep_alive;    /* NULL: not asked for */
    struct keepalive_wish keep_wish;
    int64_t web_port; /* -1: not asked for; 0: none */
    struct vercel_sandbox s;
    json_t *before;     /* its record */
    bool has_directory; /* which is not the upstream's own */
};

static enum sg_code no_memory(struct sg_error *e, enum sg_outcome outcome)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the request");
}

/* ---- what is asked for ---- */

/* A null takes it away. */
static bool is_null(const json_t *body, const char *key)
{
    return json_is_null(json_object_get(body, key));
}

static enum sg_code read_network(const json_t *body, json_t *out, struct sg_error *e)
{
    if (is_null(body, "network_id"))
        return field_put(out, "networkId", json_null(), e);
    return field_network_id(body, out, e);
}

static enum sg_code read_snapshot(const json_t *body, json_t *out, struct sg_error *e)
{
    const char *id = NULL;
    enum sg_code rc = sg_json_str(body, "", "current_snapshot_id", 128, &id, e);
    if (rc || !id)
        return rc;
    if (field_has_nul(json_object_get(body, "current_snapshot_id")) || !field_is_name(id, 128))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/current_snapshot_id", "must be a snapshot id");
    return field_put(out, "currentSnapshotId", json_string(id), e);
}

static enum sg_code read_own(struct change *ch, struct sg_error *e)
{
    const json_t *body = ch->p->body, *keep = json_object_get(body, "keep_alive");
    enum sg_code rc = SG_OK;
    ch->web_port = -1;
    ch->sets_directory = json_object_get(body, "working_directory") != NULL;
    ch->directory = "";
    if (ch->sets_directory && !is_null(body, "working_directory"))
        rc = field_working_directory(body, &ch->directory, e);
    if (!rc && is_null(body, "web_port"))
        ch->web_port = 0;
    else if (!rc)
        rc = sg_json_int(body, "", "web_port", FIELD_PORT_MIN, 65535, &ch->web_port, e);
    if (rc || !keep)
        return rc;
    rc = keepalive_check(keep, "/keep_alive", &ch->keep_wish, e);
    if (!rc && !(ch->keep_alive = keepalive_json(&ch->keep_wish)))
        rc = no_memory(e, SG_NOT_SENT);
    return rc;
}

static enum sg_code read_wish(struct change *ch, struct sg_error *e)
{
    const json_t *body = ch->p->body;
    const char *region = NULL;
    struct field_retention any = {.keep = 1};
    enum sg_code rc = sg_json_only(body, "", fields, e);
    if (!rc && !(ch->wish = json_object()))
        rc = no_memory(e, SG_NOT_SENT);
    static enum sg_code (*const steps[])(const json_t *, json_t *, struct sg_error *) = {
        field_vcpus, field_timeout, field_persistent, field_region, read_network,
        field_ports, field_env,     field_mounts,     field_tags,   read_snapshot,
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !rc; i++)
        rc = steps[i](body, ch->wish, e);
    region = sg_jget_str(ch->wish, "region", NULL);
    if (!rc)
        rc = field_failover_regions(body, region, ch->wish, e);
    if (!rc)
        rc = field_retention(body, &any, e); /* the form; what counts is known with the record */
    return rc ? rc : read_own(ch, e);
}

/* ---- what of it differs ---- */

static bool same_ports(const json_t *ports, const json_t *routes)
{
    if (json_array_size(ports) != json_array_size(routes))
        return false;
    for (size_t i = 0; i < json_array_size(ports); i++) {
        bool found = false;
        for (size_t k = 0; k < json_array_size(routes) && !found; k++)
            found = json_equal(json_array_get(ports, i), json_object_get(json_array_get(routes, k), "port"));
        if (!found)
            return false;
    }
    return true;
}

static bool is_so(const struct change *ch, const char *key, const json_t *value)
{
    static const struct {
        const char *upstream, *record;
    } names[] = {
        {"timeout", "timeout_ms"},
        {"persistent", "persistent"},
        {"region", "region"},
        {"networkId", "network_id"},
        {"mounts", "mounts"},
        {"tags", "tags"},
        {"failoverRegions", "failover_regions"},
        {"currentSnapshotId", "current_snapshot_id"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i].upstream) == 0)
            return json_equal(value, json_object_get(ch->before, names[i].record));
    if (strcmp(key, "resources") == 0)
        return json_equal(json_object_get(value, "vcpus"), json_object_get(ch->before, "vcpus"));
    if (strcmp(key, "ports") == 0)
        return same_ports(value, json_object_get(ch->before, "routes"));
    return false; /* the environment: it is never told */
}

/* A sandbox that is set back to a snapshot which others may start from must not evict it, nor let it expire. */
static enum sg_code add_retention(struct change *ch, struct sg_error *e)
{
    const json_t *now = json_object_get(ch->before, "snapshots"),
                 *asked = json_object_get(ch->p->body, "snapshots");
    bool set_back = json_object_get(ch->send, "currentSnapshotId") != NULL;
    struct field_retention was = {.keep = sg_jget_int(now, "keep", 0),
                                  .expire_ms = sg_jget_int(now, "expire_ms", -1),
                                  .delete_evicted = sg_jget_bool(now, "delete_evicted", false)};
    struct field_retention r = was;
    if (set_back)
        r.expire_ms = 0, r.delete_evicted = false;
    enum sg_code rc = field_retention(ch->p->body, &r, e);
    if (rc)
        return rc;
    if (set_back && (r.expire_ms || r.delete_evicted))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots",
                             "with current_snapshot_id nothing is evicted and nothing expires: others may "
                             "start from that snapshot");
    if (!asked && !set_back)
        return SG_OK;
    if (((r.delete_evicted && !was.delete_evicted) || (r.expire_ms > 0 && r.expire_ms != was.expire_ms)) &&
        (rc = control_may_evict(ch->c, &ch->s, e)))
        return rc;
    if (r.expire_ms >= 0 && r.expire_ms != was.expire_ms)
        rc = field_put(ch->send, "snapshotExpiration", json_integer(r.expire_ms), e);
    bool expires_so = ch->s.keep_expiration_ms < 0 || ch->s.keep_expiration_ms == r.expire_ms;
    if (!rc && r.keep && (r.keep != was.keep || r.delete_evicted != was.delete_evicted || !expires_so))
        rc = field_put(
            ch->send, "keepLastSnapshots",
            json_pack("{sIsb}", "count", (json_int_t)r.keep, "deleteEvicted", (int)r.delete_evicted), e);
    return rc;
}

static enum sg_code find_difference(struct change *ch, struct sg_error *e)
{
    const char *key;
    json_t *value;
    json_decref(ch->send);
    ch->send = json_object();
    enum sg_code rc = ch->send ? SG_OK : no_memory(e, SG_NOT_STARTED);
    json_object_foreach(ch->wish, key, value)
    {
        if (!rc && !is_so(ch, key, value))
            rc = field_put(ch->send, key, json_deep_copy(value), e);
    }
    json_t *tags = json_object_get(ch->send, "tags"), *size = json_object_get(ch->send, "resources");
    if (!rc && tags)
        rc = control_tags_keep(tags, &ch->s, e);
    if (!rc && size)
        rc = field_put(size, "memory", json_integer(sg_jget_int(size, "vcpus", 0) * 2048), e);
    return rc ? rc : add_retention(ch, e);
}

/* What can only be judged with the record. */
static enum sg_code check_against(const struct change *ch, struct sg_error *e)
{
    const json_t *ports = json_object_get(ch->wish, "ports");
    const char *region = sg_jget_str(ch->wish, "region", ch->s.region);
    enum sg_code rc = SG_OK;
    json_t *none = json_object();
    if (!none)
        return no_memory(e, SG_NOT_STARTED);
    rc = field_failover_regions(ch->p->body, region, none, e);
    json_decref(none);
    bool open = ch->web_port <= 0;
    for (size_t i = 0; i < json_array_size(ports) && !open; i++)
        open = json_integer_value(json_array_get(ports, i)) == ch->web_port;
    for (size_t i = 0; i < ch->s.nroutes && !open && !ports; i++)
        open = ch->s.routes[i].port == ch->web_port;
    if (!rc && !open)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/web_port", "must be one of the sandbox's ports");
    return rc;
}

/* ---- the record before and after ---- */

/* e's outcome is that of the change. */
static enum sg_code look(struct change *ch, enum sg_outcome outcome, struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = vercel_get(ch->c->vercel, ch->p->name, false, &s, e);
    if (rc) {
        e->outcome = outcome;
        return rc;
    }
    vercel_sandbox_clear(&ch->s);
    ch->s = s;
    json_decref(ch->before);
    struct store_sandbox known;
    bool found = control_known(ch->c, &ch->s, &known);
    ch->before = control_record(&ch->s, found ? &known : NULL, sg_wall_ms());
    ch->has_directory = found && known.working_directory;
    if (found)
        store_sandbox_clear(&known);
    control_observe(ch->c, &ch->s);
    return ch->before ? SG_OK : no_memory(e, outcome);
}

static enum sg_code check_state(const struct change *ch, struct sg_error *e)
{
    char etag[CONTROL_ETAG_LEN + 1];
    if (!ch->p->fits)
        return SG_OK;
    if (!control_record_etag(ch->before, etag))
        return no_memory(e, SG_NOT_STARTED);
    return ch->p->fits(ch->p->fits_arg, etag) ? SG_OK
                                              : sg_fail(e, SG_E_PRECONDITION_FAILED, SG_NOT_STARTED,
                                                        "the sandbox is in another state than If-Match says");
}

/* ---- the upstream's part ---- */

static enum sg_code send_change(struct change *ch, struct sg_error *e)
{
    const char *snapshot = sg_jget_str(ch->send, "currentSnapshotId", NULL);
    struct vercel_sandbox answer;
    enum sg_code rc = snapshot ? control_snapshot_give(ch->c, snapshot, e) : SG_OK;
    if (rc) {
        e->outcome = SG_NOT_STARTED;
        return rc;
    }
    rc = vercel_update(ch->c->vercel, ch->p->name, ch->send, &answer, e);
    if (!rc) {
        vercel_sandbox_clear(&answer);
    } else if (e->outcome == SG_OUTCOME_UNKNOWN) { /* is it so by now? */
        struct sg_error own;
        if (!look(ch, SG_OUTCOME_UNKNOWN, &own) && !find_difference(ch, &own) && !json_object_size(ch->send))
            rc = SG_OK;
    }
    if (!rc && snapshot)
        control_retention_watch(ch->c, ch->p->name, ch->s.created_at);
    return rc;
}

/* ---- the gateway's part ---- */

/* False: what is asked for is so. */
static bool own_differs(const struct change *ch, struct store_sandbox_change *what, int64_t numbers[3])
{
    const json_t *dir = json_object_get(ch->before, "working_directory");
    *what = (struct store_sandbox_change){NULL};
    const char *is = json_string_value(dir);
    if (ch->sets_directory && (*ch->directory ? !is || strcmp(is, ch->directory) != 0 : ch->has_directory))
        what->working_directory = ch->directory;
    if (ch->keep_alive && !json_equal(ch->keep_alive, json_object_get(ch->before, "keep_alive"))) {
        numbers[0] = ch->keep_wish.mode;
        numbers[1] = ch->keep_wish.max_ms;
        what->keep_alive = &numbers[0];
        what->keep_alive_max_ms = &numbers[1];
    }
    if (ch->web_port >= 0 && ch->web_port != sg_jget_int(ch->before, "web_port", 0)) {
        numbers[2] = ch->web_port;
        what->web_port = &numbers[2];
    }
    return what->working_directory || what->keep_alive || what->web_port;
}

static enum sg_code keep(struct change *ch, bool sent, bool *kept, struct sg_error *e)
{
    int64_t numbers[3];
    struct store_sandbox_change what;
    if (!own_differs(ch, &what, numbers))
        return SG_OK;
    enum sg_code rc = settings_change(ch->c, &ch->s, &what, e);
    if (rc && sent)
        e->outcome = SG_STARTED; /* asked again, the rest is done */
    control_session_forget(ch->c, ch->p->name);
    *kept = !rc;
    return rc;
}

/* Of a sandbox that was not created through a gateway nothing is kept. */
static enum sg_code check_own(const struct change *ch, struct sg_error *e)
{
    int64_t numbers[3];
    struct store_sandbox_change what;
    const char *alloc = control_tag_of(&ch->s, CONTROL_TAG_ALLOC);
    if ((alloc && strlen(alloc) < STORE_ALLOC_TEXT) || !own_differs(ch, &what, numbers))
        return SG_OK;
    return sg_fail_field(e, SG_E_UNSUPPORTED,
                         what.working_directory ? "/working_directory"
                         : what.keep_alive      ? "/keep_alive"
                                                : "/web_port",
                         "the sandbox was not created through a gateway");
}

/* ---- all of it ---- */

/* What counts from the next session on, as one runs now: a new array. */
static json_t *next_session(const struct change *ch, const json_t *sent)
{
    static const struct {
        const char *upstream, *field;
    } later[] = {
        {"resources", "vcpus"},
        {"timeout", "timeout_ms"},
        {"env", "env"},
        {"mounts", "mounts"},
        {"region", "region"},
        {"failoverRegions", "failover_regions"},
        {"networkId", "network_id"},
        {"currentSnapshotId", "current_snapshot_id"},
    };
    json_t *list = json_array();
    enum vercel_status status = control_status(&ch->s);
    bool running = status == VERCEL_RUNNING || status == VERCEL_PENDING;
    for (size_t i = 0; running && i < sizeof later / sizeof *later; i++)
        if (json_object_get(sent, later[i].upstream) &&
            json_array_append_new(list, json_string(later[i].field))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static enum sg_code apply(struct change *ch, struct sg_error *e)
{
    bool kept = false;
    enum sg_code rc = look(ch, SG_NOT_STARTED, e);
    if (!rc)
        rc = check_state(ch, e);
    if (!rc)
        rc = check_against(ch, e);
    if (!rc)
        rc = find_difference(ch, e);
    if (!rc)
        rc = check_own(ch, e);
    if (rc)
        return rc;
    json_t *sent = json_incref(ch->send);
    bool sends = json_object_size(sent) > 0;
    if (sends)
        rc = send_change(ch, e);
    if (!rc)
        rc = keep(ch, sends, &kept, e);
    if (!rc && (sends || kept))
        rc = look(ch, SG_FINISHED, e);
    if (!rc && json_object_set_new(ch->before, "next_session", next_session(ch, sent)))
        rc = no_memory(e, SG_FINISHED);
    json_decref(sent);
    return rc;
}

enum sg_code control_patch(struct control *c, struct control_patch *p, struct sg_error *e)
{
    struct change ch = {.c = c, .p = p};
    struct name_lock lock = {.held = false};
    p->record = NULL;
    enum sg_code rc = control_name_for_lookup(p->name, e);
    if (!rc)
        rc = read_wish(&ch, e);
    if (!rc)
        rc = control_name_lock(c, p->name, LOCK_PATIENCE_MS, &lock, e);
    if (!rc)
        rc = apply(&ch, e);
    control_name_unlock(&lock);
    if (!rc)
        p->record = json_incref(ch.before);
    vercel_sandbox_clear(&ch.s);
    json_decref(ch.before);
    json_decref(ch.wish);
    json_decref(ch.send);
    json_decref(ch.keep_alive);
    return rc;
}
