/* Defaults, then the file, then the environment, then the command line. */
#include "config/internal.h"

#include "base/buf.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 256 * 1024, MAX_SECRET_FILE = 16 * 1024, MAX_INI_LINE = 4096, MAX_ENV_NAME = 80 };

enum layer { LAYER_DEFAULT, LAYER_FILE, LAYER_ENV, LAYER_ARGS };

struct loader {
    struct config *c;
    struct sg_error *e;
    enum sg_code code; /* the first failure stands */
    const char *path;
    enum layer set_by[OPTION_COUNT];
    int set_on[OPTION_COUNT]; /* line in the file */
    /* the INI text and where inih is in it */
    const char *text;
    size_t len, pos;
    int line;
};

static enum sg_code out_of_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
}

/* Names come back in errors only when they look like names: a secret pasted into the wrong place does not. */
static bool printable_name(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > 32)
        return false;
    for (; *s; s++)
        if (!islower((unsigned char)*s) && *s != '_' && *s != '-' && *s != '.')
            return false;
    return true;
}

/* ---- one option ---- */

/* Where a value came from, for an error: "sandgate.ini:12: listen", "SANDGATE_SERVER_LISTEN", "--set
 * server.listen". */
static void origin(const struct loader *l, enum layer layer, int index, char *out, size_t cap)
{
    const struct config_option *o = &option_list[index];
    if (layer == LAYER_FILE) {
        (void)snprintf(out, cap, "%.120s:%d: %s", l->path, l->set_on[index], o->key);
    } else if (layer == LAYER_ENV) {
        int n = snprintf(out, cap, "SANDGATE_%s_%s", o->section, o->key);
        for (int i = 0; i < n && (size_t)i < cap; i++)
            out[i] = (char)toupper((unsigned char)out[i]);
    } else if (layer == LAYER_ARGS) {
        (void)snprintf(out, cap, "--set %s.%s", o->section, o->key);
    } else {
        (void)snprintf(out, cap, "default of %s.%s", o->section, o->key);
    }
}

static void set(struct loader *l, enum layer layer, int index, const char *value)
{
    struct sg_error why;
    enum sg_code code = option_set(l->c, index, value, &why);
    l->set_by[index] = layer;
    if (!code)
        return;
    char where[200];
    origin(l, layer, index, where, sizeof where);
    l->code = sg_fail(l->e, code, SG_NOT_SENT, "%s %s", where, why.detail);
}

/* ---- the INI file ---- */

static void unknown_key(struct loader *l, const char *section, const char *key)
{
    const char *near = option_nearest(section, key);
    const char *other = NULL;
    for (int i = 0; i < OPTION_COUNT && !near; i++)
        if (strcmp(option_list[i].key, key) == 0)
            other = option_list[i].section;
    if (!printable_name(key))
        l->code = sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT, "%.120s:%d: unknown key in [%s]", l->path,
                          l->line, section);
    else if (other)
        l->code =
            sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT, "%.120s:%d: key \"%s\" belongs to [%s], not [%s]",
                    l->path, l->line, key, other, section);
    else
        l->code = sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT,
                          "%.120s:%d: unknown key \"%s\" in [%s]%s%s%s", l->path, l->line, key, section,
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static void unknown_section(struct loader *l, const char *section)
{
    const char *near = option_nearest(NULL, section);
    if (!printable_name(section))
        l->code =
            sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT, "%.120s:%d: unknown section", l->path, l->line);
    else
        l->code =
            sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT, "%.120s:%d: unknown section [%s]%s%s%s", l->path,
                    l->line, section, near ? "; did you mean [" : "", near ? near : "", near ? "]?" : "");
}

static int on_pair(void *arg, const char *section, const char *key, const char *value)
{
    struct loader *l = arg;
    if (l->code)
        return 1;
    if (!*section) {
        l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                          "%.120s:%d: a key before the first [section]", l->path, l->line);
        return 1;
    }
    int index = option_find(section, key);
    if (index < 0) {
        unknown_key(l, section, key);
        return 1;
    }
    if (l->set_by[index] == LAYER_FILE) {
        l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                          "%.120s:%d: \"%s\" is given twice, first on line %d", l->path, l->line, key,
                          l->set_on[index]);
        return 1;
    }
    l->set_on[index] = l->line;
    set(l, LAYER_FILE, index, value);
    return 1;
}

/* What inih would let pass without a word. */
static void check_line(struct loader *l, const char *line, size_t len, size_t limit)
{
    const char *what = NULL;
    if (len > limit)
        what = "the line is too long; put a long value into a file";
    else if (memchr(line, '\0', len))
        what = "the line holds a NUL";
    else if (len && (line[0] == ' ' || line[0] == '\t') && strspn(line, " \t\r\n") < len &&
             !strchr("#;", line[strspn(line, " \t")]))
        what = "the line begins with a blank; a value cannot go on over several lines";
    else if (line[0] == '[' && !memchr(line, ']', len))
        what = "the section's \"]\" is missing";
    if (what) {
        l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%.120s:%d: %s", l->path, l->line, what);
        return;
    }
    const char *end;
    if (line[0] == '[' && (end = memchr(line, ']', len)) != NULL) {
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - line - 1), line + 1);
        if (!option_section_known(name))
            unknown_section(l, name);
    }
}

/* Gives inih one line.  Its buffer is wiped before each line and at the end: it held secrets. */
static char *next_line(char *out, int size, void *arg)
{
    struct loader *l = arg;
    explicit_bzero(out, (size_t)size);
    if (l->pos == l->len || l->code)
        return NULL;
    const char *line = l->text + l->pos;
    const char *nl = memchr(line, '\n', l->len - l->pos);
    size_t len = nl ? (size_t)(nl - line) : l->len - l->pos;
    l->pos += len + (nl ? 1 : 0);
    l->line++;
    check_line(l, line, len, (size_t)size - 3);
    if (l->code)
        return NULL;
    memcpy(out, line, len);
    out[len] = '\n';
    return out;
}

static void parse_ini(struct loader *l, const struct sg_buf *b)
{
#ifdef SG_INIH_TUNABLE
    /* the distribution's library allows lines longer than the built-in 200 bytes */
    ini_use_stack = false;
    ini_max_line = MAX_INI_LINE;
    ini_initial_alloc = MAX_INI_LINE;
#endif
    l->text = b->data;
    l->len = b->len;
    int rc = b->len ? ini_parse_stream(next_line, l, on_pair, l) : 0;
    if (l->code || rc == 0)
        return;
    if (rc < 0)
        l->code = out_of_memory(l->e);
    else
        l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                          "%.120s:%d: neither [section] nor key = value", l->path, rc);
}

static void load_file(struct loader *l)
{
    struct sg_buf b;
    bool open_to_all = false;
    if (!config_read_file(l->path, MAX_FILE, &b, &open_to_all)) {
        l->code = sg_fail(l->e, SG_E_FILE_ERROR, SG_NOT_SENT, "cannot read the configuration %.120s: %s",
                          l->path, errno == EFBIG ? "it is too large" : strerror(errno));
        if (l->e)
            (void)snprintf(l->e->errno_name, sizeof l->e->errno_name, "%s", sg_errno_name(errno));
    } else {
        parse_ini(l, &b);
        if (!l->code && open_to_all && l->set_by[OPT_upstream_token] == LAYER_FILE)
            sg_log(SG_LOG_WARN, "secret_file_readable_by_others", "path", "s", l->path, NULL);
    }
    sg_buf_wipe(&b);
}

/* ---- the environment ---- */

/* Container platforms put variables like SANDGATE_SERVER_PORT_80_TCP or …_SERVICE_HOST there for their own
 * services; those are nobody's typing error. */
static bool is_service_link(const char *key)
{
    if (strncmp(key, "service_host", 12) == 0 || strncmp(key, "service_port", 12) == 0)
        return true;
    const char *port = strstr(key, "port");
    return port && (port == key || port[-1] == '_') &&
           (port[4] == '\0' || (port[4] == '_' && isdigit((unsigned char)port[5])));
}

static void unknown_variable(struct loader *l, const char *name, const char *section, const char *key)
{
    const char *near = option_nearest(section, key);
    char hint[MAX_ENV_NAME] = "";
    if (near) {
        int n = snprintf(hint, sizeof hint, "SANDGATE_%s_%s", section, near);
        for (int i = 0; i < n && (size_t)i < sizeof hint; i++)
            hint[i] = (char)toupper((unsigned char)hint[i]);
    }
    l->code = sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT, "unknown environment variable %s%s%s%s", name,
                      near ? "; did you mean " : "", hint, near ? "?" : "");
}

static void load_variable(struct loader *l, const char *entry)
{
    const char *eq = strchr(entry, '=');
    char name[MAX_ENV_NAME], section[MAX_ENV_NAME];
    if (!eq || strncmp(entry, "SANDGATE_", 9) != 0 || eq - entry >= MAX_ENV_NAME)
        return;
    (void)snprintf(name, sizeof name, "%.*s", (int)(eq - entry), entry);
    (void)snprintf(section, sizeof section, "%s", name + 9);
    for (char *p = section; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    char *key = strchr(section, '_'); /* no section has one in its name */
    if (!key)
        return;
    *key++ = '\0';
    if (!option_section_known(section))
        return;
    int index = option_find(section, key);
    if (index < 0 && is_service_link(key))
        return;
    if (index < 0)
        unknown_variable(l, name, section, key);
    else if (eq[1]) /* blank counts as unset */
        set(l, LAYER_ENV, index, eq + 1);
}

static void load_environment(struct loader *l)
{
    for (char **p = environ; p && *p && !l->code; p++)
        load_variable(l, *p);
}

/* ---- the command line ---- */

static void load_override(struct loader *l, const struct config_override *o)
{
    char section[MAX_ENV_NAME];
    (void)snprintf(section, sizeof section, "%s", o->key);
    char *key = strchr(section, '.');
    if (key)
        *key++ = '\0';
    int index = key ? option_find(section, key) : -1;
    if (index < 0) {
        const char *near = key && option_section_known(section) ? option_nearest(section, key) : NULL;
        l->code = sg_fail(l->e, SG_E_UNKNOWN_FIELD, SG_NOT_SENT, "--set %s: unknown option%s%s%s%s%s",
                          printable_name(o->key) ? o->key : "", near ? "; did you mean " : "",
                          near ? section : "", near ? "." : "", near ? near : "", near ? "?" : "");
    } else if (option_list[index].secret) {
        l->code =
            sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                    "--set %s: every user of the machine can see command lines; use %s_file", o->key, o->key);
    } else {
        set(l, LAYER_ARGS, index, o->value);
    }
}

/* ---- …_file ---- */

static void load_value_file(struct loader *l, int index)
{
    int target = option_file_target(index);
    char where[200];
    origin(l, l->set_by[index], index, where, sizeof where);
    char *const *path = (char *const *)(const void *)((const char *)l->c + option_defs[index].offset);
    struct sg_buf b;
    bool open_to_all = false;
    if (!config_read_file(*path, MAX_SECRET_FILE, &b, &open_to_all)) {
        l->code = sg_fail(l->e, SG_E_FILE_ERROR, SG_NOT_SENT, "%s: cannot read %.80s: %s", where, *path,
                          errno == EFBIG ? "it is too large" : strerror(errno));
        goto out;
    }
    while (b.len && isspace((unsigned char)b.data[b.len - 1]))
        b.data[--b.len] = '\0';
    if (!b.len || memchr(b.data, '\0', b.len)) {
        l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%s: %.80s %s", where, *path,
                          b.len ? "holds a NUL" : "is empty");
        goto out;
    }
    if (open_to_all && option_list[target].secret)
        sg_log(SG_LOG_WARN, "secret_file_readable_by_others", "path", "s", *path, NULL);
    struct sg_error why;
    enum sg_code code = option_set(l->c, target, b.data + strspn(b.data, " \t\r\n"), &why);
    if (code)
        l->code = sg_fail(l->e, code, SG_NOT_SENT, "%s: the value in %.80s %s", where, *path, why.detail);
out:
    sg_buf_wipe(&b);
}

/* A value and its file: the one set by the later layer counts; both in one layer is a contradiction. */
static void load_value_files(struct loader *l)
{
    for (int i = 0; i < OPTION_COUNT && !l->code; i++) {
        if (option_defs[i].type != OPTION_FILE || !option_is_set(l->c, i))
            continue;
        int target = option_file_target(i);
        bool both = option_is_set(l->c, target);
        if (both && l->set_by[target] == l->set_by[i]) {
            char where[200];
            origin(l, l->set_by[i], i, where, sizeof where);
            l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%s: set either %s or %s, not both",
                              where, option_list[target].key, option_list[i].key);
        } else if (!both || l->set_by[i] > l->set_by[target]) {
            load_value_file(l, i);
        }
    }
}

/* A period that is half of the limit or more meets it as soon as one beat is late or lost. */
static void check_period(struct loader *l, int index, int64_t period_ms)
{
    if (l->code || !l->c->proxy_idle_ms || period_ms < (l->c->proxy_idle_ms + 1) / 2)
        return;
    char where[200];
    origin(l, l->set_by[index], index, where, sizeof where);
    l->code = sg_fail(l->e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                      "%s: %lld is not less than half of server.proxy_idle_ms, %lld", where,
                      (long long)period_ms, (long long)l->c->proxy_idle_ms);
}

enum sg_code config_load(const char *path, const struct config_override *overrides, size_t n,
                         struct config **out, struct sg_error *e)
{
    *out = NULL;
    struct loader *l = calloc(1, sizeof *l);
    struct config *c = calloc(1, sizeof *c);
    if (!l || !c) {
        free(l);
        free(c);
        return out_of_memory(e);
    }
    l->c = c;
    l->e = e;
    l->path = path;
    for (int i = 0; i < OPTION_COUNT && !l->code; i++)
        set(l, LAYER_DEFAULT, i, option_list[i].dflt);
    if (path && !l->code)
        load_file(l);
    if (!l->code)
        load_environment(l);
    for (size_t i = 0; i < n && !l->code; i++)
        load_override(l, &overrides[i]);
    if (!l->code)
        load_value_files(l);
    check_period(l, OPT_server_ping_ms, c->ping_ms);
    check_period(l, OPT_relay_keepalive_ms, c->keepalive_ms);
    enum sg_code code = l->code;
    free(l);
    if (code)
        config_free(c);
    else
        *out = c;
    return code;
}
