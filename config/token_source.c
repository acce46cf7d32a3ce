/* Tokens that change while the gateway runs: a file, a command, the login that Vercel's CLI has stored. */
#include "config/internal.h"

#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum config_token_kind config_token_source(const struct config *c)
{
    if (c->token_file)
        return CONFIG_TOKEN_FILE;
    if (c->token_command)
        return CONFIG_TOKEN_COMMAND;
    return strcmp(c->credentials, "cli") == 0 ? CONFIG_TOKEN_CLI : CONFIG_TOKEN_FIXED;
}

static enum sg_code none(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "%s", what);
}

/* ---- files ---- */

static bool source_path(const struct config *c, char out[CONFIG_PATH_TEXT])
{
    if (config_token_source(c) == CONFIG_TOKEN_CLI)
        return config_cli_path(c, "auth.json", out);
    int n = snprintf(out, CONFIG_PATH_TEXT, "%s", c->token_file);
    return n > 0 && n < CONFIG_PATH_TEXT;
}

bool config_token_moved(const struct config *c, uint64_t *stamp)
{
    char path[CONFIG_PATH_TEXT];
    struct stat st;
    if (!source_path(c, path) || stat(path, &st) || !S_ISREG(st.st_mode))
        return false; /* away for the moment, or a pipe, which is read once */
    const uint64_t parts[] = {(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
                              (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec};
    uint64_t now = 14695981039346656037U; /* FNV-1a */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        now = (now ^ parts[i]) * 1099511628211U;
    bool moved = now != *stamp;
    *stamp = now;
    return moved;
}

/* ---- what was read ---- */

static enum sg_code keep(const char *token, size_t len, int64_t expires_ms, struct config_token *out,
                         struct sg_error *e)
{
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)token[i]))
            return none(e, "the upstream token holds a blank or another character that no token has");
    if (!len)
        return none(e, "the upstream token is empty");
    if (!(out->token = sg_secret_new(token, len)))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
    struct token_claims claims = config_token_claims(sg_secret_bytes(out->token));
    out->expires_ms = claims.exp ? claims.exp * 1000 : expires_ms;
    (void)snprintf(out->owner_id, sizeof out->owner_id, "%s", claims.owner_id);
    (void)snprintf(out->project_id, sizeof out->project_id, "%s", claims.project_id);
    if (!out->expires_ms || out->expires_ms > sg_wall_ms())
        return SG_OK;
    char when[SG_TIME_TEXT];
    sg_time_format(out->expires_ms, when);
    sg_secret_free(out->token);
    out->token = NULL;
    return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "the upstream token expired at %s; get a new one",
                   when);
}

/* {token, <expires>}: seconds since 1970. */
static enum sg_code keep_json(const char *text, size_t len, const char *expires, struct config_token *out,
                              struct sg_error *e)
{
    json_t *o = json_loadb(text, len, 0, NULL);
    const json_t *token = json_object_get(o, "token");
    int64_t ms = config_seconds(json_object_get(o, expires)) * 1000;
    enum sg_code code = json_is_string(token)
                            ? keep(json_string_value(token), json_string_length(token), ms, out, e)
                            : none(e, "there is no \"token\" in what was read");
    if (json_is_string(token))
        explicit_bzero((char *)(uintptr_t)json_string_value(token), json_string_length(token));
    json_decref(o);
    return code;
}

static enum sg_code keep_text(struct sg_buf *b, struct config_token *out, struct sg_error *e)
{
    size_t at = 0;
    while (at < b->len && isspace((unsigned char)b->data[at]))
        at++;
    while (b->len > at && isspace((unsigned char)b->data[b->len - 1]))
        b->len--;
    if (at < b->len && b->data[at] == '{')
        return keep_json(b->data + at, b->len - at, "expires_at", out, e);
    return keep(b->data ? b->data + at : "", b->len - at, 0, out, e);
}

static enum sg_code fetch_file(const struct config *c, struct config_token *out, struct sg_error *e)
{
    bool cli = config_token_source(c) == CONFIG_TOKEN_CLI;
    char path[CONFIG_PATH_TEXT];
    struct sg_buf b;
    bool open_to_all;
    if (!source_path(c, path))
        return none(e, "there is no home directory in which the CLI's login could be; set cli_dir");
    enum sg_code code;
    if (!config_read_file(path, CONFIG_TOKEN_FILE_MAX, &b, &open_to_all))
        code = sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "cannot read %.120s: %s", path,
                       errno == EFBIG ? "it is too large" : strerror(errno));
    else if (cli)
        code = keep_json(b.data ? b.data : "", b.len, "expiresAt", out, e);
    else
        code = keep_text(&b, out, e);
    sg_buf_wipe(&b);
    if (code == SG_E_UNAUTHENTICATED && cli)
        (void)snprintf(e->detail + strlen(e->detail), sizeof e->detail - strlen(e->detail),
                       " (log in with Vercel's CLI)");
    return code;
}

/* ---- the command ---- */

static bool spawn(const char *command, int out, pid_t *pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t all, empty;
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)command, NULL};
    sigfillset(&all);
    sigemptyset(&empty);
    if (posix_spawn_file_actions_init(&fa))
        return false;
    if (posix_spawnattr_init(&at)) {
        posix_spawn_file_actions_destroy(&fa);
        return false;
    }
    bool ok = !posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0) &&
              !posix_spawn_file_actions_adddup2(&fa, out, 1) && !posix_spawnattr_setpgroup(&at, 0) &&
              !posix_spawnattr_setsigmask(&at, &empty) && !posix_spawnattr_setsigdefault(&at, &all) &&
              !posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                 POSIX_SPAWN_SETSIGDEF) &&
              !posix_spawn(pid, "/bin/sh", &fa, &at, argv, environ);
    posix_spawnattr_destroy(&at);
    posix_spawn_file_actions_destroy(&fa);
    return ok;
}

/* True at the end of its output, false when it took too long, said too much or is not wanted any more. */
static bool read_output(int fd, int stop, int64_t until, struct sg_buf *b)
{
    for (;;) {
        int64_t left = until - sg_mono_ms();
        struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
        int ready = left > 0 ? poll(p, 2, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0 || p[1].revents)
            return false;
        char chunk[1024];
        ssize_t n = read(fd, chunk, sizeof chunk);
        bool ok = n <= 0 || sg_buf_add(b, chunk, (size_t)n);
        explicit_bzero(chunk, sizeof chunk);
        if (n == 0)
            return true;
        if (!ok || (n < 0 && errno != EINTR))
            return false;
    }
}

/* With whatever it started: what holds its output open may not be itself, so not only while it runs.  Not yet waited for: the
 * number is still its own. */
static bool end_group(pid_t pid)
{
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return false;
}

/* The status of a child that has closed its output, and ends by then. */
static bool ended_well(pid_t pid, int stop, int64_t until)
{
    struct pollfd p = {.fd = stop, .events = POLLIN};
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && sg_mono_ms() < until && poll(&p, 1, 5) <= 0)
        continue;
    if (got == 0)
        return end_group(pid);
    return got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static enum sg_code fetch_command(const struct config *c, int stop, struct config_token *out,
                                  struct sg_error *e)
{
    int fds[2];
    pid_t pid;
    if (pipe2(fds, O_CLOEXEC))
        return none(e, "token_command could not be run: no descriptors");
    bool ok = spawn(c->token_command, fds[1], &pid);
    (void)close(fds[1]);
    if (!ok) {
        (void)close(fds[0]);
        return none(e, "token_command could not be run");
    }
    struct sg_buf b;
    sg_buf_init(&b, CONFIG_TOKEN_FILE_MAX);
    int64_t until = sg_mono_ms() + CONFIG_COMMAND_MS;
    bool room =
        sg_buf_reserve(&b, CONFIG_TOKEN_FILE_MAX / 2); /* at once: growing would leave copies behind */
    bool whole = room && read_output(fds[0], stop, until, &b);
    (void)close(fds[0]);
    bool well = whole ? ended_well(pid, stop, until) : end_group(pid);
    enum sg_code code;
    if (!whole)
        code = none(e, "token_command took longer than 30 s, printed too much, or was given up");
    else if (!well)
        code = none(e, "token_command failed; its own messages are on standard error");
    else
        code = keep_text(&b, out, e);
    sg_buf_wipe(&b);
    return code;
}

enum sg_code config_fetch_token(const struct config *c, int stop, struct config_token *out,
                                struct sg_error *e)
{
    memset(out, 0, sizeof *out);
    switch (config_token_source(c)) {
    case CONFIG_TOKEN_FILE:
    case CONFIG_TOKEN_CLI:
        return fetch_file(c, out, e);
    case CONFIG_TOKEN_COMMAND:
        return fetch_command(c, stop, out, e);
    case CONFIG_TOKEN_FIXED:
    default:
        return none(e, "the upstream token is fixed by the configuration");
    }
}
