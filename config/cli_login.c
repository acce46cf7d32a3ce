/* The login that Vercel's CLI keeps: {token, expiresAt (seconds), refreshToken} in auth.json, its team in config.json. */
#include "config/internal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 20000, LOCK_STEP_MS = 50 };

bool config_cli_path(const struct config *c, const char *name, char out[CONFIG_PATH_TEXT])
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n = -1;
    if (c->cli_dir)
        n = snprintf(out, CONFIG_PATH_TEXT, "%s/%s", c->cli_dir, name);
    else if (data && *data == '/')
        n = snprintf(out, CONFIG_PATH_TEXT, "%s/com.vercel.cli/%s", data, name);
    else if (home && *home == '/')
        n = snprintf(out, CONFIG_PATH_TEXT, "%s/.local/share/com.vercel.cli/%s", home, name);
    return n > 0 && n < CONFIG_PATH_TEXT;
}

enum sg_code config_cli_team(const struct config *c, char **team, struct sg_error *e)
{
    char path[CONFIG_PATH_TEXT];
    struct sg_buf b;
    bool open_to_all;
    if (!config_cli_path(c, "config.json", path))
        return SG_OK;
    bool ok = config_read_file(path, CONFIG_TOKEN_FILE_MAX, &b, &open_to_all);
    json_t *o = ok ? json_loadb(b.data ? b.data : "", b.len, 0, NULL) : NULL;
    const json_t *v = json_object_get(o, "currentTeam");
    enum sg_code code = SG_OK;
    if (json_is_string(v) && json_string_length(v) && json_string_length(v) <= CONFIG_ID_MAX &&
        !(*team = strdup(json_string_value(v))))
        code = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
    json_decref(o);
    sg_buf_free(&b);
    return code;
}

/* ---- reading ---- */

static enum sg_code no_login(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "%s (log in with Vercel's CLI)", what);
}

/* The file's object; what is secret in it is wiped by drop. */
static enum sg_code read_object(const struct config *c, json_t **out, struct sg_error *e)
{
    char path[CONFIG_PATH_TEXT];
    struct sg_buf b;
    bool open_to_all;
    if (!config_cli_path(c, "auth.json", path))
        return no_login(e, "there is no home directory in which the CLI's login could be");
    bool ok = config_read_file(path, CONFIG_TOKEN_FILE_MAX, &b, &open_to_all);
    *out = ok ? json_loadb(b.data ? b.data : "", b.len, 0, NULL) : NULL;
    sg_buf_wipe(&b);
    if (json_is_object(*out))
        return SG_OK;
    json_decref(*out);
    *out = NULL;
    return no_login(e, "the CLI's login cannot be read");
}

static void drop(json_t *o)
{
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value)
    {
        (void)key;
        if (json_is_string(value))
            explicit_bzero((char *)(uintptr_t)json_string_value(value), json_string_length(value));
    }
    json_decref(o);
}

static struct sg_secret *secret_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_string(v) && json_string_length(v)
               ? sg_secret_new(json_string_value(v), json_string_length(v))
               : NULL;
}

void config_login_clear(struct config_login *l)
{
    sg_secret_free(l->access);
    sg_secret_free(l->refresh);
    *l = (struct config_login){0};
}

enum sg_code config_login_read(const struct config *c, struct config_login *out, struct sg_error *e)
{
    json_t *o = NULL;
    *out = (struct config_login){0};
    enum sg_code code = read_object(c, &o, e);
    if (code)
        return code;
    out->expires_ms = config_seconds(json_object_get(o, "expiresAt")) * 1000;
    out->access = secret_of(o, "token");
    out->refresh = secret_of(o, "refreshToken");
    drop(o);
    if (out->access || out->refresh)
        return SG_OK;
    return no_login(e, "the CLI is logged out");
}

/* ---- one at a time, also among processes ---- */

int config_login_lock(const struct config *c, int stop)
{
    char path[CONFIG_PATH_TEXT];
    int fd = config_cli_path(c, "auth.json.lock", path)
                 ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                 : -1;
    int64_t until = sg_mono_ms() + LOCK_WAIT_MS;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
        struct pollfd p = {.fd = stop, .events = POLLIN};
        if ((errno == EWOULDBLOCK || errno == EINTR) && sg_mono_ms() < until &&
            poll(&p, 1, LOCK_STEP_MS) <= 0)
            continue;
        (void)close(fd);
        return -1;
    }
    return fd;
}

void config_login_unlock(int lock)
{
    if (lock >= 0)
        (void)close(lock);
}

/* ---- writing ---- */

static bool write_all(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* Replaces the file whole: a reader finds the old one or the new one. */
static bool replace(const struct config *c, const char *text, size_t len)
{
    char path[CONFIG_PATH_TEXT], part[CONFIG_PATH_TEXT];
    if (!config_cli_path(c, "auth.json", path) || !config_cli_path(c, "auth.json.part", part))
        return false;
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool ok = fchmod(fd, 0600) == 0 && write_all(fd, text, len) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    ok = ok && rename(part, path) == 0;
    if (!ok)
        (void)unlink(part);
    return ok;
}

enum sg_code config_login_write(const struct config *c, const struct config_login *l, struct sg_error *e)
{
    json_t *o = NULL;
    enum sg_code code = read_object(c, &o, e); /* what else is in it stays */
    if (code)
        return code;
    int bad = json_object_set_new(o, "token", json_string(sg_secret_bytes(l->access)));
    if (l->expires_ms)
        bad |= json_object_set_new(o, "expiresAt", json_integer(l->expires_ms / 1000));
    if (l->refresh)
        bad |= json_object_set_new(o, "refreshToken", json_string(sg_secret_bytes(l->refresh)));
    char *text = bad ? NULL : json_dumps(o, JSON_INDENT(2));
    drop(o);
    if (!text)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "out of memory");
    bool ok = replace(c, text, strlen(text));
    explicit_bzero(text, strlen(text));
    free(text);
    return ok ? SG_OK
              : sg_fail(e, SG_E_UNAUTHENTICATED, SG_FINISHED,
                        "the CLI's renewed login could not be written: %s", strerror(errno));
}
