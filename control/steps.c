#include "control/steps.h"

#include "base/core/wire.h"
#include "base/crypto.h"
#include "base/json.h"
#include "control/control.h"
#include "control/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_CHARS = 64, LAST_LINE = 120, CHECK_TIMEOUT_MS = 60000, MISSING_MAX = 160 };

/* ---- what is asked for ---- */

static enum sg_code check_one(const json_t *step, const char *base, struct sg_error *e)
{
    static const char *const fields[] = {"argv", "shell",      "cwd",  "env",        "env_mode", "user",
                                         "sudo", "timeout_ms", "name", "background", NULL};
    if (!json_is_object(step))
        return sg_fail_field(e, SG_E_INVALID_FIELD, base, "must be an object");
    struct program p;
    const char *name = NULL;
    int64_t timeout_ms = 0;
    bool background = false;
    enum sg_code rc = sg_json_only(step, base, fields, e);
    if (!rc) {
        rc = program_parse(step, base, &p, e);
        program_clear(&p);
    }
    if (!rc)
        rc = sg_json_int(step, base, "timeout_ms", 1, STEP_TIMEOUT_MAX_MS, &timeout_ms, e);
    if (!rc)
        rc = sg_json_bool(step, base, "background", &background, e);
    if (!rc)
        rc = sg_json_str(step, base, "name", NAME_MAX_CHARS, &name, e);
    return rc;
}

enum sg_code steps_check(const json_t *steps, const char *base, struct sg_error *e)
{
    if (!json_is_array(steps))
        return sg_fail_field(e, SG_E_INVALID_FIELD, base, "must be an array of steps");
    size_t n = json_array_size(steps);
    if (n > STEPS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, base, "at most %d steps", STEPS_MAX);
    for (size_t i = 0; i < n; i++) {
        char ptr[96];
        (void)snprintf(ptr, sizeof ptr, "%s/%zu", base, i);
        enum sg_code rc = check_one(json_array_get(steps, i), ptr, e);
        if (rc)
            return rc;
    }
    return SG_OK;
}

/* ---- one step ---- */

/* Passes output on, and keeps the last line of stderr that says something. */
struct listener {
    step_output_fn *output;
    void *arg;
    char line[LAST_LINE + 1];
    size_t len;
    bool ended; /* the line is whole: the next byte begins another one */
};

static void keep_last(struct listener *l, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)data[i];
        if (ch == '\n' || ch == '\r') {
            l->ended = true;
            continue;
        }
        if (ch < 0x20 || ch > 0x7e)
            ch = ch == '\t' ? ' ' : '?';
        if (l->ended)
            l->len = 0;
        l->ended = false;
        if (l->len < LAST_LINE)
            l->line[l->len++] = (char)ch;
    }
    l->line[l->len] = '\0';
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
    struct listener *l = arg;
    if (stream == 1)
        keep_last(l, data, len);
    if (l->output)
        l->output(l->arg, stream, data, len);
}

static enum sg_code failed(const json_t *step, size_t place, const struct step_result *r, const char *line,
                           struct sg_error *e)
{
    const char *name = sg_jget_str(step, "name", NULL);
    char how[48];
    if (r->timed_out)
        (void)snprintf(how, sizeof how, "ran out of time");
    else if (r->exit_code < 0 && r->signal > 0)
        (void)snprintf(how, sizeof how, "was ended by signal %d", r->signal);
    else if (r->exit_code < 0)
        (void)snprintf(how, sizeof how, "ended in a way that is not known");
    else
        (void)snprintf(how, sizeof how, "ended with exit code %d", r->exit_code);
    return sg_fail(e, SG_E_STEP_FAILED, SG_FINISHED, "step %zu%s%.64s%s %s%s%s", place + 1, name ? " (" : "",
                   name ? name : "", name ? ")" : "", how, *line ? ": " : "", line);
}

enum sg_code steps_run_one(struct control *c, const struct step_session *s, const json_t *step, size_t place,
                           const char *id, step_output_fn *output, void *output_arg, struct sg_error *e)
{
    if (!c->steps.run)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "nothing is there to run steps");
    struct listener l = {.output = output, .arg = output_arg};
    struct step_result r = {.exit_code = -1};
    bool background = sg_jget_bool(step, "background", false);
    enum sg_code rc = c->steps.run(c->steps.arg, s, step, id, background, on_output, &l, &r, e);
    if (rc == SG_E_EXECUTABLE_NOT_FOUND) { /* a step that cannot begin has failed as well */
        char why[sizeof e->detail];
        (void)snprintf(why, sizeof why, "%s", e->detail);
        rc = sg_fail(e, SG_E_STEP_FAILED, SG_NOT_STARTED, "step %zu: %.200s", place + 1, why);
    }
    if (rc || background)
        return rc;
    return r.exit_code == 0 ? SG_OK : failed(step, place, &r, l.line, e);
}

enum sg_code steps_run(struct control *c, const struct step_session *s, const json_t *steps,
                       const char *id_base, step_output_fn *output, void *output_arg, struct sg_error *e)
{
    size_t n = json_array_size(steps);
    for (size_t i = 0; i < n; i++) {
        char id[SG_WIRE_ID_MAX + 1];
        (void)snprintf(id, sizeof id, "%.*s-%u", STEP_ID_BASE_MAX, id_base, (unsigned)(i + 1) % 1000U);
        enum sg_code rc = steps_run_one(c, s, json_array_get(steps, i), i, id, output, output_arg, e);
        if (rc)
            return rc;
    }
    return SG_OK;
}

/* ---- the base check ---- */

/* Prints the names of what is missing.  It may use nothing of what it looks for. */
static const char check_script[] =
    "m=\n"
    "for t in setsid find grep cat cp env head ls mkdir mv rm sort stat tail test tr; do\n"
    "  command -v \"$t\" >/dev/null 2>&1 || m=\"$m $t\"\n"
    "done\n"
    "[ -r /proc/self/stat ] || m=\"$m /proc\"\n"
    "case \"$(stat --version 2>/dev/null)\" in *coreutils*) ;; *) m=\"$m coreutils\" ;; esac\n"
    "printf '%s' \"$m\"\n";

struct missing {
    char text[MISSING_MAX];
    size_t len;
};

static void on_missing(void *arg, int stream, const void *data, size_t len)
{
    struct missing *m = arg;
    const char *p = data;
    for (size_t i = 0; stream == 0 && i < len && m->len + 1 < sizeof m->text; i++)
        m->text[m->len++] = p[i] >= 0x20 && p[i] < 0x7f ? p[i] : '?';
    m->text[m->len] = '\0';
}

static enum sg_code unsuitable(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_IMAGE_UNSUITABLE, SG_FINISHED, "the image lacks:%s", what);
}

/* The id tells the script's version, so that a newer gateway checks anew. */
static bool check_id(char id[SG_WIRE_ID_MAX + 1], bool another)
{
    unsigned char digest[32];
    char hex[65];
    sg_sha256(check_script, sizeof check_script - 1, digest);
    sg_hex(hex, digest, sizeof digest);
    hex[8] = '\0';
    int n = snprintf(id, SG_WIRE_ID_MAX + 1, "base-check-%s", hex);
    return !another || sg_random_id(id + n, "-", 8);
}

static enum sg_code run_check(struct control *c, const struct step_session *s, const json_t *step,
                              bool another, struct missing *m, struct step_result *r, struct sg_error *e)
{
    char id[SG_WIRE_ID_MAX + 1];
    if (!check_id(id, another))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for an id");
    *m = (struct missing){.len = 0};
    *r = (struct step_result){.exit_code = -1};
    return c->steps.run(c->steps.arg, s, step, id, false, on_missing, m, r, e);
}

static enum sg_code check(struct control *c, const struct step_session *s, bool again, struct sg_error *e)
{
    if (!c->steps.run)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "nothing is there to run steps");
    json_t *step = json_pack("{s[sss]sssi}", "argv", "/bin/sh", "-c", check_script, "cwd", "/", "timeout_ms",
                             CHECK_TIMEOUT_MS);
    if (!step)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to check the image");
    struct missing m;
    struct step_result r;
    enum sg_code rc = run_check(c, s, step, again, &m, &r, e);
    if (rc == SG_E_PROCESS_ID_CONFLICT &&
        !again) /* an earlier one could not start, or somebody took its name */
        rc = run_check(c, s, step, true, &m, &r, e);
    json_decref(step);
    if (rc == SG_E_EXECUTABLE_NOT_FOUND)
        return unsuitable(e, " /bin/sh");
    if (rc)
        return rc;
    if (m.len)
        return unsuitable(e, m.text);
    if (r.exit_code != 0)
        return sg_fail(e, SG_E_IMAGE_UNSUITABLE, SG_FINISHED,
                       "the shell of the image could not tell what it has");
    session_cache_put(c->checked, s->session_id, s->session_id, "/", NULL, 0);
    return SG_OK;
}

enum sg_code steps_base_check(struct control *c, const struct step_session *s, struct sg_error *e)
{
    struct cached_session known;
    if (!session_cache_get(c->checked, s->session_id, &known))
        return check(c, s, false, e);
    cached_session_clear(&known);
    return SG_OK;
}

enum sg_code steps_base_check_again(struct control *c, const struct step_session *s, struct sg_error *e)
{
    session_cache_forget(c->checked, s->session_id);
    return check(c, s, true, e);
}
