#include "relay/crowd.h"

#include "relay/internal.h"
#include "relay/named.h"

#include <stdlib.h>
#include <string.h>

struct crowd {
    struct relay_obj obj;
    struct named named;
    char *session_id, *id;
    struct crowd_seat *seats;
    unsigned writers, members;
    struct sg_timer *tell;
    struct crowd_seat *next; /* while telling */
};

static void crowd_destroy(struct relay_obj *o)
{
    struct crowd *c = (struct crowd *)o;
    sg_timer_free(c->tell);
    free(c->session_id);
    free(c->id);
    free(c);
}

static void bury(struct crowd *c)
{
    named_remove(&c->named);
    if (c->tell)
        sg_timer_stop(c->tell);
    obj_bury(&c->obj);
}

/* Those who sit in it outlive the relay by a little. */
static void crowd_abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct crowd *c = (struct crowd *)o;
    (void)e;
    for (struct crowd_seat *s = c->seats; s; s = s->next)
        s->crowd = NULL;
    bury(c);
}

static void on_tell(void *arg)
{
    struct crowd *c = arg;
    for (struct crowd_seat *s = c->seats; s; s = c->next) {
        c->next = s->next;
        s->changed(s, c->writers, c->members - c->writers); /* may leave: crowd_leave moves next */
    }
    c->next = NULL;
    if (!c->seats)
        bury(c);
}

/* A crowd of n costs n frames per change: the larger it is, the more changes are told as one. */
static void tell_later(struct crowd *c)
{
    if (!sg_timer_active(c->tell))
        sg_timer_start(c->tell, c->members);
}

static struct crowd *crowd_new(struct relay *r, const char *session_id, const char *id)
{
    struct crowd *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    obj_init(&c->obj, r, crowd_abandon, crowd_destroy);
    c->session_id = strdup(session_id);
    c->id = strdup(id);
    c->tell = sg_timer_new(relay_loop(r), on_tell, c);
    if (!c->session_id || !c->id || !c->tell) {
        bury(c);
        return NULL;
    }
    c->named.session_id = c->session_id;
    c->named.id = c->id;
    named_add(relay_named(r, RELAY_CROWDS), &c->named);
    return c;
}

bool crowd_enter(struct relay *r, const char *session_id, const char *id, struct crowd_seat *seat)
{
    struct named *n = named_find(relay_named(r, RELAY_CROWDS), session_id, id);
    struct crowd *c =
        n ? (struct crowd *)((char *)n - offsetof(struct crowd, named)) : crowd_new(r, session_id, id);
    if (!c)
        return false;
    seat->crowd = c;
    seat->prev = NULL;
    seat->next = c->seats;
    if (c->seats)
        c->seats->prev = seat;
    c->seats = seat;
    c->members++;
    c->writers += seat->writes;
    tell_later(c);
    return true;
}

void crowd_leave(struct crowd_seat *seat)
{
    struct crowd *c = seat->crowd;
    if (!c)
        return;
    if (c->next == seat)
        c->next = seat->next;
    if (seat->next)
        seat->next->prev = seat->prev;
    if (seat->prev)
        seat->prev->next = seat->next;
    else
        c->seats = seat->next;
    seat->crowd = NULL;
    c->members--;
    c->writers -= seat->writes;
    tell_later(c); /* an empty one is buried there */
}

void crowd_write(struct crowd_seat *seat, bool writes)
{
    if (seat->crowd && seat->writes != writes) {
        seat->crowd->writers += writes ? 1u : -1u;
        tell_later(seat->crowd);
    }
    seat->writes = writes;
}

void crowd_count(const struct crowd_seat *seat, unsigned *writers, unsigned *watchers)
{
    const struct crowd *c = seat->crowd;
    *writers = c ? c->writers : 0;
    *watchers = c ? c->members - c->writers : 0;
}
