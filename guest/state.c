#include "guest/state.h"

#include "base/core/num.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SPEC_AT = 0,
    STARTED_AT = 128,
    EXIT_AT = 256,
    EXIT_AGAIN_AT = 512,
    FACTS_AT = 768,
    MONITOR_AT = 896,
    SLOT = 128,
    EXIT_SLOT = 256,
    READ_TRIES = 64,
};

/* ---- writing ---- */

static bool put(int fd, const void *data, size_t n, off_t at)
{
    ssize_t w;
    do
        w = pwrite(fd, data, n, at);
    while (w < 0 && errno == EINTR);
    if (w >= 0 && (size_t)w != n)
        errno = ENOSPC;
    return w == (ssize_t)n;
}

static size_t facts_text(char out[SLOT], const struct state_facts *f)
{
    char flags[8];
    size_t n = 0;
    if (f->terminal)
        flags[n++] = 't';
    if (f->takes_input)
        flags[n++] = 'o';
    if (f->lossless)
        flags[n++] = 'l';
    if (f->paused)
        flags[n++] = 'p';
    if (f->ends_unattended)
        flags[n++] = 'u';
    flags[n] = '\0';
    /* The flags padded, so that a shorter line leaves nothing of the longer one before. */
    return (size_t)snprintf(out, SLOT, "F %020" PRIu64 " %020" PRIu64 " %-5s\n", f->input, f->input, flags);
}

bool state_create(int fd, const char *spec, const struct state_facts *f)
{
    char page[STATE_SIZE] = {0};
    (void)snprintf(page + SPEC_AT, SLOT, "%s\n", spec);
    (void)facts_text(page + FACTS_AT, f);
    return put(fd, page, sizeof page, 0);
}

bool state_put_started(int fd, const struct state_started *s)
{
    char text[SLOT];
    int n = snprintf(text, sizeof text, "S1 %d %" PRIu64 " %" PRIu64 "\n", (int)s->program, s->program_start,
                     s->wall_ms);
    return put(fd, text, (size_t)n, STARTED_AT);
}

bool state_clear_started(int fd)
{
    static const char zeros[SLOT];
    return put(fd, zeros, sizeof zeros, STARTED_AT);
}

bool state_put_monitor(int fd, pid_t pid, uint64_t start)
{
    char text[SLOT];
    int n = snprintf(text, sizeof text, "M1 %d %" PRIu64 "\n", (int)pid, start);
    return put(fd, text, (size_t)n, MONITOR_AT);
}

bool state_put_exit(int fd, bool again, const struct sg_wire_process *p)
{
    char line[SG_WIRE_LINE_MAX];
    size_t n = sg_wire_format(line, &(struct sg_wire_line){.kind = SG_WIRE_EXIT, .process = *p});
    return n <= EXIT_SLOT && put(fd, line, n, again ? EXIT_AGAIN_AT : EXIT_AT);
}

bool state_put_facts(int fd, const struct state_facts *f)
{
    char text[SLOT];
    size_t n = facts_text(text, f);
    return put(fd, text, n, FACTS_AT);
}

/* ---- reading ---- */

/* The length of the line in a slot without its LF, -1 without one. */
static ssize_t slot_line(const struct state *s, size_t at, size_t size)
{
    const char *p = s->text + at, *lf = memchr(p, '\n', size);
    return lf ? lf - p : -1;
}

static bool read_once(int fd, struct state *s)
{
    ssize_t n = pread(fd, s->text, sizeof s->text, 0);
    size_t have = n > 0 ? (size_t)n : 0;
    memset(s->text + have, 0, sizeof s->text - have);
    return have == sizeof s->text;
}

void state_read(int fd, struct state *s)
{
    struct state_facts f;
    for (int i = 0; i < READ_TRIES && read_once(fd, s) && !state_facts(s, &f); i++)
        continue;
}

bool state_has_spec(const struct state *s, const char *spec)
{
    ssize_t n = slot_line(s, SPEC_AT, SLOT);
    return n >= 0 && (size_t)n == strlen(spec) && memcmp(s->text + SPEC_AT, spec, (size_t)n) == 0;
}

/* A slot's line of the mark and n numbers with a space before each; the first is a process id. */
static bool numbers_at(const struct state *s, size_t at, const char *mark, uint64_t *v, size_t n)
{
    ssize_t len = slot_line(s, at, SLOT);
    const char *p = s->text + at;
    if (len < 3 || memcmp(p, mark, 2) != 0)
        return false;
    const char *end = p + len;
    p += 2;
    for (size_t i = 0; i < n; i++) {
        if (p == end || *p != ' ')
            return false;
        const char *stop = memchr(p + 1, ' ', (size_t)(end - p - 1));
        stop = stop ? stop : end;
        if (!sg_parse_u64(p + 1, (size_t)(stop - p - 1), i == 0 ? INT32_MAX : INT64_MAX, &v[i]))
            return false;
        p = stop;
    }
    return p == end;
}

bool state_started(const struct state *s, struct state_started *out)
{
    uint64_t v[3];
    if (!numbers_at(s, STARTED_AT, "S1", v, 3))
        return false;
    *out = (struct state_started){.program = (pid_t)v[0], .program_start = v[1], .wall_ms = v[2]};
    return true;
}

bool state_monitor(const struct state *s, pid_t *pid, uint64_t *start)
{
    uint64_t v[2];
    if (!numbers_at(s, MONITOR_AT, "M1", v, 2))
        return false;
    *pid = (pid_t)v[0];
    *start = v[1];
    return true;
}

static bool exit_at(const struct state *s, size_t at, struct sg_wire_process *x)
{
    ssize_t n = slot_line(s, at, EXIT_SLOT);
    unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    if (n <= 0 || !sg_wire_parse(s->text + at, (size_t)n, scratch, &l) || l.kind != SG_WIRE_EXIT)
        return false;
    *x = l.process;
    return true;
}

bool state_exit(const struct state *s, struct sg_wire_process *x)
{
    return exit_at(s, EXIT_AGAIN_AT, x) || exit_at(s, EXIT_AT, x);
}

bool state_facts(const struct state *s, struct state_facts *out)
{
    enum { DIGITS = 20, FLAGS_AT = 2 + 2 * (DIGITS + 1) };
    const char *p = s->text + FACTS_AT;
    ssize_t n = slot_line(s, FACTS_AT, SLOT);
    uint64_t first, second;
    if (n < FLAGS_AT || memcmp(p, "F ", 2) != 0 || p[2 + DIGITS] != ' ' || p[FLAGS_AT - 1] != ' ' ||
        !sg_parse_u64(p + 2, DIGITS, INT64_MAX, &first) ||
        !sg_parse_u64(p + 3 + DIGITS, DIGITS, INT64_MAX, &second) || first != second)
        return false;
    const char *flags = p + FLAGS_AT;
    size_t len = (size_t)(n - FLAGS_AT);
    *out = (struct state_facts){.input = first,
                                .terminal = memchr(flags, 't', len) != NULL,
                                .takes_input = memchr(flags, 'o', len) != NULL,
                                .lossless = memchr(flags, 'l', len) != NULL,
                                .paused = memchr(flags, 'p', len) != NULL,
                                .ends_unattended = memchr(flags, 'u', len) != NULL};
    return true;
}
