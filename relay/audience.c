#include "relay/audience.h"

#include "base/clock.h"
#include "relay/internal.h"
#include "relay/named.h"

#include <stdlib.h>
#include <string.h>

struct audience {
    struct relay_obj obj;
    struct named named;
    char *session_id;
    struct audience_seat *seats;
    struct audience_seat *next; /* while telling */
    int64_t deadline_ms;        /* that was told; 0: none */
    const char *reason;
};

static void audience_destroy(struct relay_obj *o)
{
    struct audience *a = (struct audience *)o;
    free(a->session_id);
    free(a);
}

static void bury(struct audience *a)
{
    named_remove(&a->named);
    obj_bury(&a->obj);
}

/* Those who sit in it outlive the relay by a little. */
static void audience_abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct audience *a = (struct audience *)o;
    (void)e;
    for (struct audience_seat *s = a->seats; s; s = s->next)
        s->audience = NULL;
    bury(a);
}

static struct audience *audience_new(struct relay *r, const char *session_id)
{
    struct audience *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    obj_init(&a->obj, r, audience_abandon, audience_destroy);
    a->session_id = strdup(session_id);
    if (!a->session_id) {
        bury(a);
        return NULL;
    }
    a->named.session_id = a->session_id;
    a->named.id = "";
    named_add(relay_named(r, RELAY_AUDIENCES), &a->named);
    return a;
}

static struct audience *find(struct relay *r, const char *session_id)
{
    struct named *n = named_find(relay_named(r, RELAY_AUDIENCES), session_id, "");
    return n ? (struct audience *)((char *)n - offsetof(struct audience, named)) : NULL;
}

void audience_enter(struct relay *r, const char *sandbox, const char *session_id, struct audience_seat *seat)
{
    const struct audience_watch *w = relay_audience_watch(r);
    struct audience *a = find(r, session_id);
    if (!a)
        a = audience_new(r, session_id);
    if (!a)
        return;
    seat->audience = a;
    seat->prev = NULL;
    seat->next = a->seats;
    if (a->seats)
        a->seats->prev = seat;
    a->seats = seat;
    if (w->entered)
        w->entered(w->arg, sandbox, session_id);
    if (a->deadline_ms > sg_wall_ms())
        seat->ending(seat, a->deadline_ms, a->reason);
}

void audience_leave(struct audience_seat *seat)
{
    struct audience *a = seat->audience;
    if (!a)
        return;
    const struct audience_watch *w = relay_audience_watch(a->obj.relay);
    if (a->next == seat)
        a->next = seat->next;
    if (seat->next)
        seat->next->prev = seat->prev;
    if (seat->prev)
        seat->prev->next = seat->next;
    else
        a->seats = seat->next;
    seat->audience = NULL;
    if (w->left)
        w->left(w->arg, a->session_id);
    if (!a->seats)
        bury(a); /* destroyed at the end of this turn: who tells may still look at it */
}

void audience_warn(struct relay *r, const char *session_id, int64_t deadline_ms, const char *reason)
{
    struct audience *a = find(r, session_id);
    if (!a)
        return;
    a->deadline_ms = deadline_ms;
    a->reason = reason;
    for (struct audience_seat *s = a->seats; s; s = a->next) {
        a->next = s->next;
        s->ending(s, deadline_ms, reason); /* may leave: audience_leave moves next */
    }
    a->next = NULL;
}

json_t *frame_session_ending(int64_t deadline_ms, const char *reason)
{
    char when[SG_TIME_TEXT];
    sg_time_format(deadline_ms, when);
    return json_pack("{s:s,s:s,s:s}", "type", "session_ending", "deadline", when, "reason", reason);
}
