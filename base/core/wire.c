#include "base/core/wire.h"

#include "base/core/b64.h"
#include "base/core/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {"starting", "running", "finished", "not_started", "unknown"};
static const char *const how_names[] = {"none", "exit", "signal", "timeout", "unknown", "scope"};
static const char *const fail_names[] = {
    "usage",  "no_record", "conflict", "not_started", "exec",          "finished", "no_space",
    "file",   "internal",  "no_input", "offset",      "fenced",        "user",     "stale",
    "digest", "changed",   "archive",  "no_upload",   "upload_offset", "no_watch", "watch_limit"};
static const char *const change_names[] = {"create", "modify", "delete", "attrib", "move", "overflow"};

#define COUNT(a) (sizeof(a) / sizeof *(a))

const char *sg_wire_state_name(enum sg_wire_state s)
{
    return (size_t)s < COUNT(state_names) ? state_names[s] : "unknown";
}

const char *sg_wire_fail_name(enum sg_wire_fail f)
{
    return (size_t)f < COUNT(fail_names) ? fail_names[f] : "internal";
}

const char *sg_wire_change_name(enum sg_wire_change c)
{
    return (size_t)c < COUNT(change_names) ? change_names[c] : "overflow";
}

bool sg_wire_id_own(const char *id)
{
    return strncmp(id, SG_WIRE_OWN, sizeof SG_WIRE_OWN - 1) == 0;
}

bool sg_wire_id_valid(const char *id, size_t len)
{
    if (len == 0 || len > SG_WIRE_ID_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = id[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!alnum && (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return true;
}

/* ---- parsing: a cursor over space-separated fields; any failure sticks ---- */

struct cursor {
    const char *p, *end;
    bool bad;
};

static const char *next_field(struct cursor *c, size_t *len)
{
    *len = 0;
    if (c->bad || c->p >= c->end || *c->p != ' ') {
        c->bad = true;
        return "";
    }
    const char *start = ++c->p;
    const char *space = memchr(start, ' ', (size_t)(c->end - start));
    c->p = space ? space : c->end;
    *len = (size_t)(c->p - start);
    if (*len == 0)
        c->bad = true;
    return start;
}

static uint64_t next_u64(struct cursor *c, uint64_t max)
{
    size_t n;
    const char *s = next_field(c, &n);
    uint64_t v = 0;
    if (!c->bad && !sg_parse_u64(s, n, max, &v))
        c->bad = true;
    return v;
}

static unsigned next_word(struct cursor *c, const char *const names[], size_t count)
{
    size_t n;
    const char *s = next_field(c, &n);
    for (size_t i = 0; !c->bad && i < count; i++)
        if (strlen(names[i]) == n && !memcmp(names[i], s, n))
            return (unsigned)i;
    c->bad = true;
    return 0;
}

static void next_id(struct cursor *c, char out[SG_WIRE_ID_MAX + 1])
{
    size_t n;
    const char *s = next_field(c, &n);
    if (c->bad || !sg_wire_id_valid(s, n)) {
        c->bad = true;
        return;
    }
    memcpy(out, s, n);
    out[n] = '\0';
}

struct flag {
    char letter;
    bool *at;
};

static void next_letters(struct cursor *c, const struct flag *flags, size_t count)
{
    size_t n;
    const char *s = next_field(c, &n);
    if (n == 1 && s[0] == '-')
        return;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < count && flags[k].letter != s[i])
            k++;
        if (k == count || *flags[k].at)
            c->bad = true;
        else
            *flags[k].at = true;
    }
}

enum { PROCESS_FLAGS = 7 };

static void process_flags(struct sg_wire_process *p, struct flag out[PROCESS_FLAGS])
{
    out[0] = (struct flag){'d', &p->descendants_hold_output};
    out[1] = (struct flag){'i', &p->output_incomplete};
    out[2] = (struct flag){'t', &p->terminal};
    out[3] = (struct flag){'o', &p->takes_input};
    out[4] = (struct flag){'l', &p->lossless};
    out[5] = (struct flag){'p', &p->paused};
    out[6] = (struct flag){'u', &p->ends_unattended};
}

static void next_flags(struct cursor *c, struct sg_wire_process *p)
{
    struct flag flags[PROCESS_FLAGS];
    process_flags(p, flags);
    next_letters(c, flags, PROCESS_FLAGS);
}

static void next_offsets(struct cursor *c, struct sg_wire_process *p)
{
    for (int i = 0; i < 2; i++) {
        p->oldest[i] = next_u64(c, INT64_MAX);
        p->end[i] = next_u64(c, INT64_MAX);
        if (p->oldest[i] > p->end[i])
            c->bad = true;
    }
}

static unsigned next_channel(struct cursor *c)
{
    uint64_t v = next_u64(c, 3);
    if (v == 0)
        c->bad = true;
    return (unsigned)v;
}

/* Decodes a field to where *used of scratch ends; "-" is nothing, where that is allowed. */
static void next_bytes(struct cursor *c, bool may_be_none, unsigned char *scratch, size_t *used,
                       const unsigned char **bytes, size_t *len)
{
    size_t n;
    const char *s = next_field(c, &n);
    if (may_be_none && n == 1 && s[0] == '-')
        return;
    if (c->bad || n > SG_B64_LEN((size_t)SG_WIRE_DATA_MAX)) {
        c->bad = true;
        return;
    }
    /* The last group may decode to three bytes beyond SG_WIRE_DATA_MAX (4096 = 3 * 1365 + 1). */
    unsigned char decoded[SG_WIRE_DATA_MAX + 3];
    ssize_t got = sg_b64_decode(decoded, s, n);
    if (got <= 0 || (size_t)got > SG_WIRE_DATA_MAX - *used) {
        c->bad = true;
        return;
    }
    *bytes = memcpy(scratch + *used, decoded, (size_t)got);
    *len = (size_t)got;
    *used += (size_t)got;
}

static void parse_data(struct cursor *c, unsigned char *scratch, struct sg_wire_line *out)
{
    size_t used = 0;
    out->channel = next_channel(c);
    out->offset = next_u64(c, INT64_MAX - SG_WIRE_DATA_MAX);
    next_bytes(c, false, scratch, &used, &out->data, &out->len);
}

static int64_t next_i64(struct cursor *c)
{
    size_t n;
    const char *s = next_field(c, &n);
    bool minus = n && s[0] == '-';
    uint64_t v = 0;
    if (!c->bad && !sg_parse_u64(s + minus, n - minus, INT64_MAX, &v))
        c->bad = true;
    return minus ? -(int64_t)v : (int64_t)v;
}

static uint32_t next_mode(struct cursor *c)
{
    size_t n;
    const char *s = next_field(c, &n);
    uint32_t v = 0;
    if (n > 4)
        c->bad = true;
    for (size_t i = 0; i < n && !c->bad; i++) {
        if (s[i] < '0' || s[i] > '7')
            c->bad = true;
        v = v * 8 + (uint32_t)(s[i] - '0');
    }
    return c->bad ? 0 : v;
}

static void parse_file(struct cursor *c, unsigned char *scratch, struct sg_wire_line *out)
{
    struct sg_wire_file *f = &out->file;
    size_t n, used = 0;
    const char *type = next_field(c, &n);
    if (n != 1 || !memchr(SG_WIRE_TYPES, type[0], sizeof SG_WIRE_TYPES - 1))
        c->bad = true;
    else
        f->type = type[0];
    f->mode = next_mode(c);
    f->uid = (uint32_t)next_u64(c, UINT32_MAX);
    f->gid = (uint32_t)next_u64(c, UINT32_MAX);
    f->size = next_u64(c, INT64_MAX);
    f->mtime_ns = next_i64(c);
    f->ctime_ns = next_i64(c);
    f->ino = next_u64(c, UINT64_MAX);
    f->dev = next_u64(c, UINT64_MAX);
    f->nlink = next_u64(c, UINT64_MAX);
    next_bytes(c, true, scratch, &used, &out->name, &out->name_len);
    next_bytes(c, true, scratch, &used, &out->data, &out->len);
}

static void parse_text(struct cursor *c, unsigned char *scratch, struct sg_wire_line *out)
{
    const struct flag flags[] = {{'t', &out->cut}, {'c', &out->context}, {'m', &out->goes_on}};
    size_t used = 0;
    out->line = next_u64(c, INT64_MAX);
    out->offset = next_u64(c, INT64_MAX - SG_WIRE_DATA_MAX);
    next_letters(c, flags, COUNT(flags));
    next_bytes(c, true, scratch, &used, &out->name, &out->name_len);
    next_bytes(c, true, scratch, &used, &out->data, &out->len);
}

static void parse_change(struct cursor *c, unsigned char *scratch, struct sg_wire_line *out)
{
    size_t used = 0, n;
    out->change = (enum sg_wire_change)next_word(c, change_names, COUNT(change_names));
    const char *type = next_field(c, &n);
    if (n != 1 || (type[0] != 'd' && type[0] != 'f' && type[0] != '-'))
        c->bad = true;
    else if (type[0] != '-')
        out->entry = type[0];
    next_bytes(c, true, scratch, &used, &out->name, &out->name_len);
    next_bytes(c, true, scratch, &used, &out->data, &out->len);
    bool overflow = out->change == SG_CH_OVERFLOW, move = out->change == SG_CH_MOVE;
    if ((out->name_len == 0) != overflow || (out->len > 0) != move || (overflow && out->entry))
        c->bad = true;
    if ((out->name_len && memchr(out->name, '\0', out->name_len)) ||
        (out->len && memchr(out->data, '\0', out->len)))
        c->bad = true;
}

static void parse_end(struct cursor *c, struct sg_wire_process *p)
{
    p->how = (enum sg_wire_how)next_word(c, how_names, COUNT(how_names));
    p->value = (uint32_t)next_u64(c, UINT32_MAX);
    next_flags(c, p);
    p->duration_ms = next_u64(c, INT64_MAX);
}

static void parse_error(struct cursor *c, struct sg_wire_line *out)
{
    out->fail = (enum sg_wire_fail)next_word(c, fail_names, COUNT(fail_names));
    size_t n;
    const char *s = next_field(c, &n);
    if (c->bad || n >= sizeof out->errno_name) {
        c->bad = true;
        return;
    }
    if (n != 1 || s[0] != '-')
        memcpy(out->errno_name, s, n);
    size_t rest = (size_t)(c->end - c->p);
    if (rest && *c->p == ' ') {
        c->p++;
        rest--;
    }
    if (rest >= sizeof out->text)
        rest = sizeof out->text - 1;
    memcpy(out->text, c->p, rest);
    c->p = c->end;
}

/* Eight at a time: lines of output are long. */
static bool printable(const char *s, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t bad = 0, w;
    for (; n >= sizeof w; n -= sizeof w, s += sizeof w) {
        memcpy(&w, s, sizeof w);
        bad |= w | (w - 0x20 * ones) | (w + ones); /* above 0x7f; below 0x20; 0x7f */
    }
    for (; n; n--, s++)
        bad |= *s < 0x20 || *s > 0x7e ? high : 0;
    return !(bad & high);
}

bool sg_wire_parse(const char *line, size_t len, unsigned char scratch[SG_WIRE_DATA_MAX],
                   struct sg_wire_line *out)
{
    memset(out, 0, sizeof *out);
    if (len == 0 || len >= SG_WIRE_LINE_MAX)
        return false;
    if (!printable(line, len))
        return false;
    struct cursor c = {line + 1, line + len, false};
    struct sg_wire_process *p = &out->process;
    out->kind = (enum sg_wire_kind)line[0];
    switch (line[0]) {
    case 'H':
        p->state = (enum sg_wire_state)next_word(&c, state_names, COUNT(state_names));
        next_offsets(&c, p);
        p->started_ms = next_u64(&c, INT64_MAX);
        p->pid = next_u64(&c, INT32_MAX);
        next_flags(&c, p);
        p->input = next_u64(&c, INT64_MAX);
        next_id(&c, p->id);
        break;
    case 'D':
        parse_data(&c, scratch, out);
        break;
    case 'G':
        out->channel = next_channel(&c);
        out->offset = next_u64(&c, INT64_MAX);
        out->to = next_u64(&c, INT64_MAX);
        if (out->to <= out->offset)
            c.bad = true;
        break;
    case 'X':
        p->state = SG_PS_FINISHED;
        parse_end(&c, p);
        p->end[0] = next_u64(&c, INT64_MAX);
        p->end[1] = next_u64(&c, INT64_MAX);
        break;
    case 'P':
        p->state = (enum sg_wire_state)next_word(&c, state_names, COUNT(state_names));
        p->started_ms = next_u64(&c, INT64_MAX);
        p->pid = next_u64(&c, INT32_MAX);
        parse_end(&c, p);
        next_offsets(&c, p);
        p->input = next_u64(&c, INT64_MAX);
        next_id(&c, p->id);
        break;
    case 'C':
        out->epoch = next_u64(&c, INT64_MAX);
        out->accepted = next_u64(&c, INT64_MAX);
        out->room = next_u64(&c, INT64_MAX);
        break;
    case 'A': {
        const struct flag flags[] = {{'c', &out->closed}, {'x', &out->unwanted}};
        out->accepted = next_u64(&c, INT64_MAX);
        out->room = next_u64(&c, INT64_MAX);
        next_letters(&c, flags, COUNT(flags));
        break;
    }
    case 'S':
        parse_file(&c, scratch, out);
        break;
    case 'N': {
        size_t used = 0;
        next_bytes(&c, false, scratch, &used, &out->name, &out->name_len);
        break;
    }
    case 'R':
        parse_text(&c, scratch, out);
        break;
    case 'V':
        parse_change(&c, scratch, out);
        break;
    case 'M':
        break;
    case 'K':
        if (c.p < c.end) { /* an optional word: what kind of success */
            size_t n;
            const char *word = next_field(&c, &n);
            if (n >= sizeof out->text)
                c.bad = true;
            else
                memcpy(out->text, word, n);
        }
        break;
    case 'E':
        parse_error(&c, out);
        break;
    default:
        return false;
    }
    return !c.bad && c.p == c.end;
}

/* ---- formatting ---- */

static const char *letters(const struct flag *flags, size_t count, char *out)
{
    char *o = out;
    for (size_t i = 0; i < count; i++)
        if (*flags[i].at)
            *o++ = flags[i].letter;
    if (o == out)
        *o++ = '-';
    *o = '\0';
    return out;
}

static const char *flags_text(const struct sg_wire_process *p, char out[PROCESS_FLAGS + 2])
{
    struct sg_wire_process copy = *p;
    struct flag flags[PROCESS_FLAGS];
    process_flags(&copy, flags);
    return letters(flags, PROCESS_FLAGS, out);
}

static const char *how_name(enum sg_wire_how how)
{
    return (size_t)how < COUNT(how_names) ? how_names[how] : "unknown";
}

static int format_data(char *out, const struct sg_wire_line *l)
{
    int n = snprintf(out, 64, "D %u %" PRIu64 " ", l->channel, l->offset);
    size_t len = l->len < SG_WIRE_DATA_MAX ? l->len : SG_WIRE_DATA_MAX;
    size_t k = (size_t)n + sg_b64_encode(out + n, l->data, len);
    out[k++] = '\n';
    return (int)k;
}

/* Appends a space and the bytes in base64, "-" for none; cuts them to what *room leaves. */
static size_t add_bytes(char *out, size_t at, const unsigned char *bytes, size_t len, size_t *room)
{
    size_t n = len < *room ? len : *room;
    *room -= n;
    out[at++] = ' ';
    if (n)
        return at + sg_b64_encode(out + at, bytes, n);
    out[at++] = '-';
    return at;
}

static int format_names(char *out, int head, const struct sg_wire_line *l)
{
    size_t room = SG_WIRE_DATA_MAX, at = add_bytes(out, (size_t)head, l->name, l->name_len, &room);
    if (l->kind != SG_WIRE_NAME)
        at = add_bytes(out, at, l->data, l->len, &room);
    out[at++] = '\n';
    return (int)at;
}

static int format_file(char *out, const struct sg_wire_line *l)
{
    const struct sg_wire_file *f = &l->file;
    int n = snprintf(out, SG_WIRE_LINE_MAX,
                     "S %c %" PRIo32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64
                     " %" PRIu64 " %" PRIu64,
                     f->type, f->mode & 07777, f->uid, f->gid, f->size, f->mtime_ns, f->ctime_ns, f->ino,
                     f->dev, f->nlink);
    return format_names(out, n, l);
}

static int format_text(char *out, const struct sg_wire_line *l)
{
    bool cut = l->cut, context = l->context, goes_on = l->goes_on;
    const struct flag flags[] = {{'t', &cut}, {'c', &context}, {'m', &goes_on}};
    char f[COUNT(flags) + 2];
    int n = snprintf(out, SG_WIRE_LINE_MAX, "R %" PRIu64 " %" PRIu64 " %s", l->line, l->offset,
                     letters(flags, COUNT(flags), f));
    return format_names(out, n, l);
}

static int format_error(char *out, const struct sg_wire_line *l)
{
    int n = snprintf(out, SG_WIRE_LINE_MAX, "E %s %s %s", sg_wire_fail_name(l->fail),
                     l->errno_name[0] ? l->errno_name : "-", l->text);
    for (int i = 0; i < n; i++)
        if (out[i] < 0x20 || out[i] > 0x7e)
            out[i] = '?';
    out[n++] = '\n';
    return n;
}

size_t sg_wire_format(char out[SG_WIRE_LINE_MAX], const struct sg_wire_line *l)
{
    const struct sg_wire_process *p = &l->process;
    const char *id = sg_wire_id_valid(p->id, strlen(p->id)) ? p->id : "invalid";
    char f[PROCESS_FLAGS + 2];
    int n = 0;
    switch (l->kind) {
    case SG_WIRE_HELLO:
        n = snprintf(out, SG_WIRE_LINE_MAX,
                     "H %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                     " %s %" PRIu64 " %s\n",
                     sg_wire_state_name(p->state), p->oldest[0], p->end[0], p->oldest[1], p->end[1],
                     p->started_ms, p->pid, flags_text(p, f), p->input, id);
        break;
    case SG_WIRE_DATA:
        n = format_data(out, l);
        break;
    case SG_WIRE_GAP:
        n = snprintf(out, SG_WIRE_LINE_MAX, "G %u %" PRIu64 " %" PRIu64 "\n", l->channel, l->offset, l->to);
        break;
    case SG_WIRE_EXIT:
        n = snprintf(out, SG_WIRE_LINE_MAX, "X %s %" PRIu32 " %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                     how_name(p->how), p->value, flags_text(p, f), p->duration_ms, p->end[0], p->end[1]);
        break;
    case SG_WIRE_PROCESS:
        n = snprintf(out, SG_WIRE_LINE_MAX,
                     "P %s %" PRIu64 " %" PRIu64 " %s %" PRIu32 " %s %" PRIu64 " %" PRIu64 " %" PRIu64
                     " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
                     sg_wire_state_name(p->state), p->started_ms, p->pid, how_name(p->how), p->value,
                     flags_text(p, f), p->duration_ms, p->oldest[0], p->end[0], p->oldest[1], p->end[1],
                     p->input, id);
        break;
    case SG_WIRE_MORE:
        n = snprintf(out, SG_WIRE_LINE_MAX, "M\n");
        break;
    case SG_WIRE_OK:
        n = snprintf(out, SG_WIRE_LINE_MAX, "K%s%s\n", l->text[0] ? " " : "", l->text);
        break;
    case SG_WIRE_ERROR:
        n = format_error(out, l);
        break;
    case SG_WIRE_FILE:
        n = format_file(out, l);
        break;
    case SG_WIRE_NAME:
        n = format_names(out, snprintf(out, SG_WIRE_LINE_MAX, "N"), l);
        break;
    case SG_WIRE_TEXT:
        n = format_text(out, l);
        break;
    case SG_WIRE_CHANGE:
        n = format_names(out,
                         snprintf(out, SG_WIRE_LINE_MAX, "V %s %c", sg_wire_change_name(l->change),
                                  l->entry ? l->entry : '-'),
                         l);
        break;
    case SG_WIRE_CARRIER:
        n = snprintf(out, SG_WIRE_LINE_MAX, "C %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", l->epoch, l->accepted,
                     l->room);
        break;
    case SG_WIRE_ACCEPTED: {
        bool closed = l->closed, unwanted = l->unwanted;
        const struct flag flags[] = {{'c', &closed}, {'x', &unwanted}};
        n = snprintf(out, SG_WIRE_LINE_MAX, "A %" PRIu64 " %" PRIu64 " %s\n", l->accepted, l->room,
                     letters(flags, COUNT(flags), f));
        break;
    }
    }
    return (size_t)n;
}
