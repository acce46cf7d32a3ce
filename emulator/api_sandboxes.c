#include "emulator/api.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "emulator/edge.h"
#include "emulator/lifecycle.h"
#include "emulator/persist.h"
#include "emulator/policy.h"
#include "emulator/render.h"
#include "emulator/sandbox_settings.h"
#include "emulator/source.h"
#include "emulator/validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t day_ms = 86400000;

/* ---- answers ---- */

int api_answer_sandbox(struct request *rq, struct reply *rp, struct sandbox *sb, struct session *s,
                       const char *resumed)
{
    pthread_mutex_lock(&sb->lock);
    if (!s && !sb->current) { /* deleted this moment */
        pthread_mutex_unlock(&sb->lock);
        return api_fail(&rq->err, 404, "not_found", "Sandbox not found");
    }
    sg_buf_adds(&rp->body, "{\"sandbox\":");
    render_sandbox(&rp->body, sb);
    sg_buf_adds(&rp->body, ",\"session\":");
    render_session(&rp->body, s ? s : sb->current);
    sg_buf_adds(&rp->body, ",\"routes\":");
    render_routes(&rp->body, sb, rq->emu->route_domain);
    pthread_mutex_unlock(&sb->lock);
    if (resumed)
        sg_buf_addf(&rp->body, ",\"resumed\":%s", resumed);
    sg_buf_adds(&rp->body, "}");
    return 0;
}

static struct sandbox *find(struct request *rq)
{
    struct sandbox *sb = state_sandbox(rq->emu->state, request_project(rq), rq->param[0]);
    if (!sb)
        api_fail(&rq->err, 404, "not_found", "Sandbox not found");
    return sb;
}

/* ---- create ---- */

static int set_environment(struct request *rq, struct settings *set, const struct sandbox_request *in)
{
    if (in->runtime || (rq->version == 2 && !in->image)) {
        snprintf(set->runtime, sizeof set->runtime, "%s", in->runtime ? in->runtime : "node24");
        memcpy(set->base, rq->emu->base, sizeof set->base);
        return 0;
    }
    return settings_image(rq->emu, set, in->image ? in->image : DEFAULT_IMAGE, &rq->err);
}

static int fill_new(struct request *rq, struct sandbox *sb, const struct sandbox_request *in)
{
    struct settings *set = &sb->set;
    set->vcpus = 2;
    set->timeout_ms = 300000;
    set->persistent = true;
    set->snapshot_expiration_ms = 30 * day_ms;
    set->env = json_object();
    set->tags = json_object();
    sb->created_ms = sb->updated_ms = sb->status_ms = sg_wall_ms();
    bool ok = set->env && set->tags && sg_random_id(sb->uid, "u", 20);
    if (ok && in->name)
        snprintf(sb->name, sizeof sb->name, "%s", in->name);
    else if (ok)
        ok = sg_random_id(sb->name, "sandbox-", 16);
    if (!ok)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    const char *project = in->project ? in->project : request_project(rq);
    snprintf(sb->project, sizeof sb->project, "%s", *project ? project : "prj_default");
    if (policy_response(in->policy, rq->emu->record_only, &set->policy_text, &rq->err) ||
        set_environment(rq, set, in) || settings_apply(set, in, &rq->err) ||
        settings_apply_maps(set, in, &rq->err))
        return -1;
    if (rq->version >= 4)
        settings_short_lived(set);
    return 0;
}

/* A snapshot source says where it comes from; its base tree goes with it. */
static int check_source(struct request *rq, struct sandbox *sb, const struct sandbox_request *in)
{
    const char *id = in->source_snapshot;
    struct snapshot *sn = id ? state_snapshot(rq->emu->state, id) : NULL;
    if (!sn)
        return id ? api_fail(&rq->err, 410, "snapshot_not_found", "Snapshot '%.60s' not found.", id) : 0;
    memcpy(sb->set.base, sn->base, sizeof sb->set.base);
    snprintf(sb->snapshot_id, sizeof sb->snapshot_id, "%s", sn->id);
    if (in->region < 0)
        sb->set.region = sn->region; /* constant */
    snapshot_unref(sn);
    return 0;
}

/* Before anything is fetched for a name that is taken. */
static int check_name(struct request *rq, const struct sandbox *sb)
{
    struct sandbox *other = state_sandbox(rq->emu->state, sb->project, sb->name);
    if (!other)
        return 0;
    sandbox_unref(other);
    return lifecycle_name_taken(sb->name, &rq->err);
}

/* Nothing stays behind. */
static void undo(struct request *rq, struct sandbox *sb, struct session *s)
{
    struct api_error ignored;
    lifecycle_delete(rq->emu, sb, true, &ignored);
    pthread_mutex_lock(&sb->lock);
    struct session *last = sb->current; /* the circle sandbox - session ends here */
    sb->current = NULL;
    pthread_mutex_unlock(&sb->lock);
    if (last)
        session_unref(last);
    session_unref(s);
}

/* Boots it; the files of a git or tarball source were fetched before and are unpacked now. */
static int create(struct request *rq, struct sandbox *sb, const struct sandbox_request *in,
                  struct session **s)
{
    struct source_files files = {.fd = -1};
    if (check_name(rq, sb) || source_fetch(rq->emu, &in->source, &files, &rq->err))
        return -1;
    int rc = lifecycle_create(rq->emu, sb, in->source_snapshot ? in->source_snapshot : "", s, &rq->err);
    if (!rc && files.fd >= 0 && source_unpack(&files, *s, rq->version == 2, &rq->err)) {
        undo(rq, sb, *s);
        *s = NULL;
        rc = -1;
    }
    source_files_close(&files);
    return rc;
}

int api_sandbox_create(struct request *rq, struct reply *rp)
{
    struct sandbox_request in;
    const json_t *body = request_json(rq);
    if (!body || validate_create(body, rq->version, &in, &rq->err))
        return -1;
    struct sandbox *sb = sandbox_new();
    if (!sb)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    struct session *s = NULL;
    int rc = -1;
    if (!fill_new(rq, sb, &in) && !check_source(rq, sb, &in) &&
        !settings_check(rq->emu, sb->project, &sb->set, true, &rq->err))
        rc = create(rq, sb, &in, &s);
    if (!rc) {
        rc = api_answer_sandbox(rq, rp, sb, s, NULL);
        session_unref(s);
    }
    sandbox_unref(sb);
    return rc;
}

/* ---- get, update, delete ---- */

int api_sandbox_get(struct request *rq, struct reply *rp)
{
    const char *resume = request_query(rq, "resume");
    if (*resume && strcmp(resume, "true") != 0 && strcmp(resume, "false") != 0)
        return api_invalid(&rq->err,
                           "`resume` should be equal to one of the allowed values \"true, false\".");
    struct sandbox *sb = find(rq);
    if (!sb)
        return -1;
    int rc = 0;
    if (strcmp(resume, "true") != 0) {
        rc = api_answer_sandbox(rq, rp, sb, NULL, "false");
    } else {
        struct session *s = NULL;
        bool resumed;
        rc = lifecycle_resume(rq->emu, sb, &s, &resumed, &rq->err);
        if (!rc) {
            rc = api_answer_sandbox(rq, rp, sb, s, resumed ? "true" : "false");
            session_unref(s);
        }
    }
    sandbox_unref(sb);
    return rc;
}

/* The snapshot a sandbox shall boot from next: it must be there, and of the same project. */
static int check_rollback(struct request *rq, struct sandbox *sb, const char *id)
{
    struct state *st = rq->emu->state;
    if (!id)
        return 0;
    pthread_mutex_lock(&st->lock);
    const struct snapshot *sn = strmap_get(&st->snapshots, id);
    bool ok = sn && snapshot_usable(sn) && !strcmp(sn->project, sb->project);
    pthread_mutex_unlock(&st->lock);
    return ok ? 0 : api_fail(&rq->err, 404, "not_found", "Snapshot not found");
}

static int patch_locked(struct request *rq, struct sandbox *sb, const struct sandbox_request *in,
                        char **policy_text)
{
    pthread_mutex_lock(&sb->lock);
    bool deleted = sb->deleted;
    struct settings merged = sb->set; /* `op` keeps what its pointers lead to */
    pthread_mutex_unlock(&sb->lock);
    if (deleted)
        return api_fail(&rq->err, 404, "not_found", "Sandbox not found");
    if (check_rollback(rq, sb, in->current_snapshot) || settings_apply(&merged, in, &rq->err) ||
        settings_check(rq->emu, sb->project, &merged, false, &rq->err))
        return -1;
    pthread_mutex_lock(&sb->lock);
    int rc = settings_apply_maps(&sb->set, in, &rq->err);
    if (!rc) { /* all but the pointers */
        merged.policy_text = sb->set.policy_text;
        merged.env = sb->set.env;
        merged.tags = sb->set.tags;
        sb->set = merged;
    }
    if (!rc && in->policy) {
        free(sb->set.policy_text);
        sb->set.policy_text = *policy_text;
        *policy_text = NULL;
    }
    if (!rc && in->current_snapshot)
        snprintf(sb->snapshot_id, sizeof sb->snapshot_id, "%s", in->current_snapshot);
    sb->updated_ms = sg_wall_ms();
    pthread_mutex_unlock(&sb->lock);
    if (!rc)
        persist_sandbox(rq->emu->state, sb);
    if (!rc && in->has_ports)
        edge_routes_changed(rq->emu->edge);
    return rc;
}

int api_sandbox_patch(struct request *rq, struct reply *rp)
{
    struct sandbox_request in;
    char *policy_text = NULL;
    const json_t *body = request_json(rq);
    if (!body || validate_patch(body, &in, &rq->err) ||
        policy_response(in.policy, rq->emu->record_only, &policy_text, &rq->err))
        return -1;
    struct sandbox *sb = find(rq);
    int rc = -1;
    if (sb) {
        pthread_mutex_lock(&sb->op);
        rc = patch_locked(rq, sb, &in, &policy_text);
        pthread_mutex_unlock(&sb->op);
    }
    free(policy_text);
    if (!rc && !strcmp(request_query(rq, "resume"), "true")) {
        struct session *s = NULL;
        bool resumed;
        rc = lifecycle_resume(rq->emu, sb, &s, &resumed, &rq->err);
        if (!rc) {
            rc = api_answer_sandbox(rq, rp, sb, s, resumed ? "true" : "false");
            session_unref(s);
        }
    } else if (!rc) {
        sg_buf_adds(&rp->body, "{\"sandbox\":");
        pthread_mutex_lock(&sb->lock);
        render_sandbox(&rp->body, sb);
        sg_buf_adds(&rp->body, ",\"routes\":");
        render_routes(&rp->body, sb, rq->emu->route_domain);
        pthread_mutex_unlock(&sb->lock);
        sg_buf_adds(&rp->body, "}");
    }
    if (sb)
        sandbox_unref(sb);
    return rc;
}

int api_sandbox_delete(struct request *rq, struct reply *rp)
{
    struct sandbox *sb = find(rq);
    if (!sb)
        return -1;
    bool orphans = !strcmp(request_query(rq, "deleteOrphanSnapshots"), "true");
    int rc = lifecycle_delete(rq->emu, sb, orphans, &rq->err);
    if (!rc) {
        sg_buf_adds(&rp->body, "{\"sandbox\":");
        pthread_mutex_lock(&sb->lock);
        render_sandbox(&rp->body, sb);
        struct session *last = sb->current; /* the circle sandbox - session ends here */
        sb->current = NULL;
        pthread_mutex_unlock(&sb->lock);
        sg_buf_adds(&rp->body, "}");
        if (last)
            session_unref(last);
    }
    sandbox_unref(sb);
    return rc;
}

/* ---- list ---- */

enum sort_key { BY_CREATED, BY_NAME, BY_STATUS_TIME, BY_SNAPSHOT };

/* What sorting looks at, copied under the lock so that it cannot change meanwhile. */
struct list_row {
    struct sandbox *sb;
    int64_t time;
    char snapshot[ID_TEXT];
    enum sort_key key;
    int order;
};

static int compare_rows(const void *a, const void *b)
{
    const struct list_row *x = *(struct list_row *const *)a, *y = *(struct list_row *const *)b;
    int c = 0;
    if (x->key == BY_SNAPSHOT)
        c = strcmp(x->snapshot, y->snapshot);
    else if (x->key != BY_NAME)
        c = x->time < y->time ? -1 : x->time > y->time;
    if (!c)
        c = strcmp(x->sb->name, y->sb->name);
    return c * x->order;
}

static const char *row_id(void *item)
{
    return ((struct list_row *)item)->sb->uid;
}

static int parse_sort(struct request *rq, enum sort_key *key)
{
    static const char *const names[] = {"createdAt", "name", "statusUpdatedAt", "currentSnapshotId"};
    const char *by = request_query(rq, "sortBy");
    *key = BY_CREATED;
    if (!*by)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(by, names[i])) {
            *key = (enum sort_key)i;
            return 0;
        }
    return api_invalid(&rq->err, "`sortBy` should be equal to one of the allowed values \"createdAt, name, "
                                 "statusUpdatedAt, currentSnapshotId\".");
}

struct list_filter {
    const char *prefix, *status;
    char tag_key[128];
    const char *tag_value; /* NULL: no tag filter */
    enum sort_key key;
    int order;
};

static int parse_filter(struct request *rq, struct list_filter *f)
{
    memset(f, 0, sizeof *f);
    f->prefix = f->status = "";
    f->order = api_order(rq);
    if (!f->order || parse_sort(rq, &f->key))
        return -1;
    f->prefix = request_query(rq, "namePrefix");
    if (*f->prefix && f->key != BY_NAME)
        return api_invalid(&rq->err, "`namePrefix` is only supported with `sortBy=name`.");
    f->status = request_query(rq, "status");
    if (*f->status && f->key != BY_CREATED)
        return api_invalid(&rq->err, "`status` is only supported with `sortBy=createdAt`.");
    const char *tags = request_query(rq, "tags"), *colon = strchr(tags, ':');
    if (*tags && (!colon || (size_t)(colon - tags) >= sizeof f->tag_key))
        return api_invalid(&rq->err, "`tags` should be of the form key:value.");
    if (*tags) {
        snprintf(f->tag_key, sizeof f->tag_key, "%.*s", (int)(colon - tags), tags);
        f->tag_value = colon + 1;
    }
    return 0;
}

/* With sandbox->lock. */
static bool wanted(const struct list_filter *f, const struct sandbox *sb)
{
    if (*f->prefix && strncmp(sb->name, f->prefix, strlen(f->prefix)) != 0)
        return false;
    if (*f->status && strcmp(status_name(sb->current ? sb->current->status : ST_STOPPED), f->status) != 0)
        return false;
    if (!f->tag_value)
        return true;
    const char *v = json_string_value(json_object_get(sb->set.tags, f->tag_key));
    return v && !strcmp(v, f->tag_value);
}

static size_t fill_rows(const struct list_filter *f, struct sandbox **all, size_t n, struct list_row *rows,
                        struct list_row **sorted)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(&all[i]->lock);
        if (wanted(f, all[i])) {
            rows[k] = (struct list_row){.sb = all[i], .key = f->key, .order = f->order};
            rows[k].time = f->key == BY_STATUS_TIME ? all[i]->status_ms : all[i]->created_ms;
            memcpy(rows[k].snapshot, all[i]->snapshot_id, ID_TEXT);
            sorted[k] = &rows[k];
            k++;
        }
        pthread_mutex_unlock(&all[i]->lock);
    }
    qsort(sorted, k, sizeof(struct list_row *), compare_rows);
    return k;
}

int api_sandbox_list(struct request *rq, struct reply *rp)
{
    struct list_filter f;
    struct page page;
    size_t n;
    if (parse_filter(rq, &f))
        return -1;
    struct sandbox **all = state_all_sandboxes(rq->emu->state, request_project(rq), &n);
    if (!all)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    struct list_row *rows = calloc(n + 1, sizeof *rows), **sorted = calloc(n + 1, sizeof(struct list_row *));
    int rc = -1;
    if (!rows || !sorted) {
        api_fail(&rq->err, 500, "internal_server_error", "no memory");
        goto out;
    }
    size_t k = fill_rows(&f, all, n, rows, sorted);
    rc = api_page(rq, k, row_id, (void **)sorted, &page);
    if (rc)
        goto out;
    sg_buf_adds(&rp->body, "{\"sandboxes\":[");
    for (size_t i = page.from; i < page.to; i++) {
        struct sandbox *sb = sorted[i]->sb;
        if (i > page.from)
            sg_buf_adds(&rp->body, ",");
        pthread_mutex_lock(&sb->lock);
        render_sandbox(&rp->body, sb);
        pthread_mutex_unlock(&sb->lock);
    }
    sg_buf_adds(&rp->body, "],");
    render_pagination(&rp->body, page.to - page.from, page.more ? sorted[page.to - 1]->sb->uid : NULL);
    sg_buf_adds(&rp->body, "}");
out:
    for (size_t i = 0; i < n; i++)
        sandbox_unref(all[i]);
    free(sorted);
    free(rows);
    free(all);
    return rc;
}
