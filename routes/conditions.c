#include "routes/conditions.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { NS = 1000000000, DAY_S = 86400, TM_YEAR = 1900 };
static const int64_t year_9999_s = 253402300799;

/* ---- entity tags ---- */

struct tag {
    const char *text; /* without its quotes */
    size_t len;
    bool weak;
};

static const char *skip_blank(const char *p)
{
    return p + strspn(p, " \t");
}

/* One tag at *p, which moves behind it. */
static bool next_tag(const char **p, struct tag *t)
{
    const char *at = *p;
    t->weak = at[0] == 'W' && at[1] == '/';
    at += t->weak ? 2 : 0;
    if (*at++ != '"')
        return false;
    t->text = at;
    while (*at && *at != '"' && *at != 0x7f && (unsigned char)*at > ' ')
        at++;
    t->len = (size_t)(at - t->text);
    *p = at + 1;
    return *at == '"';
}

/* Keeps what could be ours. */
static enum condition_fit keep(struct condition_tags *out, const struct tag *t)
{
    char text[SG_FILE_TAG_LEN + 1];
    size_t have = strlen(out->list);
    if (t->len != SG_FILE_TAG_LEN)
        return CONDITION_FINE;
    memcpy(text, t->text, SG_FILE_TAG_LEN);
    text[SG_FILE_TAG_LEN] = '\0';
    if (!sg_file_tags_valid(text) || sg_file_tag_among(text, out->list))
        return CONDITION_FINE;
    if (have + SG_FILE_TAG_LEN + 2 > sizeof out->list)
        return CONDITION_TOO_MANY;
    if (have)
        out->list[have++] = ',';
    memcpy(out->list + have, text, SG_FILE_TAG_LEN + 1);
    return CONDITION_FINE;
}

/* "*" stands alone. */
static bool is_any(const char *p)
{
    return p[0] == '*' && *skip_blank(p + 1) == '\0';
}

enum condition_fit condition_tags_add(struct condition_tags *t, const char *header, bool weak)
{
    const char *p = skip_blank(header);
    bool more = t->given, any = false;
    t->given = true;
    if (is_any(p)) {
        t->any = true;
        return more ? CONDITION_MALFORMED : CONDITION_FINE;
    }
    while (*p) {
        struct tag tag;
        if (*p == ',') { /* elements may be empty */
            p = skip_blank(p + 1);
            continue;
        }
        if (!next_tag(&p, &tag))
            return CONDITION_MALFORMED;
        any = true;
        p = skip_blank(p);
        if (*p && *p != ',')
            return CONDITION_MALFORMED;
        enum condition_fit fit = weak || !tag.weak ? keep(t, &tag) : CONDITION_FINE;
        if (fit != CONDITION_FINE)
            return fit;
    }
    return any && !t->any ? CONDITION_FINE : CONDITION_MALFORMED;
}

bool condition_tags_match(const struct condition_tags *t, const char *tag)
{
    return t->any || sg_file_tag_among(tag, t->list);
}

bool condition_tag_is(const char *header, const char *tag)
{
    struct tag t;
    const char *p = skip_blank(header);
    return next_tag(&p, &t) && *skip_blank(p) == '\0' && !t.weak && t.len == strlen(tag) &&
           memcmp(t.text, tag, t.len) == 0;
}

/* ---- dates ---- */

static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char *const long_days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

struct moment {
    int year, month, day, hour, minute, second;
    bool short_year;
};

/* Exactly n digits. */
static bool digits(const char **p, int n, int *out)
{
    *out = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        *out = *out * 10 + (**p - '0');
    }
    return true;
}

static bool literal(const char **p, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(*p, text, n) != 0)
        return false;
    *p += n;
    return true;
}

static bool one_of(const char **p, const char *const *names, int count, int *out)
{
    for (*out = 0; *out < count; (*out)++)
        if (literal(p, names[*out]))
            return true;
    return false;
}

static bool clock_time(const char **p, struct moment *m)
{
    return digits(p, 2, &m->hour) && literal(p, ":") && digits(p, 2, &m->minute) && literal(p, ":") &&
           digits(p, 2, &m->second);
}

/* Sun, 06 Nov 1994 08:49:37 GMT */
static bool fixdate(const char *p, struct moment *m)
{
    int day;
    return one_of(&p, days, 7, &day) && literal(&p, ", ") && digits(&p, 2, &m->day) && literal(&p, " ") &&
           one_of(&p, months, 12, &m->month) && literal(&p, " ") && digits(&p, 4, &m->year) &&
           literal(&p, " ") && clock_time(&p, m) && literal(&p, " GMT") && !*p;
}

/* Sunday, 06-Nov-94 08:49:37 GMT */
static bool rfc850(const char *p, struct moment *m)
{
    int day;
    m->short_year = true;
    return one_of(&p, long_days, 7, &day) && literal(&p, ", ") && digits(&p, 2, &m->day) &&
           literal(&p, "-") && one_of(&p, months, 12, &m->month) && literal(&p, "-") &&
           digits(&p, 2, &m->year) && literal(&p, " ") && clock_time(&p, m) && literal(&p, " GMT") && !*p;
}

/* Sun Nov  6 08:49:37 1994 */
static bool asctime_date(const char *p, struct moment *m)
{
    int day;
    if (!one_of(&p, days, 7, &day) || !literal(&p, " ") || !one_of(&p, months, 12, &m->month) ||
        !literal(&p, " "))
        return false;
    bool one = literal(&p, " ");
    return digits(&p, one ? 1 : 2, &m->day) && literal(&p, " ") && clock_time(&p, m) && literal(&p, " ") &&
           digits(&p, 4, &m->year) && !*p;
}

static int64_t seconds_of(const struct moment *m)
{
    struct tm tm = {.tm_year = m->year - TM_YEAR,
                    .tm_mon = m->month,
                    .tm_mday = m->day,
                    .tm_hour = m->hour,
                    .tm_min = m->minute,
                    .tm_sec = m->second};
    return timegm(&tm);
}

/* Two digits are of this century, unless that would be more than 50 years from now. */
static void full_year(struct moment *m, int64_t now_s)
{
    time_t t = now_s;
    struct tm now;
    if (!gmtime_r(&t, &now))
        return;
    int this_year = now.tm_year + TM_YEAR;
    m->year += this_year / 100 * 100;
    if (m->year > this_year + 50)
        m->year -= 100;
}

static bool real(const struct moment *m)
{
    static const int length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = m->year % 4 == 0 && (m->year % 100 != 0 || m->year % 400 == 0);
    return m->day >= 1 && m->day <= length[m->month] + (m->month == 1 && leap) && m->hour < 24 &&
           m->minute < 60 && m->second <= 60;
}

bool condition_date_parse(const char *text, int64_t now_s, int64_t *s)
{
    char trimmed[48] = "";
    struct moment m = {0};
    text = skip_blank(text);
    size_t n = strlen(text);
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    if (n >= sizeof trimmed)
        return false;
    memcpy(trimmed, text, n);
    trimmed[n] = '\0';
    if (!fixdate(trimmed, &m) && !asctime_date(trimmed, &m)) {
        m = (struct moment){0};
        if (!rfc850(trimmed, &m))
            return false;
        full_year(&m, now_s);
    }
    if (!real(&m))
        return false;
    *s = seconds_of(&m);
    return true;
}

void condition_date_format(int64_t s, char out[CONDITION_DATE_TEXT])
{
    struct tm tm;
    time_t t = s < 0 ? 0 : s > year_9999_s ? year_9999_s : s;
    if (!gmtime_r(&t, &tm))
        memset(&tm, 0, sizeof tm);
    (void)snprintf(out, CONDITION_DATE_TEXT, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[tm.tm_wday % 7],
                   (unsigned)tm.tm_mday % 100, months[tm.tm_mon % 12],
                   (unsigned)(tm.tm_year + TM_YEAR) % 10000, (unsigned)tm.tm_hour % 100,
                   (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
}

/* ---- the judgement ---- */

/* Of the time that Last-Modified tells. */
static int64_t modified_s(const struct sg_wire_file *f)
{
    int64_t s = f->mtime_ns / NS;
    return f->mtime_ns % NS < 0 ? s - 1 : s;
}

bool conditions_impossible(const struct conditions *c)
{
    return c->match.given && !c->match.any && !c->match.list[0];
}

static bool matches(const struct condition_tags *t, const struct sg_wire_file *file)
{
    char tag[SG_FILE_TAG_LEN + 1];
    if (!file)
        return false;
    sg_file_tag(file, tag);
    return condition_tags_match(t, tag);
}

enum condition_result conditions_judge(const struct conditions *c, const struct sg_wire_file *file,
                                       bool reads)
{
    if (c->match.given) {
        if (!matches(&c->match, file))
            return CONDITION_FAILED;
    } else if (c->has_unmodified_since && file && modified_s(file) > c->unmodified_since) {
        return CONDITION_FAILED;
    }
    if (c->none_match.given) {
        if (matches(&c->none_match, file))
            return reads ? CONDITION_NOT_MODIFIED : CONDITION_FAILED;
    } else if (reads && c->has_modified_since && file && modified_s(file) <= c->modified_since) {
        return CONDITION_NOT_MODIFIED;
    }
    return CONDITION_GO;
}
