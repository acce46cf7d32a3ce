/* What was prepared becomes a snapshot. */
#include "control/prepare_impl.h"

#include "base/clock.h"
#include "control/command.h"
#include "guestlink/guestlink.h"
#include "vercel/snapshots.h"

#include <stdio.h>
#include <string.h>

enum {
    LOST_CAPTURE_MS = 6 * 1000, /* a capture whose answer was lost, where nothing shows that it goes on */
    CAPTURE_MS = 10 * 60 * 1000,
};

static enum sg_code take_snapshot(struct prepare *p, const struct vercel_snapshot *s, struct sg_error *e)
{
    if (snprintf(p->row.snapshot_id, sizeof p->row.snapshot_id, "%s", s->id) >=
        (int)sizeof p->row.snapshot_id) {
        p->row.snapshot_id[0] = '\0';
        return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "the snapshot's id is too long");
    }
    if (s->region)
        (void)snprintf(p->row.region, sizeof p->row.region, "%s", s->region);
    if (s->architecture)
        (void)snprintf(p->row.architecture, sizeof p->row.architecture, "%s", s->architecture);
    return SG_OK;
}

/* The builder's own snapshot, if there is one by now. */
static enum sg_code look_for_snapshot(struct prepare *p, bool *found, struct sg_error *e)
{
    struct vercel_snapshot_page page;
    *found = false;
    enum sg_code rc = vercel_snapshot_list(p->c->vercel, p->row.builder, PREPARE_LIST_MAX, NULL, &page, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < page.n && !rc && !*found; i++) {
        const struct vercel_snapshot *s = &page.items[i];
        if (s->status != VERCEL_SNAPSHOT_CREATED || !s->source_session_id ||
            strcmp(s->source_session_id, p->session_id) != 0)
            continue;
        *found = true;
        rc = take_snapshot(p, s, e);
    }
    vercel_snapshot_page_clear(&page);
    return rc;
}

static bool still_captures(struct prepare *p)
{
    struct vercel_sandbox s;
    struct sg_error e;
    if (vercel_get(p->c->vercel, p->row.builder, false, &s, &e))
        return false;
    bool on = s.session_status == VERCEL_SNAPSHOTTING || s.session_status == VERCEL_STOPPING;
    vercel_sandbox_clear(&s);
    return on;
}

/* The answer was lost. */
static enum sg_code find_snapshot(struct prepare *p, struct sg_error *e)
{
    struct sg_error why = *e, own;
    int64_t began = sg_mono_ms(), quiet = began;
    for (;;) {
        bool found = false;
        enum sg_code rc = look_for_snapshot(p, &found, &own);
        if (found) {
            if (rc)
                *e = own;
            return rc;
        }
        int64_t now = sg_mono_ms();
        if (still_captures(p))
            quiet = now;
        if (now - quiet >= LOST_CAPTURE_MS || now - began >= CAPTURE_MS || prepare_pause(p, &own)) {
            *e = why;
            return e->code;
        }
    }
}

/* What steps printed and were told is nothing for those who start from it. */
static void wipe_records(struct prepare *p)
{
    char dir[sizeof GUEST_ROOT + CONTROL_SESSION_TEXT];
    (void)snprintf(dir, sizeof dir, "%s/%s", GUEST_ROOT, p->session_id);
    const char *const argv[] = {"rm", "-rf", "--", dir, NULL};
    struct sg_error e;
    int exit_code = -1;
    enum sg_code rc = control_command(p->c, p->session_id, argv, true, &exit_code, &e);
    if (rc || exit_code > 0) /* the helper removes what is of other sessions when it first runs */
        prepare_say(p, "the records of the steps could not be removed from the snapshot%s%.200s",
                    rc ? ": " : "", rc ? e.detail : "");
}

enum sg_code prepare_capture(struct prepare *p, struct sg_error *e)
{
    struct vercel_snapshot s;
    prepare_say(p, "capturing");
    wipe_records(p);
    enum sg_code rc = prepare_go_on(p, e);
    if (rc)
        return rc;
    rc = vercel_snapshot_take(p->c->vercel, p->session_id, 0, &s, e);
    if (!rc) {
        rc = take_snapshot(p, &s, e);
        vercel_snapshot_clear(&s);
        return rc;
    }
    if (e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED)
        return rc;
    rc = find_snapshot(p, e);
    p->in_doubt = rc != SG_OK;
    return rc;
}
