#include "played.h"

#include "base/clock.h"
#include "base/core/num.h"
#include "vercel/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 20000, LATE_TURNS = 20 };

struct played played;

struct vercel_call {
    struct sg_task task; /* first */
    bool posted;
    struct played_write *seen;
    vercel_read_fn *read;
    vercel_done_fn *done;
    void *arg;
    unsigned char *data;
    uint64_t after;
    bool paused, whole, over;
    int late;
    struct vercel_call *next;
};

struct guest_call {
    struct sg_task task; /* first */
    char args[16][128];
    size_t n;
    struct guest_events ev;
    void *arg;
    bool over;
    struct guest_call *next;
};

static void soon(struct vercel_call *w)
{
    if (!w->posted)
        sg_loop_post(played.loop, &w->task);
    w->posted = true;
}

static struct vercel_call *writes;
static struct guest_call *calls;

/* ---- files ---- */

struct played_file *played_find(const char *name)
{
    for (size_t i = 0; i < PLAYED_FILES; i++)
        if (played.files[i].data && !strcmp(played.files[i].name, name))
            return &played.files[i];
    return NULL;
}

static void forget(struct played_file *f)
{
    free(f->data);
    *f = (struct played_file){.len = 0};
}

void played_keep(const char *name, const void *data, size_t len)
{
    struct played_file *f = played_find(name);
    for (size_t i = 0; !f && i < PLAYED_FILES; i++)
        if (!played.files[i].data)
            f = &played.files[i];
    unsigned char *copy = malloc(len + 1);
    if (!f || !copy)
        abort();
    memcpy(copy, data, len);
    free(f->data);
    f->data = copy;
    f->len = len;
    (void)snprintf(f->name, sizeof f->name, "%s", name);
}

int played_left(void)
{
    int n = 0;
    for (size_t i = 0; i < PLAYED_FILES; i++)
        n += played.files[i].data != NULL;
    return n;
}

/* ---- fs/write ---- */

struct vercel_client;
struct vercel_client *guestlink_client(struct guestlink *g)
{
    return (struct vercel_client *)(void *)g;
}

struct guestlink *played_link(void)
{
    return (struct guestlink *)(void *)&played;
}

static void write_over(struct vercel_call *w)
{
    w->over = true;
    w->seen->active = false;
    played.live--;
}

static void write_ends(struct vercel_call *w, enum sg_code code, enum sg_outcome outcome, int status)
{
    struct sg_error e;
    if (w->over)
        return;
    write_over(w);
    if (code) {
        (void)sg_fail(&e, code, outcome, "made to fail");
        e.upstream_status = status;
        w->done(w->arg, &e);
    } else {
        w->seen->done_well = true;
        w->done(w->arg, NULL);
    }
}

static void settle(struct vercel_call *w)
{
    size_t n = (size_t)w->seen->got;
    switch (w->seen->fate) {
    case FATE_CUT:
        played_keep(w->seen->name, w->data, n / 2);
        write_ends(w, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN, 0);
        break;
    case FATE_LOST:
        played_keep(w->seen->name, w->data, n);
        write_ends(w, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN, 0);
        break;
    case FATE_LATE:
        w->late = LATE_TURNS;
        soon(w);
        write_ends(w, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN, 0);
        break;
    case FATE_500:
        write_ends(w, SG_E_UPSTREAM_UNAVAILABLE, SG_OUTCOME_UNKNOWN, 500);
        break;
    case FATE_429:
        write_ends(w, SG_E_UPSTREAM_RATE_LIMITED, SG_NOT_STARTED, 429);
        break;
    case FATE_TOO_LARGE:
        write_ends(w, SG_E_UPSTREAM_REJECTED, SG_NOT_STARTED, 413);
        break;
    case FATE_NO_SPACE:
        write_ends(w, SG_E_NO_SPACE, SG_OUTCOME_UNKNOWN, 500);
        break;
    case FATE_STALE:
        write_ends(w, SG_E_STALE_SESSION, SG_NOT_STARTED, 410);
        break;
    case FATE_UNREACHED:
        write_ends(w, SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT, 0);
        break;
    case FATE_HANGS:
        break;
    case FATE_FINE:
    default:
        played_keep(w->seen->name, w->data, n);
        write_ends(w, SG_OK, SG_FINISHED, 0);
        break;
    }
}

static bool at_once(enum played_fate f)
{
    return f == FATE_429 || f == FATE_TOO_LARGE || f == FATE_STALE || f == FATE_UNREACHED;
}

static bool breaks(enum played_fate f)
{
    return f == FATE_CUT || f == FATE_LATE || f == FATE_NO_SPACE;
}

static void on_write(struct sg_task *task)
{
    struct vercel_call *w = (struct vercel_call *)task;
    w->posted = false;
    if (w->late) {
        if (--w->late)
            soon(w);
        else
            played_keep(w->seen->name, w->data, (size_t)w->seen->got);
        return;
    }
    if (w->over || w->paused)
        return;
    if (at_once(w->seen->fate)) {
        settle(w);
        return;
    }
    size_t most = played.chunk ? played.chunk : 65536, left = (size_t)(w->seen->size - w->seen->got);
    if (breaks(w->seen->fate) && w->after - w->seen->got < most)
        most = (size_t)(w->after - w->seen->got);
    if (most == 0) {
        settle(w);
        return;
    }
    char more[1];
    size_t n = left ? w->read(w->arg, (char *)w->data + w->seen->got, most < left ? most : left)
                    : w->read(w->arg, more, 1);
    if (w->over)
        return;
    if (n == VERCEL_READ_PAUSE) {
        w->paused = true;
        return;
    }
    if (n == VERCEL_READ_ABORT || (n == 0) != (left == 0)) {
        write_ends(w, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, 0);
        return;
    }
    if (left == 0) {
        settle(w);
        return;
    }
    w->seen->got += n;
    soon(w);
}

struct vercel_call *vercel_file_write_start(struct vercel_client *c, const struct vercel_file_write *f,
                                            vercel_done_fn *done, void *arg, struct sg_error *e)
{
    struct vercel_call *w = calloc(1, sizeof *w);
    if ((void *)c != (void *)&played || !w || !f->read || played.nwrites == PLAYED_WRITES)
        abort();
    (void)e;
    struct played_write *seen = &played.writes[played.nwrites++];
    *seen = (struct played_write){.size = f->size, .active = true, .fate = played.all};
    if (strncmp(f->path, GUEST_ROOT "/", sizeof GUEST_ROOT) != 0 || f->mode != 0600)
        abort();
    (void)snprintf(seen->name, sizeof seen->name, "%s", f->path + sizeof GUEST_ROOT);
    for (size_t i = 0; i < sizeof played.faults / sizeof *played.faults; i++)
        if (played.faults[i].nth == (int)played.nwrites) {
            seen->fate = played.faults[i].fate;
            w->after = played.faults[i].after;
        }
    if (played.most && f->size > played.most)
        seen->fate = FATE_TOO_LARGE;
    w->seen = seen;
    w->read = f->read;
    w->done = done;
    w->arg = arg;
    w->data = malloc(f->size + 1);
    w->task.fn = on_write;
    if (!w->data)
        abort();
    w->next = writes;
    writes = w;
    played.live++;
    size_t active = 0;
    for (size_t i = 0; i < played.nwrites; i++)
        active += played.writes[i].active;
    if (active > played.most_at_once)
        played.most_at_once = active;
    soon(w);
    return w;
}

void vercel_call_resume(struct vercel_call *w)
{
    w->paused = false;
    soon(w);
}

void vercel_call_cancel(struct vercel_call *w)
{
    if (w->over)
        abort();
    w->seen->cancelled = true;
    write_over(w);
}

/* ---- the guest ---- */

static const char *option(const struct guest_call *c, const char *name)
{
    for (size_t i = 3; i + 1 < c->n; i++)
        if (!strcmp(c->args[i], name))
            return c->args[i + 1];
    return NULL;
}

static uint64_t number(const struct guest_call *c, const char *name)
{
    uint64_t n;
    const char *text = option(c, name);
    if (!text || !sg_parse_u64(text, strlen(text), INT64_MAX, &n))
        abort();
    return n;
}

static struct sg_wire_line ok(const char *word)
{
    struct sg_wire_line l = {.kind = SG_WIRE_OK};
    (void)snprintf(l.text, sizeof l.text, "%s", word);
    return l;
}

static struct sg_wire_line wrong(enum sg_wire_fail fail, const char *errno_name, const char *text)
{
    struct sg_wire_line l = {.kind = SG_WIRE_ERROR, .fail = fail};
    (void)snprintf(l.errno_name, sizeof l.errno_name, "%s", errno_name);
    (void)snprintf(l.text, sizeof l.text, "%s", text);
    return l;
}

static struct played_file *joined_file(const struct guest_call *c)
{
    char name[128];
    (void)snprintf(name, sizeof name, ".up-%s", option(c, "--upload"));
    return played_find(name);
}

static struct played_file *part_at(const struct guest_call *c, uint64_t at)
{
    char name[128];
    (void)snprintf(name, sizeof name, ".up-%s.%s.%" PRIu64, option(c, "--upload"), option(c, "--nonce"), at);
    return played_find(name);
}

/* As the contract of the guest's `join` has it. */
static struct sg_wire_line join(const struct guest_call *c)
{
    char text[64];
    uint64_t at = number(c, "--offset"), end = number(c, "--size");
    struct played_file *whole = joined_file(c), *part;
    if (played.join_no_space)
        return wrong(SG_WF_NO_SPACE, "ENOSPC", "no room");
    if (!whole && at == 0 && (part = part_at(c, 0))) {
        (void)snprintf(part->name, sizeof part->name, ".up-%s", option(c, "--upload"));
        whole = part;
        at = whole->len;
    }
    if (!whole || whole->len != at) {
        (void)snprintf(text, sizeof text, "accepted %zu", whole ? whole->len : (size_t)0);
        return wrong(SG_WF_UPLOAD_OFFSET, "-", text);
    }
    while (whole->len < end && (part = part_at(c, whole->len))) {
        whole->data = realloc(whole->data, whole->len + part->len + 1);
        if (!whole->data)
            abort();
        memcpy(whole->data + whole->len, part->data, part->len);
        whole->len += part->len;
        forget(part);
    }
    (void)snprintf(text, sizeof text, "%zu", whole->len);
    return ok(text);
}

static struct sg_wire_line finish(const struct guest_call *c)
{
    const char *from = option(c, "--from");
    struct played_file *f = from ? played_find(from) : joined_file(c);
    if (!f)
        return wrong(SG_WF_FILE, "ENOENT", "the upload");
    if (played.finish_error.kind) {
        forget(f);
        return played.finish_error;
    }
    if (f->len != number(c, "--size")) {
        forget(f);
        return wrong(SG_WF_FILE, "EBADMSG", "the upload is not of the announced size");
    }
    played_keep("target", f->data, f->len);
    forget(f);
    return ok("created");
}

static struct sg_wire_line sweep(const struct guest_call *c)
{
    char prefix[128];
    (void)snprintf(prefix, sizeof prefix, ".up-%s", option(c, "--upload"));
    size_t n = strlen(prefix);
    for (size_t i = 0; i < PLAYED_FILES; i++) {
        struct played_file *f = &played.files[i];
        if (f->data && !strncmp(f->name, prefix, n) && (f->name[n] == '.' || !f->name[n]))
            forget(f);
    }
    return ok("");
}

static void call_ends(struct guest_call *c, const struct sg_wire_line *l, enum sg_outcome outcome)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_UNREACHABLE, outcome, "made to fail");
    c->over = true;
    played.live--;
    c->ev.on_end(c->arg, l, false, l ? NULL : &e);
}

static bool one_of(int *n)
{
    if (*n <= 0)
        return false;
    --*n;
    return true;
}

static void on_call(struct sg_task *task)
{
    struct guest_call *c = (struct guest_call *)task;
    struct sg_wire_line l, file = {.kind = SG_WIRE_FILE, .file = {.type = 'f', .nlink = 1}};
    bool lost = false;
    if (c->over)
        return;
    if (!strcmp(c->args[2], "join")) {
        if (played.hold_joins) {
            sg_loop_post(played.loop, &c->task);
            return;
        }
        if (one_of(&played.refuse_join)) {
            call_ends(c, NULL, SG_NOT_SENT);
            return;
        }
        l = join(c);
        lost = one_of(&played.lose_join);
    } else if (!strcmp(c->args[2], "upload-remove")) {
        l = sweep(c);
    } else if (played.more_finish > 0 && !played.lose_finish) {
        struct sg_wire_line at = {.kind = SG_WIRE_NAME};
        char text[16];
        at.name_len = (size_t)snprintf(text, sizeof text, "c%d", played.more_finish--);
        at.name = (const unsigned char *)text;
        (void)c->ev.on_line(c->arg, &at);
        l = (struct sg_wire_line){.kind = SG_WIRE_MORE};
    } else {
        lost = one_of(&played.lose_finish);
        if (!lost || !played.cut_finish)
            l = finish(c);
        if (!lost && l.kind == SG_WIRE_OK) {
            const struct played_file *target = played_find("target");
            file.file.size = target ? target->len : 0;
            (void)c->ev.on_line(c->arg, &file);
        }
    }
    call_ends(c, lost ? NULL : &l, SG_OUTCOME_UNKNOWN);
}

struct guest_call *guest_call_start(struct guestlink *g, const struct guest_args *a,
                                    const struct guest_events *ev, void *arg, struct sg_error *e)
{
    struct guest_call *c = calloc(1, sizeof *c);
    (void)e;
    if ((void *)g != (void *)&played || !c || played.ncalls == PLAYED_CALLS)
        abort();
    char *line = played.calls[played.ncalls++];
    for (; a->args[c->n]; c->n++) {
        (void)snprintf(c->args[c->n], sizeof c->args[c->n], "%s", a->args[c->n]);
        if (c->n >= 2)
            (void)snprintf(line + strlen(line), sizeof played.calls[0] - strlen(line), "%s%s",
                           c->n > 2 ? " " : "", a->args[c->n]);
    }
    c->ev = *ev;
    c->arg = arg;
    c->task.fn = on_call;
    c->next = calls;
    calls = c;
    played.live++;
    sg_loop_post(played.loop, &c->task);
    return c;
}

void guest_cancel(struct guest_call *c)
{
    if (c->over)
        abort();
    c->over = true;
    played.live--;
}

void guest_abandon(struct guest_call *c)
{
    guest_cancel(c);
}

int played_count(const char *op)
{
    int n = 0;
    for (size_t i = 0; i < played.ncalls; i++)
        n += !strncmp(played.calls[i], op, strlen(op)) && strchr(" ", played.calls[i][strlen(op)]);
    return n;
}

/* ---- time ---- */

void played_begin(struct sg_loop *loop)
{
    memset(&played, 0, sizeof played);
    played.loop = loop;
}

int played_end(void)
{
    int left = played.live;
    while (writes) {
        struct vercel_call *w = writes;
        writes = w->next;
        free(w->data);
        free(w);
    }
    while (calls) {
        struct guest_call *c = calls;
        calls = c->next;
        free(c);
    }
    for (size_t i = 0; i < PLAYED_FILES; i++)
        forget(&played.files[i]);
    return left;
}

static void on_tick(void *arg)
{
    (void)arg;
}

static bool turn_until(const bool *flag, bool rest)
{
    int64_t end = sg_mono_ms() + PATIENCE_MS;
    struct sg_timer *t = sg_timer_new(played.loop, on_tick, NULL);
    if (!t)
        return false;
    while ((rest ? played.live > 0 : !*flag) && sg_mono_ms() < end) {
        /* A timer that brings the end runs before the loop goes to sleep: it never sleeps long. */
        sg_timer_start(t, 5);
        uv_run(sg_loop_uv(played.loop), UV_RUN_ONCE);
    }
    sg_timer_free(t);
    return rest ? played.live == 0 : *flag;
}

bool played_until(const bool *flag)
{
    return turn_until(flag, false);
}

bool played_rest(void)
{
    played_turns(3); /* what is about to begin */
    return turn_until(NULL, true);
}

void played_turns(int n)
{
    while (n-- > 0) {
        uv_update_time(sg_loop_uv(played.loop));
        uv_run(sg_loop_uv(played.loop), UV_RUN_NOWAIT);
    }
}
