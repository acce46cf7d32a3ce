/* Input too long for an argument, on its way into the sandbox before the start that takes it. */
#include "relay/internal.h"

#include "base/crypto.h"
#include "vercel/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MODE = 0600 };

struct stage {
    struct relay_obj obj;
    struct vercel_call *call;
    void *data;
    stage_done_fn *done;
    void *arg;
};

bool stage_name(char name[STAGE_NAME])
{
    return sg_random_id(name, ".up-", 12);
}

static void destroy(struct relay_obj *o)
{
    struct stage *st = (struct stage *)o;
    free(st->data);
    free(st);
}

void stage_cancel(struct stage *st)
{
    if (st->call)
        vercel_call_cancel(st->call);
    st->call = NULL;
    obj_bury(&st->obj);
}

static void finish(struct stage *st, const struct sg_error *e)
{
    struct sg_error copy;
    if (e) {
        copy = *e;
        if (copy.outcome != SG_NOT_SENT)
            copy.outcome = SG_NOT_STARTED; /* what was asked for: the program */
    }
    stage_cancel(st);
    st->done(st->arg, e ? &copy : NULL);
}

static void abandon(struct relay_obj *o, const struct sg_error *e)
{
    finish((struct stage *)o, e);
}

static void on_written(void *arg, const struct sg_error *e)
{
    struct stage *st = arg;
    st->call = NULL;
    finish(st, e);
}

struct stage *stage_start(struct relay *r, const struct process_spec *s, const char *name,
                          stage_done_fn *done, void *arg, struct sg_error *e)
{
    char path[sizeof GUEST_ROOT + 1 + STAGE_NAME];
    (void)snprintf(path, sizeof path, GUEST_ROOT "/%s", name);
    struct stage *st = calloc(1, sizeof *st);
    if (!st || !(st->data = malloc(s->input_len))) {
        free(st);
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the input");
        return NULL;
    }
    memcpy(st->data, s->input, s->input_len);
    obj_init(&st->obj, r, abandon, destroy);
    st->done = done;
    st->arg = arg;
    const struct vercel_file_write w = {.session_id = s->session.session_id,
                                        .path = path,
                                        .mode = INPUT_MODE,
                                        .size = s->input_len,
                                        .data = st->data};
    st->call = vercel_file_write_start(guestlink_client(relay_guestlink(r)), &w, on_written, st, e);
    if (st->call)
        return st;
    stage_cancel(st);
    return NULL;
}
