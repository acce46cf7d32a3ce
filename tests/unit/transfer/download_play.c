#include "tests/unit/transfer/download_play.h"

#include "base/core/b64.h"
#include "base/core/file_tag.h"
#include "base/crypto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct box box;
struct plan plan;
struct guest_call calls[CALLS];
uint64_t slept[CALLS];
int nslept;

/* ---- the sandbox ---- */

static uint64_t rng;

uint64_t chance(uint64_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return below ? rng % below : 0;
}

static struct staged *find(const char *name)
{
    for (size_t i = 0; i < STAGED; i++)
        if (strcmp(box.staged[i].name, name) == 0)
            return &box.staged[i];
    return NULL;
}

size_t lying(void)
{
    size_t n = 0;
    for (size_t i = 0; i < STAGED; i++)
        n += box.staged[i].name[0] != '\0';
    return n;
}

void unstage(const char *name)
{
    struct staged *s = name && *name ? find(name) : NULL;
    if (!s)
        return;
    free(s->data);
    *s = (struct staged){.len = 0};
}

void unstage_all(void)
{
    for (size_t i = 0; i < STAGED; i++)
        unstage(box.staged[i].name);
}

void stage(const char *name, uint64_t at, uint64_t len)
{
    unstage(name);
    struct staged *s = find("");
    if (!s) {
        fail_msg("more is put aside than there is room for");
        return;
    }
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    s->data = malloc(len ? len : 1);
    s->len = len;
    memcpy(s->data, box.data + at, len);
    if (lying() > box.most)
        box.most = lying();
}

void touch(void)
{
    box.facts.mtime_ns++;
    box.facts.ctime_ns++;
}

/* ---- time and the loop ---- */

uint64_t now_ms;
static struct sg_timer {
    void (*fn)(void *arg);
    void *arg;
    uint64_t due;
    bool active;
    struct sg_timer *next;
} * timers;
static struct sg_grave *graves;

struct sg_timer *sg_timer_new(struct sg_loop *loop, void (*fn)(void *arg), void *arg)
{
    (void)loop;
    struct sg_timer *t = calloc(1, sizeof *t);
    *t = (struct sg_timer){.fn = fn, .arg = arg, .next = timers};
    timers = t;
    return t;
}

void sg_timer_start(struct sg_timer *t, uint64_t ms)
{
    t->due = now_ms + ms;
    t->active = true;
    if (ms < DOWNLOAD_FIRST_MS && nslept < CALLS)
        slept[nslept++] = ms;
}

void sg_timer_stop(struct sg_timer *t)
{
    t->active = false;
}

void sg_timer_free(struct sg_timer *t)
{
    struct sg_timer **p = &timers;
    while (*p && *p != t)
        p = &(*p)->next;
    if (*p)
        *p = t->next;
    free(t);
}

void sg_loop_bury(struct sg_loop *loop, struct sg_grave *grave)
{
    (void)loop;
    grave->next = graves;
    graves = grave;
}

static void bury(void)
{
    while (graves) {
        struct sg_grave *g = graves;
        graves = g->next;
        g->fn(g);
    }
}

/* ---- the guest's calls ---- */

const char *option(const struct guest_call *c, const char *name)
{
    for (size_t i = 0; c->args[i]; i++)
        if (strcmp(c->args[i], name) == 0)
            return c->args[i + 1] ? c->args[i + 1] : "";
    return NULL;
}

static uint64_t number(const struct guest_call *c, const char *name, uint64_t otherwise)
{
    const char *text = option(c, name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

void say(struct guest_call *c, struct sg_wire_line line)
{
    assert_true(c->n < LINES);
    c->lines[c->n++] = line;
}

static void say_word(struct guest_call *c, int slot, const char *text)
{
    (void)snprintf(c->words[slot], sizeof c->words[slot], "%s", text);
    say(c, (struct sg_wire_line){.kind = SG_WIRE_NAME,
                                 .name = (const unsigned char *)c->words[slot],
                                 .name_len = strlen(c->words[slot])});
}

static void say_bytes(struct guest_call *c, uint64_t at, uint64_t len)
{
    for (uint64_t i = 0; i < len; i += LINE) {
        size_t n = len - i < LINE ? (size_t)(len - i) : LINE;
        c->data[c->n] = malloc(n);
        memcpy(c->data[c->n], box.data + at + i, n);
        say(c, (struct sg_wire_line){.kind = SG_WIRE_DATA, .channel = 1, .offset = at + i, .len = n});
    }
}

static void say_changed(struct guest_call *c)
{
    c->last = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_CHANGED, .text = "changed"};
}

struct cursor {
    uint64_t at, end, size;
    int64_t mtime;
};

static bool read_cursor(const char *base64, struct cursor *k)
{
    char text[128] = {0};
    assert_true(sg_b64_decode(text, base64, strlen(base64)) > 0);
    assert_int_equal(
        sscanf(text, "%" SCNu64 ".%" SCNu64 ".%" SCNu64 ".%" SCNd64, &k->at, &k->end, &k->size, &k->mtime),
        4);
    return box.size >= k->size && (box.size > k->size || box.facts.mtime_ns == k->mtime);
}

static void fetch(struct guest_call *c)
{
    struct cursor k = {.at = number(c, "--offset", 0), .mtime = box.facts.mtime_ns};
    const char *cursor = option(c, "--cursor"), *tail = option(c, "--tail"), *unless = option(c, "--unless");
    char tag[SG_FILE_TAG_LEN + 1], text[128];
    box.facts.size = box.size;
    sg_file_tag(&box.facts, tag);
    if (cursor) {
        assert_true(!option(c, "--offset") && !tail && !unless && !option(c, "--limit"));
        if (!read_cursor(cursor, &k)) {
            say_changed(c);
            return;
        }
    } else {
        uint64_t limit = number(c, "--limit", UINT64_MAX);
        k.at = k.at < box.size ? k.at : box.size;
        if (tail)
            k.at = number(c, "--tail", 0) < box.size ? box.size - number(c, "--tail", 0) : 0;
        k.end = box.size - k.at > limit ? k.at + limit : box.size;
    }
    say(c, (struct sg_wire_line){.kind = SG_WIRE_FILE, .file = box.facts});
    c->last.kind = SG_WIRE_OK;
    if (unless && sg_file_tag_among(tag, unless)) {
        (void)snprintf(c->last.text, sizeof c->last.text, "same");
        return;
    }
    uint64_t left = k.end - k.at, part = number(c, "--part", 0), n = left < part ? left : part;
    if (cursor || left > number(c, "--inline", 0)) /* as the real one: else it is not looked at */
        unstage(option(c, "--drop"));
    if (left <= number(c, "--inline", 0) || box.full) {
        say_bytes(c, k.at, n);
    } else {
        stage(option(c, "--stage"), k.at, n);
        (void)snprintf(text, sizeof text, "s%" PRIu64, n);
        say_word(c, 0, text);
    }
    if (n < left) {
        (void)snprintf(text, sizeof text, "c%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRId64, k.at + n, k.end,
                       box.size, box.facts.mtime_ns);
        say_word(c, 1, text);
        c->last.kind = SG_WIRE_MORE;
    }
}

static void execute(struct guest_call *c)
{
    const char *op = option(c, "--op");
    if (c->executed)
        return;
    c->executed = true;
    c->last = (struct sg_wire_line){.kind = SG_WIRE_OK};
    if (strcmp(op, "drop") == 0) {
        unstage(option(c, "--stage"));
        unstage(option(c, "--drop"));
    } else if (plan.says) {
        plan.says(c);
    } else {
        fetch(c);
    }
}

static void free_call(struct guest_call *c)
{
    for (size_t i = 0; c->args && c->args[i]; i++)
        free(c->args[i]);
    free(c->args);
    for (size_t i = 0; i < LINES; i++)
        free(c->data[i]);
    *c = (struct guest_call){.used = false};
}

struct guestlink *const the_link = (struct guestlink *)&box;

struct vercel_client *guestlink_client(struct guestlink *g)
{
    return (struct vercel_client *)(void *)g;
}

struct sg_loop *guestlink_loop(struct guestlink *g)
{
    return (struct sg_loop *)(void *)g;
}

static enum fate fate_of(enum fate planned, bool reads)
{
    static const enum fate of_calls[] = {NOT_SENT, NOT_ARRIVED, LOST, CUT};
    if (planned || chance(1000) >= (uint64_t)plan.chance)
        return planned;
    return reads ? (chance(4) ? CUT : NOT_SENT) : of_calls[chance(4)];
}

struct guest_call *guest_call_start(struct guestlink *g, const struct guest_args *a,
                                    const struct guest_events *ev, void *arg, struct sg_error *e)
{
    struct guest_call *c = calls;
    assert_ptr_equal(g, the_link);
    assert_string_equal(a->session_id, "sess-1");
    while (c->used)
        c++;
    size_t n = 0;
    while (a->args[n])
        n++;
    *c = (struct guest_call){.used = true, .ev = *ev, .arg = arg, .sudo = a->sudo};
    c->args = calloc(n + 1, sizeof *c->args);
    for (size_t i = 0; i < n; i++)
        c->args[i] = strdup(a->args[i]);
    c->fate = fate_of(plan.calls[box.calls], false);
    c->cut_at = plan.chance ? (int)chance(40) : plan.cut_at[box.calls];
    c->paused = c->fate == SILENT;
    box.calls++;
    *(strcmp(option(c, "--op"), "drop") == 0 ? &box.drops : &box.fetches) += 1;
    if (c->fate == FAILS && !plan.error.kind) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory");
        free_call(c);
        return NULL;
    }
    return c;
}

void guest_resume(struct guest_call *c)
{
    assert_true(c->used && !c->dead && c->paused);
    c->paused = false;
}

void guest_cancel(struct guest_call *c)
{
    assert_true(c->used && !c->dead);
    c->dead = true;
    c->paused = false;
}

void guest_abandon(struct guest_call *c)
{
    box.abandoned++;
    guest_cancel(c);
}

static void end_call(struct guest_call *c, const struct sg_wire_line *line, enum sg_outcome outcome)
{
    struct sg_error e;
    char text[SG_WIRE_LINE_MAX];
    struct sg_wire_line parsed;
    unsigned char scratch[SG_WIRE_DATA_MAX];
    c->dead = true;
    if (line) {
        size_t n = sg_wire_format(text, line);
        assert_true(sg_wire_parse(text, n - 1, scratch, &parsed));
        c->ev.on_end(c->arg, &parsed, false, NULL);
        return;
    }
    (void)sg_fail(&e, plan.code ? plan.code : SG_E_UPSTREAM_UNREACHABLE, outcome, "made to fail");
    e.retry_after_ms = plan.retry_after ? plan.retry_after : -1;
    c->ev.on_end(c->arg, NULL, false, &e);
}

static void say_next(struct guest_call *c)
{
    char text[SG_WIRE_LINE_MAX];
    struct sg_wire_line line = c->lines[c->said], parsed;
    unsigned char scratch[SG_WIRE_DATA_MAX];
    if (line.kind == SG_WIRE_DATA)
        line.data = c->data[c->said];
    size_t n = sg_wire_format(text, &line);
    assert_true(sg_wire_parse(text, n - 1, scratch, &parsed));
    if (!c->ev.on_line(c->arg, &parsed))
        c->paused = !c->dead;
    else
        c->said++;
    memset(scratch, 0xee, sizeof scratch);
}

static void step_call(struct guest_call *c)
{
    if (c->dead) {
        if (!c->late || c->executed)
            free_call(c);
        else if (chance(30) == 0)
            execute(c); /* it arrives now */
        return;
    }
    switch (c->fate) {
    case NOT_SENT:
        end_call(c, NULL, SG_NOT_SENT);
        return;
    case FAILS:
        end_call(c, &plan.error, 0);
        return;
    case LATE:
        c->late = true;
        end_call(c, NULL, SG_OUTCOME_UNKNOWN);
        return;
    case LOST:
        execute(c);
        end_call(c, NULL, SG_OUTCOME_UNKNOWN);
        return;
    case NOT_ARRIVED:
        end_call(c, NULL, SG_OUTCOME_UNKNOWN);
        return;
    case CUT:
    case FINE:
    case SILENT:
        break;
    }
    execute(c);
    for (uint64_t i = 1 + chance(6); i && !c->dead && !c->paused && c->said < c->n; i--) {
        if (c->fate == CUT && (int)c->said == c->cut_at)
            break;
        say_next(c);
    }
    if (c->dead || c->paused)
        return;
    if (c->fate == CUT && ((int)c->said == c->cut_at || c->said == c->n))
        end_call(c, NULL, SG_OUTCOME_UNKNOWN);
    else if (c->said == c->n)
        end_call(c, &c->last, 0);
}

/* ---- reads through the file endpoint ---- */

struct vercel_call {
    bool used, dead, paused, told;
    struct vercel_events ev;
    void *arg;
    unsigned char *data;
    size_t len, at;
    bool found;
    enum fate fate;
    size_t cut_at;
};
static struct vercel_call reads[CALLS];

struct vercel_call *vercel_file_read(struct vercel_client *c, const char *session_id, const char *path,
                                     const char *cwd, const struct vercel_events *ev, void *arg,
                                     struct sg_error *e)
{
    struct vercel_call *r = reads;
    assert_ptr_equal(c, the_link);
    assert_string_equal(session_id, "sess-1");
    assert_null(cwd);
    assert_memory_equal(path, GUEST_ROOT "/.down-", sizeof GUEST_ROOT + 6);
    while (r->used)
        r++;
    *r = (struct vercel_call){.used = true, .ev = *ev, .arg = arg};
    r->fate = fate_of(plan.reads[box.reads], true);
    struct staged *s = find(path + sizeof GUEST_ROOT);
    r->found = s != NULL;
    r->len = s ? s->len : 0;
    r->data = malloc(r->len + 64);
    if (s)
        memcpy(r->data, s->data, s->len);
    r->cut_at = plan.chance ? chance(r->len + 1) : (size_t)plan.cut_at[box.reads];
    box.reads++;
    if (r->fate == FAILS) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory");
        free(r->data);
        r->used = false;
        return NULL;
    }
    return r;
}

void vercel_call_resume(struct vercel_call *r)
{
    assert_true(r->used && !r->dead && r->paused);
    r->paused = false;
}

void vercel_call_cancel(struct vercel_call *r)
{
    assert_true(r->used && !r->dead);
    r->dead = true;
    r->paused = false;
}

static void end_read(struct vercel_call *r, enum sg_code code)
{
    struct sg_error e;
    r->dead = true;
    if (!code) {
        r->ev.on_done(r->arg, NULL);
        return;
    }
    (void)sg_fail(&e, code, SG_NOT_STARTED, "made to fail");
    e.retry_after_ms = plan.retry_after ? plan.retry_after : -1;
    r->ev.on_done(r->arg, &e);
}

static void step_read(struct vercel_call *r)
{
    if (r->dead) {
        free(r->data);
        *r = (struct vercel_call){.used = false};
        return;
    }
    if (r->fate == NOT_SENT || !r->found) {
        end_read(r, r->found ? plan.code ? plan.code : SG_E_UPSTREAM_UNREACHABLE : SG_E_FILE_NOT_FOUND);
        return;
    }
    if (!r->told) {
        r->told = true;
        if (r->ev.on_head)
            r->ev.on_head(r->arg, 200, "application/octet-stream", plan.is_chunked ? -1 : (int64_t)r->len);
        return;
    }
    size_t most = r->fate == CUT && r->cut_at < r->len ? r->cut_at : r->len;
    size_t n = 1 + chance(64 * 1024);
    n = n < most - r->at ? n : most - r->at;
    if (n && r->ev.on_data(r->arg, (char *)r->data + r->at, n)) {
        memset(r->data + r->at, 0xee, n);
        r->at += n;
    } else if (n) {
        r->paused = !r->dead;
    }
    if (!r->dead && r->at == most)
        end_read(r, r->fate == CUT ? plan.code ? plan.code : SG_E_UPSTREAM_UNREACHABLE : SG_OK);
}

/* ---- what happens next ---- */

static void play_file(void)
{
    if (chance(1000) < (uint64_t)plan.grows && box.size < SIZE + 4096) {
        box.size++;
        touch();
    }
    if (chance(1000) < (uint64_t)plan.changes)
        touch();
}

bool play_upstream(void)
{
    size_t able[2 * CALLS], n = 0;
    for (size_t i = 0; i < CALLS; i++) {
        if (calls[i].used && !calls[i].paused)
            able[n++] = i;
        if (reads[i].used && !reads[i].paused)
            able[n++] = CALLS + i;
    }
    play_file();
    size_t pick = n ? able[chance(n)] : 0;
    if (n && pick < CALLS)
        step_call(&calls[pick]);
    else if (n)
        step_read(&reads[pick - CALLS]);
    bury();
    return n > 0;
}

bool play_time(void)
{
    struct sg_timer *first = NULL;
    for (struct sg_timer *t = timers; t; t = t->next)
        if (t->active && (!first || t->due < first->due))
            first = t;
    if (!first)
        return false;
    now_ms = first->due > now_ms ? first->due : now_ms;
    first->active = false;
    first->fn(first->arg);
    bury();
    return true;
}

void play_reset(uint64_t size)
{
    memset(&plan, 0, sizeof plan);
    nslept = 0;
    box.calls = box.reads = box.drops = box.fetches = box.abandoned = 0;
    box.most = 0;
    box.full = false;
    box.size = size;
    box.facts =
        (struct sg_wire_file){.type = 'f', .mode = 0644, .mtime_ns = 1000, .ctime_ns = 1000, .ino = 5};
}

void play_begin(void)
{
    const char *given = getenv("SANDGATE_SEED");
    if (given)
        rng = strtoull(given, NULL, 10);
    else
        assert_true(sg_random(&rng, sizeof rng));
    rng = rng ? rng : 1;
    print_message("# SANDGATE_SEED=%" PRIu64 "\n", rng);
    box.data = malloc(SIZE + 8192);
    for (size_t i = 0; i < SIZE + 8192; i++)
        box.data[i] = (unsigned char)chance(256);
}

void play_is_over(void)
{
    assert_null(timers);
    assert_null(graves);
    for (size_t i = 0; i < CALLS; i++)
        assert_false(calls[i].used || reads[i].used);
}

void play_end(void)
{
    unstage_all();
    free(box.data);
}
