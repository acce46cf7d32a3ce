#include "guestlink/hosts.h"
#include "guestlink/internal.h"
#include "guestlink/lines.h"
#include "guestlink/recall.h"

#include "base/crypto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STDERR_KEEP = 256,
    LINGER_MS = 1000, /* after the last line the command should end at once */
    INSTALL_MS = 500, /* a started helper has taken its place by then, even when it has nothing to say yet */
    ARGS_MAX = 4096,
    UPLOAD_MODE = 0755,
    HEAD_ARGS = 2, /* "--install", hash */
    COMMAND_ID_MAX = 128,
    NOT_EXECUTABLE = 126, /* exit codes of a command that was not run, in place of a refusal */
    NOT_FOUND = 127
};

enum stage {
    STAGE_WAITING,   /* another call uploads the helper */
    STAGE_UPLOADING, /* this one does */
    STAGE_RUNNING,
    STAGE_DEAD
};

struct guest_call {
    TAILQ_ENTRY(guest_call) link; /* in the host's waiters, or in the list to be started */
    LIST_ENTRY(guest_call) all;
    struct guestlink *g;
    struct host *host;
    enum stage stage;
    bool to_start; /* in g->ready */

    const struct guest_blob *blob;
    char **args; /* HEAD_ARGS places, then the caller's */
    char *cwd;
    json_t *env;
    bool sudo, attach_stdin;

    struct guest_events ev;
    void *arg;

    struct vercel_call *upload;
    struct vercel_command_call *command;
    char command_id[COMMAND_ID_MAX + 1]; /* upstream's; empty before it was said */
    struct recall recall;
    struct sg_error cut;    /* why the stream ended, while its rest is heard from the log */
    struct sg_timer *timer; /* the install grace, then the linger */
    char up[64];            /* the uploaded file; empty: run the installed one */
    bool uploaded;
    uint32_t generation; /* of the host when this was run */

    struct lines lines;
    size_t skip;    /* bytes of the text that comes again which are done */
    uint64_t heard; /* bytes of stdout that are done, without those */
    bool hello, has_last;
    struct sg_wire_line last;
    unsigned char scratch[SG_WIRE_DATA_MAX];
    char err_text[STDERR_KEEP];
    size_t err_len;

    struct sg_grave grave;
};

static enum sg_code run_command(struct guest_call *c, struct sg_error *e);
static enum sg_code start_upload(struct guest_call *c, struct sg_error *e);

/* ---- memory ---- */

static void call_free(struct guest_call *c)
{
    for (size_t i = HEAD_ARGS; c->args && c->args[i]; i++)
        free(c->args[i]);
    free(c->args);
    free(c->cwd);
    json_decref(c->env);
    sg_timer_free(c->timer);
    free(c);
}

static void on_bury(struct sg_grave *grave)
{
    call_free((struct guest_call *)((char *)grave - offsetof(struct guest_call, grave)));
}

/* Waiters of a host go on at the loop's next turn, never inside somebody else's call. */
static void release_waiters(struct guestlink *g, struct host *host)
{
    struct guest_call *w;
    while ((w = TAILQ_FIRST(&host->waiters))) {
        TAILQ_REMOVE(&host->waiters, w, link);
        host->nwaiters--;
        TAILQ_INSERT_TAIL(&g->ready, w, link);
        w->to_start = true;
        sg_timer_start(g->pump, 0);
    }
}

static void host_is(struct guest_call *c, enum host_state state)
{
    struct host *host = c->host;
    if (host->state == HOST_READY && state == HOST_READY)
        return;
    if (state == HOST_READY)
        host->generation++;
    host->state = state;
    host->owner = NULL;
    release_waiters(c->g, host);
}

static void call_die(struct guest_call *c)
{
    enum stage stage = c->stage;
    struct host *host = c->host;
    c->stage = STAGE_DEAD;
    if (c->upload)
        vercel_call_cancel(c->upload);
    if (c->command)
        vercel_command_cancel(c->command);
    recall_stop(&c->recall);
    c->upload = NULL;
    c->command = NULL;
    if (c->to_start) {
        TAILQ_REMOVE(&c->g->ready, c, link);
    } else if (stage == STAGE_WAITING) {
        TAILQ_REMOVE(&host->waiters, c, link);
        host->nwaiters--;
    }
    c->to_start = false;
    if (host->owner == c) /* the upload did not come to its end: the next one tries */
        host_is(c, HOST_UNKNOWN);
    hosts_put(host);
    LIST_REMOVE(c, all);
    sg_timer_stop(c->timer);
    sg_loop_bury(c->g->loop, &c->grave);
}

static void call_end(struct guest_call *c, const struct sg_error *e)
{
    call_die(c);
    c->ev.on_end(c->arg, c->has_last ? &c->last : NULL, c->hello, c->has_last ? NULL : e);
}

/* ---- what the helper prints ---- */

static bool is_last(enum sg_wire_kind kind)
{
    return kind == SG_WIRE_MORE || kind == SG_WIRE_OK || kind == SG_WIRE_EXIT || kind == SG_WIRE_ERROR;
}

static void bad_line(struct guest_call *c)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, c->hello ? SG_STARTED : SG_OUTCOME_UNKNOWN,
                  "The helper in the sandbox said something that is not its protocol.");
    call_end(c, &e);
}

/* False: not taken, give it again. */
static bool take_line(struct guest_call *c, const char *text, size_t n)
{
    struct sg_wire_line line;
    if (n && text[0] == '#') /* a remark for people */
        return true;
    if (!sg_wire_parse(text, n, c->scratch, &line)) {
        bad_line(c);
        return true;
    }
    host_is(c, HOST_READY);
    if (is_last(line.kind)) {
        c->last = line;
        c->has_last = true;
        sg_timer_start(c->timer, LINGER_MS);
        return true;
    }
    if (line.kind == SG_WIRE_HELLO || line.kind == SG_WIRE_CARRIER)
        c->hello = true;
    return c->ev.on_line(c->arg, &line);
}

static bool on_stdout(void *arg, const char *data, size_t len)
{
    struct guest_call *c = arg;
    const char *p = data + c->skip;
    size_t left = len - c->skip;
    c->skip = 0;
    while (c->stage != STAGE_DEAD && !c->has_last) {
        const char *line;
        size_t n;
        enum lines_step step = lines_next(&c->lines, &p, &left, &line, &n);
        if (step == LINES_MORE)
            break;
        if (step == LINES_TOO_LONG) {
            bad_line(c);
        } else if (!take_line(c, line, n) && c->stage != STAGE_DEAD) {
            lines_give_back(&c->lines, line, n);
            c->skip = len - left;
            return false;
        }
    }
    c->heard += len;
    return true;
}

static bool on_text(void *arg, int stream, const char *data, size_t len)
{
    struct guest_call *c = arg;
    if (stream == 1)
        return on_stdout(c, data, len);
    size_t n = sizeof c->err_text - c->err_len;
    n = n < len ? n : len;
    memcpy(c->err_text + c->err_len, data, n);
    c->err_len += n;
    return true;
}

/* ---- the end of the command ---- */

static void on_timer(void *arg)
{
    struct guest_call *c = arg;
    if (c->has_last)
        call_end(c, NULL);
    else if (c->host->owner == c)
        host_is(c, HOST_READY);
}

static void on_started(void *arg, const char *command_id)
{
    struct guest_call *c = arg;
    (void)snprintf(c->command_id, sizeof c->command_id, "%s", command_id);
    if (c->host->owner == c)
        sg_timer_start(c->timer, INSTALL_MS);
    if (c->ev.on_command)
        c->ev.on_command(c->arg, command_id);
}

/* The helper is not there.  Uploads it, waits for who does, or just tries again. */
static void on_missing(struct guest_call *c)
{
    struct sg_error e;
    struct host *host = c->host;
    c->command = NULL;
    c->lines = (struct lines){.len = 0};
    c->skip = 0;
    c->heard = 0;
    c->err_len = 0;
    enum sg_code code = SG_OK;
    if (host->state == HOST_BUSY) {
        if (host->nwaiters >= HOST_WAITERS_MAX) {
            code = sg_fail(&e, SG_E_OVERLOADED, SG_NOT_STARTED, "Too many calls wait for the same session.");
        } else {
            c->stage = STAGE_WAITING;
            TAILQ_INSERT_TAIL(&host->waiters, c, link);
            host->nwaiters++;
        }
    } else if (host->state == HOST_READY && host->generation != c->generation) {
        code = run_command(c, &e);
    } else {
        code = start_upload(c, &e);
    }
    if (code != SG_OK) {
        e.outcome = SG_NOT_STARTED;
        call_end(c, &e);
    }
}

static void printable(char *out, size_t cap, const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < cap; i++)
        out[n++] = text[i] > ' ' && text[i] <= '~' ? text[i] : ' ';
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

/* The command finished, yet the last line is missing. */
static void on_unheard(struct guest_call *c, int exit_code)
{
    struct sg_error e;
    char said[128];
    printable(said, sizeof said, c->err_text, c->err_len);
    if (c->hello)
        (void)sg_fail(&e, SG_E_UPSTREAM_UNREACHABLE, SG_STARTED,
                      "The helper in the sandbox ended before it had said everything.");
    else
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_NOT_STARTED,
                      "The helper could not be run in the sandbox (exit code %d)%s%s", exit_code,
                      said[0] ? ": " : ".", said);
    call_end(c, &e);
}

/* ---- the rest from the log: an act whose answer was cut off is not to be repeated ---- */

static bool recall_enough(void *arg)
{
    const struct guest_call *c = arg;
    return c->has_last || c->hello; /* after the hello its owner follows the process from where it is */
}

static void recall_end(void *arg, bool finished, int exit_code)
{
    struct guest_call *c = arg;
    bool silent = finished && !c->hello && c->heard == 0;
    if (c->has_last) {
        call_end(c, NULL);
    } else if (silent && !c->uploaded && (exit_code == NOT_FOUND || exit_code == NOT_EXECUTABLE)) {
        on_missing(c);
    } else {
        c->cut.outcome = c->hello ? SG_STARTED : SG_OUTCOME_UNKNOWN;
        call_end(c, &c->cut);
    }
}

/* Only before the hello: all that acts say, and little of it. */
static bool hear_rest(struct guest_call *c, const struct sg_error *cut)
{
    static const struct recall_events ev = {
        .on_text = on_stdout, .enough = recall_enough, .on_end = recall_end};
    if (!c->command_id[0] || c->hello || c->lines.whole || cut->code != SG_E_UPSTREAM_UNREACHABLE)
        return false;
    c->cut = *cut;
    c->recall = (struct recall){.client = c->g->client,
                                .session_id = c->host->id,
                                .command_id = c->command_id,
                                .ev = &ev,
                                .arg = c,
                                .heard = c->heard};
    return recall_start(&c->recall);
}

static void on_command_end(void *arg, int exit_code, const struct sg_error *e)
{
    struct guest_call *c = arg;
    c->command = NULL;
    if (c->has_last) {
        call_end(c, NULL);
        return;
    }
    bool missing = !c->hello && (e ? e->code == SG_E_EXECUTABLE_NOT_FOUND : true);
    if (missing && !c->uploaded) {
        on_missing(c);
        return;
    }
    if (!e || missing) {
        on_unheard(c, exit_code);
        return;
    }
    if (hear_rest(c, e))
        return;
    struct sg_error mine = *e;
    if (c->hello)
        mine.outcome = SG_STARTED;
    else if (mine.outcome == SG_STARTED) /* the command was; what it was to do may not be */
        mine.outcome = SG_OUTCOME_UNKNOWN;
    call_end(c, &mine);
}

/* ---- running ---- */

void guest_path(char out[GUEST_PATH_MAX], const struct guest_blob *blob)
{
    (void)snprintf(out, GUEST_PATH_MAX, GUEST_ROOT "/guest-%s", blob->hash);
}

static enum sg_code run_command(struct guest_call *c, struct sg_error *e)
{
    static const struct vercel_command_events events = {
        .on_started = on_started, .on_text = on_text, .on_end = on_command_end};
    char path[GUEST_PATH_MAX];
    char **args = c->args + HEAD_ARGS;
    if (c->up[0]) {
        static char install[] = "--install";
        args = c->args;
        args[0] = install;
        args[1] = (char *)(uintptr_t)c->blob->hash; /* only read */
        (void)snprintf(path, sizeof path, "%s", c->up);
    } else {
        guest_path(path, c->blob);
    }
    const struct vercel_command cmd = {
        .session_id = c->host->id,
        .command = path,
        .args = (const char *const *)args,
        .cwd = c->cwd,
        .env = c->env,
        .sudo = c->sudo,
        .attach_stdin = c->attach_stdin,
    };
    c->stage = STAGE_RUNNING;
    c->generation = c->host->generation;
    c->command_id[0] = '\0';
    c->command = vercel_command_start(c->g->client, &cmd, &events, c, e);
    c->up[0] = '\0';
    return c->command ? SG_OK : e->code;
}

/* Nobody of those who waited for this upload has the helper.  Calls begun by their owners meanwhile are not
 * meant. */
static void upload_failed(struct guest_call *c, struct sg_error *e)
{
    struct host *host = c->host;
    e->outcome = SG_NOT_STARTED; /* whatever became of the file: the helper was not run */
    for (int n = host->nwaiters; n > 0 && c->stage != STAGE_DEAD; n--) {
        struct guest_call *w = TAILQ_FIRST(&host->waiters);
        if (w)
            call_end(w, e);
    }
    if (c->stage != STAGE_DEAD)
        call_end(c, e);
}

static void on_uploaded(void *arg, const struct sg_error *e)
{
    struct guest_call *c = arg;
    struct sg_error mine;
    c->upload = NULL;
    if (!e) {
        c->uploaded = true;
        if (run_command(c, &mine) != SG_OK)
            upload_failed(c, &mine);
        return;
    }
    mine = *e;
    if (mine.code == SG_E_FILE_ERROR || mine.code == SG_E_UPSTREAM_REJECTED)
        (void)snprintf(mine.detail, sizeof mine.detail, "The helper cannot be uploaded: %.200s", e->detail);
    upload_failed(c, &mine);
}

static enum sg_code start_upload(struct guest_call *c, struct sg_error *e)
{
    char nonce[16];
    if (!sg_random_id(nonce, "", 12))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "No randomness for the name of the upload.");
    (void)snprintf(c->up, sizeof c->up, GUEST_ROOT "/.up-%s", nonce);
    const struct vercel_file_write w = {
        .session_id = c->host->id,
        .path = c->up,
        .mode = UPLOAD_MODE,
        .size = c->blob->len,
        .data = c->blob->data,
    };
    c->stage = STAGE_UPLOADING;
    c->upload = vercel_file_write_start(c->g->client, &w, on_uploaded, c, e);
    if (!c->upload)
        return e->code;
    c->host->state = HOST_BUSY;
    c->host->owner = c;
    return SG_OK;
}

/* ---- the caller's side ---- */

static bool copy_args(struct guest_call *c, const struct guest_args *a)
{
    size_t n = 0;
    while (a->args && a->args[n])
        if (++n > ARGS_MAX)
            return false;
    c->args = calloc(HEAD_ARGS + n + 1, sizeof *c->args);
    if (!c->args)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(c->args[HEAD_ARGS + i] = strdup(a->args[i])))
            return false;
    return !a->cwd || (c->cwd = strdup(a->cwd)) != NULL;
}

static enum sg_code begin(struct guest_call *c, struct sg_error *e)
{
    struct host *host = c->host;
    switch (host->state) {
    case HOST_ABSENT:
        return start_upload(c, e);
    case HOST_BUSY:
        if (host->nwaiters >= HOST_WAITERS_MAX)
            return sg_fail(e, SG_E_OVERLOADED, SG_NOT_SENT, "Too many calls wait for the same session.");
        c->stage = STAGE_WAITING;
        TAILQ_INSERT_TAIL(&host->waiters, c, link);
        host->nwaiters++;
        return SG_OK;
    case HOST_UNKNOWN:
    case HOST_READY:
    default:
        return run_command(c, e);
    }
}

const struct guest_blob *guestlink_helper(const struct guestlink *g, const char *arch, struct sg_error *e)
{
    if (g->closing) {
        (void)sg_fail(e, SG_E_DRAINING, SG_NOT_SENT, "The gateway is shutting down.");
        return NULL;
    }
    const struct guest_blob *blob = g->find_blob(arch ? arch : "amd64");
    if (!blob)
        (void)sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                      "This build has no helper for the architecture %.20s.", arch ? arch : "amd64");
    return blob;
}

struct guest_call *guest_call_start(struct guestlink *g, const struct guest_args *a,
                                    const struct guest_events *ev, void *arg, struct sg_error *e)
{
    const struct guest_blob *blob = guestlink_helper(g, a->arch, e);
    if (!blob)
        return NULL;
    struct guest_call *c = calloc(1, sizeof *c);
    if (!c)
        goto oom;
    c->g = g;
    c->blob = blob;
    c->ev = *ev;
    c->arg = arg;
    c->env = json_incref(a->env);
    c->sudo = a->sudo;
    c->attach_stdin = a->attach_stdin;
    c->grave.fn = on_bury;
    c->timer = sg_timer_new(g->loop, on_timer, c);
    if (!c->timer || !copy_args(c, a) || !(c->host = hosts_get(&g->hosts, a->session_id)))
        goto oom;
    if (begin(c, e) != SG_OK) {
        hosts_put(c->host);
        call_free(c);
        return NULL;
    }
    LIST_INSERT_HEAD(&g->all, c, all);
    return c;
oom:
    if (c)
        call_free(c);
    (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call into the sandbox.");
    return NULL;
}

void guest_resume(struct guest_call *c)
{
    if (c->command)
        vercel_command_resume(c->command);
    recall_resume(&c->recall);
}

void guest_cancel(struct guest_call *c)
{
    if (c->stage != STAGE_DEAD)
        call_die(c);
}

void guest_abandon(struct guest_call *c)
{
    if (c->stage == STAGE_RUNNING && c->command && c->command_id[0])
        farewell_say(&c->g->farewells, c->host->id, c->command_id);
    guest_cancel(c);
}

static void on_pump(void *arg)
{
    struct guestlink *g = arg;
    struct guest_call *c;
    while ((c = TAILQ_FIRST(&g->ready))) {
        struct sg_error e;
        TAILQ_REMOVE(&g->ready, c, link);
        c->to_start = false;
        c->stage = STAGE_RUNNING;
        if (begin(c, &e) == SG_OK)
            continue;
        e.outcome = SG_NOT_STARTED;
        call_end(c, &e);
    }
}

struct guestlink *guestlink_new(struct sg_loop *loop, struct vercel_client *client)
{
    struct guestlink *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->loop = loop;
    g->client = client;
    g->find_blob = guest_blob_for;
    TAILQ_INIT(&g->ready);
    hosts_init(&g->hosts);
    farewells_init(&g->farewells, loop, client);
    g->pump = sg_timer_new(loop, on_pump, g);
    if (!g->pump) {
        hosts_free(&g->hosts);
        free(g);
        return NULL;
    }
    return g;
}

void guestlink_free(struct guestlink *g)
{
    if (!g)
        return;
    struct guest_call *c;
    struct sg_error e;
    g->closing = true;
    (void)sg_fail(&e, SG_E_DRAINING, SG_OUTCOME_UNKNOWN, "The gateway is shutting down.");
    carriers_end(g, &e);
    while ((c = LIST_FIRST(&g->all)))
        call_end(c, &e);
    sg_timer_free(g->pump);
    farewells_end(&g->farewells);
    hosts_free(&g->hosts);
    free(g);
}

struct vercel_client *guestlink_client(struct guestlink *g)
{
    return g->client;
}

struct sg_loop *guestlink_loop(struct guestlink *g)
{
    return g->loop;
}

void guestlink_fresh(struct guestlink *g, const char *session_id)
{
    hosts_fresh(&g->hosts, session_id);
}

void guestlink_set_blobs(struct guestlink *g, const struct guest_blob *(*find)(const char *arch))
{
    g->find_blob = find;
}
