#include "vercel/answer.h"
#include "vercel/impl.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

json_t *vercel_body_json(const char *body, size_t len, struct sg_error *e)
{
    json_t *doc = json_loadb(body, len, 0, NULL);
    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    (void)vercel_bad_answer(0, NULL, "is not a JSON object", e);
    e->upstream_status = 200;
    return NULL;
}

/* ---- on the loop ---- */

struct json_call {
    vercel_json_fn *done;
    void *arg;
};

static void on_json_body(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct json_call *j = arg;
    struct sg_error own;
    json_t *doc = NULL;
    if (!e) {
        doc = vercel_body_json(*body, len, &own);
        if (!doc)
            e = &own;
    }
    j->done(j->arg, doc, e);
    json_decref(doc);
}

struct vercel_call *vercel_json_start(struct vercel_client *c, const struct vercel_request *r,
                                      vercel_json_fn *done, void *arg, struct sg_error *e)
{
    struct json_call *j = malloc(sizeof *j);
    if (!j) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        return NULL;
    }
    *j = (struct json_call){done, arg};
    struct vercel_call *call = vercel_collect_start(c, r, on_json_body, j, e);
    if (call)
        vercel_call_on_gone(call, free, j);
    else
        free(j);
    return call;
}

/* ---- from another thread: post, wait, parse here so that a long answer does not hold the loop ---- */

struct vercel_wait {
    struct sg_task task; /* first */
    TAILQ_ENTRY(vercel_wait) link;
    struct vercel_client *client; /* NULL once the client is gone; under its lock until then */
    const struct vercel_request *request;
    char *body;
    size_t len;
    enum sg_code code;
    struct sg_error error;
    sem_t done;
};

static void on_wait_body(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct vercel_wait *w = arg;
    if (e) {
        w->error = *e;
        w->code = e->code;
    } else {
        w->body = *body;
        w->len = len;
        *body = NULL;
    }
    sem_post(&w->done);
}

static void wait_end(struct vercel_wait *w)
{
    w->code = sg_fail(&w->error, SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT, "The gateway is shutting down.");
    sem_post(&w->done);
}

static void on_wait_posted(struct sg_task *task)
{
    struct vercel_wait *w = (struct vercel_wait *)task;
    struct vercel_client *c = w->client; /* only changed on this thread */
    if (!c) {
        wait_end(w);
        return;
    }
    pthread_mutex_lock(&c->lock);
    TAILQ_REMOVE(&c->waits, w, link);
    pthread_mutex_unlock(&c->lock);
    if (!vercel_collect_start(c, w->request, on_wait_body, w, &w->error)) {
        w->code = w->error.code;
        sem_post(&w->done);
    }
}

void vercel_waits_end(struct vercel_client *c)
{
    pthread_mutex_lock(&c->lock);
    struct vercel_wait *w;
    while ((w = TAILQ_FIRST(&c->waits))) { /* posted, not yet begun: on_wait_posted will answer */
        TAILQ_REMOVE(&c->waits, w, link);
        w->client = NULL;
    }
    pthread_mutex_unlock(&c->lock);
}

enum sg_code vercel_wait_body(struct vercel_client *c, const struct vercel_request *r, char **body,
                              size_t *len, struct sg_error *e)
{
    struct vercel_wait w = {.task.fn = on_wait_posted, .client = c, .request = r};
    *body = NULL;
    *len = 0;
    if (sem_init(&w.done, 0, 0) != 0)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
    pthread_mutex_lock(&c->lock);
    TAILQ_INSERT_TAIL(&c->waits, &w, link);
    pthread_mutex_unlock(&c->lock);
    sg_loop_post(c->loop, &w.task);
    while (sem_wait(&w.done) != 0) /* EINTR */
        continue;
    sem_destroy(&w.done);
    if (w.code != SG_OK) {
        if (e)
            *e = w.error;
        return w.code;
    }
    *body = w.body;
    *len = w.len;
    return SG_OK;
}

enum sg_code vercel_wait_json(struct vercel_client *c, const struct vercel_request *r, json_t **out,
                              struct sg_error *e)
{
    struct sg_error local;
    if (!e)
        e = &local;
    char *body;
    size_t len = 0;
    *out = NULL;
    enum sg_code code = vercel_wait_body(c, r, &body, &len, e);
    if (code != SG_OK)
        return code;
    *out = vercel_body_json(body, len, e);
    free(body);
    return *out ? SG_OK : e->code;
}
