#include "control/create_spec.h"

#include "base/crypto.h"
#include "base/json.h"
#include "control/sandboxes.h"
#include "control/tags.h"

#include <stdio.h>
#include <string.h>

enum { IMAGE_MAX = 255, SNAPSHOT_ID_MAX = 64, ENV_NAME_MAX = 256, ENV_VALUE_MAX = 131000 };
#define EXPIRE_MIN_MS INT64_C(86400000)     /* one day */
#define EXPIRE_MAX_MS INT64_C(315360000000) /* ten years */

static const char *const known[] = {
    "name", "image",  "runtime",    "source",    "vcpus",          "timeout_ms", "ports", "env",
    "tags", "region", "persistent", "snapshots", "network_policy", "if_exists",  NULL};
/* Fields of the API that this build cannot honour: refused by name, so that no caller believes in them. */
static const char *const not_built[] = {"template",
                                        "checkpoint",
                                        "mounts",
                                        "request_rules",
                                        "lease",
                                        "init",
                                        "on_start",
                                        "keep_alive",
                                        "network_id",
                                        "web_port",
                                        "failover_regions",
                                        "architecture",
                                        "working_directory",
                                        "resume",
                                        "provider_options",
                                        NULL};
static const char *const runtimes[] = {"node22", "node24", "node26", "python3.13", NULL};
static const char *const regions[] = {"iad1", "sfo1", "cle1", "cdg1", "fra1", "arn1", "sin1",
                                      "pdx1", "lhr1", "icn1", "bom1", "cpt1", "dub1", "gru1",
                                      "hkg1", "syd1", "yul1", "hnd1", "kix1", NULL};

static bool listed(const char *const list[], const char *s)
{
    for (size_t i = 0; list[i]; i++)
        if (!strcmp(list[i], s))
            return true;
    return false;
}

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
}

/* Stores a new reference under key. */
static enum sg_code put(json_t *obj, const char *key, json_t *value, struct sg_error *e)
{
    return json_object_set_new(obj, key, value) ? no_memory(e) : SG_OK;
}

static bool has_nul(const json_t *string)
{
    return strlen(json_string_value(string)) != json_string_length(string);
}

static bool name_chars(const char *s, size_t max)
{
    size_t n = 0;
    for (; s[n]; n++) {
        char c = s[n];
        bool ok = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
                  c == '-';
        if (!ok || n >= max)
            return false;
    }
    return n > 0;
}

/* Words that the upstream's paths give another meaning. */
static bool reserved_name(const char *s)
{
    return !strcmp(s, "sessions") || !strcmp(s, "snapshots") || !strcmp(s, "drives");
}

enum sg_code control_name_for_create(const char *name, struct sg_error *e)
{
    if (!name_chars(name, CREATE_NAME_MAX) || name[0] == '_' || name[0] == '-')
        return sg_fail_field(
            e, SG_E_INVALID_FIELD, "/name",
            "a name is 1 to 63 letters, digits, '_' or '-', beginning with a letter or digit");
    if (reserved_name(name))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/name", "this name cannot be addressed upstream");
    return SG_OK;
}

enum sg_code control_name_for_lookup(const char *name, struct sg_error *e)
{
    if (!name_chars(name, 128) || reserved_name(name))
        return sg_fail(e, SG_E_SANDBOX_NOT_FOUND, SG_NOT_SENT, "no sandbox can have this name");
    return SG_OK;
}

static enum sg_code parse_name(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    const char *name = NULL;
    enum sg_code rc = sg_json_str(body, "", "name", 1024, &name, e);
    if (rc)
        return rc;
    char made[40];
    if (name) {
        if (has_nul(json_object_get(body, "name")))
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/name", "must not hold NUL");
        rc = control_name_for_create(name, e);
        if (rc)
            return rc;
    } else {
        if (!sg_random_id(made, "sb-", 20))
            return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a name");
        name = made;
    }
    rc = put(out->upstream, "name", json_string(name), e);
    if (!rc)
        out->name = json_string_value(json_object_get(out->upstream, "name"));
    return rc;
}

static enum sg_code parse_snapshot_source(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"type", "snapshot_id", NULL};
    json_t *source = NULL;
    enum sg_code rc = sg_json_object(body, "", "source", &source, e);
    const char *type = NULL, *id = NULL;
    if (!rc)
        rc = sg_json_str(source, "/source", "type", 32, &type, e);
    if (rc)
        return rc;
    if (!type)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/source/type", "required");
    if (!strcmp(type, "git") || !strcmp(type, "tarball"))
        return sg_fail_field(e, SG_E_UNSUPPORTED, "/source/type", "only \"snapshot\" is supported");
    if (strcmp(type, "snapshot") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/source/type", "must be \"snapshot\"");
    rc = sg_json_only(source, "/source", fields, e);
    if (!rc)
        rc = sg_json_str(source, "/source", "snapshot_id", SNAPSHOT_ID_MAX, &id, e);
    if (rc)
        return rc;
    if (!id || !name_chars(id, SNAPSHOT_ID_MAX))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/source/snapshot_id", "must be a snapshot id");
    return put(out->upstream, "source", json_pack("{ssss}", "type", "snapshot", "snapshotId", id), e);
}

/* At most one of image, runtime, source says what is inside. */
static enum sg_code parse_origin(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    const json_t *image_value = json_object_get(body, "image");
    const char *first = image_value ? "image" : NULL;
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "source" : "runtime";
        if (!json_object_get(body, key))
            continue;
        if (first)
            return sg_fail_field(e, SG_E_INVALID_FIELD, i ? "/source" : "/runtime", "not together with %s",
                                 first);
        first = key;
    }
    const char *image = NULL, *runtime = NULL;
    enum sg_code rc = sg_json_str(body, "", "image", IMAGE_MAX, &image, e);
    if (!rc)
        rc = sg_json_str(body, "", "runtime", 32, &runtime, e);
    if (rc)
        return rc;
    if (image) {
        for (const char *p = image; *p; p++)
            if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
                return sg_fail_field(e, SG_E_INVALID_FIELD, "/image", "must be an image reference");
        if (!*image || has_nul(image_value))
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/image", "must be an image reference");
        return put(out->upstream, "image", json_string(image), e);
    }
    if (runtime) {
        if (!listed(runtimes, runtime))
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/runtime",
                                 "must be one of node22, node24, node26, python3.13");
        return put(out->upstream, "runtime", json_string(runtime), e);
    }
    return first ? parse_snapshot_source(body, out, e) : SG_OK;
}

static enum sg_code parse_size(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    int64_t vcpus = 0, timeout = CREATE_TIMEOUT_MS;
    bool persistent = true;
    enum sg_code rc = sg_json_int(body, "", "vcpus", 1, CREATE_VCPUS_MAX, &vcpus, e);
    if (!rc && vcpus > 1 && vcpus % 2)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/vcpus", "must be 1 or an even number up to %d",
                           CREATE_VCPUS_MAX);
    if (!rc)
        rc = sg_json_int(body, "", "timeout_ms", CREATE_TIMEOUT_MIN_MS, CREATE_TIMEOUT_MAX_MS, &timeout, e);
    if (!rc)
        rc = sg_json_bool(body, "", "persistent", &persistent, e);
    if (!rc && vcpus)
        rc = put(out->upstream, "resources", json_pack("{sI}", "vcpus", (json_int_t)vcpus), e);
    if (!rc)
        rc = put(out->upstream, "timeout", json_integer(timeout), e);
    if (!rc)
        rc = put(out->upstream, "persistent", json_boolean(persistent), e);
    return rc;
}

static enum sg_code parse_ports(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    json_t *ports = NULL;
    enum sg_code rc = sg_json_array(body, "", "ports", &ports, e);
    if (rc)
        return rc;
    if (json_array_size(ports) > CREATE_PORTS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/ports", "at most %d ports", CREATE_PORTS_MAX);
    json_t *copy = json_array();
    if (!copy)
        return no_memory(e);
    for (size_t i = 0; i < json_array_size(ports) && !rc; i++) {
        const json_t *v = json_array_get(ports, i);
        json_int_t port = json_is_integer(v) ? json_integer_value(v) : -1;
        char ptr[32];
        (void)snprintf(ptr, sizeof ptr, "/ports/%zu", i);
        if (port < CREATE_PORT_MIN || port > 65535)
            rc = sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be an integer from %d to 65535",
                               CREATE_PORT_MIN);
        else if (port == CREATE_PORT_RESERVED)
            rc = sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "port %d is reserved", CREATE_PORT_RESERVED);
        for (size_t k = 0; k < i && !rc; k++)
            if (json_integer_value(json_array_get(ports, k)) == port)
                rc = sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "listed twice");
        if (!rc && json_array_append_new(copy, json_integer(port)))
            rc = no_memory(e);
    }
    if (rc) {
        json_decref(copy);
        return rc;
    }
    return put(out->upstream, "ports", copy, e);
}

enum sg_code control_env_check(const json_t *env, const char *base, struct sg_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)env, key, value)
    {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, base, key);
        size_t n = 0;
        while (key[n] == '_' || (key[n] >= 'A' && key[n] <= 'Z') || (key[n] >= 'a' && key[n] <= 'z') ||
               (n && key[n] >= '0' && key[n] <= '9'))
            n++;
        if (!n || key[n] || n > ENV_NAME_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr,
                                 "a variable's name is a letter or '_', then letters, digits, '_'");
        if (!json_is_string(value))
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a string");
        if (has_nul(value) || json_string_length(value) > ENV_VALUE_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "at most %d bytes and no NUL", ENV_VALUE_MAX);
    }
    return SG_OK;
}

static enum sg_code parse_env(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    json_t *env = NULL;
    enum sg_code rc = sg_json_object(body, "", "env", &env, e);
    if (!rc && env)
        rc = control_env_check(env, "/env", e);
    if (!rc && env)
        rc = put(out->upstream, "env", json_incref(env), e);
    return rc;
}

static enum sg_code parse_tags(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    json_t *tags = NULL;
    enum sg_code rc = sg_json_object(body, "", "tags", &tags, e);
    if (!rc && tags)
        rc = control_tags_check(tags, "/tags", e);
    return rc || !tags ? rc : put(out->upstream, "tags", json_incref(tags), e);
}

/* Retention is always stated, whatever the upstream's defaults are today.  A sandbox that starts from a
 * snapshot shares it with others until its first own one: evicting or expiring it would break them. */
static enum sg_code parse_retention(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"keep", "expire_ms", "delete_evicted", NULL};
    bool shared = json_object_get(body, "source") != NULL;
    int64_t keep = 1, expire = 0;
    bool evict = !shared;
    json_t *snapshots = NULL;
    enum sg_code rc = sg_json_object(body, "", "snapshots", &snapshots, e);
    if (!rc && snapshots) {
        rc = sg_json_only(snapshots, "/snapshots", fields, e);
        if (!rc)
            rc = sg_json_int(snapshots, "/snapshots", "keep", 1, CREATE_KEEP_MAX, &keep, e);
        if (!rc)
            rc = sg_json_int(snapshots, "/snapshots", "expire_ms", 0, EXPIRE_MAX_MS, &expire, e);
        if (!rc)
            rc = sg_json_bool(snapshots, "/snapshots", "delete_evicted", &evict, e);
    }
    if (rc)
        return rc;
    if (expire && expire < EXPIRE_MIN_MS)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/expire_ms",
                             "must be 0 (never) or at least a day");
    if (shared && expire)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/expire_ms",
                             "must be 0 with a snapshot source: others may start from that snapshot");
    if (shared && evict)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/snapshots/delete_evicted",
                             "must be false with a snapshot source: others may start from that snapshot");
    rc = put(out->upstream, "snapshotExpiration", json_integer(expire), e);
    if (!rc)
        rc = put(out->upstream, "keepLastSnapshots",
                 json_pack("{sIsb}", "count", (json_int_t)keep, "deleteEvicted", (int)evict), e);
    return rc;
}

static enum sg_code parse_region_and_policy(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    const char *region = NULL, *if_exists = "fail";
    enum sg_code rc = sg_json_str(body, "", "region", 16, &region, e);
    if (!rc)
        rc = sg_json_str(body, "", "if_exists", 16, &if_exists, e);
    if (rc)
        return rc;
    if (strcmp(if_exists, "fail") != 0 && strcmp(if_exists, "get") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/if_exists", "must be \"fail\" or \"get\"");
    out->get_if_exists = !strcmp(if_exists, "get");
    if (region && !listed(regions, region))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/region", "no such region");
    const json_t *policy = json_object_get(body, "network_policy");
    if (policy && (!json_is_string(policy) || strcmp(json_string_value(policy), "allow-all") != 0))
        return sg_fail_field(e, SG_E_UNSUPPORTED, "/network_policy", "only \"allow-all\" is supported");
    return region ? put(out->upstream, "region", json_string(region), e) : SG_OK;
}

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

enum sg_code create_spec_parse(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    static enum sg_code (*const steps[])(const json_t *, struct create_spec *, struct sg_error *) = {
        parse_name, parse_origin, parse_size,      parse_ports,
        parse_env,  parse_tags,   parse_retention, parse_region_and_policy,
    };
    memset(out, 0, sizeof *out);
    out->asked = body;
    enum sg_code rc = refuse_unbuilt(body, e);
    if (rc)
        return rc;
    out->upstream = json_object();
    if (!out->upstream)
        return no_memory(e);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !rc; i++)
        rc = steps[i](body, out, e);
    if (rc)
        create_spec_clear(out);
    return rc;
}

void create_spec_clear(struct create_spec *s)
{
    json_decref(s->upstream);
    memset(s, 0, sizeof *s);
}

json_t *create_spec_ignored(const struct create_spec *s)
{
    json_t *list = json_array();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)s->asked, key, value)
    {
        (void)value;
        if (!strcmp(key, "name") || !strcmp(key, "if_exists"))
            continue;
        if (json_array_append_new(list, json_string(key))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
