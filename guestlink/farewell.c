#include "guestlink/farewell.h"

#include "base/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct farewell {
    LIST_ENTRY(farewell) link;
    struct farewells *all;
    struct sg_timer *timer;
    struct vercel_call *call;
    char *session_id, *command_id;
    struct sg_grave grave;
};

static void farewell_free(struct farewell *w)
{
    sg_timer_free(w->timer);
    free(w->session_id);
    free(w->command_id);
    free(w);
}

static void on_bury(struct sg_grave *g)
{
    farewell_free((struct farewell *)((char *)g - offsetof(struct farewell, grave)));
}

static void leave(struct farewell *w)
{
    if (w->call)
        vercel_call_cancel(w->call);
    w->call = NULL;
    sg_timer_stop(w->timer);
    LIST_REMOVE(w, link);
    w->all->count--;
    w->grave.fn = on_bury;
    sg_loop_bury(w->all->loop, &w->grave);
}

static void on_done(void *arg, const struct sg_error *e)
{
    struct farewell *w = arg;
    w->call = NULL;
    if (e)
        sg_log(SG_LOG_DEBUG, "command_not_ended", "session", "s", w->session_id, "error", "e", e, NULL);
    leave(w);
}

static void on_timer(void *arg)
{
    struct farewell *w = arg;
    struct sg_error e;
    w->call = vercel_command_kill(w->all->client, w->session_id, w->command_id, SIGTERM, on_done, w, &e);
    if (!w->call)
        on_done(w, &e);
}

void farewells_init(struct farewells *f, struct sg_loop *loop, struct vercel_client *client)
{
    f->loop = loop;
    f->client = client;
    f->count = 0;
    LIST_INIT(&f->all);
}

void farewells_end(struct farewells *f)
{
    struct farewell *w;
    while ((w = LIST_FIRST(&f->all)))
        leave(w);
}

void farewell_say(struct farewells *f, const char *session_id, const char *command_id)
{
    struct farewell *w = f->count < FAREWELL_MAX ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return;
    w->all = f;
    w->session_id = strdup(session_id);
    w->command_id = strdup(command_id);
    w->timer = sg_timer_new(f->loop, on_timer, w);
    if (!w->session_id || !w->command_id || !w->timer) {
        farewell_free(w);
        return;
    }
    LIST_INSERT_HEAD(&f->all, w, link);
    f->count++;
    sg_timer_start(w->timer, FAREWELL_MS);
}
