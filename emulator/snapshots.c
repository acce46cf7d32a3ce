#include "emulator/snapshots.h"
#include "base/clock.h"
#include "base/log.h"
#include "emulator/layers.h"
#include "emulator/persist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int snapshots_chain(struct state *st, const char *id, const char *ids[CHAIN_MAX], const char **base)
{
    int n = 0;
    while (*id) {
        struct snapshot *sn = strmap_get(&st->snapshots, id);
        if (!sn || !sn->has_layer)
            return CHAIN_GONE;
        if (n == CHAIN_MAX)
            return CHAIN_TOO_LONG;
        ids[n++] = sn->id;
        *base = sn->base;
        id = sn->parent;
    }
    return n;
}

static void mark_chain(struct state *st, const char *id)
{
    while (*id) {
        struct snapshot *sn = strmap_get(&st->snapshots, id);
        if (!sn || sn->needed)
            return;
        sn->needed = true;
        id = sn->parent;
    }
}

struct sweep {
    struct state *st;
    struct snapshot **gone;
    size_t n;
};

static bool clear_mark(void *arg, void *value)
{
    (void)arg;
    ((struct snapshot *)value)->needed = false;
    return true;
}

static bool mark_usable(void *arg, void *value)
{
    struct snapshot *sn = value;
    if (snapshot_usable(sn))
        mark_chain(arg, sn->id);
    return true;
}

static bool take_unneeded(void *arg, void *value)
{
    struct sweep *w = arg;
    struct snapshot *sn = value;
    if (sn->needed || !sn->has_layer)
        return true;
    sn->has_layer = false; /* from here on nobody can boot from it */
    sn->deleted = true;
    w->gone[w->n++] = snapshot_ref(sn);
    return true;
}

static void forget(struct state *st, struct snapshot *sn)
{
    pthread_mutex_lock(&st->lock);
    bool mine = strmap_remove(&st->snapshots, sn->id) != NULL;
    pthread_mutex_unlock(&st->lock);
    persist_forget_snapshot(st, sn);
    if (mine)
        snapshot_unref(sn);
}

void snapshots_sweep(struct emulator *emu)
{
    struct state *st = emu->state;
    struct sweep w = {.st = st};
    pthread_mutex_lock(&st->lock);
    w.gone = calloc(st->snapshots.count + 1, sizeof(struct snapshot *));
    if (w.gone) {
        strmap_each(&st->snapshots, clear_mark, NULL);
        strmap_each(&st->snapshots, mark_usable, st);
        for (struct session *s = st->live; s; s = s->live_next)
            mark_chain(st, s->source_snapshot);
        strmap_each(&st->snapshots, take_unneeded, &w);
    }
    pthread_mutex_unlock(&st->lock);
    for (size_t i = 0; i < w.n; i++) {
        if (layers_remove(emu->layers, w.gone[i]->id))
            sg_log(SG_LOG_WARN, "layer_not_removed", "snapshot", "s", w.gone[i]->id, NULL);
        if (w.gone[i]->evicted)
            forget(st, w.gone[i]);
        else
            persist_snapshot(st, w.gone[i]);
        snapshot_unref(w.gone[i]);
    }
    free(w.gone);
}

static void mark_deleted(struct state *st, struct snapshot *sn, bool evicted)
{
    pthread_mutex_lock(&st->lock);
    bool changed = !sn->deleted;
    sn->deleted = true;
    sn->evicted = sn->evicted || evicted;
    if (changed)
        sn->updated_ms = sg_wall_ms();
    pthread_mutex_unlock(&st->lock);
    if (changed)
        persist_snapshot(st, sn);
}

void snapshots_delete(struct emulator *emu, struct snapshot *sn)
{
    mark_deleted(emu->state, sn, false);
    snapshots_sweep(emu);
}

void snapshots_evict(struct emulator *emu, struct snapshot *sn)
{
    mark_deleted(emu->state, sn, true);
    snapshots_sweep(emu);
}

static int newest_first(const void *a, const void *b)
{
    const struct snapshot *x = *(struct snapshot *const *)a, *y = *(struct snapshot *const *)b;
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? 1 : -1;
    return strcmp(y->id, x->id);
}

/* Usable snapshots of one sandbox, newest first, counted. */
static struct snapshot **of_sandbox(struct state *st, const char *uid, size_t *n)
{
    size_t all_n, k = 0;
    struct snapshot **all = state_all_snapshots(st, "", "", &all_n);
    if (!all) {
        *n = 0;
        return NULL;
    }
    for (size_t i = 0; i < all_n; i++) {
        pthread_mutex_lock(&st->lock);
        bool keep = !strcmp(all[i]->sandbox_uid, uid) && snapshot_usable(all[i]);
        pthread_mutex_unlock(&st->lock);
        if (keep)
            all[k++] = all[i];
        else
            snapshot_unref(all[i]);
    }
    qsort(all, k, sizeof(struct snapshot *), newest_first);
    *n = k;
    return all;
}

static void set_expiration(struct emulator *emu, struct snapshot *sn, int64_t ms)
{
    pthread_mutex_lock(&emu->state->lock);
    bool changed = !sn->own_expiration && sn->expiration_ms != ms;
    if (changed)
        sn->expiration_ms = ms;
    pthread_mutex_unlock(&emu->state->lock);
    if (changed)
        persist_snapshot(emu->state, sn);
}

/* normal_ms: the expiry of what retention does not keep, and does not delete either. */
static void retain(struct emulator *emu, struct sandbox *sb, const struct keep_last *keep, int64_t normal_ms)
{
    size_t n;
    struct snapshot **list = of_sandbox(emu->state, sb->uid, &n);
    for (size_t i = 0; i < n; i++) {
        if (i < (size_t)keep->count)
            set_expiration(emu, list[i], keep->expiration_ms >= 0 ? keep->expiration_ms : normal_ms);
        else if (keep->delete_evicted)
            mark_deleted(emu->state, list[i], true);
        else
            set_expiration(emu, list[i], normal_ms);
        snapshot_unref(list[i]);
    }
    free(list);
    snapshots_sweep(emu);
}

struct snapshot *snapshots_record(struct emulator *emu, struct session *s, const char *id, uint64_t size,
                                  bool manual, int64_t expiration_ms)
{
    struct sandbox *sb = s->sandbox;
    struct snapshot *sn = snapshot_new();
    if (!sn)
        return NULL;
    snprintf(sn->id, sizeof sn->id, "%s", id);
    snprintf(sn->session_id, sizeof sn->session_id, "%s", s->id);
    snprintf(sn->sandbox_uid, sizeof sn->sandbox_uid, "%s", sb->uid);
    snprintf(sn->project, sizeof sn->project, "%s", sb->project);
    snprintf(sn->parent, sizeof sn->parent, "%s", s->source_snapshot);
    sn->manual = manual;
    sn->has_layer = true;
    sn->size_bytes = size;
    sn->created_ms = sn->updated_ms = sn->last_used_ms = sg_wall_ms();
    pthread_mutex_lock(&sb->lock);
    snprintf(sn->base, sizeof sn->base, "%s", sb->set.base);
    sn->expiration_ms = expiration_ms >= 0 ? expiration_ms : sb->set.snapshot_expiration_ms;
    sn->own_expiration = expiration_ms >= 0;
    sn->region = s->region;
    sn->regions = UINT32_C(1) << s->region;
    for (unsigned i = 0; i < sb->set.nfailover; i++)
        sn->regions |= UINT32_C(1) << sb->set.failover[i];
    struct keep_last keep = sb->set.keep;
    int64_t normal_ms = sb->set.snapshot_expiration_ms;
    pthread_mutex_unlock(&sb->lock);
    if (state_add_snapshot(emu->state, sn)) {
        snapshot_unref(sn);
        return NULL;
    }
    persist_snapshot(emu->state, sn);
    pthread_mutex_lock(&sb->lock);
    snprintf(sb->snapshot_id, sizeof sb->snapshot_id, "%s", id);
    pthread_mutex_unlock(&sb->lock);
    if (keep.set)
        retain(emu, sb, &keep, normal_ms);
    return sn;
}

/* Whether a sandbox that still exists would boot from it, or has it in a running session. */
static bool in_use(struct state *st, const char *id)
{
    size_t n;
    bool used = false;
    struct sandbox **all = state_all_sandboxes(st, "", &n);
    for (size_t i = 0; all && i < n; i++) {
        pthread_mutex_lock(&all[i]->lock);
        used = used || !strcmp(all[i]->snapshot_id, id) ||
               (all[i]->current && !strcmp(all[i]->current->source_snapshot, id));
        pthread_mutex_unlock(&all[i]->lock);
        sandbox_unref(all[i]);
    }
    free(all);
    return used;
}

void snapshots_delete_orphans(struct emulator *emu, const char *sandbox_uid)
{
    size_t n;
    struct snapshot **list = of_sandbox(emu->state, sandbox_uid, &n);
    for (size_t i = 0; i < n; i++) {
        if (!in_use(emu->state, list[i]->id))
            mark_deleted(emu->state, list[i], false);
        snapshot_unref(list[i]);
    }
    free(list);
    snapshots_sweep(emu);
}
