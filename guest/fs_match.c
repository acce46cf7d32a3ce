#include "guest/fs_match.h"

#include <stdlib.h>
#include <string.h>

/* ---- one name ---- */

/* Bytes of the character of UTF-8 at s; 1 for a byte that belongs to none. */
static size_t char_len(const unsigned char *s)
{
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5   ? 4
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                                             : 1;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 1;
    return n;
}

/* The end of a set that begins after '[' at p; NULL when it is not closed, and so no set. */
static const char *set_end(const char *p)
{
    if (*p == '!' || *p == '^')
        p++;
    if (*p == ']')
        p++;
    for (; *p && *p != ']'; p++)
        if (*p == '\\' && p[1])
            p++;
    return *p ? p : NULL;
}

static unsigned char set_byte(const char **p)
{
    if (**p == '\\' && (*p)[1])
        ++*p;
    return (unsigned char)*(*p)++;
}

static bool in_set(const char *p, const char *end, unsigned char c)
{
    bool negated = *p == '!' || *p == '^', found = false;
    if (negated)
        p++;
    while (p < end) {
        unsigned char low = set_byte(&p), high = low;
        if (p[0] == '-' && p + 1 < end) {
            p++;
            high = set_byte(&p);
        }
        found = found || (c >= low && c <= high);
    }
    return found != negated;
}

/* One step of a part that is no star: bytes of the name taken, 0 when it does not fit. */
static size_t take_one(const char **part, const char *name)
{
    const char *p = *part, *end;
    if (!*name || !*p)
        return 0;
    if (*p == '?') {
        *part = p + 1;
        return char_len((const unsigned char *)name);
    }
    if (*p == '[' && (end = set_end(p + 1))) {
        *part = end + 1;
        return in_set(p + 1, end, (unsigned char)*name);
    }
    if (*p == '\\' && p[1])
        p++;
    *part = p + 1;
    return *p == *name;
}

bool match_name(const char *part, const char *name, bool hidden)
{
    if (name[0] == '.' && !hidden && part[0] != '.' && !(part[0] == '\\' && part[1] == '.'))
        return false;
    const char *star = NULL, *retry = NULL;
    for (;;) {
        if (*part == '*') {
            star = ++part;
            retry = name;
            continue;
        }
        if (!*part && !*name)
            return true;
        const char *next = part;
        size_t n = take_one(&next, name);
        if (n) {
            part = next;
            name += n;
        } else if (star && *retry) {
            part = star;
            name = ++retry;
        } else {
            return false;
        }
    }
}

/* ---- braces ---- */

/* The '}' or ',' that ends the alternative at p; NULL when there is none. */
static const char *alternative_end(const char *p)
{
    unsigned depth = 0;
    for (; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == '{')
            depth++;
        else if (*p == '}' && depth)
            depth--;
        else if (depth == 0 && (*p == '}' || *p == ','))
            return p;
    }
    return NULL;
}

/* The first '{' that is closed and has a comma; its '}' in *end. */
static const char *find_braces(const char *p, const char **end)
{
    for (; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            continue;
        }
        if (*p != '{')
            continue;
        const char *e = alternative_end(p + 1);
        bool comma = e && *e == ',';
        while (e && *e == ',')
            e = alternative_end(e + 1);
        if (e && comma) {
            *end = e;
            return p;
        }
    }
    return NULL;
}

static const char *add_part(struct match *m, struct match_pattern *p, const char *part, size_t n)
{
    bool dots = (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.');
    if (dots)
        return "the pattern has . or .. in it";
    if (p->count == MATCH_PARTS_MAX || n + 1 > MATCH_BYTES_MAX - m->used)
        return "the pattern is too long";
    p->parts[p->count++] = memcpy(m->text + m->used, part, n);
    m->text[m->used + n] = '\0';
    m->used += n + 1;
    return NULL;
}

static const char *add_pattern(struct match *m, const char *text)
{
    if (m->count == MATCH_PATTERNS_MAX)
        return "the pattern has too many alternatives";
    struct match_pattern *p = &m->patterns[m->count++];
    if (text[0] == '/')
        return "the pattern begins with a slash";
    while (*text) {
        size_t n = strcspn(text, "/");
        const char *wrong = n ? add_part(m, p, text, n) : NULL;
        if (wrong)
            return wrong;
        text += n;
        p->directories = *text == '/';
        text += strspn(text, "/");
    }
    return p->count ? NULL : "the pattern is empty";
}

enum { BRACES_MAX = 2048 };

/* Each pair of braces is replaced by its alternatives, from the left. */
static const char *expand(struct match *m, const char *text, unsigned *steps)
{
    const char *end, *open = find_braces(text, &end);
    if (++*steps > 4 * MATCH_PATTERNS_MAX)
        return "the pattern has too many alternatives";
    if (!open)
        return add_pattern(m, text);
    size_t tail = strlen(end + 1);
    for (const char *from = open + 1; from <= end;) {
        const char *to = alternative_end(from);
        if (!to)
            break;
        size_t head = (size_t)(open - text), n = (size_t)(to - from);
        if (head + n + tail >= BRACES_MAX)
            return "the pattern is too long";
        char *one = malloc(head + n + tail + 1);
        if (!one)
            return "no memory";
        memcpy(one, text, head);
        memcpy(one + head, from, n);
        memcpy(one + head + n, end + 1, tail + 1);
        const char *wrong = expand(m, one, steps);
        free(one);
        if (wrong)
            return wrong;
        from = to + 1;
    }
    return NULL;
}

const char *match_make(const char *pattern, bool hidden, struct match *m)
{
    memset(m, 0, sizeof *m);
    m->hidden = hidden;
    m->text = malloc(MATCH_BYTES_MAX);
    return m->text ? match_add(pattern, m) : "no memory";
}

const char *match_add(const char *pattern, struct match *m)
{
    unsigned steps = 0;
    return expand(m, pattern, &steps);
}

void match_free(struct match *m)
{
    free(m->text);
    m->text = NULL;
}

/* ---- paths ---- */

static bool is_any_depth(const char *part)
{
    return part[0] == '*' && part[1] == '*' && part[2] == '\0';
}

/* A "**" before other parts may stand for nothing. */
static uint64_t skip_any_depth(const struct match_pattern *p, uint64_t at)
{
    for (unsigned i = 0; i + 1 < p->count; i++)
        if ((at >> i & 1) && is_any_depth(p->parts[i]))
            at |= (uint64_t)1 << (i + 1);
    return at;
}

void match_start(const struct match *m, struct match_state *s)
{
    for (size_t k = 0; k < m->count; k++)
        s->at[k] = skip_any_depth(&m->patterns[k], 1);
}

void match_step(const struct match *m, const struct match_state *s, const char *name, struct match_state *out)
{
    for (size_t k = 0; k < m->count; k++) {
        const struct match_pattern *p = &m->patterns[k];
        uint64_t next = 0;
        for (unsigned i = 0; i < p->count; i++) {
            uint64_t bit = (uint64_t)1 << i;
            if (!(s->at[k] & bit))
                continue;
            if (is_any_depth(p->parts[i])) {
                if (name[0] != '.' || m->hidden)
                    next |= bit | (i + 1 == p->count ? bit << 1 : 0);
            } else if (match_name(p->parts[i], name, m->hidden)) {
                next |= bit << 1;
            }
        }
        out->at[k] = skip_any_depth(p, next);
    }
}

bool match_is_full(const struct match *m, const struct match_state *s, bool is_directory)
{
    for (size_t k = 0; k < m->count; k++) {
        const struct match_pattern *p = &m->patterns[k];
        if ((s->at[k] >> p->count & 1) && (is_directory || !p->directories))
            return true;
    }
    return false;
}

bool match_goes_on(const struct match *m, const struct match_state *s)
{
    for (size_t k = 0; k < m->count; k++)
        if (s->at[k] & (((uint64_t)1 << m->patterns[k].count) - 1))
            return true;
    return false;
}

static bool pattern_matches(const struct match *m, size_t k, const char *path)
{
    struct match_state s[2];
    struct match one = {.count = 1, .hidden = m->hidden};
    one.patterns[0] = m->patterns[k];
    if (one.patterns[0].count == 1) {
        const char *slash = strrchr(path, '/');
        path = slash ? slash + 1 : path;
    }
    match_start(&one, &s[0]);
    for (;;) {
        char name[256];
        size_t n = strcspn(path, "/");
        if (n >= sizeof name)
            return false;
        memcpy(name, path, n);
        name[n] = '\0';
        match_step(&one, &s[0], name, &s[1]);
        s[0] = s[1];
        if (!path[n])
            return match_is_full(&one, &s[0], false);
        path += n + 1;
    }
}

bool match_path(const struct match *m, const char *path)
{
    for (size_t k = 0; k < m->count; k++)
        if (pattern_matches(m, k, path))
            return true;
    return false;
}

/* ---- regular expressions ---- */

/* What repeats is copied by those who translate it, and what repeats in it again and again. */
enum { REPEATS_MAX = 255, STATES_MAX = 16 * 1024, GROUPS_MAX = 64 };

struct cost {
    unsigned long states[GROUPS_MAX + 1]; /* of the groups that we are in */
    unsigned long last;                   /* of what a repetition would be of */
    unsigned depth;
};

static void add_atom(struct cost *c, unsigned long states)
{
    c->last = states;
    c->states[c->depth] += states;
}

static void repeat(struct cost *c, unsigned long times)
{
    c->states[c->depth] += c->last * (times - 1) + 1;
    c->last = c->last * times + 1;
}

/* Past a bracket expression that begins after '[' at p. */
static const char *skip_brackets(const char *p)
{
    if (*p == '^')
        p++;
    if (*p == ']')
        p++;
    while (*p && *p != ']') {
        if (p[0] == '[' && (p[1] == ':' || p[1] == '.' || p[1] == '=')) {
            char close[3] = {p[1], ']', '\0'};
            const char *end = strstr(p + 2, close);
            if (!end)
                return p + strlen(p);
            p = end + 2;
        } else {
            p++;
        }
    }
    return *p ? p + 1 : p;
}

/* The greatest number of a repetition that begins after '{' at *p; more than REPEATS_MAX when there is none so great. */
static unsigned read_bounds(const char **p)
{
    unsigned most = 1, n = 0;
    for (; (**p >= '0' && **p <= '9') || **p == ','; ++*p) {
        n = **p == ',' ? 0 : n * 10 + (unsigned)(**p - '0');
        most = n > most ? n : most;
        if (most > REPEATS_MAX)
            break;
    }
    return most;
}

const char *match_regex_wrong(const char *pattern)
{
    static const char too_often[] = "the pattern repeats too often";
    struct cost c = {.last = 1};
    for (const char *p = pattern; *p;) {
        char at = *p++;
        if (at == '\\' && *p) {
            if (*p >= '1' && *p <= '9')
                return "the pattern refers back";
            p++;
            add_atom(&c, 1);
        } else if (at == '[') {
            p = skip_brackets(p);
            add_atom(&c, 1);
        } else if (at == '(') {
            if (c.depth == GROUPS_MAX)
                return "the pattern has too many groups in each other";
            c.states[++c.depth] = 1;
        } else if (at == ')' && c.depth) {
            unsigned long states = c.states[c.depth--];
            add_atom(&c, states);
        } else if (at == '{') {
            unsigned times = read_bounds(&p);
            if (times > REPEATS_MAX)
                return too_often;
            repeat(&c, times + 1);
        } else if (at == '+' || at == '*' || at == '?') {
            repeat(&c, 2);
        } else {
            add_atom(&c, 1);
        }
        if (c.states[c.depth] > STATES_MAX)
            return too_often;
    }
    return NULL;
}
