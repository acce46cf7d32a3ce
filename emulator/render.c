#include "emulator/render.h"
#include "emulator/jsontext.h"

#include <inttypes.h>
#include <string.h>

static void add_int(struct sg_buf *out, const char *key, int64_t v)
{
    sg_buf_addf(out, ",\"%s\":%" PRId64, key, v);
}

/* Times that have not come are left out: an optional member is never null. */
static void add_time(struct sg_buf *out, const char *key, int64_t ms)
{
    if (ms)
        add_int(out, key, ms);
}

static void add_str(struct sg_buf *out, const char *key, const char *v)
{
    sg_buf_addf(out, ",\"%s\":", key);
    jsontext_adds(out, v);
}

static void add_tags(struct sg_buf *out, const json_t *tags)
{
    const char *k, *sep = "";
    json_t *v;
    sg_buf_adds(out, ",\"tags\":{");
    json_object_foreach((json_t *)(uintptr_t)tags, k, v)
    {
        sg_buf_adds(out, sep);
        jsontext_adds(out, k);
        sg_buf_adds(out, ":");
        jsontext_add(out, json_string_value(v), json_string_length(v));
        sep = ",";
    }
    sg_buf_adds(out, "}");
}

static void add_keep(struct sg_buf *out, const struct keep_last *k)
{
    sg_buf_addf(out, ",\"keepLastSnapshots\":{\"count\":%d", k->count);
    if (k->expiration_ms >= 0)
        add_int(out, "expiration", k->expiration_ms);
    sg_buf_addf(out, ",\"deleteEvicted\":%s}", k->delete_evicted ? "true" : "false");
}

static void add_regions(struct sg_buf *out, const char *key, const uint8_t *list, unsigned n)
{
    if (!n)
        return;
    sg_buf_addf(out, ",\"%s\":[", key);
    for (unsigned i = 0; i < n; i++)
        sg_buf_addf(out, "%s\"%s\"", i ? "," : "", region_name(list[i]));
    sg_buf_adds(out, "]");
}

/* Its own region first. */
static void add_places(struct sg_buf *out, const struct snapshot *sn)
{
    uint8_t list[REGIONS + 1] = {(uint8_t)sn->region};
    unsigned n = 1;
    for (int i = 0; i < REGIONS; i++)
        if (i != sn->region && sn->regions & UINT32_C(1) << i)
            list[n++] = (uint8_t)i;
    add_regions(out, "regions", list, n);
}

static void add_mounts(struct sg_buf *out, const struct settings *set)
{
    sg_buf_adds(out, ",\"mounts\":{");
    for (unsigned i = 0; i < set->nmounts; i++) {
        const struct mount_setting *m = &set->mounts[i];
        sg_buf_adds(out, i ? "," : "");
        jsontext_adds(out, m->path);
        sg_buf_adds(out, ":{\"drive\":");
        jsontext_adds(out, m->drive);
        sg_buf_addf(out, ",\"mode\":\"%s\"}", m->snapshot ? "snapshot" : "read-write");
    }
    sg_buf_adds(out, "}");
}

void render_sandbox(struct sg_buf *out, const struct sandbox *sb)
{
    const struct settings *set = &sb->set;
    const struct session *s = sb->current;
    sg_buf_adds(out, "{\"name\":");
    jsontext_adds(out, sb->name);
    sg_buf_addf(out, ",\"persistent\":%s", set->persistent ? "true" : "false");
    add_str(out, "region", region_name(set->region));
    add_regions(out, "failoverRegions", set->failover, set->nfailover);
    add_str(out, "architecture", EMULATOR_ARCHITECTURE);
    if (*set->network_id)
        add_str(out, "networkId", set->network_id);
    add_int(out, "vcpus", set->vcpus);
    add_int(out, "memory", (int64_t)set->vcpus * MEMORY_PER_VCPU);
    if (*set->runtime)
        add_str(out, "runtime", set->runtime);
    if (*set->image)
        add_str(out, "image", set->image);
    add_int(out, "timeout", set->timeout_ms);
    sg_buf_adds(out, ",\"networkPolicy\":");
    sg_buf_adds(out, set->policy_text);
    add_int(out, "totalEgressBytes", sb->total_egress);
    add_int(out, "totalIngressBytes", sb->total_ingress);
    add_int(out, "totalActiveCpuDurationMs", sb->total_cpu_ms);
    add_int(out, "totalDurationMs", sb->total_duration_ms);
    add_int(out, "createdAt", sb->created_ms);
    add_int(out, "updatedAt", sb->updated_ms);
    if (s && s->status == ST_RUNNING)
        add_int(out, "expiresAt", s->started_ms + s->timeout_ms);
    add_str(out, "currentSessionId", s ? s->id : "");
    if (*sb->snapshot_id)
        add_str(out, "currentSnapshotId", sb->snapshot_id);
    add_str(out, "status", status_name(s ? s->status : ST_STOPPED));
    add_int(out, "statusUpdatedAt", sb->status_ms);
    add_str(out, "cwd", EMULATOR_CWD);
    if (json_object_size(set->tags))
        add_tags(out, set->tags);
    if (set->nmounts)
        add_mounts(out, set);
    add_int(out, "snapshotExpiration", set->snapshot_expiration_ms);
    if (set->keep.set)
        add_keep(out, &set->keep);
    sg_buf_adds(out, "}");
}

void render_session(struct sg_buf *out, const struct session *s)
{
    sg_buf_adds(out, "{\"id\":");
    jsontext_adds(out, s->id);
    add_str(out, "sourceSandboxName", s->sandbox->name);
    add_str(out, "projectId", s->sandbox->project);
    add_int(out, "memory", (int64_t)s->vcpus * MEMORY_PER_VCPU);
    add_int(out, "vcpus", s->vcpus);
    add_str(out, "region", region_name(s->region));
    add_str(out, "architecture", EMULATOR_ARCHITECTURE);
    if (*s->runtime)
        add_str(out, "runtime", s->runtime);
    add_int(out, "timeout", s->timeout_ms);
    add_str(out, "status", status_name(s->status));
    add_int(out, "requestedAt", s->requested_ms);
    add_time(out, "startedAt", s->started_ms);
    add_time(out, "requestedStopAt", s->requested_stop_ms);
    add_time(out, "stoppedAt", s->stopped_ms);
    add_time(out, "abortedAt", s->aborted_ms);
    if (s->status == ST_STOPPED) {
        add_int(out, "duration", s->duration_ms);
        add_int(out, "activeCpuDurationMs", s->cpu_ms);
        sg_buf_addf(out, ",\"networkTransfer\":{\"ingress\":%lld,\"egress\":%lld}", atomic_load(&s->ingress),
                    atomic_load(&s->egress));
    }
    if (*s->source_snapshot)
        add_str(out, "sourceSnapshotId", s->source_snapshot);
    add_time(out, "snapshottedAt", s->snapshotted_ms);
    add_int(out, "createdAt", s->created_ms);
    add_int(out, "updatedAt", s->updated_ms);
    add_str(out, "cwd", EMULATOR_CWD);
    add_int(out, "interactivePort", INTERACTIVE_PORT);
    sg_buf_adds(out, ",\"networkPolicy\":");
    sg_buf_adds(out, s->policy_text);
    sg_buf_adds(out, "}");
}

static void add_route_url(struct sg_buf *out, const char *template, const char *subdomain)
{
    static const char place[] = "{subdomain}";
    const char *at;
    while ((at = strstr(template, place))) {
        sg_buf_add(out, template, (size_t)(at - template));
        sg_buf_adds(out, subdomain);
        template = at + sizeof place - 1;
    }
    sg_buf_adds(out, template);
}

void render_routes(struct sg_buf *out, const struct sandbox *sb, const char *url_template)
{
    sg_buf_adds(out, "[");
    for (unsigned i = 0; i < sb->set.nroutes; i++) {
        const struct route *r = &sb->set.routes[i];
        sg_buf_adds(out, i ? ",{\"url\":\"" : "{\"url\":\"");
        add_route_url(out, url_template, r->subdomain);
        sg_buf_addf(out, "\",\"subdomain\":\"%s\",\"port\":%d}", r->subdomain, r->port);
    }
    sg_buf_adds(out, "]");
}

void render_snapshot(struct sg_buf *out, const struct snapshot *sn)
{
    sg_buf_adds(out, "{\"id\":");
    jsontext_adds(out, sn->id);
    add_str(out, "sourceSessionId", sn->session_id);
    add_str(out, "region", region_name(sn->region));
    add_places(out, sn);
    add_str(out, "architecture", EMULATOR_ARCHITECTURE);
    add_str(out, "status", snapshot_usable(sn) ? "created" : "deleted");
    add_int(out, "sizeBytes", (int64_t)sn->size_bytes);
    if (sn->expiration_ms)
        add_int(out, "expiresAt", sn->last_used_ms + sn->expiration_ms);
    add_int(out, "createdAt", sn->created_ms);
    add_int(out, "updatedAt", sn->updated_ms);
    add_int(out, "lastUsedAt", sn->last_used_ms);
    add_str(out, "creationMethod", sn->manual ? "manual" : "automatic");
    if (*sn->parent)
        add_str(out, "parentId", sn->parent);
    sg_buf_adds(out, "}");
}

void render_pagination(struct sg_buf *out, size_t count, const char *next)
{
    sg_buf_addf(out, "\"pagination\":{\"count\":%zu,\"next\":", count);
    if (next)
        jsontext_adds(out, next);
    else
        sg_buf_adds(out, "null");
    sg_buf_adds(out, "}");
}
