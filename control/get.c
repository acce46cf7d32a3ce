/* The record of one sandbox, as it is now. */
#include "control/control.h"
#include "control/look.h"
#include "control/record.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>

struct get_op {
    struct control_op op;
    struct control *c;
    struct look *look;
    control_record_fn *done;
    void *arg;
};

static void get_free(struct get_op *g)
{
    control_op_remove(g->c, &g->op);
    if (g->look)
        look_cancel(g->look);
    free(g);
}

static void get_end(struct control_op *op, const struct sg_error *e)
{
    struct get_op *g = (struct get_op *)op;
    control_record_fn *done = g->done;
    void *arg = g->arg;
    get_free(g);
    if (e)
        done(arg, NULL, NULL, e);
}

static void on_look(void *arg, struct vercel_sandbox *s, const struct store_sandbox *known,
                    const struct sg_error *e)
{
    struct get_op *g = arg;
    struct sg_error own;
    struct sg_buf record;
    char etag[CONTROL_ETAG_LEN + 1] = "";
    g->look = NULL;
    sg_buf_init(&record, CONTROL_RECORD_MAX);
    if (!e) {
        control_observe(g->c, s);
        control_record_write(s, known, sg_wall_ms(), &record, etag);
    }
    if (record.failed) {
        (void)sg_fail(&own, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        e = &own;
    }
    control_record_fn *done = g->done;
    void *done_arg = g->arg;
    get_free(g);
    done(done_arg, e ? NULL : &record, e ? NULL : etag, e);
    sg_buf_free(&record);
}

struct control_op *control_get(struct control *c, const char *name, control_record_fn *done, void *arg)
{
    struct sg_error e;
    if (control_name_for_lookup(name, &e)) {
        done(arg, NULL, NULL, &e);
        return NULL;
    }
    struct get_op *g = calloc(1, sizeof *g);
    if (!g) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        done(arg, NULL, NULL, &e);
        return NULL;
    }
    *g = (struct get_op){.op.end = get_end, .c = c, .done = done, .arg = arg};
    control_op_add(c, &g->op);
    g->look = look_start(c, name, false, on_look, g, &e);
    if (g->look)
        return &g->op;
    get_end(&g->op, &e);
    return NULL;
}

void control_cancel(struct control_op *op)
{
    op->end(op, NULL);
}
