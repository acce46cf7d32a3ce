#include "emulator/command.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "emulator/box.h"
#include "emulator/lifecycle.h"
#include "emulator/pump.h"
#include "emulator/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX = 4 << 20, PIPE_SIZE = 256 << 10, EARLY_MAX = 4096, STDIN_WAIT_MS = 30000 };

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
static const char default_cwd[] = "/vercel/sandbox";

/* An exit that was reported before box_exec had told its caller the pid. */
struct early_exit {
    pid_t pid;
    int wait_status;
    struct early_exit *next;
};

/* ---- the object ---- */

static struct command *command_new(const char *spill_dir)
{
    struct command *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    if (cmdlog_init(&c->log, spill_dir)) {
        free(c);
        return NULL;
    }
    atomic_init(&c->refs, 1);
    atomic_init(&c->exited, false);
    pthread_mutex_init(&c->stdin_lock, NULL);
    c->stdin_fd = -1;
    for (int i = 0; i < 2; i++)
        c->source[i] = (struct command_source){.command = c, .name = i ? "stderr" : "stdout", .fd = -1};
    return c;
}

struct command *command_ref(struct command *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

void command_unref(struct command *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    for (int i = 0; i < 2; i++)
        if (c->source[i].fd >= 0)
            close(c->source[i].fd);
    if (c->stdin_fd >= 0)
        close(c->stdin_fd);
    pthread_mutex_destroy(&c->stdin_lock);
    cmdlog_free(&c->log);
    free(c->head);
    free(c);
}

static bool make_head(struct command *c, const struct command_request *rq, const char *cwd,
                      const char *session_id)
{
    struct sg_buf b;
    sg_buf_init(&b, HEAD_MAX);
    sg_buf_adds(&b, "{\"id\":");
    jsontext_adds(&b, c->id);
    sg_buf_adds(&b, ",\"name\":");
    jsontext_adds(&b, rq->program);
    sg_buf_adds(&b, ",\"args\":[");
    size_t i;
    json_t *a;
    json_array_foreach(rq->args, i, a)
    {
        if (i)
            sg_buf_adds(&b, ",");
        jsontext_add(&b, json_string_value(a), json_string_length(a));
    }
    sg_buf_adds(&b, "],\"cwd\":");
    jsontext_adds(&b, cwd);
    sg_buf_adds(&b, ",\"sessionId\":");
    jsontext_adds(&b, session_id);
    c->head = b.failed ? NULL : sg_buf_take(&b, NULL);
    sg_buf_free(&b);
    return c->head != NULL;
}

void command_render(struct sg_buf *out, struct command *c)
{
    pthread_mutex_lock(&c->log.lock);
    bool finished = c->finished;
    int code = c->exit_code;
    int64_t duration = c->duration_ms;
    pthread_mutex_unlock(&c->log.lock);
    sg_buf_adds(out, c->head);
    if (finished)
        sg_buf_addf(out, ",\"exitCode\":%d,\"durationMs\":%" PRId64, code, duration);
    else
        sg_buf_adds(out, ",\"exitCode\":null");
    sg_buf_addf(out, ",\"startedAt\":%" PRId64 "}", c->started_ms);
}

bool command_finished(struct command *c)
{
    pthread_mutex_lock(&c->log.lock);
    bool finished = c->finished;
    pthread_mutex_unlock(&c->log.lock);
    return finished;
}

void command_mark_cut(struct command *c)
{
    pthread_mutex_lock(&c->log.lock);
    c->cut = !c->finished;
    pthread_mutex_unlock(&c->log.lock);
}

bool command_was_cut(struct command *c)
{
    pthread_mutex_lock(&c->log.lock);
    bool cut = c->cut;
    pthread_mutex_unlock(&c->log.lock);
    return cut;
}

/* ---- environment ---- */

/* A growing list of "K=V" in one JSON object, so that later values win. */
static bool env_merge(json_t *env, const json_t *more)
{
    const char *k;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)more, k, v)
    {
        if (json_object_set(env, k, v))
            return false;
    }
    return true;
}

static bool env_set(json_t *env, const char *k, const char *v)
{
    return !json_object_set_new(env, k, json_string(v));
}

static json_t *build_env(const json_t *sandbox_env, const json_t *own, bool sudo)
{
    json_t *env = json_object();
    bool ok = env && env_set(env, "PATH", default_path) && env_set(env, "HOME", "/home/vercel-sandbox") &&
              env_set(env, "USER", "vercel-sandbox") && env_set(env, "LOGNAME", "vercel-sandbox") &&
              env_set(env, "SHELL", "/bin/bash") && env_set(env, "LANG", "C.UTF-8") &&
              env_merge(env, sandbox_env) && (!own || env_merge(env, own));
    if (ok && sudo) /* as sudo does: these are root's, everything else is inherited */
        ok = env_set(env, "HOME", "/root") && env_set(env, "USER", "root") &&
             env_set(env, "LOGNAME", "root") && env_set(env, "SUDO_USER", "vercel-sandbox");
    if (!ok) {
        json_decref(env);
        return NULL;
    }
    return env;
}

/* NULL-terminated "K=V" strings in one block; free() it. */
static const char **env_block(const json_t *env)
{
    const char *k;
    json_t *v;
    size_t n = json_object_size(env), bytes = 0;
    json_object_foreach((json_t *)(uintptr_t)env, k, v)
    {
        bytes += strlen(k) + json_string_length(v) + 2;
    }
    const char **list = malloc((n + 1) * sizeof *list + bytes);
    if (!list)
        return NULL;
    char *p = (char *)(list + n + 1);
    size_t i = 0;
    json_object_foreach((json_t *)(uintptr_t)env, k, v)
    {
        size_t kn = strlen(k), vn = json_string_length(v);
        list[i++] = p;
        memcpy(p, k, kn);
        p[kn] = '=';
        memcpy(p + kn + 1, json_string_value(v), vn + 1);
        p += kn + vn + 2;
    }
    list[i] = NULL;
    return list;
}

static const char **arg_list(const struct command_request *rq)
{
    size_t n = json_array_size(rq->args);
    const char **list = malloc((n + 2) * sizeof *list);
    if (!list)
        return NULL;
    list[0] = rq->program;
    for (size_t i = 0; i < n; i++)
        list[i + 1] = json_string_value(json_array_get(rq->args, i));
    list[n + 1] = NULL;
    return list;
}

/* Absolute; a relative one starts at the session's directory. */
static char *resolve_cwd(const char *cwd)
{
    if (!cwd || !*cwd)
        return strdup(default_cwd);
    if (*cwd == '/')
        return strdup(cwd);
    size_t n = sizeof default_cwd + strlen(cwd) + 1;
    char *out = malloc(n);
    if (out)
        snprintf(out, n, "%s/%s", default_cwd, cwd);
    return out;
}

/* ---- start ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Makes the three descriptors; the far ends go to far[]. */
static bool make_stdio(struct command *c, bool attach, int far[3])
{
    int p[2];
    for (int i = 0; i < 2; i++) {
        if (pipe2(p, O_CLOEXEC))
            return false;
        c->source[i].fd = p[0];
        far[i + 1] = p[1];
        fcntl(p[0], F_SETFL, O_NONBLOCK);
        fcntl(p[0], F_SETPIPE_SZ, PIPE_SIZE);
        fchmod(p[1], 0622); /* or the program could not open /dev/stdout: the pipe is not its user's */
    }
    if (!attach) {
        far[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return far[0] >= 0;
    }
    if (pipe2(p, O_CLOEXEC))
        return false;
    far[0] = p[0];
    c->stdin_fd = p[1];
    c->stdin_attached = true;
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    fchmod(p[0], 0644);
    return true;
}

static bool directory_exists(struct box *box, const char *cwd)
{
    int fd = -1;
    int err = box_open_read(box, "/", cwd, &fd);
    if (!err)
        close(fd);
    return err == EISDIR;
}

int command_exec_error(struct box *box, int err, const char *program, const char *cwd, struct api_error *e)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case ENOEXEC:
    case ELOOP:
    case ENAMETOOLONG:
        if (!directory_exists(box, cwd))
            return api_fail(e, 400, "bad_request", "The working directory '%s' does not exist.", cwd);
        return api_fail(e, 400, "executable_not_found", "Executable '%s' not found in $PATH.", program);
    case E2BIG:
        return api_fail(e, 400, "bad_request", "The arguments and the environment are too long.");
    case ESRCH:
    case EPIPE:
        return api_fail(e, 410, "sandbox_stopped",
                        "Sandbox has stopped execution and is no longer available");
    default:
        return api_fail(e, 500, "internal_server_error", "The command could not be started: %s.",
                        strerror(err));
    }
}

/* With sandbox->lock: keeps the list short; what runs is never forgotten. */
static void forget_oldest(struct session *s)
{
    struct command **victim = NULL;
    for (struct command **p = &s->commands; *p; p = &(*p)->next)
        if (command_finished(*p))
            victim = p;
    if (!victim)
        return;
    struct command *c = *victim;
    *victim = c->next;
    s->ncommands--;
    command_unref(c);
}

static void set_exited(struct command *c, int wait_status)
{
    c->wait_status = wait_status;
    atomic_store(&c->exited, true);
}

bool command_take_early(struct session *s, pid_t pid, int *wait_status)
{
    for (struct early_exit **p = &s->early; *p; p = &(*p)->next) {
        struct early_exit *x = *p;
        if (x->pid != pid)
            continue;
        *p = x->next;
        *wait_status = x->wait_status;
        free(x);
        return true;
    }
    return false;
}

static void enlist(struct session *s, struct command *c, pid_t pid)
{
    pthread_mutex_lock(&s->sandbox->lock);
    if (s->ncommands >= COMMANDS_MAX)
        forget_oldest(s);
    c->pid = pid;
    c->next = s->commands;
    s->commands = command_ref(c);
    s->ncommands++;
    int wait_status;
    if (command_take_early(s, pid, &wait_status))
        set_exited(c, wait_status);
    pthread_mutex_unlock(&s->sandbox->lock);
}

void command_on_exit(void *arg, pid_t pid, int wait_status, const struct rusage *usage)
{
    (void)usage;
    struct session *s = arg;
    struct terminal *left = NULL;
    pthread_mutex_lock(&s->sandbox->lock);
    if (terminal_exited(s, pid, wait_status, &left)) {
        pthread_mutex_unlock(&s->sandbox->lock);
        if (left)
            terminal_unref(left);
        return;
    }
    struct command *c = s->commands;
    while (c && (c->pid != pid || atomic_load(&c->exited)))
        c = c->next;
    if (c) {
        set_exited(c, wait_status);
    } else {
        struct early_exit *x = malloc(sizeof *x);
        if (x) {
            *x = (struct early_exit){.pid = pid, .wait_status = wait_status, .next = s->early};
            s->early = x;
        }
    }
    struct pump *p = s->pump;
    pthread_mutex_unlock(&s->sandbox->lock);
    if (c)
        pump_wake(p);
}

void command_plan_free(struct command_plan *plan)
{
    free(plan->argv);
    free(plan->env);
    free(plan->cwd);
    *plan = (struct command_plan){0};
}

int command_plan(struct emulator *emu, struct session *s, const struct command_request *rq,
                 struct command_plan *out, struct api_error *e)
{
    *out = (struct command_plan){0};
    if (rq->sudo && box_host_tier(emu->host) == BOX_TIER_PLAIN && geteuid() != 0)
        return api_fail(e, 400, "bad_request",
                        "sudo needs root, which this emulator without isolation does not have.");
    out->argv = arg_list(rq);
    out->cwd = resolve_cwd(rq->cwd);
    pthread_mutex_lock(&s->sandbox->lock);
    json_t *sandbox_env = json_deep_copy(s->sandbox->set.env); /* JSON values are not shared by threads */
    pthread_mutex_unlock(&s->sandbox->lock);
    json_t *env = sandbox_env ? build_env(sandbox_env, rq->env, rq->sudo) : NULL;
    if (env)
        out->env = env_block(env);
    json_decref(env);
    json_decref(sandbox_env);
    if (out->argv && out->cwd && out->env)
        return 0;
    command_plan_free(out);
    return api_fail(e, 500, "internal_server_error", "no memory");
}

static int launch(struct session *s, struct command *c, const struct command_request *rq,
                  const struct command_plan *plan, struct api_error *e)
{
    int far[3] = {-1, -1, -1}, rc = -1;
    if (!make_stdio(c, rq->attach_stdin, far)) {
        api_fail(e, 500, "internal_server_error", "no descriptors for the command: %s", strerror(errno));
        goto out;
    }
    struct box_exec ex = {.argv = plan->argv,
                          .env = plan->env,
                          .cwd = plan->cwd,
                          .uid = rq->sudo ? 0 : BOX_USER_UID,
                          .fds = {far[0], far[1], far[2]}};
    pid_t pid = 0;
    c->started_ms = sg_wall_ms();
    c->started_mono = sg_mono_ms();
    int err = box_exec(s->box, &ex, &pid);
    if (err) {
        command_exec_error(s->box, err, rq->program, plan->cwd, e);
        goto out;
    }
    for (int i = 0; i < 3; i++)
        close_fd(&far[i]);
    if (rq->timeout_ms)
        c->deadline_mono = c->started_mono + rq->timeout_ms;
    enlist(s, c, pid);
    pump_add(s->pump, c);
    rc = 0;
out:
    for (int i = 0; i < 3; i++)
        close_fd(&far[i]);
    return rc;
}

int command_start(struct emulator *emu, struct session *s, const struct command_request *rq,
                  struct command **out, struct api_error *e)
{
    int rc = -1;
    struct command_plan plan = {0};
    struct command *c = command_new(emu->state_dir);
    bool ok = c != NULL;
    if (ok && rq->id)
        snprintf(c->id, sizeof c->id, "%s", rq->id);
    else if (ok)
        ok = sg_random_id(c->id, "cmd_", 28);
    if (command_plan(emu, s, rq, &plan, e))
        goto out;
    if (!ok || !make_head(c, rq, plan.cwd, s->id)) {
        api_fail(e, 500, "internal_server_error", "no memory");
        goto out;
    }
    if (session_enter(s, e))
        goto out;
    rc = launch(s, c, rq, &plan, e);
    session_leave(s);
out:
    command_plan_free(&plan);
    if (c && rc) {
        command_unref(c);
        c = NULL;
    }
    *out = c;
    return rc;
}

struct command *command_find(struct session *s, const char *id)
{
    pthread_mutex_lock(&s->sandbox->lock);
    struct command *c = s->commands;
    while (c && strcmp(c->id, id) != 0)
        c = c->next;
    if (c)
        command_ref(c);
    pthread_mutex_unlock(&s->sandbox->lock);
    return c;
}

void command_drop_all(struct session *s)
{
    pthread_mutex_lock(&s->sandbox->lock);
    struct command *c = s->commands;
    struct early_exit *x = s->early;
    s->commands = NULL;
    s->early = NULL;
    s->ncommands = 0;
    pthread_mutex_unlock(&s->sandbox->lock);
    while (c) {
        struct command *next = c->next;
        command_unref(c);
        c = next;
    }
    while (x) {
        struct early_exit *next = x->next;
        free(x);
        x = next;
    }
}

/* ---- signals and input ---- */

int command_kill(struct session *s, struct command *c, int signal_number, struct api_error *e)
{
    if (session_enter(s, e))
        return -1;
    int err = atomic_load(&c->exited) ? ESRCH : box_kill(s->box, c->pid, signal_number);
    session_leave(s);
    if (err == ESRCH)
        return api_fail(e, 404, "command_not_found_or_exited", "Command not found or has exited.");
    if (err)
        return api_fail(e, err == EINVAL ? 400 : 500, err == EINVAL ? "bad_request" : "internal_server_error",
                        "The signal could not be delivered: %s.", strerror(err));
    return 0;
}

/* Writes all into the pipe, waiting for room until the deadline; *done counts. */
static int write_stdin(struct command *c, const char *p, size_t n, struct api_error *e)
{
    int64_t deadline = sg_mono_ms() + STDIN_WAIT_MS;
    while (n) {
        ssize_t k = write(c->stdin_fd, p, n);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
            c->stdin_total += (uint64_t)k;
            continue;
        }
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno != EAGAIN)
            return api_fail(e, 400, "command_stdin_unavailable",
                            "The command does not accept input any more.");
        int64_t left = deadline - sg_mono_ms();
        if (atomic_load(&c->exited))
            return api_fail(e, 404, "command_not_found_or_exited", "Command not found or has exited.");
        if (left <= 0) {
            api_fail(e, 504, "gateway_timeout", "The command did not accept the input within 30 seconds.");
            e->bytes_written = (int64_t)c->stdin_total;
            return -1;
        }
        struct pollfd pfd = {.fd = c->stdin_fd, .events = POLLOUT};
        poll(&pfd, 1, left < 500 ? (int)left : 500); /* looks for the end of the command twice a second */
    }
    return 0;
}

static int stdin_locked(struct command *c, const char *data, size_t len, int64_t offset, bool close_after,
                        struct api_error *e)
{
    if (!c->stdin_attached)
        return api_fail(e, 400, "command_stdin_unavailable", "The command was started without attachStdin.");
    if (atomic_load(&c->exited))
        return api_fail(e, 404, "command_not_found_or_exited", "Command not found or has exited.");
    if (!len && !close_after)
        return 0;
    if (c->stdin_fd < 0)
        return api_fail(e, 400, "command_stdin_unavailable", "The command's stdin is closed.");
    if (offset >= 0) {
        if ((uint64_t)offset > c->stdin_total)
            return api_fail(e, 409, "conflict", "offset is past the %" PRIu64 " bytes written so far.",
                            c->stdin_total);
        uint64_t skip = c->stdin_total - (uint64_t)offset;
        if (skip > len)
            skip = len;
        data += skip;
        len -= (size_t)skip;
    }
    if (len && write_stdin(c, data, len, e))
        return -1;
    if (close_after)
        close_fd(&c->stdin_fd);
    return 0;
}

int command_stdin(struct command *c, const void *data, size_t len, int64_t offset, bool close_after,
                  uint64_t *written, struct api_error *e)
{
    pthread_mutex_lock(&c->stdin_lock);
    int rc = stdin_locked(c, data, len, offset, close_after, e);
    *written = c->stdin_total;
    pthread_mutex_unlock(&c->stdin_lock);
    return rc;
}
