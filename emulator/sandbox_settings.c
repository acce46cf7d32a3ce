#include "emulator/sandbox_settings.h"
#include "base/crypto.h"
#include "emulator/drives.h"
#include "emulator/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t day_ms = 86400000;

/* ---- images ---- */

/* "repo:tag@digest" without what says nothing; false when it is no image name. */
static bool split_image(const char *image, char repo[256], const char **digest)
{
    if (!strncmp(image, "vcr.vercel.com/", 15))
        image += 15;
    *digest = strchr(image, '@');
    size_t n = *digest ? (size_t)(*digest - image) : strlen(image);
    if (!n || n >= 256)
        return false;
    memcpy(repo, image, n);
    repo[n] = '\0';
    char *tag = strrchr(repo, ':');
    if (tag && !strcmp(tag, ":latest"))
        *tag = '\0';
    return *repo != '\0';
}

static bool base_of(const struct emulator *emu, const char *repo, char base[64])
{
    if (!strcmp(repo, "vercel/sandbox/universal")) {
        snprintf(base, 64, "%s", emu->base);
        return true;
    }
    size_t n = strlen(repo);
    if (n >= 64)
        return false;
    for (size_t i = 0; i <= n; i++)
        base[i] = repo[i] == '/' || repo[i] == ':' || repo[i] == '.' ? '-' : repo[i];
    return valid_name(base) && layers_has_base(emu->layers, base);
}

int settings_image(struct emulator *emu, struct settings *set, const char *image, struct api_error *e)
{
    char repo[256], base[64], hex[65], pinned[80];
    const char *digest;
    if (!split_image(image, repo, &digest) || !base_of(emu, repo, base))
        return api_fail(e, 404, "not_found", "Image '%.200s' not found.", image);
    unsigned char hash[32];
    sg_sha256(base, strlen(base), hash);
    sg_hex(hex, hash, sizeof hash);
    snprintf(pinned, sizeof pinned, "@sha256:%s", hex);
    if (digest && strcmp(digest, pinned) != 0)
        return api_fail(e, 404, "not_found", "Image '%.200s' not found.", image);
    char *tag = strrchr(repo, ':');
    if (tag)
        *tag = '\0';
    snprintf(set->image, sizeof set->image, "%s%s", repo, pinned);
    memcpy(set->base, base, sizeof base);
    set->runtime[0] = '\0';
    return 0;
}

/* ---- applying ---- */

static int set_routes(struct settings *set, const struct sandbox_request *in, struct api_error *e)
{
    struct route fresh[PORTS_MAX];
    for (unsigned i = 0; i < in->nports; i++) {
        fresh[i].port = in->ports[i];
        if (!sg_random_id(fresh[i].subdomain, "sb-", 12))
            return api_fail(e, 500, "internal_server_error", "no random numbers");
        for (unsigned j = 0; j < set->nroutes; j++)
            if (set->routes[j].port == in->ports[i]) /* a port that stays keeps its address */
                fresh[i] = set->routes[j];
    }
    memcpy(set->routes, fresh, in->nports * sizeof *fresh);
    set->nroutes = in->nports;
    return 0;
}

static void apply_place(struct settings *set, const struct sandbox_request *in)
{
    if (in->region >= 0)
        set->region = in->region;
    if (in->has_failover) {
        memcpy(set->failover, in->failover, sizeof set->failover);
        set->nfailover = in->nfailover;
    }
    if (in->network_id)
        snprintf(set->network_id, sizeof set->network_id, "%s", in->network_id);
    if (in->has_mounts) {
        memcpy(set->mounts, in->mounts, sizeof set->mounts);
        set->nmounts = in->nmounts;
    }
}

int settings_apply(struct settings *set, const struct sandbox_request *in, struct api_error *e)
{
    if (in->has_ports && set_routes(set, in, e))
        return -1;
    if (in->timeout_ms >= 0)
        set->timeout_ms = in->timeout_ms;
    if (in->vcpus)
        set->vcpus = in->vcpus;
    if (in->persistent >= 0)
        set->persistent = in->persistent;
    if (in->snapshot_expiration_ms >= 0) {
        set->snapshot_expiration_ms = in->snapshot_expiration_ms;
        set->expiration_said = true;
    }
    if (in->has_keep) {
        set->keep = in->keep;
        set->keep_said = true;
    }
    if (in->runtime)
        snprintf(set->runtime, sizeof set->runtime, "%s", in->runtime);
    apply_place(set, in);
    return 0;
}

static int replace(json_t **to, const json_t *from, struct api_error *e)
{
    json_t *copy = json_deep_copy(from);
    if (!copy)
        return api_fail(e, 500, "internal_server_error", "no memory");
    json_decref(*to);
    *to = copy;
    return 0;
}

int settings_apply_maps(struct settings *set, const struct sandbox_request *in, struct api_error *e)
{
    if (in->env && replace(&set->env, in->env, e))
        return -1;
    return in->tags && replace(&set->tags, in->tags, e) ? -1 : 0;
}

/* ---- checking ---- */

static int check_failover(const struct plan *plan, const struct settings *set, struct api_error *e)
{
    if (!set->nfailover)
        return 0;
    if (!plan->failover)
        return api_fail(e, 402, "payment_required", "Failover regions are not available on the %s plan.",
                        plan->name);
    if (memchr(set->failover, set->region, set->nfailover))
        return api_fail(e, 400, "bad_request", "failoverRegions must not include the sandbox region: %s",
                        region_name(set->region));
    if (set->nmounts)
        return api_fail(e, 400, "bad_request", "Drives cannot be combined with failoverRegions.");
    return 0;
}

int settings_check(struct emulator *emu, const char *project, const struct settings *set, bool now,
                   struct api_error *e)
{
    const struct plan *plan = emu->plan;
    if (set->timeout_ms > plan->session_max_ms)
        return api_invalid(e, "`timeout` should be <= %lld.", (long long)plan->session_max_ms);
    if (set->vcpus > plan->vcpus_max)
        return api_invalid(e, "`resources.vcpus` should be <= %d.", plan->vcpus_max);
    if (check_failover(plan, set, e))
        return -1;
    return drives_check(emu, project, set, now, e);
}

void settings_short_lived(struct settings *set)
{
    if (!set->expiration_said)
        set->snapshot_expiration_ms = 7 * day_ms;
    if (!set->keep_said && set->persistent)
        set->keep = (struct keep_last){.set = true, .count = 1, .expiration_ms = -1, .delete_evicted = true};
}

bool settings_copy(struct settings *to, const struct settings *from)
{
    *to = *from;
    to->policy_text = strdup(from->policy_text);
    to->env = json_deep_copy(from->env);
    to->tags = json_deep_copy(from->tags);
    bool ok = to->policy_text && to->env && to->tags;
    for (unsigned i = 0; ok && i < to->nroutes; i++)
        ok = sg_random_id(to->routes[i].subdomain, "sb-", 12);
    return ok; /* what is there is freed with the settings */
}
