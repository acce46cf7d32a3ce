#include "emulator/api.h"
#include "base/core/b64.h"
#include "emulator/command.h"
#include "emulator/jsontext.h"
#include "emulator/lifecycle.h"
#include "emulator/validate.h"

#include <stdlib.h>
#include <string.h>

/* Compared for exact equality by clients: no charset. */
static const char ndjson[] = "application/x-ndjson";

/* ---- streams over a command ---- */

enum phase { PHASE_HEAD, PHASE_OUTPUT, PHASE_WAIT, PHASE_TAIL, PHASE_OVER };

/* One reader of a command: `head` and `tail` are the command lines around the output. */
struct follower {
    struct command *command;
    enum phase phase;
    bool tail_command; /* ends with the command itself */
    bool bare;         /* not NDJSON: {"command":…} once, when finished */
    uint64_t offset;
    struct sg_buf line; /* being sent */
    size_t sent;
};

static void command_line(struct sg_buf *out, struct command *c, const char *end)
{
    sg_buf_adds(out, "{\"command\":");
    command_render(out, c);
    sg_buf_adds(out, end);
}

static void error_line(struct sg_buf *out, const char *code, const char *message)
{
    sg_buf_adds(out, "{\"stream\":\"error\",\"data\":{\"code\":");
    jsontext_adds(out, code);
    sg_buf_adds(out, ",\"message\":");
    jsontext_adds(out, message);
    sg_buf_adds(out, "}}\n");
}

static void make_tail(struct follower *f)
{
    struct command *c = f->command;
    if (f->bare)
        command_line(&f->line, c, "}");
    else if (command_was_cut(c))
        error_line(&f->line, "sandbox_stream_closed",
                   "Sandbox stream was closed and is not accepting commands.");
    else if (cmdlog_lost(&c->log))
        error_line(&f->line, "internal_server_error", "The output could not be kept completely.");
    else if (f->tail_command)
        command_line(&f->line, c, "}\n");
}

/* The rest of the line being sent; 0 when there is none. */
static ssize_t send_line(struct follower *f, char *buf, size_t max)
{
    size_t n = f->line.len - f->sent;
    if (n > max)
        n = max;
    if (n)
        memcpy(buf, f->line.data + f->sent, n);
    f->sent += n;
    return (ssize_t)n;
}

static ssize_t follow(void *arg, char *buf, size_t max, int64_t deadline_ms)
{
    struct follower *f = arg;
    ssize_t n = send_line(f, buf, max);
    if (n)
        return n;
    if (f->phase == PHASE_OUTPUT) {
        n = cmdlog_read(&f->command->log, f->offset, buf, max, deadline_ms);
        if (n > 0)
            f->offset += (uint64_t)n;
        if (n != CMDLOG_END)
            return n; /* CMDLOG_* and STREAM_* agree */
        f->phase = PHASE_TAIL;
    }
    if (f->phase == PHASE_WAIT) {
        if (!cmdlog_wait_end(&f->command->log, deadline_ms))
            return STREAM_AGAIN;
        f->phase = PHASE_TAIL;
    }
    if (f->phase == PHASE_TAIL) {
        sg_buf_reset(&f->line);
        f->sent = 0;
        make_tail(f);
        f->phase = PHASE_OVER;
        return f->line.failed ? STREAM_FAILED : send_line(f, buf, max);
    }
    return STREAM_END;
}

static void follower_free(void *arg)
{
    struct follower *f = arg;
    command_unref(f->command);
    sg_buf_free(&f->line);
    free(f);
}

/* Takes the caller's reference to the command. */
static struct follower *follower_new(struct request *rq, struct reply *rp, struct command *c)
{
    struct follower *f = calloc(1, sizeof *f);
    if (!f) {
        command_unref(c);
        api_fail(&rq->err, 500, "internal_server_error", "no memory");
        return NULL;
    }
    f->command = c;
    sg_buf_init(&f->line, REPLY_MAX);
    rp->stream = (struct stream){.read = follow, .free = follower_free, .arg = f};
    return f;
}

/* ---- run ---- */

static bool valid_command_id(const char *id)
{
    size_t n = strlen(id);
    return n > 4 && n < ID_TEXT && !strncmp(id, "cmd_", 4) && valid_name(id);
}

static int chosen_id(struct request *rq, struct session *s, struct command_request *in)
{
    const char *id = request_query(rq, "cmdId");
    if (!*id)
        return 0;
    if (!valid_command_id(id))
        return api_invalid(&rq->err, "`cmdId` should match pattern \"^cmd_[A-Za-z0-9_-]{1,35}$\".");
    struct command *same = command_find(s, id);
    if (same) {
        command_unref(same);
        return api_fail(&rq->err, 409, "conflict", "A command with this id exists already.");
    }
    in->id = id;
    return 0;
}

static int run(struct request *rq, struct reply *rp, struct session *s, struct command_body *in)
{
    struct command *c = NULL;
    if (chosen_id(rq, s, &in->request) || command_start(rq->emu, s, &in->request, &c, &rq->err))
        return -1;
    if (!in->wait) {
        command_line(&rp->body, c, "}");
        command_unref(c);
        return 0;
    }
    struct follower *f = follower_new(rq, rp, c);
    if (!f)
        return -1;
    rp->type = ndjson;
    f->tail_command = true;
    f->phase = in->logs ? PHASE_OUTPUT : PHASE_WAIT;
    /* the first line says that it runs, even if it has ended by now */
    sg_buf_adds(&f->line, "{\"command\":");
    sg_buf_adds(&f->line, c->head);
    sg_buf_addf(&f->line, ",\"exitCode\":null,\"startedAt\":%lld}}\n", (long long)c->started_ms);
    return f->line.failed ? api_fail(&rq->err, 500, "internal_server_error", "no memory") : 0;
}

int api_command_run(struct request *rq, struct reply *rp)
{
    struct command_body in;
    const json_t *body = request_json(rq);
    if (!body || validate_command(body, &in, &rq->err))
        return -1;
    in.wait = in.wait || !strcmp(request_query(rq, "wait"), "true");
    in.logs = in.logs || !strcmp(request_query(rq, "logs"), "true");
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    int rc = run(rq, rp, s, &in);
    session_unref(s);
    return rc;
}

/* ---- one command ---- */

/* The command that the path names, of a running session; both counted. */
static struct command *find(struct request *rq, struct session **s)
{
    struct command *c = NULL;
    *s = api_session(rq);
    if (*s && !session_check(*s, &rq->err)) {
        c = command_find(*s, rq->param[1]);
        if (!c)
            api_fail(&rq->err, 404, "not_found", "Command not found");
    }
    if (!c && *s)
        session_unref(*s);
    return c;
}

int api_command_get(struct request *rq, struct reply *rp)
{
    struct session *s;
    struct command *c = find(rq, &s);
    if (!c)
        return -1;
    session_unref(s);
    if (strcmp(request_query(rq, "wait"), "true") != 0 || command_finished(c)) {
        command_line(&rp->body, c, "}");
        command_unref(c);
        return 0;
    }
    /* a stream, so that status line and headers go out at once and only the body waits */
    struct follower *f = follower_new(rq, rp, c);
    if (!f)
        return -1;
    f->bare = true;
    f->phase = PHASE_WAIT;
    return 0;
}

int api_command_logs(struct request *rq, struct reply *rp)
{
    struct session *s;
    struct command *c = find(rq, &s);
    if (!c)
        return -1;
    session_unref(s);
    struct follower *f = follower_new(rq, rp, c);
    if (!f)
        return -1;
    rp->type = ndjson;
    f->phase = PHASE_OUTPUT;
    return 0;
}

int api_command_kill(struct request *rq, struct reply *rp)
{
    static const char *const members[] = {"signal", NULL};
    int64_t signal_number;
    const json_t *body = request_json(rq);
    if (!body || validate_only(body, members, &rq->err) ||
        validate_int("signal", json_object_get(body, "signal"), 1, 64, &signal_number, &rq->err))
        return -1;
    struct session *s;
    struct command *c = find(rq, &s);
    if (!c) {
        if (rq->err.status == 404 && !strcmp(rq->err.message, "Command not found"))
            api_fail(&rq->err, 404, "command_not_found_or_exited", "Command not found or has exited.");
        return -1;
    }
    int rc = command_kill(s, c, (int)signal_number, &rq->err);
    if (!rc)
        command_line(&rp->body, c, "}");
    command_unref(c);
    session_unref(s);
    return rc;
}

int api_command_list(struct request *rq, struct reply *rp)
{
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    int rc = session_check(s, &rq->err);
    if (!rc) {
        sg_buf_adds(&rp->body, "{\"commands\":[");
        pthread_mutex_lock(&s->sandbox->lock);
        for (struct command *c = s->commands; c; c = c->next) {
            command_render(&rp->body, c);
            if (c->next)
                sg_buf_adds(&rp->body, ",");
        }
        pthread_mutex_unlock(&s->sandbox->lock);
        sg_buf_adds(&rp->body, "]}");
    }
    session_unref(s);
    return rc;
}

/* ---- stdin ---- */

static int decode(struct request *rq, const struct stdin_body *in, unsigned char **out, size_t *len)
{
    *len = 0;
    *out = malloc(in->data_len / 4 * 3 + 1);
    if (!*out)
        return api_fail(&rq->err, 500, "internal_server_error", "no memory");
    ssize_t n = in->data_len ? sg_b64_decode(*out, in->data, in->data_len) : 0;
    if (n < 0) {
        free(*out);
        *out = NULL;
        api_invalid(&rq->err, "`data` should be base64.");
        return -1;
    }
    *len = (size_t)n;
    return 0;
}

int api_command_stdin(struct request *rq, struct reply *rp)
{
    enum { STDIN_BODY_MAX = 1 << 20 };
    struct stdin_body in;
    struct session *s;
    unsigned char *data = NULL;
    size_t len;
    if (rq->body_bytes > STDIN_BODY_MAX)
        return api_fail(&rq->err, 413, "bad_request", "The request body is larger than 1 MB.");
    const json_t *body = request_json(rq);
    if (!body || validate_stdin(body, &in, &rq->err) || decode(rq, &in, &data, &len))
        return -1;
    struct command *c = find(rq, &s);
    int rc = -1;
    if (!c && rq->err.status == 404 && !strcmp(rq->err.message, "Command not found"))
        api_fail(&rq->err, 404, "command_not_found_or_exited", "Command not found or has exited.");
    if (c) {
        uint64_t written = 0;
        bool old = rq->fault.set && rq->fault.no_stdin_offsets;
        rc = command_stdin(c, data, len, old ? -1 : in.offset, in.close, &written, &rq->err);
        if (!rc)
            command_line(&rp->body, c, old ? "}" : "");
        if (!rc && !old)
            sg_buf_addf(&rp->body, ",\"bytesWritten\":%llu}", (unsigned long long)written);
        command_unref(c);
        session_unref(s);
    }
    free(data);
    return rc;
}
