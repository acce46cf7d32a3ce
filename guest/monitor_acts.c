#include "guest/monitor_internal.h"

#include "base/core/b64.h"
#include "base/core/num.h"
#include "guest/pty.h"
#include "guest/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIGNAL_MAX = 64, ACT_NUMBERS = 2 };

static void ok_line(struct sg_wire_line *l)
{
    *l = (struct sg_wire_line){.kind = SG_WIRE_OK};
}

/* Always false. */
static bool fail_line(struct sg_wire_line *l, enum sg_wire_fail code, int err, const char *text)
{
    struct guest_fail f;
    guest_failed(&f, code, err, text);
    *l = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = code};
    memcpy(l->errno_name, f.errno_name, sizeof l->errno_name);
    snprintf(l->text, sizeof l->text, "%s", f.text);
    return false;
}

static bool fail_ended(struct sg_wire_line *l)
{
    return fail_line(l, SG_WF_FINISHED, 0, "the process has ended");
}

/* ---- input ---- */

static void input_now(const struct monitor *m, struct sg_wire_line *l)
{
    l->accepted = m->feed.accepted;
    l->room = feed_room(&m->feed);
    l->closed = m->feed.closed;
    l->unwanted = m->feed.unwanted;
}

/* What became of input; false with an E line. */
static bool input_answer(const struct monitor *m, enum feed_result res, struct sg_wire_line *l)
{
    char text[64];
    switch (res) {
    case FEED_OK:
        *l = (struct sg_wire_line){.kind = SG_WIRE_ACCEPTED};
        input_now(m, l);
        return true;
    case FEED_BEYOND:
        snprintf(text, sizeof text, "accepted %" PRIu64, m->feed.accepted);
        return fail_line(l, SG_WF_OFFSET, 0, text);
    case FEED_OVER:
        return fail_line(l, SG_WF_NO_INPUT, 0,
                         m->feed.takes ? "the program takes no more input" : "the program takes no input");
    case FEED_FULL:
        break;
    }
    return fail_line(l, SG_WF_USAGE, 0, "more input than there is room for");
}

/* ---- signals ---- */

void monitor_kill(struct monitor *m)
{
    struct tree_result res;
    if (!tree_signal(getpid(), 0, SIGKILL, &res) && !m->ended)
        kill(-m->program, SIGKILL); /* no /proc: at least its own group */
}

static bool signal_tree(const struct monitor *m, int sig, struct sg_wire_line *l)
{
    struct tree_result res = {0};
    bool walked = tree_signal(getpid(), 0, sig, &res);
    if (!walked && !m->ended && kill(-m->program, sig) == 0)
        res.signalled++;
    if (res.denied)
        return fail_line(l, SG_WF_INTERNAL, EPERM, "a process of another user is in the tree");
    if (!res.signalled)
        return fail_ended(l);
    ok_line(l);
    return true;
}

/* The program is our own child and not reaped, so the number is its. */
static void signal_program(const struct monitor *m, int sig)
{
    if (!m->ended)
        (void)kill(m->program, sig);
}

static void cancel(struct monitor *m, int sig, uint64_t grace_ms, struct sg_wire_line *l)
{
    if (sig == SIGKILL)
        m->hold_ms = 0; /* whoever says so does not wait for a full disk either */
    bool denied = !signal_tree(m, sig, l) && l->fail != SG_WF_FINISHED;
    if (l->kind == SG_WIRE_OK || denied)
        scope_cancel(&m->scope, guest_now_ms(), grace_ms);
}

static void ack(struct monitor *m, const uint64_t received[2])
{
    for (unsigned s = 0; s < 2; s++)
        recorder_ack(&m->out[s].rec, received[s]);
    if (m->retry_ms)
        m->retry_ms = 1; /* at once */
}

static bool resize(struct monitor *m, uint64_t cols, uint64_t rows)
{
    return m->spec->cols && m->out[0].fd >= 0 && pty_resize(m->out[0].fd, (uint16_t)cols, (uint16_t)rows);
}

/* ---- acts ---- */

/* Numbers with a space before each, and nothing else. */
static bool numbers(const char *p, size_t len, uint64_t *v, size_t n)
{
    const char *end = p + len;
    for (size_t i = 0; i < n; i++) {
        const char *stop = p < end && *p == ' ' ? memchr(p + 1, ' ', (size_t)(end - p - 1)) : end;
        if (p == end || *p != ' ')
            return false;
        stop = stop ? stop : end;
        if (!sg_parse_u64(p + 1, (size_t)(stop - p - 1), INT64_MAX, &v[i]))
            return false;
        p = stop;
    }
    return p == end;
}

static bool act_write(struct monitor *m, char *line, size_t len, struct sg_wire_line *l)
{
    char *space = len > 2 ? memchr(line + 2, ' ', len - 2) : NULL;
    uint64_t offset;
    if (!space || !numbers(line + 1, (size_t)(space - line - 1), &offset, 1))
        return fail_line(l, SG_WF_USAGE, 0, "malformed act");
    char *text = space + 1;
    ssize_t n = sg_b64_decode(text, text, (size_t)(line + len - text));
    if (n < 0)
        return fail_line(l, SG_WF_USAGE, 0, "malformed input");
    if (m->ended)
        return fail_ended(l);
    return input_answer(m, feed_data(&m->feed, offset, (unsigned char *)text, (size_t)n, false), l);
}

static bool act_on_numbers(struct monitor *m, char what, const uint64_t v[ACT_NUMBERS],
                           struct sg_wire_line *l)
{
    switch (what) {
    case 'C':
        return m->ended ? fail_ended(l) : input_answer(m, feed_close(&m->feed, v[0]), l);
    case 'R':
        if (v[0] < 1 || v[0] > UINT16_MAX || v[1] < 1 || v[1] > UINT16_MAX)
            return fail_line(l, SG_WF_USAGE, 0, "malformed act");
        if (m->ended)
            return fail_ended(l);
        return resize(m, v[0], v[1]) || fail_line(l, SG_WF_NO_INPUT, 0, "the program has no terminal");
    case 'T':
        if (v[0] < 1 || v[0] > SIGNAL_MAX)
            return fail_line(l, SG_WF_USAGE, 0, "malformed act");
        cancel(m, (int)v[0], v[1], l);
        return true;
    case 'K':
        ack(m, v);
        return true;
    case 'L':
        scope_lease(&m->scope, guest_now_ms(), v[0]);
        return true;
    case 'U':
        scope_unattended(&m->scope, guest_now_ms(), v[0]);
        return true;
    default:
        return fail_line(l, SG_WF_USAGE, 0, "unknown act");
    }
}

static void do_act(void *arg, char *line, size_t len, struct sg_wire_line *l)
{
    struct monitor *m = arg;
    uint64_t v[ACT_NUMBERS] = {0};
    ok_line(l);
    if (len && line[0] == 'W') {
        (void)act_write(m, line, len, l);
        return;
    }
    size_t n = len && strchr("RTK", line[0]) ? 2 : 1;
    if (len == 0 || !numbers(line + 1, len - 1, v, n))
        (void)fail_line(l, SG_WF_USAGE, 0, "malformed act");
    else
        (void)act_on_numbers(m, line[0], v, l);
}

/* ---- carriers ---- */

static bool do_carry(void *arg, struct sg_wire_line *l)
{
    const struct monitor *m = arg;
    if (m->ended)
        return fail_ended(l);
    return m->feed.takes || fail_line(l, SG_WF_NO_INPUT, 0, "the program takes no input");
}

static bool do_frame(void *arg, const struct sg_carrier_frame *f, const unsigned char *data,
                     struct sg_wire_line *l)
{
    struct monitor *m = arg;
    struct sg_wire_line ignored;
    enum feed_result res = FEED_OK;
    switch (f->kind) {
    case SG_CARRIER_DATA:
        res = feed_data(&m->feed, f->offset, data, f->len, true);
        break;
    case SG_CARRIER_CLOSE:
        res = feed_close(&m->feed, f->offset);
        break;
    case SG_CARRIER_RESIZE:
        (void)resize(m, f->cols, f->rows);
        break;
    case SG_CARRIER_SIGNAL:
        if (f->whole)
            (void)signal_tree(m, f->signal, &ignored);
        else
            signal_program(m, f->signal);
        break;
    case SG_CARRIER_ACK:
        ack(m, f->received);
        break;
    }
    /* Input that the program does not want any more ends nothing: the carrier's flags say so, and signals go on. */
    return (res == FEED_OVER && m->feed.unwanted) || input_answer(m, res, l);
}

static void do_input(void *arg, struct sg_wire_line *l)
{
    input_now(arg, l);
}

const struct ctl_ops monitor_ops = {.act = do_act, .carry = do_carry, .frame = do_frame, .input = do_input};
