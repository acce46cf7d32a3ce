#include "control/create_spec.h"

#include "base/crypto.h"
#include "base/json.h"
#include "control/fields.h"
#include "control/keepalive.h"
#include "control/leases.h"
#include "control/sandboxes.h"
#include "control/steps.h"
#include "control/tags.h"

#include <stdio.h>
#include <string.h>

static const char *const known[] = {
    "name",  "image",    "runtime",    "source",           "template",   "checkpoint",        "vcpus",
    "ports", "web_port", "timeout_ms", "failover_regions", "network_id", "network_policy",    "env",
    "tags",  "region",   "persistent", "snapshots",        "mounts",     "working_directory", "lease",
    "init",  "on_start", "keep_alive", "architecture",     "resume",     "provider_options",  "if_exists",
    NULL};
/* What provider_options.vercel may hold: it means the same as the field of that name. */
static const char *const provider[] = {
    "image",      "runtime",        "source",           "vcpus",        "timeout_ms", "ports",
    "env",        "tags",           "region",           "persistent",   "snapshots",  "mounts",
    "network_id", "network_policy", "failover_regions", "architecture", NULL};
static const char provider_at[] = "/provider_options/vercel";
/* Fields of the API that this build cannot honour: refused by name, so that no caller believes in them. */
static const char *const not_built[] = {"request_rules", NULL};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

/* ---- the name ---- */

/* A name that nobody else has; of a nonce always the same, and not telling it. */
static bool make_name(const char *nonce, char out[CREATE_NAME_TEXT])
{
    if (!nonce)
        return sg_random_id(out, "sb-", 20);
    char text[128], hex[25];
    unsigned char hash[32];
    (void)snprintf(text, sizeof text, "name:%s", nonce);
    sg_sha256(text, strlen(text), hash);
    sg_hex(hex, hash, (sizeof hex - 1) / 2);
    (void)snprintf(out, CREATE_NAME_TEXT, "sb-%s", hex);
    return true;
}

static enum sg_code parse_name(const char *nonce, struct create_spec *out, struct sg_error *e)
{
    const char *name = NULL;
    char made[CREATE_NAME_TEXT];
    enum sg_code rc = sg_json_str(out->asked, "", "name", 1024, &name, e);
    if (rc)
        return rc;
    out->made_name = !name;
    if (name) {
        if (field_has_nul(json_object_get(out->asked, "name")))
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/name", "must not hold NUL");
        rc = control_name_for_create(name, e);
        if (rc)
            return rc;
    } else {
        if (!make_name(nonce, made))
            return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a name");
        name = made;
    }
    rc = field_put(out->upstream, "name", json_string(name), e);
    if (!rc)
        out->name = json_string_value(json_object_get(out->upstream, "name"));
    return rc;
}

/* ---- the other groups ---- */

static enum sg_code parse_size(struct create_spec *out, struct sg_error *e)
{
    const json_t *body = out->asked;
    json_t *up = out->upstream;
    enum sg_code rc = field_put(up, "timeout", json_integer(CREATE_TIMEOUT_MS), e);
    if (!rc)
        rc = field_put(up, "persistent", json_true(), e);
    if (!rc)
        rc = field_vcpus(body, up, e);
    if (!rc)
        rc = field_timeout(body, up, e);
    if (!rc)
        rc = field_persistent(body, up, e);
    out->timeout_stated = json_object_get(body, "timeout_ms") != NULL;
    return rc;
}

static enum sg_code parse_place(struct create_spec *out, struct sg_error *e)
{
    const json_t *body = out->asked;
    enum sg_code rc = field_region(body, out->upstream, e);
    if (!rc)
        rc = field_failover_regions(body, sg_jget_str(body, "region", NULL), out->upstream, e);
    if (!rc && json_array_size(json_object_get(body, "failover_regions")) > 0 &&
        json_object_size(json_object_get(body, "mounts")) > 0)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/failover_regions",
                           "not together with mounts: a drive has one region");
    if (!rc)
        rc = field_network_id(body, out->upstream, e);
    if (!rc)
        rc = field_network_policy(body, out->upstream, e);
    return rc;
}

static enum sg_code parse_web_port(struct create_spec *out, struct sg_error *e)
{
    const json_t *ports = json_object_get(out->upstream, "ports");
    enum sg_code rc = sg_json_int(out->asked, "", "web_port", FIELD_PORT_MIN, 65535, &out->web_port, e);
    if (rc || !out->web_port)
        return rc;
    for (size_t i = 0; i < json_array_size(ports); i++)
        if (json_integer_value(json_array_get(ports, i)) == out->web_port)
            return SG_OK;
    return sg_fail_field(e, SG_E_INVALID_FIELD, "/web_port", "must be one of `ports`");
}

static enum sg_code parse_inside(struct create_spec *out, struct sg_error *e)
{
    const json_t *body = out->asked;
    json_t *up = out->upstream;
    /* ports are always stated, as the vendor's own clients do */
    enum sg_code rc = field_put(up, "ports", json_array(), e);
    if (!rc)
        rc = field_ports(body, up, e);
    if (!rc)
        rc = parse_web_port(out, e);
    if (!rc)
        rc = field_env(body, up, e);
    if (!rc)
        rc = field_mounts(body, up, e);
    if (!rc)
        rc = field_tags(body, up, e);
    if (!rc)
        rc = field_working_directory(body, &out->working_directory, e);
    return rc;
}

/* Retention is always stated, whatever the upstream's defaults are today.  A sandbox that starts from a
 * snapshot shares it with others until its first own one: evicting or expiring it would break them. */
static enum sg_code parse_retention(struct create_spec *out, struct sg_error *e)
{
    struct field_retention r = {.keep = 1, .expire_ms = 0, .delete_evicted = !out->shared};
    enum sg_code rc = field_retention(out->asked, &r, e);
    if (!rc && out->shared && r.expire_ms)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/expire_ms",
                           "must be 0 with a snapshot source: others may start from that snapshot");
    if (!rc && out->shared && r.delete_evicted)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/delete_evicted",
                           "must be false with a snapshot source: others may start from that snapshot");
    return rc ? rc : field_retention_put(&r, out->upstream, e);
}

static enum sg_code parse_life(struct create_spec *out, struct sg_error *e)
{
    const json_t *lease = json_object_get(out->asked, "lease");
    const json_t *keep = json_object_get(out->asked, "keep_alive");
    struct keepalive_wish wish = {0};
    enum sg_code rc = lease ? lease_check(lease, "/lease", &out->lease_ms, e) : SG_OK;
    if (!rc && keep)
        rc = keepalive_check(keep, "/keep_alive", &wish, e);
    out->keep_alive = wish.mode;
    out->keep_alive_max_ms = wish.max_ms;
    return rc;
}

static enum sg_code parse_steps(struct create_spec *out, struct sg_error *e)
{
    const json_t *init = json_object_get(out->asked, "init"),
                 *start = json_object_get(out->asked, "on_start");
    enum sg_code rc = init ? steps_check(init, "/init", e) : SG_OK;
    if (!rc && start)
        rc = steps_check(start, "/on_start", e);
    out->init = json_array_size(init) ? init : NULL;
    out->on_start = json_array_size(start) ? start : NULL;
    return rc;
}

static enum sg_code parse_manners(struct create_spec *out, struct sg_error *e)
{
    const char *if_exists = "fail";
    enum sg_code rc = sg_json_str(out->asked, "", "if_exists", 16, &if_exists, e);
    if (rc)
        return rc;
    if (strcmp(if_exists, "fail") != 0 && strcmp(if_exists, "get") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/if_exists", "must be \"fail\" or \"get\"");
    out->get_if_exists = !strcmp(if_exists, "get");
    rc = sg_json_bool(out->asked, "", "resume", &out->resume, e);
    if (!rc && out->resume && !out->get_if_exists)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/resume", "only together with if_exists:\"get\"");
    return rc;
}

static enum sg_code parse_origin(struct create_spec *out, struct sg_error *e)
{
    return create_origin_parse(out->asked, out, e);
}

/* ---- the whole ---- */

static enum sg_code refuse_unbuilt(const json_t *body, struct sg_error *e)
{
    for (size_t i = 0; not_built[i]; i++) {
        if (!json_object_get(body, not_built[i]))
            continue;
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, "", not_built[i]);
        return sg_fail_field(e, SG_E_UNSUPPORTED, ptr, "this field is not supported");
    }
    return sg_json_only(body, "", known, e);
}

/* Takes what provider_options.vercel holds into the body; other providers' entries are for them.  *taken: borrowed. */
static enum sg_code take_provider_options(json_t *asked, const json_t **taken, struct sg_error *e)
{
    json_t *options = NULL, *ours = NULL;
    enum sg_code rc = sg_json_object(asked, "", "provider_options", &options, e);
    if (!rc && options)
        rc = sg_json_object(options, "/provider_options", "vercel", &ours, e);
    if (!rc && ours)
        rc = sg_json_only(ours, provider_at, provider, e);
    *taken = ours;
    const char *key;
    json_t *value;
    json_object_foreach(ours, key, value)
    {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, provider_at, key);
        if (!rc && json_object_get(asked, key))
            rc = sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "given twice");
        if (!rc && json_object_set(asked, key, value))
            rc = no_memory(e);
    }
    return rc;
}

/* The pointer of an error in a field that came from there. */
static void point_into_options(const json_t *taken, struct sg_error *e)
{
    char first[64], whole[sizeof provider_at + sizeof e->pointer];
    size_t n = e && e->pointer[0] == '/' ? strcspn(e->pointer + 1, "/") : 0;
    if (!taken || !n || n >= sizeof first)
        return;
    (void)snprintf(first, sizeof first, "%.*s", (int)n, e->pointer + 1);
    if (!json_object_get(taken, first))
        return;
    (void)snprintf(whole, sizeof whole, "%s%s", provider_at, e->pointer);
    (void)snprintf(e->pointer, sizeof e->pointer, "%.*s", (int)sizeof e->pointer - 1, whole);
}

enum sg_code create_spec_parse(const json_t *body, const char *nonce, struct create_spec *out,
                               struct sg_error *e)
{
    static enum sg_code (*const steps[])(struct create_spec *, struct sg_error *) = {
        parse_origin,    parse_size,    parse_place, parse_inside,
        parse_retention, parse_manners, parse_life,  parse_steps,
    };
    memset(out, 0, sizeof *out);
    const json_t *taken = NULL;
    enum sg_code rc = refuse_unbuilt(body, e);
    if (rc)
        return rc;
    out->asked = json_copy((json_t *)(uintptr_t)body);
    out->upstream = json_object();
    if (!out->asked || !out->upstream)
        rc = no_memory(e);
    if (!rc)
        rc = take_provider_options(out->asked, &taken, e);
    if (!rc)
        rc = parse_name(nonce, out, e);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !rc; i++) {
        rc = steps[i](out, e);
        if (rc)
            point_into_options(taken, e);
    }
    if (rc)
        create_spec_clear(out);
    return rc;
}

void create_spec_clear(struct create_spec *s)
{
    json_decref(s->upstream);
    json_decref(s->asked);
    memset(s, 0, sizeof *s);
}

bool create_spec_needs_store(const struct create_spec *s)
{
    return s->template_name || s->checkpoint || s->working_directory || s->web_port || s->lease_ms ||
           s->keep_alive || s->init || s->on_start;
}

json_t *create_spec_ignored(const struct create_spec *s)
{
    static const char *const used[] = {"name", "if_exists", "resume", "provider_options", NULL};
    json_t *list = json_array();
    const char *key;
    json_t *value;
    json_object_foreach(s->asked, key, value)
    {
        (void)value;
        if (field_listed(used, key))
            continue;
        if (json_array_append_new(list, json_string(key))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
