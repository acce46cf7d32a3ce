#include "tests/support/fake_guestlink.h"

#include "base/clock.h"
#include "base/crypto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_call {
    struct fake *f;
    struct fake_call *next;
    struct sg_task task;
    bool posted, running, cancelled, ended, paused, waiting;
    struct guest_events ev;
    void *arg;
    enum fake_verb verb;
    char id[SG_WIRE_ID_MAX + 1], spec[SG_WIRE_ID_MAX + 1];
    uint64_t pos[2], limit, max_output;
    bool bounded, hello, greeted;
    unsigned only;
    int64_t deadline;
    bool sent_any;
    bool refused, lost, lost_after_hello, arrives;
    struct sg_wire_line line; /* refused by on_line: comes again */
    unsigned char data[SG_WIRE_DATA_MAX];
    bool have_line;
    struct fake_watched {
        char id[SG_WIRE_ID_MAX + 1];
        uint64_t pos[2];
        bool told;
    } watched[FAKE_WATCHED];
    int nwatched;
    size_t said; /* lines of fs */
};

uint64_t fake_random(struct fake *f, uint64_t below)
{
    f->rng ^= f->rng << 13;
    f->rng ^= f->rng >> 7;
    f->rng ^= f->rng << 17;
    return below ? f->rng % below : 0;
}

bool fake_chance(struct fake *f, int permille)
{
    return permille > 0 && fake_random(f, 1000) < (uint64_t)permille;
}

void fake_init_seeded(struct fake *f, struct sg_loop *loop, uint64_t seed)
{
    memset(f, 0, sizeof *f);
    f->loop = loop;
    f->write_max = 3000;
    f->rng = seed ? seed : 1;
}

void fake_init(struct fake *f, struct sg_loop *loop)
{
    uint64_t seed = 1;
    const char *given = getenv("SANDGATE_SEED");
    if (given)
        seed = strtoull(given, NULL, 10);
    else if (!sg_random(&seed, sizeof seed))
        seed = 1;
    fake_init_seeded(f, loop, seed);
    printf("# SANDGATE_SEED=%" PRIu64 "\n", f->rng);
}

void fake_free(struct fake *f)
{
    for (int i = 0; i < FAKE_PROCS; i++)
        for (int s = 0; s < 2; s++)
            free(f->procs[i].content[s]);
}

struct guestlink *fake_link(struct fake *f)
{
    return (struct guestlink *)(void *)f;
}

int fake_total(const struct fake *f)
{
    int n = 0;
    for (int i = 0; i < FAKE_VERBS; i++)
        n += f->calls[i];
    return n;
}

struct fake_proc *fake_find(struct fake *f, const char *id)
{
    for (int i = 0; i < FAKE_PROCS; i++)
        if (!strcmp(f->procs[i].id, id))
            return &f->procs[i];
    return NULL;
}

struct fake_proc *fake_proc(struct fake *f, const char *id, size_t out, size_t err, bool exists)
{
    for (int i = 0; i < FAKE_PROCS; i++) {
        struct fake_proc *p = &f->procs[i];
        if (p->id[0])
            continue;
        (void)snprintf(p->id, sizeof p->id, "%s", id);
        p->exists = exists;
        p->how = SG_HOW_EXIT;
        p->value = 7;
        p->total[0] = out;
        p->total[1] = err;
        for (int s = 0; s < 2; s++) {
            p->content[s] = malloc((size_t)p->total[s] + 1);
            for (uint64_t k = 0; p->content[s] && k < p->total[s]; k++)
                p->content[s][k] = (unsigned char)fake_random(f, 256);
        }
        return p;
    }
    return NULL;
}

/* ---- the process lives a little with every step ---- */

static void live(struct fake *f, struct fake_proc *p)
{
    if (!p->exists || p->exited || p->hold)
        return;
    for (int s = 0; s < 2; s++) {
        uint64_t left = p->total[s] - p->written[s];
        uint64_t n = fake_random(f, f->write_max + 1);
        p->written[s] += n < left ? n : left;
    }
    if (p->written[0] == p->total[0] && p->written[1] == p->total[1] && fake_chance(f, 500))
        p->exited = true;
}

static void fill(const struct fake_proc *p, struct sg_wire_process *w, bool exit)
{
    memset(w, 0, sizeof *w);
    w->state = p->tombstone ? SG_PS_NOT_STARTED : p->exited ? SG_PS_FINISHED : SG_PS_RUNNING;
    for (int s = 0; s < 2; s++) {
        w->oldest[s] = p->oldest[s];
        w->end[s] = p->written[s];
    }
    w->ends_unattended = p->ends_unattended;
    w->started_ms = 1;
    w->pid = 4242;
    w->terminal = p->terminal;
    w->takes_input = p->takes_input;
    w->lossless = p->lossless;
    w->input = p->input;
    memcpy(w->id, p->id, sizeof w->id);
    if (exit && p->exited) {
        w->how = p->how;
        w->value = p->value;
        w->descendants_hold_output = p->descendants;
        w->duration_ms = 12;
    }
}

/* ---- delivering ---- */

static void post(struct fake_call *c)
{
    if (c->posted)
        return;
    c->posted = true;
    sg_loop_post(c->f->loop, &c->task);
}

static void finish(struct fake_call *c, const struct sg_wire_line *line, enum sg_code code,
                   enum sg_outcome outcome)
{
    struct sg_error e;
    char text[SG_WIRE_LINE_MAX];
    struct sg_wire_line parsed;
    unsigned char scratch[SG_WIRE_DATA_MAX];
    if (c->cancelled || c->ended)
        return;
    c->ended = true;
    if (line) {
        size_t n = sg_wire_format(text, line);
        if (!sg_wire_parse(text, n - 1, scratch, &parsed)) {
            fprintf(stderr, "fake_guestlink: bad line %s", text);
            _Exit(3);
        }
        c->ev.on_end(c->arg, &parsed, c->hello, NULL);
        return;
    }
    sg_fail(&e, code, outcome, "made to fail");
    c->ev.on_end(c->arg, NULL, c->hello, &e);
}

static void finish_kind(struct fake_call *c, enum sg_wire_kind kind)
{
    finish(c, &(struct sg_wire_line){.kind = kind}, 0, 0);
}

static void finish_fail(struct fake_call *c, enum sg_wire_fail fail)
{
    finish(c, &(struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = fail}, 0, 0);
}

static void cut(struct fake_call *c)
{
    finish(c, NULL, SG_E_UPSTREAM_UNREACHABLE, c->hello ? SG_STARTED : SG_OUTCOME_UNKNOWN);
}

/* Sends the call's pending line; false when it was not taken. */
static bool deliver(struct fake_call *c)
{
    char text[SG_WIRE_LINE_MAX];
    unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line parsed;
    c->line.data = c->data;
    size_t n = sg_wire_format(text, &c->line);
    if (!sg_wire_parse(text, n - 1, scratch, &parsed)) {
        fprintf(stderr, "fake_guestlink: bad line %s", text);
        _Exit(3);
    }
    c->have_line = true;
    if (c->line.kind == SG_WIRE_HELLO)
        c->hello = true;
    if (!c->ev.on_line(c->arg, &parsed)) {
        c->paused = true;
        return false;
    }
    memset(scratch, 0xee, sizeof scratch); /* borrowed means borrowed */
    c->have_line = false;
    return true;
}

static bool say_hello(struct fake_call *c, const struct fake_proc *p)
{
    c->line = (struct sg_wire_line){.kind = SG_WIRE_HELLO};
    fill(p, &c->line.process, false);
    c->greeted = true;
    return deliver(c);
}

static bool wants(const struct fake_call *c, int s)
{
    return (!c->only || c->only == (unsigned)s + 1) && c->max_output > c->pos[s];
}

/* One D or G line; 0 none to send, 1 sent, -1 not taken. */
static int send_data(struct fake_call *c, struct fake_proc *p)
{
    struct fake *f = c->f;
    int s = (int)fake_random(f, 2);
    for (int i = 0; i < 2 && (!wants(c, s) || c->pos[s] >= p->written[s]); i++)
        s = 1 - s;
    if (!wants(c, s) || c->pos[s] >= p->written[s] || c->limit == 0)
        return 0;
    uint64_t last = p->total[0] - 1;
    if (f->never_exit_tail && s == 0 && c->pos[0] == last)
        return 0;
    c->line = (struct sg_wire_line){.kind = SG_WIRE_DATA, .channel = (unsigned)s + 1, .offset = c->pos[s]};
    if (c->pos[s] < p->oldest[s]) {
        c->line.kind = SG_WIRE_GAP;
        c->line.to = p->oldest[s];
        c->pos[s] = p->oldest[s];
        return deliver(c) ? 1 : -1;
    }
    uint64_t left = p->written[s] - c->pos[s];
    uint64_t n = 1 + fake_random(f, SG_WIRE_DATA_MAX);
    n = n < left ? n : left;
    n = n < c->limit ? n : c->limit;
    n = n < c->max_output - c->pos[s] ? n : c->max_output - c->pos[s];
    if (f->never_exit_tail && s == 0 && c->pos[0] + n > last)
        n = last - c->pos[0];
    uint64_t from = c->pos[s];
    if (fake_chance(f, f->faults.hole)) {
        c->pos[s] += n; /* silently */
        return 1;
    }
    if (fake_chance(f, f->faults.overlap)) {
        uint64_t back = fake_random(f, 64);
        back = back < from - p->oldest[s] ? back : from - p->oldest[s];
        back = back < SG_WIRE_DATA_MAX - n ? back : SG_WIRE_DATA_MAX - n;
        from -= back;
    }
    c->line.offset = from;
    c->line.len = (size_t)(c->pos[s] + n - from);
    memcpy(c->data, p->content[s] + from, c->line.len);
    c->pos[s] += n;
    c->limit -= c->limit == UINT64_MAX ? 0 : n;
    c->sent_any = true;
    if (!deliver(c))
        return -1;
    if (!c->cancelled && fake_chance(f, f->faults.repeat) && !deliver(c))
        return -1;
    return 1;
}

static void say_exit(struct fake_call *c, const struct fake_proc *p)
{
    struct sg_wire_line x = {.kind = SG_WIRE_EXIT};
    fill(p, &x.process, true);
    finish(c, &x, 0, 0);
}

/* follow, and run after its start. */
static void step_follow(struct fake_call *c)
{
    struct fake *f = c->f;
    struct fake_proc *p = fake_find(f, c->id);
    if (!p || !p->exists) {
        finish_fail(c, p && p->tombstone ? SG_WF_NOT_STARTED : SG_WF_NO_RECORD);
        return;
    }
    if (!c->greeted) {
        if (fake_chance(f, f->faults.cut_at_hello)) {
            cut(c);
            return;
        }
        if (!say_hello(c, p) || c->cancelled)
            return;
        if (c->lost_after_hello) {
            cut(c);
            return;
        }
    }
    live(f, p);
    if (fake_chance(f, f->faults.cut)) {
        cut(c);
        return;
    }
    if (fake_chance(f, f->faults.more)) {
        finish_kind(c, SG_WIRE_MORE);
        return;
    }
    if (p->exited && fake_chance(f, f->faults.early_exit)) {
        say_exit(c, p);
        return;
    }
    int sent = send_data(c, p);
    if (sent || c->cancelled)
        return;
    if (p->exited && c->limit > 0)
        say_exit(c, p);
    else if (c->bounded && (c->sent_any || c->limit == 0 || sg_mono_ms() >= c->deadline))
        finish_kind(c, SG_WIRE_MORE);
    else
        c->waiting = p->hold && !c->bounded; /* fake_wake */
}

static void begin(struct fake_proc *p, const char *spec)
{
    if (p->exists)
        return;
    p->exists = true;
    p->starts++;
    (void)snprintf(p->spec, sizeof p->spec, "%s", spec);
}

static void step_start(struct fake_call *c)
{
    struct fake *f = c->f;
    struct fake_proc *p = fake_find(f, c->id);
    if (!p)
        p = fake_proc(f, c->id, 0, 0, false);
    if (c->lost) {
        if (c->arrives && !p->tombstone)
            begin(p, c->spec);
        cut(c);
        return;
    }
    if (p->tombstone) {
        finish_fail(c, SG_WF_NOT_STARTED);
        return;
    }
    if (p->exists && strcmp(p->spec, c->spec) != 0) {
        finish_fail(c, SG_WF_CONFLICT);
        return;
    }
    begin(p, c->spec);
    if (c->verb == V_RUN) {
        step_follow(c);
        return;
    }
    if (!say_hello(c, p) || c->cancelled)
        return;
    if (c->lost_after_hello)
        cut(c);
    else
        finish_kind(c, SG_WIRE_OK);
}

static void step_settle(struct fake_call *c)
{
    struct fake *f = c->f;
    struct fake_proc *p = fake_find(f, c->id);
    bool lose = f->lose_settles > 0;
    if (!p)
        p = fake_proc(f, c->id, 0, 0, false);
    if (!lose || f->settle_arrives) {
        if (!p->exists)
            p->tombstone = true;
        if (f->late) { /* the delayed start lands now: the claim stands in its way, or it has been there */
            if (!p->tombstone && !strcmp(f->late_id, p->id))
                begin(p, f->late_spec);
            f->late = false;
        }
    }
    if (lose) {
        f->lose_settles--;
        cut(c);
        return;
    }
    if (say_hello(c, p) && !c->cancelled)
        finish_kind(c, SG_WIRE_OK);
}

static void step_status(struct fake_call *c)
{
    struct fake *f = c->f;
    bool any = false;
    for (int i = 0; i < FAKE_PROCS && !c->cancelled; i++) {
        struct fake_proc *p = &f->procs[i];
        if (!p->exists || (c->verb == V_STATUS && strcmp(p->id, c->id) != 0))
            continue;
        any = true;
        c->line = (struct sg_wire_line){.kind = SG_WIRE_PROCESS};
        fill(p, &c->line.process, true);
        (void)deliver(c);
    }
    if (!any && c->verb == V_STATUS)
        finish_fail(c, SG_WF_NO_RECORD);
    else
        finish_kind(c, SG_WIRE_OK);
}

/* Each is told of once, when it has something new. */
static void step_watch(struct fake_call *c)
{
    struct fake *f = c->f;
    bool left = false;
    if (fake_chance(f, f->faults.cut)) {
        cut(c);
        return;
    }
    for (int i = 0; i < c->nwatched; i++) {
        struct fake_watched *w = &c->watched[i];
        struct fake_proc *p = fake_find(f, w->id);
        if (p)
            live(f, p);
        bool news = !p || !p->exists || p->exited || p->written[0] > w->pos[0] || p->written[1] > w->pos[1];
        left = left || (!news && !w->told);
        if (!news || w->told)
            continue;
        w->told = true;
        c->line = (struct sg_wire_line){.kind = SG_WIRE_PROCESS};
        if (p && p->exists)
            fill(p, &c->line.process, true);
        else
            c->line.process.state = SG_PS_NOT_STARTED;
        memcpy(c->line.process.id, w->id, sizeof w->id);
        (void)deliver(c);
        return;
    }
    if (!left)
        finish_kind(c, SG_WIRE_MORE);
    else
        c->waiting = true; /* fake_wake */
}

static void step_remove(struct fake_call *c)
{
    struct fake_proc *p = fake_find(c->f, c->id);
    bool there = p && p->exists;
    if (there)
        p->exists = false;
    if (c->lost)
        cut(c);
    else if (there)
        finish_kind(c, SG_WIRE_OK);
    else
        finish_fail(c, SG_WF_NO_RECORD);
}

static void step_act(struct fake_call *c)
{
    struct fake *f = c->f;
    if (f->lose_acts > 0) {
        f->lose_acts--;
        cut(c);
        return;
    }
    if (f->act_line.kind) {
        c->line = f->act_line;
        if (!deliver(c) || c->cancelled)
            return;
    }
    if (f->act_error.kind)
        finish(c, &f->act_error, 0, 0);
    else
        finish_kind(c, SG_WIRE_OK);
}

/* A cut comes after half of the lines. */
static void step_fs(struct fake_call *c)
{
    struct fake *f = c->f;
    if (f->lose_fs > 0 && c->said >= (f->fs_count + 1) / 2) {
        f->lose_fs--;
        cut(c);
    } else if (c->said < f->fs_count) {
        c->line = f->fs_lines[c->said++];
        if (c->line.len)
            memcpy(c->data, c->line.data, c->line.len);
        (void)deliver(c);
    } else if (f->fs_end.kind) {
        finish(c, &f->fs_end, 0, 0);
    } else {
        finish_kind(c, SG_WIRE_OK);
    }
}

static void step(struct fake_call *c)
{
    struct fake *f = c->f;
    if (c->refused) {
        enum sg_code code = f->refuse_all ? f->refuse_all : SG_E_UPSTREAM_UNREACHABLE;
        finish(c, NULL, code, SG_NOT_SENT);
        return;
    }
    if (c->have_line) { /* the one that was not taken */
        if (!deliver(c))
            return;
        if (c->cancelled)
            return;
    }
    switch (c->verb) {
    case V_RUN:
        if (c->greeted)
            step_follow(c);
        else
            step_start(c);
        break;
    case V_START:
        step_start(c);
        break;
    case V_FOLLOW:
        step_follow(c);
        break;
    case V_STATUS:
    case V_LIST:
        step_status(c);
        break;
    case V_SETTLE:
        step_settle(c);
        break;
    case V_REMOVE:
        step_remove(c);
        break;
    case V_SIGNAL:
        if (c->lost)
            cut(c);
        else
            finish_kind(c, SG_WIRE_OK);
        break;
    case V_ACT:
        step_act(c);
        break;
    case V_WATCH:
        step_watch(c);
        break;
    case V_FS:
        step_fs(c);
        break;
    case V_OTHER:
        finish_fail(c, SG_WF_USAGE);
        break;
    }
}

static void call_free(struct fake_call *c)
{
    c->f->watching -= c->nwatched;
    struct fake_call **at = &c->f->all;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->f->live--;
    free(c);
}

static void on_task(struct sg_task *task)
{
    struct fake_call *c = (struct fake_call *)((char *)task - offsetof(struct fake_call, task));
    c->posted = false;
    if (!c->cancelled && !c->ended) {
        int n = c->f->lines_per_turn ? c->f->lines_per_turn : 1 + (int)fake_random(c->f, 8);
        c->running = true;
        c->paused = c->waiting = false;
        for (int i = 0; i < n && !c->cancelled && !c->ended && !c->paused && !c->waiting; i++)
            step(c);
        c->running = false;
    }
    if (c->cancelled || c->ended)
        call_free(c);
    else if (!c->paused && !c->waiting)
        post(c);
}

void fake_wake(struct fake *f)
{
    for (struct fake_call *c = f->all; c; c = c->next)
        if (!c->paused)
            post(c);
}

/* ---- the interface ---- */

static enum fake_verb verb_of(const char *s)
{
    static const char *const names[] = {"run",    "start",  "follow", "status", "list",
                                        "signal", "settle", "remove", "watch"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], s))
            return (enum fake_verb)i;
    if (!strcmp(s, "fs"))
        return V_FS;
    static const char *const acts[] = {"write", "close", "resize", "cancel", "ack", "lease", "unattended"};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(acts[i], s))
            return V_ACT;
    return V_OTHER;
}

static void parse_watched(struct fake_call *c, const char *const *args)
{
    for (; args[0] && args[1] && args[2] && c->nwatched < FAKE_WATCHED; args += 3) {
        struct fake_watched *w = &c->watched[c->nwatched++];
        (void)snprintf(w->id, sizeof w->id, "%s", args[0]);
        w->pos[0] = strtoull(args[1], NULL, 10);
        w->pos[1] = strtoull(args[2], NULL, 10);
    }
    c->f->watching += c->nwatched;
}

static void parse_args(struct fake_call *c, const char *const *args)
{
    struct fake *f = c->f;
    f->last_args[0] = '\0';
    c->verb = verb_of(args[0]);
    c->limit = c->max_output = UINT64_MAX;
    for (size_t i = 0, n = 0; args[i]; i++) {
        if (n < sizeof f->last_args)
            n += (size_t)snprintf(f->last_args + n, sizeof f->last_args - n, "%s ", args[i]);
    }
    for (size_t i = 1; args[i]; i++) {
        if (!strcmp(args[i], "--")) {
            if (c->verb == V_WATCH)
                parse_watched(c, args + i + 1);
            break;
        }
        const char *v = args[i + 1] ? args[i + 1] : "";
        if (!strcmp(args[i], "--id"))
            (void)snprintf(c->id, sizeof c->id, "%s", v);
        else if (!strcmp(args[i], "--spec"))
            (void)snprintf(c->spec, sizeof c->spec, "%s", v);
        else if (!strcmp(args[i], "--stdout"))
            c->pos[0] = f->asked[0] = strtoull(v, NULL, 10);
        else if (!strcmp(args[i], "--stderr"))
            c->pos[1] = f->asked[1] = strtoull(v, NULL, 10);
        else if (!strcmp(args[i], "--only"))
            c->only = (unsigned)strtoul(v, NULL, 10);
        else if (!strcmp(args[i], "--limit"))
            c->limit = strtoull(v, NULL, 10);
        else if (!strcmp(args[i], "--max-output"))
            c->max_output = strtoull(v, NULL, 10);
        else if (!strcmp(args[i], "--wait-ms")) {
            c->bounded = true;
            c->deadline = sg_mono_ms() + strtol(v, NULL, 10);
        }
    }
}

struct guest_call *guest_call_start(struct guestlink *g, const struct guest_args *a,
                                    const struct guest_events *ev, void *arg, struct sg_error *e)
{
    struct fake *f = (struct fake *)(void *)g;
    struct fake_call *c = calloc(1, sizeof *c);
    if (!c) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory");
        return NULL;
    }
    c->f = f;
    c->task.fn = on_task;
    c->ev = *ev;
    c->arg = arg;
    parse_args(c, a->args);
    f->calls[c->verb]++;
    c->refused = f->refuse_all || (f->refuse_from && fake_total(f) > f->refuse_from) ||
                 fake_chance(f, f->faults.refuse);
    if (c->verb == V_RUN || c->verb == V_START) {
        c->lost = f->lose_start != LOST_NOT;
        c->arrives = f->lose_start == LOST_ARRIVED;
        c->lost_after_hello = f->lose_after_hello;
        f->lose_after_hello = false;
        if (f->lose_start == LOST_ARRIVES_LATE) {
            f->late = true;
            memcpy(f->late_id, c->id, sizeof c->id);
            memcpy(f->late_spec, c->spec, sizeof c->spec);
        }
        f->lose_start = LOST_NOT;
    } else if (c->verb == V_SIGNAL || c->verb == V_REMOVE) {
        c->lost = f->lose_start != LOST_NOT;
        c->arrives = f->lose_start == LOST_ARRIVED;
        f->lose_start = LOST_NOT;
    }
    if (c->verb == V_ACT && f->refuse_acts > 0) {
        f->refuse_acts--;
        c->refused = true;
    }
    if (c->verb == V_FS && f->refuse_fs > 0) {
        f->refuse_fs--;
        c->refused = true;
    }
    f->live++;
    c->next = f->all;
    f->all = c;
    if (f->hang > 0) {
        f->hang--;
        c->waiting = true;
    } else {
        post(c);
    }
    return (struct guest_call *)(void *)c;
}

void guest_resume(struct guest_call *call)
{
    struct fake_call *c = (struct fake_call *)(void *)call;
    if (c->running) {
        fprintf(stderr, "fake_guestlink: resumed inside its own callback\n");
        _Exit(3);
    }
    post(c);
}

void guest_cancel(struct guest_call *call)
{
    struct fake_call *c = (struct fake_call *)(void *)call;
    if (c->ended || c->cancelled) {
        fprintf(stderr, "fake_guestlink: cancelled after its end\n");
        _Exit(3);
    }
    c->cancelled = true;
    c->f->cancelled++;
    if (!c->running)
        post(c); /* freed there */
}

void guest_abandon(struct guest_call *call)
{
    ((struct fake_call *)(void *)call)->f->abandoned++;
    guest_cancel(call);
}

struct vercel_client *guestlink_client(struct guestlink *g)
{
    return (struct vercel_client *)(void *)g;
}

/* ---- turning the loop ---- */

static void on_tick(void *arg)
{
    (void)arg;
}

static void turn(struct fake *f, struct sg_timer *tick)
{
    /* A timer that brings what is awaited runs before the loop goes to sleep. */
    sg_timer_start(tick, 5);
    (void)uv_run(sg_loop_uv(f->loop), UV_RUN_ONCE);
}

bool fake_until(struct fake *f, const bool *flag)
{
    struct sg_timer *tick = sg_timer_new(f->loop, on_tick, NULL);
    int64_t end = sg_mono_ms() + 20000;
    while (!*flag && sg_mono_ms() < end)
        turn(f, tick);
    sg_timer_free(tick);
    return *flag;
}

void fake_turn(struct fake *f)
{
    struct sg_timer *tick = sg_timer_new(f->loop, on_tick, NULL);
    turn(f, tick);
    sg_timer_free(tick);
}

void fake_turns(struct fake *f, int n)
{
    for (int i = 0; i < n; i++)
        (void)uv_run(sg_loop_uv(f->loop), UV_RUN_NOWAIT);
}
