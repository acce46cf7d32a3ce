#include "vercel/commands.h"

#include "vercel/answer.h"
#include "vercel/impl.h"

#include <stdio.h>
#include <stdlib.h>

bool vercel_command_path(struct sg_buf *path, const char *session_id, const char *command_id,
                         const char *rest)
{
    sg_buf_init(path, 1024);
    return sg_buf_adds(path, "/v2/sandboxes/sessions/") && sg_buf_add_urlenc(path, session_id) &&
           sg_buf_adds(path, "/cmd/") && sg_buf_add_urlenc(path, command_id) && sg_buf_adds(path, rest);
}

struct command_wait {
    vercel_command_fn *done;
    void *arg;
};

static void on_body(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct command_wait *w = arg;
    struct sg_error own;
    json_t *json = e ? NULL : vercel_body_json(*body, len, &own);
    if (!e && !json)
        e = &own;
    const json_t *command = json_object_get(json, "command");
    const json_t *exit_code = json_object_get(command, "exitCode");
    bool finished = json_is_integer(exit_code);
    if (!e && !(json_is_object(command) && (finished || !exit_code || json_is_null(exit_code)))) {
        (void)vercel_bad_answer(200, NULL, "is not a command", &own);
        e = &own;
    }
    json_int_t v = finished ? json_integer_value(exit_code) : -1;
    json_decref(json);
    w->done(w->arg, !e && finished, v >= 0 && v <= 65535 ? (int)v : -1, e);
}

struct vercel_call *vercel_command_wait(struct vercel_client *c, const char *session_id,
                                        const char *command_id, vercel_command_fn *done, void *arg,
                                        struct sg_error *e)
{
    struct sg_buf path;
    struct vercel_call *call = NULL;
    struct command_wait *w = malloc(sizeof *w);
    if (!vercel_command_path(&path, session_id, command_id, "") || !w) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        goto out;
    }
    *w = (struct command_wait){done, arg};
    const struct vercel_request r = {
        .method = "GET",
        .path = path.data,
        .query = "wait=true",
        .class = VERCEL_LOGS, /* held open as long as a log is */
        .timeout_ms = VERCEL_LONG_WAIT_MS,
        .idempotent = true,
    };
    call = vercel_collect_start(c, &r, on_body, w, e);
out:
    sg_buf_free(&path);
    if (call)
        vercel_call_on_gone(call, free, w);
    else
        free(w);
    return call;
}

/* ---- ending one ---- */

struct command_kill {
    vercel_done_fn *done;
    void *arg;
};

static void on_killed(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct command_kill *k = arg;
    (void)body;
    (void)len;
    k->done(k->arg, e);
}

struct vercel_call *vercel_command_kill(struct vercel_client *c, const char *session_id,
                                        const char *command_id, int signal_number, vercel_done_fn *done,
                                        void *arg, struct sg_error *e)
{
    struct sg_buf path;
    char body[32];
    struct vercel_call *call = NULL;
    struct command_kill *k = malloc(sizeof *k);
    int len = snprintf(body, sizeof body, "{\"signal\":%d}", signal_number);
    if (!vercel_command_path(&path, session_id, command_id, "/kill") || !k) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        goto out;
    }
    *k = (struct command_kill){done, arg};
    const struct vercel_request r = {
        .method = "POST",
        .path = path.data,
        .body = body,
        .body_len = (size_t)len,
        .class = VERCEL_CONTROL,
    };
    call = vercel_collect_start(c, &r, on_killed, k, e);
out:
    sg_buf_free(&path);
    if (call)
        vercel_call_on_gone(call, free, k);
    else
        free(k);
    return call;
}
