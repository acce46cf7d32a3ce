#include "routes/files.h"

#include "base/core/b64.h"
#include "base/core/num.h"
#include "base/json.h"
#include "routes/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATTERN_MAX = 1024, PREFIX_MAX = 128, POINTER_MAX = 64, NAMES_MAX = 2 * FILES_FIELDS + 4 };

struct source {
    struct exchange *ex;
    bool body; /* else the query */
};

/* ---- times ---- */

static bool digits(const char **at, int n, int *out)
{
    *out = 0;
    for (; n; n--, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        *out = *out * 10 + (**at - '0');
    }
    return true;
}

static bool literal(const char **at, char c)
{
    return *(*at)++ == c;
}

static bool fraction(const char **at, int64_t *ns)
{
    int n = 0;
    *ns = 0;
    for (; **at >= '0' && **at <= '9' && n < 9; (*at)++, n++)
        *ns = *ns * 10 + (**at - '0');
    for (int i = n; i < 9; i++)
        *ns *= 10;
    return n > 0;
}

bool files_time_parse(const char *text, size_t len, int64_t *ns)
{
    struct tm tm = {0}, back;
    const char *at = text;
    int64_t rest = 0, s;
    if (strlen(text) != len || !digits(&at, 4, &tm.tm_year) || !literal(&at, '-') ||
        !digits(&at, 2, &tm.tm_mon) || !literal(&at, '-') || !digits(&at, 2, &tm.tm_mday) ||
        !literal(&at, 'T') || !digits(&at, 2, &tm.tm_hour) || !literal(&at, ':') ||
        !digits(&at, 2, &tm.tm_min) || !literal(&at, ':') || !digits(&at, 2, &tm.tm_sec))
        return false;
    if (*at == '.' && (at++, !fraction(&at, &rest)))
        return false;
    if (strcmp(at, "Z") != 0)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    struct tm copy = tm;
    time_t t = timegm(&copy);
    if (!gmtime_r(&t, &back) || back.tm_mon != tm.tm_mon || back.tm_mday != tm.tm_mday ||
        back.tm_hour != tm.tm_hour || back.tm_min != tm.tm_min || back.tm_sec != tm.tm_sec)
        return false; /* no such day or hour */
    s = t;
    return !__builtin_mul_overflow(s, INT64_C(1000000000), ns) && !__builtin_add_overflow(*ns, rest, ns);
}

/* ---- values ---- */

static enum sg_code wrong(const struct source *s, const char *name, enum sg_code code, const char *why,
                          struct sg_error *e)
{
    char pointer[POINTER_MAX + 2];
    (void)snprintf(pointer, sizeof pointer, "%c%s", s->body ? '/' : '?', name);
    return sg_fail_field(e, code, pointer, "%s", why);
}

/* The text of a field; NULL when it is absent. */
static enum sg_code text_of(const struct source *s, const char *name, const char **text, size_t *len,
                            struct sg_error *e)
{
    *text = NULL;
    if (!s->body) {
        *text = ex_query(s->ex, name, len);
        return SG_OK;
    }
    const json_t *v = json_object_get(s->ex->body, name);
    if (!v)
        return SG_OK;
    if (!json_is_string(v))
        return wrong(s, name, SG_E_INVALID_FIELD, "must be a string", e);
    *text = json_string_value(v);
    *len = json_string_length(v);
    return SG_OK;
}

static size_t bytes_max(enum files_kind kind)
{
    return kind == FILES_PATH ? SPEC_PATH_MAX : kind == FILES_PREFIX ? PREFIX_MAX : PATTERN_MAX;
}

static enum sg_code check_bytes(const struct source *s, const struct files_field *f, const char *name,
                                const char *data, size_t len, struct sg_error *e)
{
    enum sg_code code = f->kind == FILES_PATH ? SG_E_INVALID_PATH : SG_E_INVALID_FIELD;
    if (!len)
        return wrong(s, name, code, "must not be empty", e);
    if (memchr(data, '\0', len))
        return wrong(s, name, code, "must not hold NUL", e);
    if (f->kind == FILES_PREFIX && memchr(data, '/', len))
        return wrong(s, name, code, "must not hold '/'", e);
    if (len > bytes_max(f->kind))
        return wrong(s, name, code, "too long", e);
    return SG_OK;
}

static enum sg_code decode(const struct source *s, const struct files_field *f, const char *name,
                           const char *text, size_t len, struct fs_request *r, struct sg_error *e)
{
    char data[SG_B64_LEN(SPEC_PATH_MAX)];
    if (len > SG_B64_LEN(bytes_max(f->kind)))
        return wrong(s, name, SG_E_INVALID_FIELD, "too long", e);
    ssize_t n = sg_b64_decode(data, text, len);
    if (n < 0)
        return wrong(s, name, SG_E_INVALID_FIELD, "must be base64", e);
    enum sg_code rc = check_bytes(s, f, name, data, (size_t)n, e);
    if (!rc)
        fs_request_bytes(r, f->option, data, (size_t)n);
    return rc;
}

static enum sg_code missing(const struct source *s, const struct files_field *f, struct sg_error *e)
{
    return f->needed ? wrong(s, f->name, f->kind == FILES_PATH ? SG_E_INVALID_PATH : SG_E_INVALID_FIELD,
                             "required", e)
                     : SG_OK;
}

static enum sg_code add_bytes(const struct source *s, const struct files_field *f, struct fs_request *r,
                              struct sg_error *e)
{
    char other[POINTER_MAX];
    const char *plain, *base64 = NULL;
    size_t plain_len = 0, base64_len = 0;
    (void)snprintf(other, sizeof other, "%s_b64", f->name);
    enum sg_code rc = text_of(s, f->name, &plain, &plain_len, e);
    if (!rc)
        rc = text_of(s, other, &base64, &base64_len, e);
    if (rc)
        return rc;
    if (plain && base64)
        return wrong(s, other, SG_E_INVALID_FIELD, "not together with the plain form", e);
    if (base64)
        return decode(s, f, other, base64, base64_len, r, e);
    if (!plain)
        return missing(s, f, e);
    rc = check_bytes(s, f, f->name, plain, plain_len, e);
    if (!rc)
        fs_request_bytes(r, f->option, plain, plain_len);
    return rc;
}

static enum sg_code add_list(const struct source *s, const struct files_field *f, struct fs_request *r,
                             struct sg_error *e)
{
    char *all = NULL;
    size_t used = 0, len = 0;
    const char *text;
    enum sg_code rc = SG_OK;
    for (size_t i = 0; !rc && (text = ex_query_nth(s->ex, f->name, i, &len)); i++) {
        if (!all && !(all = malloc(FILES_LIST_MAX)))
            return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        rc = check_bytes(s, f, f->name, text, len, e);
        if (!rc && len + 1 > FILES_LIST_MAX - used)
            rc = wrong(s, f->name, SG_E_INVALID_FIELD, "all together are too long", e);
        if (rc)
            break;
        if (used)
            all[used++] = '\0';
        memcpy(all + used, text, len);
        used += len;
    }
    if (!rc && used)
        fs_request_bytes(r, f->option, all, used);
    free(all);
    return rc;
}

static enum sg_code get_flag(const struct source *s, const char *name, bool *out, struct sg_error *e)
{
    if (s->body)
        return sg_json_bool(s->ex->body, "", name, out, e);
    const char *text = ex_query(s->ex, name, NULL);
    if (text && strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return wrong(s, name, SG_E_INVALID_FIELD, "must be true or false", e);
    *out = text ? strcmp(text, "true") == 0 : *out;
    return SG_OK;
}

static enum sg_code add_flag(const struct source *s, const struct files_field *f, struct fs_request *r,
                             struct sg_error *e)
{
    bool on = f->kind == FILES_UNLESS;
    enum sg_code rc = get_flag(s, f->name, &on, e);
    if (!rc && f->kind != FILES_CHOICE && on == (f->kind == FILES_FLAG))
        fs_request_flag(r, f->option);
    return rc;
}

static enum sg_code add_number(const struct source *s, const struct files_field *f, struct fs_request *r,
                               struct sg_error *e)
{
    int64_t n = -1;
    enum sg_code rc = s->body ? sg_json_int(s->ex->body, "", f->name, f->min, f->max, &n, e)
                              : ex_query_int(s->ex, f->name, f->min, f->max, &n, e);
    if (!rc && n < 0 && f->needed)
        return missing(s, f, e);
    n = n < 0 ? f->otherwise : n;
    if (!rc && n >= 0)
        fs_request_number(r, f->option, n);
    return rc;
}

static bool is_access(const char *text, size_t len)
{
    static const char letters[] = "rwx";
    for (size_t i = 0; i < len; i++)
        if (!text[i] || !strchr(letters, text[i]) || memchr(text, text[i], i))
            return false;
    return len > 0;
}

static enum sg_code add_text(const struct source *s, const struct files_field *f, struct fs_request *r,
                             struct sg_error *e)
{
    const char *text;
    size_t len = 0;
    int mode;
    int64_t ns;
    enum sg_code rc = text_of(s, f->name, &text, &len, e);
    if (rc || !text)
        return rc ? rc : missing(s, f, e);
    if (f->kind == FILES_ACCESS) {
        if (!is_access(text, len))
            return wrong(s, f->name, SG_E_INVALID_FIELD, "letters of \"rwx\", each once", e);
        fs_request_text(r, f->option, text);
    } else if (f->kind == FILES_MODE) {
        if (strlen(text) != len || spec_mode(text, &mode, NULL))
            return wrong(s, f->name, SG_E_INVALID_FIELD, "must be octal, at most 7777", e);
        fs_request_octal(r, f->option, (unsigned)mode);
    } else {
        if (!files_time_parse(text, len, &ns))
            return wrong(s, f->name, SG_E_INVALID_FIELD,
                         "must be a time such as 2026-11-30T12:00:00.123456789Z", e);
        fs_request_number(r, f->option, ns);
    }
    return SG_OK;
}

static enum sg_code add_field(const struct source *s, const struct files_field *f, struct fs_request *r,
                              struct sg_error *e)
{
    switch (f->kind) {
    case FILES_PATH:
    case FILES_PATTERN:
    case FILES_PREFIX:
        return add_bytes(s, f, r, e);
    case FILES_LIST:
        return add_list(s, f, r, e);
    case FILES_FLAG:
    case FILES_UNLESS:
    case FILES_CHOICE:
        return add_flag(s, f, r, e);
    case FILES_WORD:
        return SG_OK;
    case FILES_NUMBER:
        return add_number(s, f, r, e);
    case FILES_MODE:
    case FILES_ACCESS:
    case FILES_TIME:
    default:
        return add_text(s, f, r, e);
    }
}

/* ---- the request ---- */

/* Refuses what no field is called. */
static enum sg_code check_names(const struct source *s, const struct files_op *op, struct sg_error *e)
{
    static const char *const session_only[] = {"session", NULL};
    char other_names[FILES_FIELDS][POINTER_MAX];
    const char *names[NAMES_MAX + 1];
    size_t n = 0;
    for (const struct files_field *f = op->fields; f->name; f++) {
        char *other = other_names[f - op->fields];
        if (f->kind == FILES_LIST)
            (void)snprintf(other, POINTER_MAX, "*%s", f->name);
        else
            names[n++] = f->name;
        if (f->kind > FILES_LIST)
            continue;
        if (f->kind != FILES_LIST)
            (void)snprintf(other, POINTER_MAX, "%s_b64", f->name);
        names[n++] = other;
    }
    names[n++] = "sudo";
    names[n++] = s->body ? "resume" : "session";
    if (op->pages)
        names[n++] = "cursor";
    names[n] = NULL;
    if (!s->body)
        return ex_query_only(s->ex, names, e);
    enum sg_code rc = ex_query_only(s->ex, session_only, e);
    return rc ? rc : sg_json_only(s->ex->body, "", names, e);
}

static enum sg_code add_cursor(const struct source *s, const struct files_op *op, struct fs_request *r,
                               struct sg_error *e)
{
    size_t len = 0, n = 0;
    const char *text = op->pages ? ex_query(s->ex, "cursor", &len) : NULL;
    if (!text)
        return SG_OK;
    char *data = malloc(FILES_CURSOR_MAX);
    if (!data)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    enum sg_code rc = files_cursor_parse(text, len, data, &n)
                          ? op->cursor(r, data, n, e)
                          : wrong(s, "cursor", SG_E_INVALID_FIELD, "is none that was given out", e);
    free(data);
    return rc;
}

enum sg_code files_parse(struct exchange *ex, const struct files_op *op, struct fs_request *r, bool *resume,
                         struct sg_error *e)
{
    const struct source s = {.ex = ex, .body = ex->body != NULL};
    fs_request_begin(r, op->op);
    r->reads = op->reads;
    r->again = op->again || op->reads;
    r->parts = op->parts;
    enum sg_code rc = check_names(&s, op, e);
    for (const struct files_field *f = op->fields; !rc && f->name; f++)
        rc = add_field(&s, f, r, e);
    if (!rc)
        rc = get_flag(&s, "sudo", &r->sudo, e);
    if (!rc && s.body)
        rc = get_flag(&s, "resume", resume, e);
    if (!rc)
        rc = add_cursor(&s, op, r, e);
    if (!rc && op->check)
        rc = op->check(ex, e);
    if (!rc && op->headers)
        rc = op->headers(ex, r, e);
    return rc;
}

bool files_is_set(struct exchange *ex, const char *name)
{
    const struct source s = {.ex = ex, .body = ex->body != NULL};
    bool on = false;
    return !get_flag(&s, name, &on, NULL) && on;
}
