#include "config/internal.h"

#include "base/core/num.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 32 };

const struct config_option option_list[OPTION_COUNT] = {
#define X(section, key, type, dflt, min, max, words, help)                                                   \
    {#section, #key, dflt, help, OPTION_##type == OPTION_SECRET},
#include "config/options.def"
#undef X
};

const struct option_def option_defs[OPTION_COUNT] = {
#define X(section, key, type, dflt, min, max, words, help)                                                   \
    {OPTION_##type, offsetof(struct config, key), min, max, words},
#include "config/options.def"
#undef X
};

const struct config_option *config_options(size_t *n)
{
    *n = OPTION_COUNT;
    return option_list;
}

int option_find(const char *section, const char *key)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(option_list[i].section, section) == 0 && strcmp(option_list[i].key, key) == 0)
            return i;
    return -1;
}

bool option_section_known(const char *section)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(option_list[i].section, section) == 0)
            return true;
    return false;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, drop, replace) between two short names; MAX_NAME when one is longer than that. */
static size_t distance(const char *a, const char *b)
{
    size_t la = strlen(a);
    size_t lb = strlen(b);
    size_t row[MAX_NAME + 1];
    if (la > MAX_NAME || lb > MAX_NAME)
        return MAX_NAME;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t up = row[j];
            size_t replace = diagonal + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            row[j] = min3(up + 1, row[j - 1] + 1, replace);
            diagonal = up;
        }
    }
    return row[lb];
}

const char *option_nearest(const char *section, const char *name)
{
    const char *best = NULL;
    size_t least = strlen(name) / 3 + 2; /* farther than that is no misspelling */
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (section && strcmp(option_list[i].section, section) != 0)
            continue;
        const char *known = section ? option_list[i].key : option_list[i].section;
        size_t d = distance(name, known);
        if (d < least) {
            least = d;
            best = known;
        }
    }
    return best;
}

int option_file_target(int index)
{
    char key[MAX_NAME];
    size_t len = strlen(option_list[index].key) - strlen("_file");
    (void)snprintf(key, sizeof key, "%.*s", (int)len, option_list[index].key);
    return option_find(option_list[index].section, key);
}

static char **text_of(struct config *c, int index)
{
    return (char **)(void *)((char *)c + option_defs[index].offset);
}

bool option_is_set(const struct config *c, int index)
{
    if (option_defs[index].type == OPTION_INT)
        return true;
    /* the other members are all pointers */
    const char *member = (const char *)c + option_defs[index].offset;
    const void *value;
    memcpy(&value, member, sizeof value);
    return value != NULL;
}

/* HOST:PORT or [V6]:PORT. */
static bool listen_valid(const char *value)
{
    const char *colon = strrchr(value, ':');
    uint64_t port;
    if (!colon || colon == value || !sg_parse_u64(colon + 1, strlen(colon + 1), 65535, &port))
        return false;
    if (value[0] == '[')
        return colon[-1] == ']' && colon - value > 2;
    return memchr(value, ':', (size_t)(colon - value)) == NULL; /* a bare IPv6 address is ambiguous */
}

static bool word_valid(const char *words, const char *value)
{
    size_t len = strlen(value);
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == len && memcmp(w, value, n) == 0)
            return true;
        w += n;
        w += strspn(w, " ");
    }
    return false;
}

static bool url_valid(const char *value)
{
    const char *host = NULL;
    if (strncmp(value, "http://", 7) == 0)
        host = value + 7;
    else if (strncmp(value, "https://", 8) == 0)
        host = value + 8;
    return host && *host && *host != '/';
}

static enum sg_code bad(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%s", what);
}

static enum sg_code check_text(const struct option_def *d, const char *value, struct sg_error *e)
{
    size_t len = strlen(value);
    if ((int64_t)len < d->min)
        return bad(e, "must not be empty");
    if ((int64_t)len > d->max)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "is longer than %lld bytes", (long long)d->max);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return bad(e, "holds a control character");
    if (d->type == OPTION_LISTEN && !listen_valid(value))
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "must be HOST:PORT or [IPV6]:PORT, not \"%.100s\"",
                       value);
    if (d->type == OPTION_URL && len && !url_valid(value))
        return bad(e, "must be an http:// or https:// URL"); /* not quoted: it may hold a password */
    if (d->type == OPTION_SECRET && strpbrk(value, " \t"))
        return bad(e, "holds a blank");
    return SG_OK;
}

static enum sg_code set_int(struct config *c, int index, const char *value, struct sg_error *e)
{
    const struct option_def *d = &option_defs[index];
    uint64_t n;
    if (!sg_parse_u64(value, strlen(value), INT64_MAX, &n) || (int64_t)n < d->min || (int64_t)n > d->max)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                       "must be a whole number from %lld to %lld, not \"%.40s\"", (long long)d->min,
                       (long long)d->max, value);
    int64_t v = (int64_t)n;
    memcpy((char *)c + d->offset, &v, sizeof v);
    return SG_OK;
}

static enum sg_code set_secret(struct config *c, int index, const char *value, struct sg_error *e)
{
    struct sg_secret **place = (struct sg_secret **)(void *)((char *)c + option_defs[index].offset);
    struct sg_secret *s = NULL;
    if (*value && !(s = sg_secret_new(value, strlen(value))))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
    sg_secret_free(*place);
    *place = s;
    return SG_OK;
}

enum sg_code option_set(struct config *c, int index, const char *value, struct sg_error *e)
{
    const struct option_def *d = &option_defs[index];
    if (d->type == OPTION_INT)
        return set_int(c, index, value, e);
    if (d->type == OPTION_WORD && !word_valid(d->words, value))
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "must be one of: %s; not \"%.40s\"", d->words,
                       value);
    enum sg_code code = d->type == OPTION_WORD ? SG_OK : check_text(d, value, e);
    if (code)
        return code;
    if (d->type == OPTION_SECRET)
        return set_secret(c, index, value, e);
    char *copy = NULL;
    if (*value && !(copy = strdup(value)))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
    free(*text_of(c, index));
    *text_of(c, index) = copy;
    return SG_OK;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (option_defs[i].type == OPTION_SECRET)
            sg_secret_free(*(struct sg_secret **)(void *)text_of(c, i));
        else if (option_defs[i].type != OPTION_INT)
            free(*text_of(c, i));
    }
    free(c);
}
