#include "relay/events.h"

#include "base/core/b64.h"
#include "base/core/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define OFFSET_MAX (INT64_MAX / 4) /* the relay's */

/* ---- Accept ---- */

struct text {
    const char *p;
    size_t n;
};

static struct text trim(struct text t)
{
    while (t.n && (*t.p == ' ' || *t.p == '\t')) {
        t.p++;
        t.n--;
    }
    while (t.n && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
        t.n--;
    return t;
}

/* Takes the part before `sep` off t. */
static struct text part(struct text *t, char sep)
{
    const char *end = memchr(t->p, sep, t->n);
    struct text head = {t->p, end ? (size_t)(end - t->p) : t->n};
    size_t used = head.n + (end ? 1 : 0);
    t->p += used;
    t->n -= used;
    return trim(head);
}

static bool is(struct text t, const char *word)
{
    return t.n == strlen(word) && !strncasecmp(t.p, word, t.n);
}

/* Thousandths of a qvalue; -1: it is none. */
static int quality(struct text t)
{
    int q = 0, digits = 0;
    if (!t.n || (t.p[0] != '0' && t.p[0] != '1') || t.n > 5 || (t.n > 1 && t.p[1] != '.'))
        return -1;
    q = (t.p[0] - '0') * 1000;
    for (int scale = 100; digits + 2 < (int)t.n; digits++, scale /= 10) {
        char c = t.p[2 + digits];
        if (c < '0' || c > '9')
            return -1;
        q += (c - '0') * scale;
    }
    return q <= 1000 ? q : -1;
}

struct liking {
    int q;     /* -1: not named */
    int exact; /* 0 by the range of all, 1 by that of a type, 2 by name */
};

static void like(struct liking *l, int q, int exact)
{
    if (exact < l->exact && l->q >= 0)
        return;
    *l = (struct liking){q, exact};
}

static void like_range(struct text range, int q, struct liking *sse, struct liking *ndjson)
{
    if (is(range, "text/event-stream")) {
        like(sse, q, 2);
    } else if (is(range, "application/x-ndjson") || is(range, "application/ndjson")) {
        like(ndjson, q, 2);
    } else if (is(range, "text/*")) {
        like(sse, q, 1);
    } else if (is(range, "application/*")) {
        like(ndjson, q, 1);
    } else if (is(range, "*/*")) {
        like(sse, q, 0);
        like(ndjson, q, 0);
    }
}

bool events_accept(const char *accept, enum events_format *out)
{
    struct liking sse = {.q = -1}, ndjson = {.q = -1};
    struct text all = trim((struct text){accept ? accept : "", accept ? strlen(accept) : 0});
    *out = EVENTS_SSE;
    if (!all.n)
        return true;
    while (all.n) {
        struct text item = part(&all, ','), range = part(&item, ';');
        int q = 1000;
        while (item.n && q >= 0) {
            struct text param = part(&item, ';'), name = part(&param, '=');
            if (is(name, "q"))
                q = quality(trim(param));
        }
        if (q >= 0)
            like_range(range, q, &sse, &ndjson);
    }
    if (ndjson.q > sse.q || (ndjson.q == sse.q && ndjson.exact > sse.exact))
        *out = EVENTS_NDJSON;
    return sse.q > 0 || ndjson.q > 0;
}

const char *events_type(enum events_format format)
{
    return format == EVENTS_SSE ? "text/event-stream" : "application/x-ndjson";
}

/* ---- ids ---- */

/* "name:N", at the beginning of t, and nothing else in this part. */
static bool take_offset(struct text *t, const char *name, uint64_t *out)
{
    struct text p = part(t, ';'), head = part(&p, ':');
    return is(head, name) && sg_parse_u64(p.p, p.n, OFFSET_MAX, out);
}

bool events_parse_id(const char *id, struct events_at *out)
{
    *out = (struct events_at){.terminal = id[0] == 'p'};
    struct text t = {id, strlen(id)};
    if (t.n > EVENTS_ID_MAX)
        return false;
    if (!take_offset(&t, out->terminal ? "pty" : "stdout", &out->offset[0]))
        return false;
    if (!out->terminal && !take_offset(&t, "stderr", &out->offset[1]))
        return false;
    if (!t.n)
        return t.p[-1] != ';';
    out->over = is(t, "end");
    return out->over;
}

static int print_id(char out[EVENTS_ID_MAX], const struct events_at *at)
{
    const char *end = at->over ? ";end" : "";
    if (at->terminal)
        return snprintf(out, EVENTS_ID_MAX, "pty:%" PRIu64 "%s", at->offset[0], end);
    return snprintf(out, EVENTS_ID_MAX, "stdout:%" PRIu64 ";stderr:%" PRIu64 "%s", at->offset[0],
                    at->offset[1], end);
}

/* ---- records ---- */

static bool begin_id(struct sg_buf *b, enum events_format format, const char *id, const char *type)
{
    if (format == EVENTS_NDJSON)
        return true;
    return sg_buf_adds(b, "event: ") && sg_buf_adds(b, type) && sg_buf_adds(b, "\nid: ") &&
           sg_buf_adds(b, id) && sg_buf_adds(b, "\ndata: ");
}

static bool begin(struct sg_buf *b, enum events_format format, const struct events_at *after,
                  const char *type)
{
    char id[EVENTS_ID_MAX];
    (void)print_id(id, after);
    return begin_id(b, format, id, type);
}

static const char *ending(enum events_format format)
{
    return format == EVENTS_SSE ? "\n\n" : "\n";
}

bool events_record(struct sg_buf *b, enum events_format format, const struct events_at *after,
                   const char *type, const char *json)
{
    return begin(b, format, after, type) && sg_buf_adds(b, json) && sg_buf_adds(b, ending(format));
}

bool events_record_id(struct sg_buf *b, enum events_format format, const char *id, const char *type,
                      const char *json)
{
    return begin_id(b, format, id, type) && sg_buf_adds(b, json) && sg_buf_adds(b, ending(format));
}

bool events_data(struct sg_buf *b, enum events_format format, const struct events_at *after, int stream,
                 uint64_t offset, const void *data, size_t len)
{
    char head[128];
    const char *name = stream ? "stderr" : after->terminal ? "pty" : "stdout";
    (void)snprintf(head, sizeof head,
                   "{\"type\":\"data\",\"stream\":\"%s\",\"offset\":%" PRIu64 ",\"data\":\"", name, offset);
    if (!begin(b, format, after, "data") || !sg_buf_adds(b, head))
        return false;
    char *at = sg_buf_reserve(b, SG_B64_LEN(len));
    if (!at)
        return false;
    b->len += sg_b64_encode(at, data, len);
    return sg_buf_adds(b, "\"}") && sg_buf_adds(b, ending(format));
}

bool events_keepalive(struct sg_buf *b, enum events_format format)
{
    return sg_buf_adds(b, format == EVENTS_SSE ? ": keepalive\n\n" : "{\"type\":\"keepalive\"}\n");
}
