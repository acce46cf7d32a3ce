#include "vercel/commands.h"

#include "vercel/answer.h"
#include "vercel/impl.h"
#include "vercel/ndjson.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINGER_MS =
        1000, /* after the last line the stream should end at once; wait no longer, to keep the connection */
    ID_MAX = 128
};

struct vercel_command_call {
    struct sg_loop *loop;
    struct vercel_call *call; /* NULL once it ended */
    struct vercel_command_events ev;
    void *arg;
    struct ndjson lines;
    struct ndjson_value held; /* text that was not taken yet */
    bool holding;
    size_t skip;   /* bytes of the chunk that comes again which are done */
    bool log;      /* the log of a command: no command lines, and its end is the command's */
    bool started;  /* the first command line was read */
    bool finished; /* the second was, or an error line: what follows does not matter */
    bool dead;     /* told, or cancelled */
    int exit_code;
    bool failed;
    struct sg_error error; /* when failed */
    struct sg_timer *linger;
    struct sg_grave grave;
};

static void on_bury(struct sg_grave *grave)
{
    struct vercel_command_call *k =
        (struct vercel_command_call *)((char *)grave - offsetof(struct vercel_command_call, grave));
    ndjson_value_clear(&k->held);
    ndjson_free(&k->lines);
    free(k);
}

/* No callback comes after this. */
static void command_die(struct vercel_command_call *k)
{
    k->dead = true;
    if (k->call)
        vercel_call_cancel(k->call);
    k->call = NULL;
    sg_timer_free(k->linger);
    k->linger = NULL;
    sg_loop_bury(k->loop, &k->grave);
}

static void command_end(struct vercel_command_call *k)
{
    command_die(k);
    k->ev.on_end(k->arg, k->failed ? -1 : k->exit_code, k->failed ? &k->error : NULL);
}

static void on_linger(void *arg)
{
    command_end(arg);
}

/* The result is known; the end of the stream is only waited for to keep the connection. */
static void command_settle(struct vercel_command_call *k)
{
    k->finished = true;
    k->linger = sg_timer_new(k->loop, on_linger, k);
    if (k->linger)
        sg_timer_start(k->linger, LINGER_MS);
}

/* What came is not the protocol: nothing after it can be trusted. */
static void command_broken(struct vercel_command_call *k, const char *what)
{
    (void)vercel_bad_answer(200, vercel_call_request_id(k->call), what, &k->error);
    if (k->started)
        k->error.outcome = SG_STARTED;
    k->failed = true;
    command_end(k);
}

static void take_command(struct vercel_command_call *k, const json_t *command)
{
    const char *id = sg_jget_str(command, "id", "");
    const json_t *exit_code = json_object_get(command, "exitCode");
    if (k->log) /* not in the protocol, and nothing to be wrong about */
        return;
    if (!k->started) {
        if (!*id || strlen(id) > ID_MAX) {
            command_broken(k, "has a command without a usable id");
            return;
        }
        k->started = true;
        if (k->ev.on_started)
            k->ev.on_started(k->arg, id);
        return;
    }
    if (!json_is_integer(exit_code)) {
        command_broken(k, "says a command finished but not how");
        return;
    }
    json_int_t v = json_integer_value(exit_code);
    k->exit_code = v >= -1 && v <= 65535 ? (int)v : -1;
    command_settle(k);
}

static void take_error(struct vercel_command_call *k, json_t *data)
{
    (void)vercel_stream_error(data, &k->error);
    if (!k->started)
        k->error.outcome = SG_OUTCOME_UNKNOWN;
    k->failed = true;
    command_settle(k);
}

/* False when the text was not taken: it is held then. */
static bool take_text(struct vercel_command_call *k, struct ndjson_value *v)
{
    if (v->len == 0 || !k->ev.on_text)
        return true;
    if (k->ev.on_text(k->arg, v->kind == NDJSON_STDOUT ? 1 : 2, v->text, v->len))
        return true;
    if (!k->dead) {
        k->held = *v; /* its text lies in the line buffer or in its document: both stay */
        k->holding = true;
        v->doc = NULL;
    }
    return false;
}

/* False: stop here, the stream is to pause. */
static bool take_line(struct vercel_command_call *k, char *line, size_t len)
{
    struct ndjson_value v;
    bool taken = true;
    ndjson_decode(line, len, &v);
    switch (v.kind) {
    case NDJSON_STDOUT:
    case NDJSON_STDERR:
        if (k->started)
            taken = take_text(k, &v);
        else
            command_broken(k, "has output before its command");
        break;
    case NDJSON_COMMAND:
        take_command(k, json_object_get(v.doc, "command"));
        break;
    case NDJSON_ERROR:
        take_error(k, json_object_get(v.doc, "data"));
        break;
    case NDJSON_OTHER: /* a kind that later versions of the protocol may add */
        break;
    case NDJSON_BAD:
    default:
        command_broken(k, "has a line that is not its protocol");
        break;
    }
    ndjson_value_clear(&v);
    return taken;
}

/* Delivers what was held back; false when it is refused again. */
static bool take_held(struct vercel_command_call *k)
{
    if (!k->holding)
        return true;
    if (!k->ev.on_text(k->arg, k->held.kind == NDJSON_STDOUT ? 1 : 2, k->held.text, k->held.len))
        return false;
    k->holding = false;
    ndjson_value_clear(&k->held);
    return true;
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct vercel_command_call *k = arg;
    const char *p = data;
    size_t left = len;
    if (k->finished)
        return true;
    if (!take_held(k))
        return false;
    if (k->dead)
        return true;
    size_t again = k->skip < left ? k->skip : left;
    k->skip -= again;
    p += again;
    left -= again;
    while (!k->dead && !k->finished) {
        char *line;
        size_t n;
        enum ndjson_step step = ndjson_next(&k->lines, &p, &left, &line, &n);
        if (step == NDJSON_MORE)
            return true;
        if (step == NDJSON_TOO_LONG)
            command_broken(k, "has a line that is too long");
        else if (!take_line(k, line, n) && !k->dead) {
            k->skip = len - left; /* libcurl gives this chunk again from its beginning */
            return false;
        }
    }
    return true;
}

/* The last line may lack its line end.  Only one that says how the command ended counts: the beginning of a
 * line that was cut is dropped. */
static void take_rest(struct vercel_command_call *k)
{
    char *line;
    size_t n;
    struct ndjson_value v;
    if (k->finished || !ndjson_rest(&k->lines, &line, &n))
        return;
    ndjson_decode(line, n, &v);
    if (v.kind == NDJSON_COMMAND)
        take_command(k, json_object_get(v.doc, "command"));
    else if (v.kind == NDJSON_ERROR)
        take_error(k, json_object_get(v.doc, "data"));
    ndjson_value_clear(&v);
}

static void on_done(void *arg, const struct sg_error *e)
{
    struct vercel_command_call *k = arg;
    if (!e)
        take_rest(k);
    if (k->dead)
        return;
    k->call = NULL;
    if (!k->finished && !(k->log && !e)) {
        k->failed = true;
        if (e)
            k->error = *e;
        else
            (void)sg_fail(&k->error, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN,
                          "The upstream ended the stream before the command finished.");
        if (k->started && !(k->log && k->error.upstream_status >= 300)) {
            k->error.outcome = SG_STARTED;
            if (k->error.code == SG_E_UPSTREAM_TIMEOUT)
                k->error.code = SG_E_UPSTREAM_UNREACHABLE;
        }
    }
    command_end(k);
}

/* ---- the request ---- */

static json_t *args_json(const char *const *args)
{
    json_t *list = json_array();
    for (; list && args && *args; args++)
        if (json_array_append_new(list, json_string(*args))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static char *request_text(const struct vercel_command *cmd)
{
    json_t *o = json_object();
    bool ok = o && !json_object_set_new(o, "command", json_string(cmd->command)) &&
              !json_object_set_new(o, "args", args_json(cmd->args)) &&
              !json_object_set_new(o, "env", cmd->env ? json_incref(cmd->env) : json_object()) &&
              !json_object_set_new(o, "sudo", json_boolean(cmd->sudo)) &&
              !json_object_set_new(o, "wait", json_true()) && !json_object_set_new(o, "logs", json_true());
    if (ok && cmd->cwd)
        ok = !json_object_set_new(o, "cwd", json_string(cmd->cwd));
    if (ok && cmd->attach_stdin)
        ok = !json_object_set_new(o, "attachStdin", json_true());
    if (ok && cmd->timeout_ms > 0)
        ok = !json_object_set_new(o, "timeout", json_integer(cmd->timeout_ms));
    char *text = ok ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static struct vercel_command_call *stream_new(struct vercel_client *c, const struct vercel_command_events *ev,
                                              void *arg)
{
    struct vercel_command_call *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->loop = c->loop;
    k->ev = *ev;
    k->arg = arg;
    k->grave.fn = on_bury;
    k->exit_code = -1;
    ndjson_init(&k->lines);
    return k;
}

static const struct vercel_events stream_events = {.on_data = on_data, .on_done = on_done};

struct vercel_command_call *vercel_command_start(struct vercel_client *c, const struct vercel_command *cmd,
                                                 const struct vercel_command_events *ev, void *arg,
                                                 struct sg_error *e)
{
    struct sg_buf path;
    sg_buf_init(&path, 1024);
    char *text = request_text(cmd);
    struct vercel_command_call *k = stream_new(c, ev, arg);
    if (!text || !k || !sg_buf_adds(&path, "/v2/sandboxes/sessions/") ||
        !sg_buf_add_urlenc(&path, cmd->session_id) || !sg_buf_adds(&path, "/cmd")) {
        /* json_string refuses text that is not UTF-8 */
        (void)sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                      "The command cannot be sent: it is not UTF-8, or too long.");
        goto fail;
    }
    const struct vercel_request r = {
        .method = "POST",
        .path = path.data,
        .body = text,
        .body_len = strlen(text),
        .class = VERCEL_LOGS,
        .timeout_ms = -1,
        .expect_type = "application/x-ndjson",
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    k->call = vercel_call_start(c, &r, &stream_events, k, e);
    if (!k->call)
        goto fail;
    goto out;
fail:
    free(k);
    k = NULL;
out:
    if (text) {
        explicit_bzero(text, strlen(text));
        free(text);
    }
    sg_buf_free(&path);
    return k;
}

struct vercel_command_call *vercel_logs_start(struct vercel_client *c, const char *session_id,
                                              const char *command_id, const struct vercel_command_events *ev,
                                              void *arg, struct sg_error *e)
{
    struct sg_buf path;
    struct vercel_command_call *k = stream_new(c, ev, arg);
    if (!vercel_command_path(&path, session_id, command_id, "/logs") || !k) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        goto fail;
    }
    k->log = true;
    k->started = true;
    const struct vercel_request r = {
        .method = "GET",
        .path = path.data,
        .class = VERCEL_LOGS,
        .timeout_ms = -1,
        .expect_type = "application/x-ndjson",
        .idempotent = true,
    };
    k->call = vercel_call_start(c, &r, &stream_events, k, e);
    if (k->call)
        goto out;
fail:
    free(k);
    k = NULL;
out:
    sg_buf_free(&path);
    return k;
}

void vercel_command_resume(struct vercel_command_call *k)
{
    if (k->call)
        vercel_call_resume(k->call);
}

void vercel_command_cancel(struct vercel_command_call *k)
{
    if (!k->dead)
        command_die(k);
}
