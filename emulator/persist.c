#include "emulator/persist.h"
#include "base/json.h"
#include "base/log.h"
#include "emulator/drives.h"
#include "emulator/jsonfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 20 };

static void path_of(const struct state *st, char *out, size_t cap, const char *kind, const char *id)
{
    snprintf(out, cap, "%s/%s-%s.json", st->dir, kind, id);
}

/* Takes obj. */
static bool store(struct state *st, const char *kind, const char *id, json_t *obj)
{
    char path[640];
    path_of(st, path, sizeof path, kind, id);
    return jsonfile_store(path, obj);
}

static void forget(struct state *st, const char *kind, const char *id)
{
    char path[640];
    path_of(st, path, sizeof path, kind, id);
    if (unlink(path) && errno != ENOENT)
        sg_log(SG_LOG_WARN, "state_remove_failed", "path", "s", path, "error", "s", strerror(errno), NULL);
}

static json_t *routes_json(const struct settings *s)
{
    json_t *a = json_array();
    for (unsigned i = 0; i < s->nroutes; i++)
        json_array_append_new(
            a, json_pack("{s:i,s:s}", "port", s->routes[i].port, "subdomain", s->routes[i].subdomain));
    return a;
}

/* Where its sessions run and what they mount. */
static int add_place(json_t *set, const struct settings *s)
{
    json_t *failover = json_array(), *mounts = json_array();
    for (unsigned i = 0; i < s->nfailover; i++)
        json_array_append_new(failover, json_string(region_name(s->failover[i])));
    for (unsigned i = 0; i < s->nmounts; i++)
        json_array_append_new(mounts, json_pack("{s:s,s:s,s:b}", "path", s->mounts[i].path, "drive",
                                                s->mounts[i].drive, "snapshot", s->mounts[i].snapshot));
    bool whole = failover && mounts && json_array_size(failover) == s->nfailover &&
                 json_array_size(mounts) == s->nmounts;
    json_t *more = json_pack("{s:s,s:s,s:b,s:b,s:o,s:o}", "region", region_name(s->region), "network",
                             s->network_id, "expiration_said", s->expiration_said, "keep_said", s->keep_said,
                             "failover", failover, "mounts", mounts);
    int rc = whole && more ? json_object_update(set, more) : -1;
    json_decref(more);
    return rc;
}

bool persist_sandbox(struct state *st, struct sandbox *sb)
{
    pthread_mutex_lock(&sb->lock);
    const struct settings *s = &sb->set;
    json_t *o = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:s}", "uid", sb->uid, "name",
                          sb->name, "project", sb->project, "created", (json_int_t)sb->created_ms, "updated",
                          (json_int_t)sb->updated_ms, "status", (json_int_t)sb->status_ms, "cpu",
                          (json_int_t)sb->total_cpu_ms, "duration", (json_int_t)sb->total_duration_ms,
                          "ingress", (json_int_t)sb->total_ingress, "egress", (json_int_t)sb->total_egress,
                          "snapshot", sb->snapshot_id, "session", sb->current ? sb->current->id : "");
    json_t *set =
        json_pack("{s:i,s:I,s:I,s:b,s:s,s:s,s:s,s:s,s:o,s:O,s:O}", "vcpus", s->vcpus, "timeout",
                  (json_int_t)s->timeout_ms, "snapshot_expiration", (json_int_t)s->snapshot_expiration_ms,
                  "persistent", s->persistent, "runtime", s->runtime, "image", s->image, "base", s->base,
                  "policy", s->policy_text, "routes", routes_json(s), "env", s->env, "tags", s->tags);
    if (s->keep.set)
        json_object_set_new(set, "keep",
                            json_pack("{s:i,s:I,s:b}", "count", s->keep.count, "expiration",
                                      (json_int_t)s->keep.expiration_ms, "delete", s->keep.delete_evicted));
    bool placed = set && !add_place(set, s);
    pthread_mutex_unlock(&sb->lock);
    if (!o || !placed || json_object_set_new(o, "settings", set)) {
        json_decref(o);
        o = NULL;
    }
    return store(st, "sandbox", sb->uid, o);
}

bool persist_session(struct state *st, struct session *s)
{
    pthread_mutex_lock(&s->sandbox->lock);
    json_t *o = json_pack(
        "{s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "id", s->id,
        "sandbox", s->sandbox->uid, "status", status_name(s->status), "vcpus", s->vcpus, "runtime",
        s->runtime, "policy", s->policy_text, "source", s->source_snapshot, "timeout",
        (json_int_t)s->timeout_ms, "requested", (json_int_t)s->requested_ms, "created",
        (json_int_t)s->created_ms, "updated", (json_int_t)s->updated_ms, "started", (json_int_t)s->started_ms,
        "requested_stop", (json_int_t)s->requested_stop_ms, "stopped", (json_int_t)s->stopped_ms, "aborted",
        (json_int_t)s->aborted_ms, "snapshotted", (json_int_t)s->snapshotted_ms, "duration",
        (json_int_t)s->duration_ms, "cpu", (json_int_t)s->cpu_ms, "ingress",
        (json_int_t)atomic_load(&s->ingress), "egress", (json_int_t)atomic_load(&s->egress));
    pthread_mutex_unlock(&s->sandbox->lock);
    if (o && json_object_set_new(o, "region", json_string(region_name(s->region)))) {
        json_decref(o);
        o = NULL;
    }
    return store(st, "session", s->id, o);
}

bool persist_snapshot(struct state *st, struct snapshot *sn)
{
    pthread_mutex_lock(&st->lock);
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:b,s:b,s:b,s:b,s:I,s:I,s:I,s:I,s:I}", "id", sn->id, "session",
                  sn->session_id, "sandbox", sn->sandbox_uid, "project", sn->project, "parent", sn->parent,
                  "base", sn->base, "deleted", sn->deleted, "evicted", sn->evicted, "manual", sn->manual,
                  "layer", sn->has_layer, "expiration", (json_int_t)sn->expiration_ms, "created",
                  (json_int_t)sn->created_ms, "updated", (json_int_t)sn->updated_ms, "used",
                  (json_int_t)sn->last_used_ms, "size", (json_int_t)sn->size_bytes);
    json_t *more = json_pack("{s:s,s:I,s:b}", "region", region_name(sn->region), "regions",
                             (json_int_t)sn->regions, "own_expiration", sn->own_expiration);
    pthread_mutex_unlock(&st->lock);
    if (!o || !more || json_object_update(o, more)) {
        json_decref(o);
        o = NULL;
    }
    json_decref(more);
    return store(st, "snapshot", sn->id, o);
}

bool persist_drive(struct state *st, struct drive *d)
{
    pthread_mutex_lock(&st->lock);
    bool deleted = d->deleted;
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:b,s:b}", "id", d->id, "name", d->name, "project",
                  d->project, "parent", d->parent, "root", d->root, "region", region_name(d->region), "max",
                  (json_int_t)d->max_bytes, "created", (json_int_t)d->created_ms, "updated",
                  (json_int_t)d->updated_ms, "bound", d->bound, "used", d->used);
    pthread_mutex_unlock(&st->lock);
    if (deleted) { /* its file shall not come back */
        json_decref(o);
        return true;
    }
    return store(st, "drive", d->id, o);
}

void persist_forget_drive(struct state *st, const struct drive *d)
{
    forget(st, "drive", d->id);
}

void persist_forget_sandbox(struct state *st, const struct sandbox *sb)
{
    forget(st, "sandbox", sb->uid);
}

void persist_forget_session(struct state *st, const struct session *s)
{
    forget(st, "session", s->id);
}

void persist_forget_snapshot(struct state *st, const struct snapshot *sn)
{
    forget(st, "snapshot", sn->id);
}

/* ---- loading ---- */

static void text_into(char *out, size_t cap, const json_t *o, const char *key)
{
    snprintf(out, cap, "%s", sg_jget_str(o, key, ""));
}

static json_t *object_or_empty(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_object(v) ? json_incref(v) : json_object();
}

static int load_region(const json_t *o, const char *key)
{
    int region = region_find(sg_jget_str(o, key, ""));
    return region >= 0 ? region : REGION_DEFAULT;
}

static void load_place(struct settings *s, const json_t *o)
{
    size_t i;
    json_t *v;
    s->region = load_region(o, "region");
    s->expiration_said = sg_jget_bool(o, "expiration_said", false);
    s->keep_said = sg_jget_bool(o, "keep_said", false);
    text_into(s->network_id, sizeof s->network_id, o, "network");
    json_array_foreach(json_object_get(o, "failover"), i, v)
    {
        int region = region_find(json_is_string(v) ? json_string_value(v) : "");
        if (region >= 0 && s->nfailover < REGIONS)
            s->failover[s->nfailover++] = (uint8_t)region;
    }
    json_array_foreach(json_object_get(o, "mounts"), i, v)
    {
        if (s->nmounts == MOUNTS_MAX)
            break;
        struct mount_setting *m = &s->mounts[s->nmounts++];
        text_into(m->path, sizeof m->path, v, "path");
        text_into(m->drive, sizeof m->drive, v, "drive");
        m->snapshot = sg_jget_bool(v, "snapshot", true);
    }
}

static bool load_settings(struct settings *s, const json_t *o)
{
    s->vcpus = (int)sg_jget_int(o, "vcpus", 2);
    s->timeout_ms = sg_jget_int(o, "timeout", 300000);
    s->snapshot_expiration_ms = sg_jget_int(o, "snapshot_expiration", 0);
    s->persistent = sg_jget_bool(o, "persistent", true);
    text_into(s->runtime, sizeof s->runtime, o, "runtime");
    text_into(s->image, sizeof s->image, o, "image");
    text_into(s->base, sizeof s->base, o, "base");
    s->policy_text = strdup(sg_jget_str(o, "policy", "{\"mode\":\"allow-all\"}"));
    s->env = object_or_empty(o, "env");
    s->tags = object_or_empty(o, "tags");
    const json_t *keep = json_object_get(o, "keep");
    if (keep) {
        s->keep.set = true;
        s->keep.count = (int)sg_jget_int(keep, "count", 1);
        s->keep.expiration_ms = sg_jget_int(keep, "expiration", -1);
        s->keep.delete_evicted = sg_jget_bool(keep, "delete", true);
    }
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(o, "routes"), i, r)
    {
        if (s->nroutes == PORTS_MAX)
            break;
        s->routes[s->nroutes].port = (int)sg_jget_int(r, "port", 0);
        text_into(s->routes[s->nroutes++].subdomain, SUBDOMAIN_TEXT, r, "subdomain");
    }
    load_place(s, o);
    return s->policy_text && s->env && s->tags;
}

static bool load_sandbox(struct state *st, const json_t *o, struct strmap *by_uid)
{
    struct sandbox *sb = sandbox_new();
    if (!sb)
        return false;
    text_into(sb->uid, sizeof sb->uid, o, "uid");
    text_into(sb->name, sizeof sb->name, o, "name");
    text_into(sb->project, sizeof sb->project, o, "project");
    text_into(sb->snapshot_id, sizeof sb->snapshot_id, o, "snapshot");
    sb->created_ms = sg_jget_int(o, "created", 0);
    sb->updated_ms = sg_jget_int(o, "updated", 0);
    sb->status_ms = sg_jget_int(o, "status", 0);
    sb->total_cpu_ms = sg_jget_int(o, "cpu", 0);
    sb->total_duration_ms = sg_jget_int(o, "duration", 0);
    sb->total_ingress = sg_jget_int(o, "ingress", 0);
    sb->total_egress = sg_jget_int(o, "egress", 0);
    bool no_memory;
    bool ok = *sb->uid && *sb->name && load_settings(&sb->set, json_object_get(o, "settings")) &&
              !state_add_sandbox(st, sb);
    if (ok)
        ok = strmap_add(by_uid, sb->uid, sb, &no_memory);
    sandbox_unref(sb);
    return ok;
}

static bool load_session(struct state *st, const json_t *o, const struct strmap *by_uid)
{
    struct sandbox *sb = strmap_get(by_uid, sg_jget_str(o, "sandbox", ""));
    struct session *s = sb ? session_new(sb) : NULL;
    if (!s)
        return false;
    text_into(s->id, sizeof s->id, o, "id");
    text_into(s->runtime, sizeof s->runtime, o, "runtime");
    text_into(s->source_snapshot, sizeof s->source_snapshot, o, "source");
    s->policy_text = strdup(sg_jget_str(o, "policy", "{\"mode\":\"allow-all\"}"));
    s->vcpus = (int)sg_jget_int(o, "vcpus", 2);
    s->region = load_region(o, "region");
    s->timeout_ms = sg_jget_int(o, "timeout", 300000);
    s->requested_ms = sg_jget_int(o, "requested", 0);
    s->created_ms = sg_jget_int(o, "created", 0);
    s->updated_ms = sg_jget_int(o, "updated", 0);
    s->started_ms = sg_jget_int(o, "started", 0);
    s->requested_stop_ms = sg_jget_int(o, "requested_stop", 0);
    s->stopped_ms = sg_jget_int(o, "stopped", 0);
    s->aborted_ms = sg_jget_int(o, "aborted", 0);
    s->snapshotted_ms = sg_jget_int(o, "snapshotted", 0);
    s->duration_ms = sg_jget_int(o, "duration", 0);
    s->cpu_ms = sg_jget_int(o, "cpu", 0);
    atomic_store(&s->ingress, sg_jget_int(o, "ingress", 0));
    atomic_store(&s->egress, sg_jget_int(o, "egress", 0));
    bool ok = *s->id && s->policy_text && status_from_name(sg_jget_str(o, "status", ""), &s->status) &&
              !state_add_session(st, s);
    session_unref(s);
    return ok;
}

static bool load_snapshot(struct state *st, const json_t *o)
{
    struct snapshot *sn = snapshot_new();
    if (!sn)
        return false;
    text_into(sn->id, sizeof sn->id, o, "id");
    text_into(sn->session_id, sizeof sn->session_id, o, "session");
    text_into(sn->sandbox_uid, sizeof sn->sandbox_uid, o, "sandbox");
    text_into(sn->project, sizeof sn->project, o, "project");
    text_into(sn->parent, sizeof sn->parent, o, "parent");
    text_into(sn->base, sizeof sn->base, o, "base");
    sn->deleted = sg_jget_bool(o, "deleted", false);
    sn->evicted = sg_jget_bool(o, "evicted", false);
    sn->manual = sg_jget_bool(o, "manual", false);
    sn->has_layer = sg_jget_bool(o, "layer", true);
    sn->own_expiration = sg_jget_bool(o, "own_expiration", false);
    sn->region = load_region(o, "region");
    sn->regions = (uint32_t)sg_jget_int(o, "regions", 0) | UINT32_C(1) << sn->region;
    sn->expiration_ms = sg_jget_int(o, "expiration", 0);
    sn->created_ms = sg_jget_int(o, "created", 0);
    sn->updated_ms = sg_jget_int(o, "updated", 0);
    sn->last_used_ms = sg_jget_int(o, "used", 0);
    sn->size_bytes = (uint64_t)sg_jget_int(o, "size", 0);
    bool ok = *sn->id && !state_add_snapshot(st, sn);
    snapshot_unref(sn);
    return ok;
}

static bool load_drive(struct state *st, const json_t *o)
{
    struct drive *d = drive_new();
    if (!d)
        return false;
    text_into(d->id, sizeof d->id, o, "id");
    text_into(d->name, sizeof d->name, o, "name");
    text_into(d->project, sizeof d->project, o, "project");
    text_into(d->parent, sizeof d->parent, o, "parent");
    text_into(d->root, sizeof d->root, o, "root");
    d->region = load_region(o, "region");
    d->max_bytes = (uint64_t)sg_jget_int(o, "max", 0);
    d->created_ms = sg_jget_int(o, "created", 0);
    d->updated_ms = sg_jget_int(o, "updated", 0);
    d->bound = sg_jget_bool(o, "bound", true);
    d->used = sg_jget_bool(o, "used", false);
    bool ok = *d->id && *d->name && !drives_add(st, d);
    drive_unref(d);
    return ok;
}

static json_t *read_file(const struct state *st, const char *name)
{
    char path[800];
    snprintf(path, sizeof path, "%s/%s", st->dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat sb;
    json_t *o = NULL;
    if (!fstat(fd, &sb) && S_ISREG(sb.st_mode) && sb.st_size <= FILE_LIMIT)
        o = json_loadfd(fd, 0, NULL);
    close(fd);
    return o;
}

static bool starts_with(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* One pass over the directory for the files of one kind: sandboxes must be there before their sessions. */
static bool load_kind(struct state *st, const char *kind, struct strmap *by_uid, char err[256])
{
    DIR *d = opendir(st->dir);
    if (!d) {
        snprintf(err, 256, "cannot read %.180s: %s", st->dir, strerror(errno));
        return false;
    }
    struct dirent *e;
    while ((e = readdir(d))) {
        size_t n = strlen(e->d_name);
        if (!starts_with(e->d_name, kind) || e->d_name[strlen(kind)] != '-' || n < 5 ||
            strcmp(e->d_name + n - 5, ".json") != 0)
            continue;
        json_t *o = read_file(st, e->d_name);
        bool ok = json_is_object(o);
        if (ok && !strcmp(kind, "sandbox"))
            ok = load_sandbox(st, o, by_uid);
        else if (ok && !strcmp(kind, "session"))
            ok = load_session(st, o, by_uid);
        else if (ok && !strcmp(kind, "drive"))
            ok = load_drive(st, o);
        else if (ok)
            ok = load_snapshot(st, o);
        json_decref(o);
        if (!ok)
            sg_log(SG_LOG_WARN, "state_file_ignored", "file", "s", e->d_name, NULL);
    }
    closedir(d);
    return true;
}

/* Every sandbox points at its newest session again. */
static bool relink(void *arg, void *value)
{
    (void)arg;
    struct session *s = value;
    struct sandbox *sb = s->sandbox;
    if (!sb->current || sb->current->created_ms < s->created_ms) {
        if (sb->current)
            session_unref(sb->current);
        sb->current = session_ref(s);
    }
    return true;
}

bool persist_load(struct state *st, char err[256])
{
    struct strmap by_uid;
    strmap_init(&by_uid);
    bool ok = load_kind(st, "sandbox", &by_uid, err) && load_kind(st, "session", &by_uid, err) &&
              load_kind(st, "snapshot", &by_uid, err) && load_kind(st, "drive", &by_uid, err);
    strmap_each(&st->sessions, relink, NULL);
    strmap_free(&by_uid);
    return ok;
}
