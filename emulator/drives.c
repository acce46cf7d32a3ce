#include "emulator/drives.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "emulator/jsontext.h"
#include "emulator/persist.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_TEXT = PROJECT_TEXT + DRIVE_NAME_TEXT + 1 };

static void key_of(char out[KEY_TEXT], const char *project, const char *name)
{
    snprintf(out, KEY_TEXT, "%s/%s", project, name);
}

int drives_add(struct state *st, struct drive *d)
{
    char key[KEY_TEXT];
    bool no_memory;
    key_of(key, d->project, d->name);
    pthread_mutex_lock(&st->lock);
    bool ok = strmap_add(&st->drives, key, d, &no_memory);
    if (ok)
        drive_ref(d);
    pthread_mutex_unlock(&st->lock);
    return ok ? 0 : no_memory ? ENOMEM : EEXIST;
}

/* ---- finding ---- */

struct search {
    const char *project, *name;
    bool by_id;
    struct drive *found;
    struct drive **items;
    size_t n;
};

static bool look_at(void *arg, void *value)
{
    struct search *q = arg;
    struct drive *d = value;
    bool here = !*q->project || !strcmp(q->project, d->project);
    if (here && (!strcmp(d->name, q->name) || (q->by_id && !strcmp(d->id, q->name))))
        q->found = d;
    return !q->found;
}

struct drive *drives_find(struct state *st, const char *project, const char *name, bool by_id)
{
    char key[KEY_TEXT];
    struct search q = {.project = project, .name = name, .by_id = by_id};
    pthread_mutex_lock(&st->lock);
    if (*project && strlen(project) < PROJECT_TEXT && strlen(name) < DRIVE_NAME_TEXT) {
        key_of(key, project, name);
        q.found = strmap_get(&st->drives, key);
    }
    if (!q.found && (by_id || !*project))
        strmap_each(&st->drives, look_at, &q);
    if (q.found)
        drive_ref(q.found);
    pthread_mutex_unlock(&st->lock);
    return q.found;
}

static bool collect(void *arg, void *value)
{
    struct search *q = arg;
    struct drive *d = value;
    if (!*q->project || !strcmp(q->project, d->project))
        q->items[q->n++] = drive_ref(d);
    return true;
}

struct drive **drives_all(struct state *st, const char *project, size_t *n)
{
    struct search q = {.project = project};
    pthread_mutex_lock(&st->lock);
    q.items = calloc(st->drives.count + 1, sizeof(struct drive *));
    if (q.items)
        strmap_each(&st->drives, collect, &q);
    pthread_mutex_unlock(&st->lock);
    *n = q.items ? q.n : SIZE_MAX;
    return q.items;
}

/* ---- making and removing ---- */

static int no_memory(struct api_error *e)
{
    return api_fail(e, 500, "internal_server_error", "no memory");
}

static int exists(struct api_error *e, const char *name)
{
    return api_fail(e, 409, "conflict", "A drive with the name '%s' already exists for this project.", name);
}

static struct drive *fresh(const char *project, const char *name)
{
    struct drive *d = drive_new();
    if (!d)
        return NULL;
    snprintf(d->project, sizeof d->project, "%s", project);
    snprintf(d->name, sizeof d->name, "%s", name);
    d->created_ms = d->updated_ms = sg_wall_ms();
    if (!sg_random_id(d->id, "drive_", 24)) {
        drive_unref(d);
        return NULL;
    }
    return d;
}

/* Its files are there: enters it into the table and on disk, or removes them.  EEXIST: somebody was faster. */
static int publish(struct emulator *emu, struct drive *d)
{
    int err = drives_add(emu->state, d);
    if (err)
        layers_drive_remove(emu->layers, d->id);
    else
        persist_drive(emu->state, d);
    return err;
}

static int check_same(struct state *st, const struct drive *d, int region, uint64_t max_bytes,
                      struct api_error *e)
{
    int rc = 0;
    pthread_mutex_lock(&st->lock);
    if (region >= 0 && region != d->region)
        rc = api_fail(e, 409, "conflict", "The drive '%s' already exists in the region %s.", d->name,
                      region_name(d->region));
    else if (max_bytes && max_bytes != d->max_bytes)
        rc = api_fail(e, 409, "conflict", "The drive '%s' already exists with a maxSizeBytes of %" PRIu64 ".",
                      d->name, d->max_bytes);
    pthread_mutex_unlock(&st->lock);
    return rc;
}

struct drive *drives_get_or_create(struct emulator *emu, const char *project, const char *name, int region,
                                   uint64_t max_bytes, bool *created, struct api_error *e)
{
    *created = false;
    for (;;) {
        struct drive *d = drives_find(emu->state, project, name, false);
        if (d) {
            if (!check_same(emu->state, d, region, max_bytes, e))
                return d;
            drive_unref(d);
            return NULL;
        }
        d = fresh(project, name);
        if (!d) {
            no_memory(e);
            return NULL;
        }
        d->region = region >= 0 ? region : REGION_DEFAULT;
        d->max_bytes = max_bytes ? max_bytes : emu->plan->drive_default_bytes;
        int err = layers_drive_make(emu->layers, d->id);
        if (!err)
            err = publish(emu, d);
        if (!err) {
            *created = true;
            return d;
        }
        drive_unref(d);
        if (err == EEXIST)
            continue; /* two at once: the other one's is it */
        api_fail(e, 500, "internal_server_error", "cannot make the drive: %s", strerror(err));
        return NULL;
    }
}

struct drive *drives_fork(struct emulator *emu, struct drive *source, const char *name, struct api_error *e)
{
    struct drive *d = fresh(source->project, name);
    if (!d) {
        no_memory(e);
        return NULL;
    }
    struct drive *other = drives_find(emu->state, source->project, name, false);
    char text[BOX_TEXT] = "";
    int err = other ? EEXIST : 0;
    if (other)
        drive_unref(other);
    pthread_rwlock_rdlock(&source->content);
    pthread_mutex_lock(&emu->state->lock);
    bool deleted = source->deleted;
    d->region = source->region;
    d->max_bytes = source->max_bytes;
    d->bound = source->bound;
    d->used = source->used;
    memcpy(d->parent, source->id, sizeof d->parent);
    memcpy(d->root, *source->root ? source->root : source->id, sizeof d->root);
    pthread_mutex_unlock(&emu->state->lock);
    if (deleted)
        err = ENOENT;
    if (!err)
        err = layers_drive_fork(emu->layers, source->id, d->id, text);
    pthread_rwlock_unlock(&source->content);
    if (!err)
        err = publish(emu, d);
    if (!err)
        return d;
    drive_unref(d);
    if (deleted)
        api_fail(e, 404, "not_found", "Drive not found");
    else if (err == EEXIST)
        exists(e, name);
    else
        api_fail(e, 500, "internal_server_error", "%s", *text ? text : strerror(err));
    return NULL;
}

int drives_delete(struct emulator *emu, struct drive *d, struct api_error *e)
{
    char key[KEY_TEXT];
    struct state *st = emu->state;
    key_of(key, d->project, d->name);
    int rc = 0;
    pthread_mutex_lock(&st->lock);
    if (d->deleted) {
        rc = api_fail(e, 404, "not_found", "Drive not found");
    } else if (*d->session_id) {
        rc = api_fail(e, 409, "conflict", "The drive '%s' is attached to the sandbox '%s'.", d->name,
                      d->sandbox_name);
    } else {
        d->deleted = true;
        strmap_remove(&st->drives, key);
    }
    pthread_mutex_unlock(&st->lock);
    if (rc)
        return rc;
    persist_forget_drive(st, d);
    pthread_rwlock_wrlock(&d->content); /* whoever copies it finishes */
    int err = layers_drive_remove(emu->layers, d->id);
    pthread_rwlock_unlock(&d->content);
    if (err)
        sg_log(SG_LOG_WARN, "drive_not_removed", "drive", "s", d->id, "error", "s", strerror(err), NULL);
    drive_unref(d); /* the table's */
    return 0;
}

/* ---- mounting ---- */

static struct drive *find_mounted(struct emulator *emu, const char *project, const struct mount_setting *m,
                                  int region, struct api_error *e)
{
    struct drive *d = drives_find(emu->state, project, m->drive, false);
    if (!d) {
        api_fail(e, 404, "not_found", "Drive '%s' not found", m->drive);
        return NULL;
    }
    if (d->region == region) /* never changes */
        return d;
    api_fail(e, 400, "drive_region_mismatch", "The drive '%s' is in the region %s, the sandbox in %s.",
             m->drive, region_name(d->region), region_name(region));
    drive_unref(d);
    return NULL;
}

/* A drive counts as written once there was something in it; that is looked for until it is so. */
static int check_initialized(struct emulator *emu, struct drive *d, struct api_error *e)
{
    pthread_mutex_lock(&emu->state->lock);
    bool used = d->used;
    pthread_mutex_unlock(&emu->state->lock);
    if (used)
        return 0;
    int err = layers_drive_used(emu->layers, d->id, &used);
    if (err == ENOENT)
        return api_fail(e, 404, "not_found", "Drive '%s' not found", d->name);
    if (err)
        return api_fail(e, 500, "internal_server_error", "cannot look into the drive '%s': %s", d->name,
                        strerror(err));
    if (!used)
        return api_fail(e, 400, "drive_not_initialized",
                        "The drive '%s' has never been written to: mount it read-write first.", d->name);
    pthread_mutex_lock(&emu->state->lock);
    d->used = true;
    pthread_mutex_unlock(&emu->state->lock);
    persist_drive(emu->state, d);
    return 0;
}

static int check_free(struct emulator *emu, struct drive *d, struct api_error *e)
{
    int rc = 0;
    pthread_mutex_lock(&emu->state->lock);
    if (*d->session_id)
        rc = api_fail(e, 409, "conflict", "The drive '%s' is already mounted read-write by the sandbox '%s'.",
                      d->name, d->sandbox_name);
    pthread_mutex_unlock(&emu->state->lock);
    return rc;
}

int drives_check(struct emulator *emu, const char *project, const struct settings *set, bool now,
                 struct api_error *e)
{
    if (set->nmounts && box_host_tier(emu->host) == BOX_TIER_PLAIN)
        return api_fail(e, 400, "bad_request",
                        "This emulator runs without isolation (--isolation=none) and cannot mount drives.");
    for (unsigned i = 0; i < set->nmounts; i++) {
        const struct mount_setting *m = &set->mounts[i];
        struct drive *d = find_mounted(emu, project, m, set->region, e);
        if (!d)
            return -1;
        int rc = !now ? 0 : m->snapshot ? check_initialized(emu, d, e) : check_free(emu, d, e);
        drive_unref(d);
        if (rc)
            return rc;
    }
    return 0;
}

/* Makes the session the one that writes to it. */
static int claim(struct emulator *emu, struct session *s, struct drive *d, bool *first, struct api_error *e)
{
    struct state *st = emu->state;
    int rc = 0;
    pthread_mutex_lock(&st->lock);
    if (d->deleted) {
        rc = api_fail(e, 404, "not_found", "Drive '%s' not found", d->name);
    } else if (*d->session_id) {
        rc = api_fail(e, 409, "conflict", "The drive '%s' is already mounted read-write by the sandbox '%s'.",
                      d->name, d->sandbox_name);
    } else {
        memcpy(d->session_id, s->id, sizeof d->session_id);
        memcpy(d->sandbox_name, s->sandbox->name, sizeof d->sandbox_name);
        d->updated_ms = sg_wall_ms();
        *first = !d->bound;
        s->drives[s->ndrives++] = drive_ref(d);
    }
    pthread_mutex_unlock(&st->lock);
    if (!rc)
        persist_drive(st, d);
    return rc;
}

static int freeze(struct emulator *emu, struct session *s, struct drive *d, unsigned i,
                  char path[LAYERS_DRIVE_PATH], struct api_error *e)
{
    char text[BOX_TEXT] = "";
    pthread_rwlock_rdlock(&d->content);
    pthread_mutex_lock(&emu->state->lock);
    bool deleted = d->deleted;
    pthread_mutex_unlock(&emu->state->lock);
    int rc = deleted ? api_fail(e, 404, "not_found", "Drive '%s' not found", d->name)
                     : check_initialized(emu, d, e);
    if (!rc && layers_drive_freeze(emu->layers, d->id, s->id, i, path, text))
        rc = api_fail(e, 500, "internal_server_error", "The drive '%s' could not be mounted: %s", d->name,
                      text);
    pthread_rwlock_unlock(&d->content);
    return rc;
}

static int attach_one(struct emulator *emu, struct session *s, const struct mount_setting *m, unsigned i,
                      struct drive_binding *out, struct api_error *e)
{
    struct drive *d = find_mounted(emu, s->sandbox->project, m, s->region, e);
    if (!d)
        return -1;
    bool first = false;
    int rc = m->snapshot ? freeze(emu, s, d, i, out->source[i], e) : claim(emu, s, d, &first, e);
    if (!rc && !m->snapshot)
        layers_drive_path(emu->layers, d->id, out->source[i]);
    if (!rc) {
        snprintf(out->target[i], sizeof out->target[i], "%s", m->path);
        out->mounts[i] = (struct box_mount){
            .source = out->source[i], .target = out->target[i], .read_only = m->snapshot, .give = first};
        out->n = i + 1;
    }
    drive_unref(d);
    return rc;
}

int drives_attach(struct emulator *emu, struct session *s, struct drive_binding *out, struct api_error *e)
{
    const struct settings *set = &s->sandbox->set; /* `op` keeps it */
    out->n = 0;
    if (drives_check(emu, s->sandbox->project, set, false, e))
        return -1;
    for (unsigned i = 0; i < set->nmounts; i++)
        if (attach_one(emu, s, &set->mounts[i], i, out, e)) {
            drives_detach(emu, s);
            return -1;
        }
    return 0;
}

void drives_started(struct emulator *emu, struct session *s)
{
    for (unsigned i = 0; i < s->ndrives; i++) {
        pthread_mutex_lock(&emu->state->lock);
        bool news = !s->drives[i]->bound;
        s->drives[i]->bound = true;
        pthread_mutex_unlock(&emu->state->lock);
        if (news)
            persist_drive(emu->state, s->drives[i]);
    }
}

void drives_detach(struct emulator *emu, struct session *s)
{
    struct state *st = emu->state;
    while (s->ndrives) {
        struct drive *d = s->drives[--s->ndrives];
        pthread_mutex_lock(&st->lock);
        d->session_id[0] = d->sandbox_name[0] = '\0';
        d->updated_ms = sg_wall_ms();
        pthread_mutex_unlock(&st->lock);
        persist_drive(st, d);
        drive_unref(d);
    }
}

/* ---- start ---- */

static bool known(void *arg, const char *id)
{
    struct drive *d = drives_find(arg, "", id, true);
    if (d)
        drive_unref(d);
    return d != NULL;
}

void drives_recover(struct emulator *emu)
{
    int err = layers_drives_sweep(emu->layers, known, emu->state);
    if (err)
        sg_log(SG_LOG_WARN, "drives_not_swept", "error", "s", strerror(err), NULL);
}

void drives_render(struct sg_buf *out, const struct drive *d)
{
    static const char *const names[] = {"name",        "projectId",        "parentDriveId",
                                        "rootDriveId", "currentSessionId", "currentSandboxName"};
    const char *const values[] = {d->name, d->project, d->parent, d->root, d->session_id, d->sandbox_name};
    sg_buf_addf(out, "{\"id\":\"%s\"", d->id);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (*values[i]) {
            sg_buf_addf(out, ",\"%s\":", names[i]);
            jsontext_adds(out, values[i]);
        }
    sg_buf_addf(out,
                ",\"region\":\"%s\",\"maxSizeBytes\":%" PRIu64 ",\"createdAt\":%" PRId64
                ",\"updatedAt\":%" PRId64 "}",
                region_name(d->region), d->max_bytes, d->created_ms, d->updated_ms);
}
