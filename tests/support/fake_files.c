#include "tests/support/fake_files.h"

#include "tests/support/fake_guestlink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_files fake_files;

struct write {
    struct sg_task task;
    bool cancelled, hangs;
    vercel_done_fn *done;
    void *arg;
    struct write *next;
};
static struct write *all; /* those that hang */

static void on_task(struct sg_task *task)
{
    struct write *w = (struct write *)task;
    struct sg_error e;
    if (!w->cancelled && fake_files.fail) {
        sg_fail(&e, fake_files.fail, SG_OUTCOME_UNKNOWN, "made to fail");
        w->done(w->arg, &e);
    } else if (!w->cancelled) {
        w->done(w->arg, NULL);
    }
    free(w);
}

struct vercel_call *vercel_file_write_start(struct vercel_client *c, const struct vercel_file_write *f,
                                            vercel_done_fn *done, void *arg, struct sg_error *e)
{
    struct write *w = fake_files.refuse ? NULL : calloc(1, sizeof *w);
    if (!w) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory");
        return NULL;
    }
    fake_files.writes++;
    (void)snprintf(fake_files.session_id, sizeof fake_files.session_id, "%s", f->session_id);
    (void)snprintf(fake_files.path, sizeof fake_files.path, "%s", f->path);
    fake_files.mode = f->mode;
    fake_files.size = f->size;
    free(fake_files.data);
    fake_files.data = malloc(f->size ? f->size : 1);
    if (fake_files.data)
        memcpy(fake_files.data, f->data, f->size);
    w->task.fn = on_task;
    w->done = done;
    w->arg = arg;
    w->hangs = fake_files.hang;
    if (w->hangs) {
        w->next = all;
        all = w;
    } else {
        sg_loop_post(((struct fake *)(void *)c)->loop, &w->task);
    }
    return (struct vercel_call *)(void *)w;
}

void vercel_call_cancel(struct vercel_call *call)
{
    struct write *w = (struct write *)(void *)call;
    w->cancelled = true;
    fake_files.cancelled++;
}

void vercel_call_resume(struct vercel_call *call)
{
    (void)call; /* whole bodies only: nothing pauses */
}

void fake_files_reset(void)
{
    while (all) {
        struct write *w = all;
        all = w->next;
        free(w);
    }
    free(fake_files.data);
    fake_files = (struct fake_files){.writes = 0};
}
