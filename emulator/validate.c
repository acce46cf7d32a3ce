#include "emulator/validate.h"
#include "emulator/render.h"

#include <string.h>

static const int64_t day_ms = 86400000, timeout_max_ms = 86400000, command_timeout_max_ms = 18000000;
enum { VCPUS_MAX = 32, STDIN_CHARS_MAX = 1000000, PATH_MAX_LEN = 4096 };

bool valid_name(const char *s)
{
    size_t n = strlen(s);
    return n && n < NAME_TEXT &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

int validate_only(const json_t *body, const char *const allowed[], struct api_error *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)body, key, v)
    {
        if (!strncmp(key, "__", 2))
            continue;
        size_t i = 0;
        while (allowed[i] && strcmp(allowed[i], key) != 0)
            i++;
        if (!allowed[i])
            return api_invalid(e, "should NOT have additional property `%.60s`.", key);
    }
    return 0;
}

int validate_int(const char *what, const json_t *v, int64_t min, int64_t max, int64_t *out,
                 struct api_error *e)
{
    int64_t n;
    if (json_is_integer(v)) {
        n = json_integer_value(v);
    } else if (json_is_real(v) && json_real_value(v) >= -9e15 && json_real_value(v) <= 9e15 &&
               (double)(int64_t)json_real_value(v) == json_real_value(v)) {
        n = (int64_t)json_real_value(v); /* 3e5 is an integer in JSON's only number type */
    } else {
        return api_invalid(e, "`%s` should be integer.", what);
    }
    if (n < min)
        return api_invalid(e, "`%s` should be >= %lld.", what, (long long)min);
    if (n > max)
        return api_invalid(e, "`%s` should be <= %lld.", what, (long long)max);
    *out = n;
    return 0;
}

int validate_expiration(const char *what, const json_t *v, int64_t *out, struct api_error *e)
{
    if (validate_int(what, v, 0, 3650 * day_ms, out, e))
        return -1;
    if (*out && *out < day_ms)
        return api_invalid(e, "`%s` should be 0 or >= %lld.", what, (long long)day_ms);
    return 0;
}

static int want_string(const json_t *body, const char *key, size_t max, const char **out, struct api_error *e)
{
    const json_t *v = json_object_get(body, key);
    if (!v)
        return 0;
    if (!json_is_string(v))
        return api_invalid(e, "`%s` should be string.", key);
    if (json_string_length(v) > max)
        return api_invalid(e, "`%s` should NOT be longer than %zu characters.", key, max);
    *out = json_string_value(v);
    return 0;
}

static int want_bool(const json_t *body, const char *key, bool *out, struct api_error *e)
{
    const json_t *v = json_object_get(body, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return api_invalid(e, "`%s` should be boolean.", key);
    *out = json_is_true(v);
    return 0;
}

/* An object whose values are strings of at most max_value bytes. */
static int want_strings(const json_t *body, const char *key, size_t max_entries, size_t max_value,
                        const json_t **out, struct api_error *e)
{
    json_t *v = json_object_get(body, key), *x;
    const char *k;
    if (!v)
        return 0;
    if (!json_is_object(v))
        return api_invalid(e, "`%s` should be object.", key);
    if (json_object_size(v) > max_entries)
        return api_invalid(e, "`%s` should NOT have more than %zu properties.", key, max_entries);
    json_object_foreach(v, k, x)
    {
        if (!json_is_string(x))
            return api_invalid(e, "`%s.%.60s` should be string.", key, k);
        if (json_string_length(x) > max_value)
            return api_invalid(e, "`%s.%.60s` should NOT be longer than %zu characters.", key, k, max_value);
    }
    *out = v;
    return 0;
}

static int want_env(const json_t *body, const json_t **out, struct api_error *e)
{
    const char *k;
    json_t *v;
    if (want_strings(body, "env", 10000, 128 << 10, out, e))
        return -1;
    json_object_foreach((json_t *)(uintptr_t)*out, k, v)
    {
        if (!*k || strchr(k, '='))
            return api_invalid(e, "`env` should NOT have the variable name '%.60s'.", k);
    }
    return 0;
}

static int want_ports(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    const json_t *list = json_object_get(body, "ports");
    if (!list)
        return 0;
    if (!json_is_array(list))
        return api_invalid(e, "`ports` should be array.");
    size_t n = json_array_size(list);
    if (n > PORTS_MAX)
        return api_invalid(e, "`ports` should NOT have more than %d items.", PORTS_MAX);
    for (size_t i = 0; i < n; i++) {
        int64_t port;
        if (validate_int("ports[]", json_array_get(list, i), 1024, 65535, &port, e))
            return -1;
        if (port == 23456)
            return api_invalid(e, "`ports` should NOT have the reserved port 23456.");
        for (size_t j = 0; j < i; j++)
            if (out->ports[j] == port)
                return api_invalid(e, "`ports` should NOT have duplicate items.");
        out->ports[i] = (int)port;
    }
    out->has_ports = true;
    out->nports = (unsigned)n;
    return 0;
}

static int want_resources(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    static const char *const members[] = {"vcpus", "memory", NULL};
    const json_t *r = json_object_get(body, "resources");
    if (!r)
        return 0;
    if (!json_is_object(r))
        return api_invalid(e, "`resources` should be object.");
    if (validate_only(r, members, e))
        return -1;
    int64_t vcpus, memory;
    const json_t *m = json_object_get(r, "memory");
    if (validate_int("resources.vcpus", json_object_get(r, "vcpus"), 1, VCPUS_MAX, &vcpus, e))
        return -1;
    if (vcpus != 1 && vcpus % 2)
        return api_invalid(e, "`resources.vcpus` should be 1 or an even number.");
    if (m && validate_int("resources.memory", m, 1, (int64_t)VCPUS_MAX * 2048, &memory, e))
        return -1;
    if (m && memory != vcpus * 2048)
        return api_invalid(e, "`resources.memory` should be equal to `resources.vcpus` * 2048.");
    out->vcpus = (int)vcpus;
    return 0;
}

static int want_keep(const json_t *body, bool null_allowed, struct sandbox_request *out, struct api_error *e)
{
    static const char *const members[] = {"count", "expiration", "deleteEvicted", NULL};
    const json_t *k = json_object_get(body, "keepLastSnapshots");
    if (!k)
        return 0;
    out->has_keep = true;
    out->keep = (struct keep_last){.expiration_ms = -1, .delete_evicted = true};
    if (json_is_null(k) && null_allowed)
        return 0;
    if (!json_is_object(k))
        return api_invalid(e, "`keepLastSnapshots` should be object.");
    if (validate_only(k, members, e))
        return -1;
    int64_t count;
    const json_t *x = json_object_get(k, "expiration");
    if (validate_int("keepLastSnapshots.count", json_object_get(k, "count"), 1, 10, &count, e))
        return -1;
    if (x && validate_expiration("keepLastSnapshots.expiration", x, &out->keep.expiration_ms, e))
        return -1;
    if (want_bool(k, "deleteEvicted", &out->keep.delete_evicted, e))
        return -1;
    out->keep.set = true;
    out->keep.count = (int)count;
    return 0;
}

/* What the schema calls a uri, as far as anything here can fetch it. */
static int want_url(const json_t *s, const char **out, struct api_error *e)
{
    if (want_string(s, "url", 2048, out, e))
        return -1;
    if (!*out)
        return api_invalid(e, "`source` should have required property `url`.");
    for (const char *p = *out; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '"' || *p == '\\')
            return api_invalid(e, "`source.url` should match format \"uri\".");
    const char *host = strstr(*out, "://");
    if (!host || host == *out || !host[3])
        return api_invalid(e, "`source.url` should match format \"uri\".");
    if (memchr(host + 3, '@', strcspn(host + 3, "/?#")))
        return api_invalid(e, "`source.url` should NOT have credentials: use `username` and `password`.");
    return 0;
}

/* They travel through lines of text. */
static int want_credential(const json_t *s, const char *key, const char **out, struct api_error *e)
{
    if (want_string(s, key, 1024, out, e))
        return -1;
    for (const char *p = *out; p && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            return api_invalid(e, "`source.%s` should NOT have control characters.", key);
    return 0;
}

static int want_git(const json_t *s, struct source_request *out, struct api_error *e)
{
    static const char *const members[] = {"type", "url", "depth", "revision", "username", "password", NULL};
    const json_t *depth = json_object_get(s, "depth");
    out->kind = SOURCE_GIT;
    if (validate_only(s, members, e) || want_url(s, &out->url, e) ||
        (depth && validate_int("source.depth", depth, 1, INT32_MAX, &out->depth, e)) ||
        want_string(s, "revision", 255, &out->revision, e) ||
        want_credential(s, "username", &out->username, e) ||
        want_credential(s, "password", &out->password, e))
        return -1;
    if (!out->username != !out->password)
        return api_invalid(e, "`source.username` and `source.password` should be given together.");
    const char *r = out->revision;
    if (r &&
        (!*r || *r == '-' || strstr(r, "..") ||
         strspn(r, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+@#") != strlen(r)))
        return api_invalid(e, "`source.revision` should be a commit, a branch or a tag.");
    return 0;
}

static int want_source(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    static const char *const snapshot[] = {"type", "snapshotId", NULL}, *const tarball[] = {"type", "url",
                                                                                            NULL};
    const json_t *s = json_object_get(body, "source");
    if (!s)
        return 0;
    const char *type = json_string_value(json_object_get(s, "type"));
    if (!json_is_object(s) || !type)
        return api_invalid(e, "`source` should be object with `type`.");
    if (!strcmp(type, "git"))
        return want_git(s, &out->source, e);
    if (!strcmp(type, "tarball")) {
        out->source.kind = SOURCE_TARBALL;
        return validate_only(s, tarball, e) ? -1 : want_url(s, &out->source.url, e);
    }
    if (strcmp(type, "snapshot") != 0)
        return api_invalid(e, "`source.type` should be equal to one of the allowed values \"git, tarball, "
                              "snapshot\".");
    out->source.kind = SOURCE_SNAPSHOT;
    if (validate_only(s, snapshot, e) || want_string(s, "snapshotId", 128, &out->source_snapshot, e))
        return -1;
    return out->source_snapshot ? 0 : api_invalid(e, "`source` should have required property `snapshotId`.");
}

/* ---- places, networks, drives ---- */

static int as_region(const char *what, const json_t *v, int *out, struct api_error *e)
{
    const char *name = json_string_value(v);
    if (!name)
        return api_invalid(e, "`%s` should be string.", what);
    *out = region_find(name);
    return *out >= 0 ? 0 : api_invalid(e, "`%s` should be equal to one of the allowed values.", what);
}

int validate_region(const json_t *body, int *out, struct api_error *e)
{
    const json_t *v = json_object_get(body, "region");
    *out = -1;
    return v ? as_region("region", v, out, e) : 0;
}

static int want_failover(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    const json_t *list = json_object_get(body, "failoverRegions");
    if (!list)
        return 0;
    if (!json_is_array(list))
        return api_invalid(e, "`failoverRegions` should be array.");
    if (json_array_size(list) > REGIONS)
        return api_invalid(e, "`failoverRegions` should NOT have more than %d items.", REGIONS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int region = -1;
        if (as_region("failoverRegions[]", json_array_get(list, i), &region, e))
            return -1;
        if (memchr(out->failover, region, i))
            return api_invalid(e, "`failoverRegions` should NOT have duplicate items.");
        out->failover[i] = (uint8_t)region;
    }
    out->has_failover = true;
    out->nfailover = (unsigned)json_array_size(list);
    return 0;
}

static int want_network(const json_t *body, bool null_allowed, const char **out, struct api_error *e)
{
    const json_t *v = json_object_get(body, "networkId");
    if (json_is_null(v) && null_allowed) {
        *out = "";
        return 0;
    }
    if (want_string(body, "networkId", NETWORK_TEXT - 1, out, e))
        return -1;
    return !*out || **out ? 0 : api_invalid(e, "`networkId` should NOT be shorter than 1 characters.");
}

bool valid_drive_name(const char *s)
{
    return valid_name(s) && strlen(s) < DRIVE_NAME_TEXT;
}

/* Absolute and normalized, so that two that overlap are seen to. */
static int want_mount_path(const char *path, char out[MOUNT_PATH_TEXT], struct api_error *e)
{
    static const char *const reserved[] = {"/proc", "/sys", "/dev", "/run", NULL};
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/')
        n--;
    if (*path != '/' || n < 2 || n >= MOUNT_PATH_TEXT)
        return api_invalid(e, "`mounts` should have absolute paths of at most %d characters, other than /.",
                           MOUNT_PATH_TEXT - 1);
    memcpy(out, path, n);
    out[n] = '\0';
    for (const char *p = out; *p; p += 1 + strcspn(p + 1, "/")) {
        size_t k = strcspn(p + 1, "/");
        if (!k || (k <= 2 && strspn(p + 1, ".") == k))
            return api_invalid(e, "`mounts` should have normalized paths, unlike '%.100s'.", path);
    }
    for (const char *p = out; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            return api_invalid(e, "`mounts` should NOT have paths with control characters.");
    for (size_t i = 0; reserved[i]; i++) {
        size_t k = strlen(reserved[i]);
        if (!strncmp(out, reserved[i], k) && (!out[k] || out[k] == '/'))
            return api_invalid(e, "`mounts` should NOT have the path '%.100s': the system uses %s.", path,
                               reserved[i]);
    }
    return 0;
}

static bool overlap(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t k = n < m ? n : m;
    return !strncmp(a, b, k) && (n == m || (n < m ? b : a)[k] == '/');
}

static int want_mount(const char *path, const json_t *v, struct mount_setting *out, struct api_error *e)
{
    static const char *const members[] = {"drive", "mode", NULL};
    const char *drive = NULL, *mode = NULL;
    if (!json_is_object(v))
        return api_invalid(e, "`mounts.%.60s` should be object.", path);
    if (validate_only(v, members, e) || want_mount_path(path, out->path, e) ||
        want_string(v, "drive", DRIVE_NAME_TEXT - 1, &drive, e) || want_string(v, "mode", 20, &mode, e))
        return -1;
    if (!drive)
        return api_invalid(e, "`mounts.%.60s` should have required property `drive`.", path);
    if (!valid_drive_name(drive))
        return api_invalid(e, "`mounts.%.60s.drive` should match pattern \"^[a-zA-Z0-9_-]+$\".", path);
    out->snapshot = mode && strcmp(mode, "read-write") != 0;
    if (out->snapshot && strcmp(mode, "snapshot") != 0 && strcmp(mode, "read-only") != 0)
        return api_invalid(e,
                           "`mounts.%.60s.mode` should be equal to one of the allowed values \"read-write, "
                           "snapshot\".",
                           path);
    memcpy(out->drive, drive, strlen(drive) + 1);
    return 0;
}

static int want_mounts(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    json_t *list = json_object_get(body, "mounts"), *v;
    const char *path;
    if (!list)
        return 0;
    if (!json_is_object(list))
        return api_invalid(e, "`mounts` should be object.");
    if (json_object_size(list) > MOUNTS_MAX)
        return api_invalid(e, "`mounts` should NOT have more than %d properties.", MOUNTS_MAX);
    json_object_foreach(list, path, v)
    {
        struct mount_setting *m = &out->mounts[out->nmounts];
        if (want_mount(path, v, m, e))
            return -1;
        for (unsigned i = 0; i < out->nmounts; i++)
            if (overlap(m->path, out->mounts[i].path))
                return api_invalid(e, "`mounts` should NOT have overlapping paths: '%.100s' and '%.100s'.",
                                   out->mounts[i].path, m->path);
        out->nmounts++;
    }
    out->has_mounts = true;
    return 0;
}

/* The machine's own is the only one there is; every image and snapshot has it. */
static int want_architecture(const json_t *body, int version, struct api_error *e)
{
    static const char own[] = EMULATOR_ARCHITECTURE;
    const char *a = NULL;
    if (want_string(body, "architecture", 16, &a, e))
        return -1;
    if (a && strcmp(a, "amd64") != 0 && strcmp(a, "arm64") != 0)
        return api_invalid(e,
                           "`architecture` should be equal to one of the allowed values \"amd64, arm64\".");
    if (a && version == 2 && !strcmp(a, "arm64"))
        return api_invalid(e, "`architecture` should be amd64 with a runtime.");
    if (a && strcmp(a, own) != 0)
        return api_fail(e, 400, "bad_request", "This emulator runs on %s and has no other architecture.",
                        own);
    return 0;
}

static void request_init(struct sandbox_request *out)
{
    memset(out, 0, sizeof *out);
    out->timeout_ms = out->snapshot_expiration_ms = -1;
    out->persistent = -1;
    out->region = -1;
}

/* What create and patch have in common. */
static int common(const json_t *body, bool keep_null, bool network_null, struct sandbox_request *out,
                  struct api_error *e)
{
    const json_t *v;
    bool persistent = true;
    if (validate_region(body, &out->region, e) || want_failover(body, out, e) ||
        want_network(body, network_null, &out->network_id, e) || want_mounts(body, out, e) ||
        want_ports(body, out, e) || want_resources(body, out, e) || want_keep(body, keep_null, out, e) ||
        want_env(body, &out->env, e) || want_strings(body, "tags", 5, 256, &out->tags, e) ||
        want_bool(body, "persistent", &persistent, e))
        return -1;
    if (json_object_get(body, "persistent"))
        out->persistent = persistent;
    if ((v = json_object_get(body, "timeout")) &&
        validate_int("timeout", v, 1000, timeout_max_ms, &out->timeout_ms, e))
        return -1;
    if ((v = json_object_get(body, "snapshotExpiration")) &&
        validate_expiration("snapshotExpiration", v, &out->snapshot_expiration_ms, e))
        return -1;
    out->policy = json_object_get(body, "networkPolicy");
    return 0;
}

static int want_runtime(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    static const char *const known[] = {"node22", "node24", "node26", "python3.13", NULL};
    if (want_string(body, "runtime", 20, &out->runtime, e))
        return -1;
    if (!out->runtime)
        return 0;
    for (size_t i = 0; known[i]; i++)
        if (!strcmp(known[i], out->runtime))
            return 0;
    return api_invalid(e, "`runtime` should be equal to one of the allowed values \"node22, node24, node26, "
                          "python3.13\".");
}

int validate_create(const json_t *body, int version, struct sandbox_request *out, struct api_error *e)
{
    static const char *const v2[] = {"projectId",
                                     "ports",
                                     "source",
                                     "timeout",
                                     "resources",
                                     "name",
                                     "persistent",
                                     "networkPolicy",
                                     "networkId",
                                     "env",
                                     "tags",
                                     "snapshotExpiration",
                                     "keepLastSnapshots",
                                     "mounts",
                                     "region",
                                     "failoverRegions",
                                     "image",
                                     "architecture",
                                     "runtime",
                                     NULL};
    static const char *const v3[] = {"projectId",
                                     "ports",
                                     "source",
                                     "timeout",
                                     "resources",
                                     "name",
                                     "persistent",
                                     "networkPolicy",
                                     "networkId",
                                     "env",
                                     "tags",
                                     "snapshotExpiration",
                                     "keepLastSnapshots",
                                     "mounts",
                                     "region",
                                     "failoverRegions",
                                     "image",
                                     "architecture",
                                     NULL};
    request_init(out);
    if (validate_only(body, version == 2 ? v2 : v3, e) || common(body, version >= 4, false, out, e) ||
        want_string(body, "projectId", PROJECT_TEXT - 1, &out->project, e) ||
        want_string(body, "name", NAME_TEXT - 1, &out->name, e) ||
        want_string(body, "image", 255, &out->image, e) || want_runtime(body, out, e) ||
        want_source(body, out, e) || want_architecture(body, version, e))
        return -1;
    if (out->name && !valid_name(out->name))
        return api_invalid(e, "`name` should match pattern \"^[a-zA-Z0-9_-]+$\".");
    if (out->image && out->runtime)
        return api_invalid(e, "`image` and `runtime` should NOT be given together.");
    if (out->image && out->source_snapshot)
        return api_invalid(e, "`image` should NOT be given with a snapshot source.");
    return 0;
}

int validate_patch(const json_t *body, struct sandbox_request *out, struct api_error *e)
{
    static const char *const members[] = {"persistent",
                                          "resources",
                                          "timeout",
                                          "networkPolicy",
                                          "networkId",
                                          "tags",
                                          "ports",
                                          "snapshotExpiration",
                                          "keepLastSnapshots",
                                          "currentSnapshotId",
                                          "region",
                                          "failoverRegions",
                                          "mounts",
                                          "env",
                                          "runtime",
                                          NULL};
    request_init(out);
    if (validate_only(body, members, e) || common(body, true, true, out, e) || want_runtime(body, out, e) ||
        want_string(body, "currentSnapshotId", 128, &out->current_snapshot, e))
        return -1;
    return 0;
}

int validate_fork(const json_t *body, int version, struct sandbox_request *out, struct api_error *e)
{
    static const char *const members[] = {"name",
                                          "ports",
                                          "timeout",
                                          "resources",
                                          "image",
                                          "persistent",
                                          "networkPolicy",
                                          "networkId",
                                          "env",
                                          "tags",
                                          "mounts",
                                          "snapshotExpiration",
                                          "region",
                                          "projectId",
                                          "keepLastSnapshots",
                                          "failoverRegions",
                                          NULL};
    request_init(out);
    if (validate_only(body, members, e) || common(body, version >= 3, false, out, e) ||
        want_string(body, "projectId", PROJECT_TEXT - 1, &out->project, e) ||
        want_string(body, "name", NAME_TEXT - 1, &out->name, e) ||
        want_string(body, "image", 255, &out->image, e))
        return -1;
    if (out->name && !valid_name(out->name))
        return api_invalid(e, "`name` should match pattern \"^[a-zA-Z0-9_-]+$\".");
    return 0;
}

/* ---- commands and files ---- */

static int want_args(const json_t *body, const json_t **out, struct api_error *e)
{
    const json_t *args = json_object_get(body, "args");
    size_t i;
    json_t *a;
    if (!args)
        return 0;
    if (!json_is_array(args))
        return api_invalid(e, "`args` should be array.");
    json_array_foreach((json_t *)(uintptr_t)args, i, a)
    {
        if (!json_is_string(a))
            return api_invalid(e, "`args[%zu]` should be string.", i);
    }
    *out = args;
    return 0;
}

int validate_command(const json_t *body, struct command_body *out, struct api_error *e)
{
    static const char *const members[] = {"command", "args", "cwd",     "env",         "sudo",
                                          "wait",    "logs", "timeout", "attachStdin", NULL};
    memset(out, 0, sizeof *out);
    struct command_request *rq = &out->request;
    const json_t *v = json_object_get(body, "timeout");
    if (validate_only(body, members, e) || want_string(body, "command", PATH_MAX_LEN, &rq->program, e) ||
        want_args(body, &rq->args, e) || want_string(body, "cwd", PATH_MAX_LEN, &rq->cwd, e) ||
        want_env(body, &rq->env, e) || want_bool(body, "sudo", &rq->sudo, e) ||
        want_bool(body, "wait", &out->wait, e) || want_bool(body, "logs", &out->logs, e) ||
        want_bool(body, "attachStdin", &rq->attach_stdin, e))
        return -1;
    if (v && validate_int("timeout", v, 100, command_timeout_max_ms, &rq->timeout_ms, e))
        return -1;
    if (!rq->program || !*rq->program)
        return api_invalid(e, "should have required property `command`.");
    return 0;
}

int validate_stdin(const json_t *body, struct stdin_body *out, struct api_error *e)
{
    static const char *const members[] = {"data", "offset", "close", NULL};
    memset(out, 0, sizeof *out);
    out->offset = -1;
    const json_t *offset = json_object_get(body, "offset");
    if (validate_only(body, members, e) || want_string(body, "data", STDIN_CHARS_MAX, &out->data, e) ||
        want_bool(body, "close", &out->close, e))
        return -1;
    if (offset && validate_int("offset", offset, 0, 1ll << 53, &out->offset, e))
        return -1;
    out->data_len = out->data ? strlen(out->data) : 0;
    if (out->data_len % 4)
        return api_invalid(e, "`data` should be base64.");
    return 0;
}

int validate_path(const json_t *body, bool mkdir, struct path_body *out, struct api_error *e)
{
    static const char *const read_members[] = {"path", "cwd", NULL};
    static const char *const mkdir_members[] = {"path", "cwd", "recursive", NULL};
    memset(out, 0, sizeof *out);
    if (validate_only(body, mkdir ? mkdir_members : read_members, e) ||
        want_string(body, "path", PATH_MAX_LEN, &out->path, e) ||
        want_string(body, "cwd", PATH_MAX_LEN, &out->cwd, e) ||
        want_bool(body, "recursive", &out->recursive, e))
        return -1;
    if (!out->path || !*out->path)
        return api_invalid(e, "should have required property `path`.");
    return 0;
}
