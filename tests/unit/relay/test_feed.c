/* One process's output, shared: random readers that come, pause, go and return at offsets, over an upstream that
 * cuts, repeats, overlaps and loses, all get exactly what was printed.  U2, U6, C7; P01, P08, P12, P16, P18, P19. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "relay/feed.h"
#include "relay/feed_impl.h"
#include "tests/unit/relay/fixture.h"

#include <stdlib.h>
#include <string.h>

/* A client that believes nothing. */
struct client {
    struct reader *r;
    struct fake_proc *p;
    uint64_t pos[2], given, from;
    int hellos, gaps, pause_permille;
    bool stuck; /* never resumes by itself */
    bool close_in_hello, close_in_data, close_in_end;
    bool wrong, ended, failed;
    struct sg_timer *later;
    struct sg_wire_process end, hello;
    struct sg_error e;
};

static void gone(struct client *c)
{
    reader_close(c->r);
    c->r = NULL;
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct client *c = arg;
    if (c->hellos++ || c->ended || !c->r)
        c->wrong = true;
    c->hello = *p;
    if (c->close_in_hello)
        gone(c);
}

static bool on_data(void *arg, int s, uint64_t offset, const void *data, size_t len)
{
    struct client *c = arg;
    if (!c->r || !c->hellos || c->ended || offset != c->pos[s] || len == 0 || offset + len > c->p->total[s] ||
        memcmp(data, c->p->content[s] + offset, len) != 0)
        c->wrong = true;
    c->pos[s] += len;
    c->given += len;
    if (c->close_in_data) {
        gone(c);
        return true;
    }
    if (!fake_chance(&fake, c->pause_permille))
        return true;
    if (!c->stuck)
        sg_timer_start(c->later, fake_random(&fake, 3));
    return false;
}

static void on_gap(void *arg, int s, uint64_t from, uint64_t to)
{
    struct client *c = arg;
    if (!c->r || from != c->pos[s] || to <= from || c->ended)
        c->wrong = true;
    c->pos[s] = to;
    c->gaps++;
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct client *c = arg;
    if (!c->r || c->ended || !p == !e)
        c->wrong = true;
    c->ended = true;
    if (p)
        c->end = *p;
    if (e) {
        c->failed = true;
        c->e = *e;
    }
    if (c->close_in_end)
        gone(c);
}

static void on_later(void *arg)
{
    struct client *c = arg;
    if (c->r)
        reader_resume(c->r);
}

static const struct follower_events events = {on_hello, on_data, on_gap, on_end};

static void come(struct client *c, struct fake_proc *p, const struct follow_spec *more)
{
    struct sg_error e;
    struct follow_spec s = more ? *more : (struct follow_spec){.only = -1};
    s.session = (struct relay_session){.session_id = "sess-1"};
    s.id = p->id;
    c->p = p;
    c->hellos = 0;
    c->ended = c->failed = false;
    c->pos[0] = s.offset[0];
    c->pos[1] = s.offset[1];
    c->from = s.only >= 0 ? s.offset[s.only] : 0;
    c->given = 0;
    if (!c->later)
        c->later = sg_timer_new(loop, on_later, c);
    c->r = reader_open(relay, &s, &events, c, &e);
    assert_non_null(c->r);
    assert_false(c->ended || c->hellos);
}

static void leave(struct client *c)
{
    if (c->r)
        gone(c);
    sg_timer_free(c->later);
    c->later = NULL;
}

static size_t rings(void)
{
    return relay_feeds(relay)->used;
}

static void turns_until_all_ended(struct client *c, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(fake_until(&fake, &c[i].ended));
}

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 5000,
                             .give_up_bounded_ms = 5000,
                             .backoff_max_ms = 4,
                             .quiet_ms = 60000,
                             .linger_ms = 20};
    return fixture_open(&l);
}

static int teardown(void **state)
{
    int rc = fixture_close(state);
    return rc;
}

static struct follow_spec anywhere(const struct fake_proc *p)
{
    struct follow_spec s = {.only = -1};
    for (int i = 0; i < 2; i++)
        s.offset[i] = p->written[i] ? fake_random(&fake, p->written[i] + 1) : 0;
    return s;
}

static struct fake_faults faults_of(struct fake *f)
{
    return (struct fake_faults){.cut = (int)fake_random(f, 60),
                                .cut_at_hello = (int)fake_random(f, 200),
                                .repeat = (int)fake_random(f, 200),
                                .overlap = (int)fake_random(f, 300),
                                .hole = (int)fake_random(f, 20),
                                .more = (int)fake_random(f, 60),
                                .early_exit = (int)fake_random(f, 30),
                                .refuse = (int)fake_random(f, 100)};
}

/* P01, P08, P12, U2: whatever the others do. */
static void test_random_readers(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct fake_proc *p =
            fake_proc(&fake, "p1", fake_random(&fake, 3000000), fake_random(&fake, 400000), true);
        struct client c[6] = {0};
        fake.faults = faults_of(&fake);
        fake.write_max = 1000 + fake_random(&fake, 60000);
        struct relay_limits l = {.give_up_ms = 5000,
                                 .backoff_max_ms = 4,
                                 .pause_max_ms = 10,
                                 .linger_ms = 1 + (int64_t)fake_random(&fake, 20),
                                 .quiet_ms = 60000,
                                 .ring_total = round % 3 ? 0 : 1 + (int64_t)fake_random(&fake, 300000)};
        relay_set_limits(relay, &l);
        for (int i = 0; i < 6; i++) {
            c[i].pause_permille = i < 2 ? 0 : (int)fake_random(&fake, 700);
            if (i < 3) {
                come(&c[i], p, NULL);
            } else {
                struct follow_spec s = anywhere(p);
                come(&c[i], p, &s);
            }
            fake_turns(&fake, (int)fake_random(&fake, 30));
        }
        for (int again = 0; again < 60; again++) { /* some leave and come back where they were */
            struct client *one = &c[fake_random(&fake, 6)];
            if (!one->ended) {
                struct follow_spec s = {.only = -1, .offset = {one->pos[0], one->pos[1]}};
                gone(one);
                fake_turns(&fake, (int)fake_random(&fake, 8));
                come(one, p, &s);
            }
            fake_turns(&fake, (int)fake_random(&fake, 8));
            assert_true(rings() <= (size_t)relay_limits(relay)->ring_total);
        }
        turns_until_all_ended(c, 6);
        for (int i = 0; i < 6; i++) {
            assert_false(c[i].wrong);
            assert_false(c[i].failed);
            assert_int_equal(c[i].hellos, 1);
            assert_int_equal(c[i].gaps, 0);
            assert_int_equal(c[i].pos[0], p->total[0]);
            assert_int_equal(c[i].pos[1], p->total[1]);
            assert_int_equal(c[i].end.how, SG_HOW_EXIT);
            assert_false(c[i].end.output_incomplete);
            leave(&c[i]);
        }
        fixture_forget(p);
        fake_turns(&fake, 3);
        assert_int_equal(rings(), 0);
    }
}

/* A hundred watchers cost one upstream call. */
static void test_one_call_for_all(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 500000, 100000, true);
    static struct client c[100];
    memset(c, 0, sizeof c);
    for (int i = 0; i < 100; i++) {
        come(&c[i], p, NULL);
        if (i % 10 == 0)
            fake_turns(&fake, 1);
    }
    turns_until_all_ended(c, 100);
    assert_int_equal(fake.calls[V_FOLLOW], 1);
    for (int i = 0; i < 100; i++) {
        assert_false(c[i].wrong || c[i].failed);
        assert_int_equal(c[i].given, 600000);
    }
    struct client late = {0}; /* and who comes after the end, from memory */
    come(&late, p, NULL);
    assert_true(fake_until(&fake, &late.ended));
    assert_false(late.wrong || late.failed);
    assert_int_equal(late.given, 600000);
    assert_int_equal(late.hello.state, SG_PS_FINISHED);
    assert_int_equal(fake.calls[V_FOLLOW], 1);
    leave(&late);
    for (int i = 0; i < 100; i++)
        leave(&c[i]);
}

/* P12, U6: one that never reads holds up nobody and no memory; the others get all of it over one call. */
static void test_stuck_reader(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 8000000, 0, true);
    fake.write_max = 100000;
    struct client stuck = {.pause_permille = 1000, .stuck = true}, busy = {0};
    come(&stuck, p, NULL);
    come(&busy, p, NULL);
    assert_true(fake_until(&fake, &busy.ended));
    assert_false(busy.wrong || busy.failed || stuck.wrong);
    assert_int_equal(busy.given, 8000000);
    assert_int_equal(fake.calls[V_FOLLOW], 1);
    assert_in_range(stuck.given, 1, 300000);
    assert_in_range(rings(), 1, FEED_RING);
    stuck.pause_permille = 0; /* and comes after on its own, once it reads */
    reader_resume(stuck.r);
    assert_true(fake_until(&fake, &stuck.ended));
    assert_false(stuck.wrong || stuck.failed);
    assert_int_equal(stuck.given, 8000000);
    assert_int_equal(stuck.gaps, 0);
    assert_in_range(fake.calls[V_FOLLOW], 2, 4);
    leave(&stuck);
    leave(&busy);
}

/* P16, U6: when nobody reads, the upstream waits: the ring does not take it all. */
static void test_all_slow_pause_the_upstream(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 8000000, 0, true);
    p->written[0] = p->total[0];
    p->exited = true;
    struct client a = {.pause_permille = 1000, .stuck = true}, b = {.pause_permille = 1000, .stuck = true};
    come(&a, p, NULL);
    come(&b, p, NULL);
    fake_turns(&fake, 3000);
    assert_in_range(rings(), 1, 2 * FEED_AHEAD);
    assert_in_range(a.given, 1, 2 * FEED_AHEAD);
    a.pause_permille = b.pause_permille = 0;
    reader_resume(a.r);
    assert_true(fake_until(&fake, &a.ended));
    reader_resume(b.r);
    assert_true(fake_until(&fake, &b.ended));
    assert_int_equal(a.given + b.given, 16000000);
    assert_false(a.wrong || b.wrong || a.failed || b.failed);
    leave(&a);
    leave(&b);
}

/* Who stands far ahead takes the feed along; who is behind reads on alone. */
static void test_ahead(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 6000000, 0, true);
    p->written[0] = p->total[0];
    struct client slow = {.pause_permille = 1000, .stuck = true}, fast = {0};
    p->hold = true;
    come(&slow, p, NULL);
    fake_turns(&fake, 20);
    come(&fast, p, &(struct follow_spec){.only = -1, .offset = {5900000, 0}});
    while (fast.pos[0] < p->total[0])
        fake_turns(&fake, 1);
    assert_in_range(slow.given, 1, 2 * FEED_AHEAD);
    assert_in_range(fake.calls[V_FOLLOW], 2, 2);
    p->hold = false;
    fake_wake(&fake);
    slow.pause_permille = 0;
    reader_resume(slow.r);
    assert_true(fake_until(&fake, &fast.ended));
    assert_true(fake_until(&fake, &slow.ended));
    assert_int_equal(fast.given, 100000);
    assert_int_equal(slow.given, 6000000);
    assert_false(slow.wrong || fast.wrong || slow.failed || fast.failed);
    leave(&slow);
    leave(&fast);
}

/* An offset that nothing has reached yet keeps the others from nothing. */
static void test_beyond_the_end(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 50000, 1000, true);
    p->hold = true;
    struct client far = {0}, near = {0};
    come(&far, p, &(struct follow_spec){.only = -1, .offset = {45000, 0}});
    fake_turns(&fake, 5);
    come(&near, p, NULL);
    fake_turns(&fake, 5);
    p->hold = false;
    fake_wake(&fake);
    assert_true(fake_until(&fake, &far.ended));
    assert_true(fake_until(&fake, &near.ended));
    assert_false(far.wrong || near.wrong || far.failed || near.failed);
    assert_int_equal(far.given, 5000 + 1000);
    assert_int_equal(near.given, 51000);
    assert_in_range(fake.calls[V_FOLLOW], 2, 2);
    leave(&far);
    leave(&near);
}

/* What is no longer kept is named to each, once. */
static void test_gap(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "ring", 50000, 10, true);
    p->written[0] = p->oldest[0] = 20000;
    p->hold = true;
    struct client a = {0}, b = {0};
    come(&a, p, &(struct follow_spec){.only = -1, .offset = {5, 0}});
    fake_turns(&fake, 20);
    assert_int_equal(a.gaps, 1);
    come(&b, p, &(struct follow_spec){.only = -1, .offset = {17, 0}});
    fake_turns(&fake, 20);
    assert_int_equal(b.gaps, 1);
    assert_int_equal(fake.calls[V_FOLLOW], 1); /* b was told from memory */
    p->hold = false;
    fake_wake(&fake);
    assert_true(fake_until(&fake, &a.ended));
    assert_true(fake_until(&fake, &b.ended));
    assert_false(a.wrong || b.wrong || a.failed || b.failed);
    assert_int_equal(a.pos[0], 50000);
    assert_int_equal(b.pos[0], 50000);
    leave(&a);
    leave(&b);
}

/* The same, for one that has to read what the ring dropped and then comes to bytes that nobody has. */
static void test_gap_behind(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "ring", 4000000, 0, true);
    fake.write_max = 100000;
    p->hold = true;
    p->written[0] = 3000000;
    struct client a = {0}, b = {0};
    come(&a, p, NULL);
    while (a.pos[0] < 3000000)
        fake_turns(&fake, 1);
    p->oldest[0] = 1000000;
    come(&b, p, NULL);
    while (b.pos[0] < 3000000)
        fake_turns(&fake, 1);
    assert_int_equal(b.gaps, 1);
    assert_int_equal(b.given, 2000000);
    p->hold = false;
    fake_wake(&fake);
    assert_true(fake_until(&fake, &a.ended));
    assert_true(fake_until(&fake, &b.ended));
    assert_false(a.wrong || b.wrong || a.failed || b.failed);
    leave(&a);
    leave(&b);
}

/* C7, P10: the end comes after the last byte, with what is known of it; errors too. */
static void test_ends(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "tail", 3000, 0, true);
    fake.never_exit_tail = true;
    struct client a = {0}, b = {0};
    come(&a, p, NULL);
    come(&b, p, NULL);
    turns_until_all_ended(&a, 1);
    turns_until_all_ended(&b, 1);
    assert_int_equal(a.pos[0], 2999);
    assert_true(a.end.output_incomplete && b.end.output_incomplete);
    assert_false(a.wrong || b.wrong || a.failed || b.failed);
    leave(&a);
    leave(&b);
    fake.never_exit_tail = false;
    struct fake_proc *none = fake_proc(&fake, "none", 0, 0, false);
    struct client n1 = {.close_in_end = true}, n2 = {.close_in_end = true};
    come(&n1, none, NULL);
    come(&n2, none, NULL);
    turns_until_all_ended(&n1, 1);
    turns_until_all_ended(&n2, 1);
    assert_int_equal(n1.e.code, SG_E_PROCESS_NOT_FOUND);
    assert_int_equal(n2.e.code, SG_E_PROCESS_NOT_FOUND);
    assert_int_equal(n1.hellos, 0);
    leave(&n1);
    leave(&n2);
    none->exists = true; /* it came to be meanwhile: an old refusal is not kept */
    struct client n3 = {0};
    come(&n3, none, NULL);
    turns_until_all_ended(&n3, 1);
    assert_false(n3.failed);
    leave(&n3);
}

static void test_close_anywhere(void **state)
{
    (void)state;
    for (int where = 0; where < 3; where++) {
        struct fake_proc *p = fake_proc(&fake, "c", 5000, 5000, true);
        struct client a = {
            .close_in_hello = where == 0, .close_in_data = where == 1, .close_in_end = where == 2};
        struct client b = {0};
        come(&a, p, NULL);
        come(&b, p, NULL);
        assert_true(fake_until(&fake, &b.ended));
        assert_true(a.r == NULL);
        assert_false(a.wrong || b.wrong || b.failed);
        assert_int_equal(b.given, 10000);
        leave(&a);
        leave(&b);
        fixture_forget(p);
        fake_turns(&fake, 4);
        assert_int_equal(fake.live, 0);
        assert_int_equal(rings(), 0);
    }
}

/* Kept a while for who comes back, then dropped; a forgotten one at once. */
static void test_linger(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "c", 5000, 5000, true);
    struct client a = {0};
    come(&a, p, NULL);
    assert_true(fake_until(&fake, &a.ended));
    leave(&a);
    assert_in_range(rings(), 1, 32768);
    while (rings())
        fake_turn(&fake);
    memset(&a, 0, sizeof a);
    come(&a, p, NULL);
    assert_true(fake_until(&fake, &a.ended));
    assert_int_equal(fake.calls[V_FOLLOW], 2);
    leave(&a);
    feed_forget(relay, "sess-1", "c");
    assert_int_equal(rings(), 0);
    p->exists = false; /* its record was removed */
    memset(&a, 0, sizeof a);
    come(&a, p, NULL);
    assert_true(fake_until(&fake, &a.ended));
    assert_int_equal(a.e.code, SG_E_PROCESS_NOT_FOUND);
    leave(&a);
}

/* P19: bounded reads: from memory where that has it all, else by a call; the bytes are the same. */
static void test_bounded(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "b", 2500000, 30000, true);
    struct client a = {0};
    p->written[0] = 2000000;
    p->written[1] = 30000;
    p->hold = true;
    come(&a, p, NULL);
    while (a.given < 2030000)
        fake_turns(&fake, 1);
    assert_int_equal(fake.calls[V_FOLLOW], 1);
    for (int i = 0; i < 60; i++) {
        struct follow_spec s = {.only = 0, .bounded = true};
        s.offset[0] = fake_random(&fake, 2000001);
        s.limit = i % 4 ? 1 + fake_random(&fake, 300000) : 0;
        bool from_memory = s.limit && s.offset[0] >= 2000000 - 900000 && s.offset[0] + s.limit <= 2000000;
        uint64_t there = 2000000 - s.offset[0], want = s.limit && s.limit < there ? s.limit : there;
        int before = fake.calls[V_FOLLOW];
        struct client b = {.pause_permille = 100};
        come(&b, p, &s);
        assert_true(fake_until(&fake, &b.ended));
        assert_false(b.wrong || b.failed);
        assert_int_equal(b.given, want);
        assert_int_equal(b.pos[1], 0);
        if (from_memory)
            assert_int_equal(fake.calls[V_FOLLOW], before);
        leave(&b);
        fake_turns(&fake, 2);
    }
    int before = fake.calls[V_FOLLOW]; /* the next bytes, and their absence, are seen by the feed alone */
    struct client w = {0}, none = {0};
    come(&none, p, &(struct follow_spec){.only = 1, .bounded = true, .offset = {0, 30000}, .wait_ms = 10});
    come(&w, p, &(struct follow_spec){.only = 0, .bounded = true, .offset = {2000000, 0}, .wait_ms = 15000});
    assert_true(fake_until(&fake, &none.ended));
    assert_false(w.ended || none.failed);
    assert_int_equal(none.given, 0);
    p->hold = false;
    fake_wake(&fake);
    assert_true(fake_until(&fake, &w.ended));
    assert_false(w.wrong || w.failed);
    assert_true(w.given > 0);
    assert_true(fake_until(&fake, &a.ended));
    leave(&w);
    leave(&none);
    struct client rest = {0};
    come(&rest, p, &(struct follow_spec){.only = 0, .bounded = true, .offset = {2400000, 0}});
    assert_true(fake_until(&fake, &rest.ended));
    assert_int_equal(rest.given, 100000);
    assert_int_equal(rest.end.how, SG_HOW_EXIT);
    assert_int_equal(fake.calls[V_FOLLOW], before);
    leave(&rest);
    leave(&a);
}

/* The ceiling of all rings together holds, and who does not need his gives way. */
static void test_ceiling(void **state)
{
    (void)state;
    struct client c[6] = {0};
    struct fake_proc *p[6];
    struct relay_limits l = {.linger_ms = 60000, .quiet_ms = 60000, .ring_total = 400000};
    relay_set_limits(relay, &l);
    for (int i = 0; i < 6; i++) {
        char id[8] = {'p', (char)('0' + i)};
        p[i] = fake_proc(&fake, id, 700000, 0, true);
        c[i].pause_permille = i == 3 ? 1000 : 0;
        come(&c[i], p[i], NULL);
        for (int n = 0; n < 4000 && !c[i].ended; n++) {
            fake_turns(&fake, 1);
            assert_true(rings() <= 400000);
        }
        if (i % 2)
            continue;
        assert_true(fake_until(&fake, &c[i].ended));
        assert_int_equal(c[i].given, 700000);
        leave(&c[i]);
    }
    for (int i = 1; i < 6; i += 2) {
        assert_true(fake_until(&fake, &c[i].ended));
        assert_int_equal(c[i].given, 700000);
        leave(&c[i]);
    }
    for (int i = 0; i < 6; i++)
        assert_false(c[i].wrong || c[i].failed);
}

/* ---- quiet processes ---- */

static void short_quiet(void)
{
    struct relay_limits l = {.give_up_ms = 5000, .backoff_max_ms = 4, .quiet_ms = 20, .linger_ms = 10};
    relay_set_limits(relay, &l);
}

static void until_watched(int n)
{
    while (fake.watching != n || fake.live != 1)
        fake_turn(&fake);
}

/* Many quiet processes cost one upstream stream; what one of them says then arrives, and its end. */
static void test_quiet_together(void **state)
{
    (void)state;
    struct client c[7] = {0};
    struct fake_proc *p[7];
    short_quiet();
    for (int i = 0; i < 7; i++) {
        char id[8] = {'q', (char)('0' + i)};
        p[i] = fake_proc(&fake, id, 1000, 500, true);
        p[i]->hold = true;
        p[i]->written[0] = (uint64_t)i;
        come(&c[i], p[i], NULL);
    }
    until_watched(7);
    assert_in_range(fake.calls[V_WATCH], 1, 4);
    int follows = fake.calls[V_FOLLOW];
    assert_int_equal(follows, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(c[i].pos[0], i);
    p[3]->written[1] = 5; /* a byte of one: it follows again, the others stay */
    fake_wake(&fake);
    while (c[3].pos[1] < 5)
        fake_turn(&fake);
    assert_int_equal(fake.calls[V_FOLLOW], follows + 1);
    for (int i = 0; i < 7; i++)
        p[i]->hold = false;
    fake_wake(&fake);
    turns_until_all_ended(c, 7);
    for (int i = 0; i < 7; i++) {
        assert_false(c[i].wrong || c[i].failed);
        assert_int_equal(c[i].given, 1500);
        assert_int_equal(c[i].hellos, 1);
        leave(&c[i]);
    }
    while (fake.live)
        fake_turn(&fake);
}

/* Whatever becomes of the watch calls, nothing is missed. */
static void test_quiet_random(void **state)
{
    (void)state;
    short_quiet();
    struct relay_limits l = {.give_up_ms = 5000, .backoff_max_ms = 2, .quiet_ms = 2, .linger_ms = 10};
    relay_set_limits(relay, &l);
    for (int round = 0; round < 12; round++) {
        struct client c[4] = {0};
        struct fake_proc *p[4];
        fake.write_max = 300;
        for (int i = 0; i < 4; i++) {
            char id[8] = {'q', (char)('0' + i)};
            p[i] = fake_proc(&fake, id, 1 + fake_random(&fake, 20000), fake_random(&fake, 5000), true);
            p[i]->hold = true;
            come(&c[i], p[i], NULL);
        }
        fake.faults = (struct fake_faults){.cut = (int)fake_random(&fake, 100),
                                           .refuse = (int)fake_random(&fake, 100),
                                           .more = (int)fake_random(&fake, 60)};
        for (bool all = false; !all;) {
            int i = (int)fake_random(&fake, 4);
            p[i]->hold = false;
            fake_wake(&fake);
            fake_turns(&fake, (int)fake_random(&fake, 4));
            p[i]->hold = true;
            int64_t until = sg_mono_ms() + (int64_t)fake_random(&fake, 6);
            while (sg_mono_ms() < until)
                fake_turns(&fake, 1);
            all = true;
            for (int k = 0; k < 4; k++)
                all = all && c[k].ended;
        }
        for (int i = 0; i < 4; i++) {
            assert_false(c[i].wrong || c[i].failed);
            assert_int_equal(c[i].pos[0], p[i]->total[0]);
            assert_int_equal(c[i].pos[1], p[i]->total[1]);
            leave(&c[i]);
            fixture_forget(p[i]);
        }
        fake_turns(&fake, 3);
    }
    assert_true(fake.calls[V_WATCH] > 20);
}

/* Who waits for echoes keeps a stream of its own, also who comes when it is quiet already. */
static void test_lively(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "t", 1000, 0, true);
    struct follow_spec lively = {.only = -1, .lively = true};
    struct client a = {0}, b = {0};
    short_quiet();
    p->hold = true;
    come(&a, p, &lively);
    int64_t until = sg_mono_ms() + 100;
    while (sg_mono_ms() < until)
        fake_turns(&fake, 1);
    assert_int_equal(fake.calls[V_WATCH], 0);
    gone(&a);
    come(&b, p, NULL);
    until_watched(1);
    come(&a, p, &lively);
    fake_turns(&fake, 3);
    assert_int_equal(fake.watching, 0);
    assert_int_equal(fake.live, 1);
    p->hold = false;
    fake_wake(&fake);
    turns_until_all_ended(&a, 1);
    turns_until_all_ended(&b, 1);
    assert_false(a.wrong || b.wrong || a.failed || b.failed);
    leave(&a);
    leave(&b);
}

/* The session ends while all is quiet: everybody hears that, without asking for each. */
static void test_quiet_session_ends(void **state)
{
    (void)state;
    struct client c[3] = {0};
    short_quiet();
    for (int i = 0; i < 3; i++) {
        char id[8] = {'q', (char)('0' + i)};
        struct fake_proc *p = fake_proc(&fake, id, 1000, 500, true);
        p->hold = true;
        come(&c[i], p, NULL);
    }
    until_watched(3);
    int follows = fake.calls[V_FOLLOW];
    fake.faults.cut = 1000;
    fake.refuse_all = SG_E_STALE_SESSION;
    fake_wake(&fake);
    turns_until_all_ended(c, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(c[i].failed);
        assert_int_equal(c[i].e.code, SG_E_STALE_SESSION);
        leave(&c[i]);
    }
    assert_int_equal(fake.calls[V_FOLLOW], follows);
}

/* A15: a process that ends when nobody is attached does not become quiet, and when its last client has left, the
 * stream that stood for it is ended upstream; of others it is only not listened to any more. */
static void test_unattended(void **state)
{
    (void)state;
    struct fake_proc *p[2] = {fake_proc(&fake, "u", 10, 0, true), fake_proc(&fake, "k", 10, 0, true)};
    struct client c[2] = {0}, second = {0};
    const struct follow_spec attending = {.only = -1, .attend = true};
    short_quiet();
    for (int i = 0; i < 2; i++) {
        p[i]->hold = true;
        p[i]->ends_unattended = i == 0;
        come(&c[i], p[i], &attending);
    }
    come(&second, p[0], &attending);
    while (fake.watching != 1) /* the other one */
        fake_turn(&fake);
    leave(&c[0]);
    int64_t end = sg_mono_ms() + 100; /* many times the linger */
    while (sg_mono_ms() < end)
        (void)uv_run(sg_loop_uv(loop), UV_RUN_NOWAIT);
    assert_int_equal(fake.calls[V_FOLLOW], 2);
    assert_int_equal(fake.abandoned, 0);
    leave(&second);
    leave(&c[1]);
    while (fake.live)
        fake_turn(&fake);
    assert_int_equal(fake.abandoned, 1);
}

/* A process that its first reader starts: one call for both, asked again in the same way until it is known, and begun
 * once (C8, U2). */
static void test_started_by_its_reader(void **state)
{
    static const char *const argv[] = {"fs", "--op", "watch", NULL};
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct fake_proc *p = fake_proc(&fake, "sgw-1", 1 + (size_t)round * 500, 0, false);
        struct process_spec start = {
            .session = {.session_id = "sess-1"}, .id = p->id, .argv = argv, .own = true};
        struct follow_spec s = {.only = -1, .attend = true, .start = &start};
        struct client c = {.close_in_end = true}, again = {.close_in_end = true};
        if (round)
            fake.faults = faults_of(&fake);
        fake.lose_start = round % 3 == 1 ? LOST_ARRIVED : round % 3 == 2 ? LOST_NEVER_ARRIVED : LOST_NOT;
        memset(fake.calls, 0, sizeof fake.calls);
        come(&c, p, &s);
        turns_until_all_ended(&c, 1);
        assert_false(c.wrong || c.failed);
        assert_int_equal(c.pos[0], p->total[0]);
        assert_int_equal(p->starts, 1);
        if (round == 0) {
            assert_int_equal(fake_total(&fake), 1);
            assert_non_null(strstr(fake.last_args, "run --session sess-1 --id sgw-1 --spec "));
            assert_non_null(strstr(fake.last_args, " --own -- fs --op watch "));
        }
        come(&again, p, NULL); /* who comes later follows it */
        turns_until_all_ended(&again, 1);
        assert_false(again.wrong || again.failed);
        leave(&c);
        leave(&again);
        fake.faults = (struct fake_faults){0};
        while (fake.live || rings())
            fake_turn(&fake);
        fixture_forget(p);
    }
}

/* Its id says whose it is. */
static void test_own_ids(void **state)
{
    static const char *const argv[] = {"fs", NULL};
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct sg_error e;
        struct client c = {0};
        struct process_spec start = {
            .session = {.session_id = "sess-1"}, .id = own ? "mine" : "sgw-1", .argv = argv, .own = own};
        struct follow_spec s = {.session = start.session, .id = start.id, .only = -1, .start = &start};
        assert_null(reader_open(relay, &s, &events, &c, &e));
        assert_int_equal(e.code, SG_E_INVALID_FIELD);
        assert_string_equal(e.pointer, "/id");
    }
    fake_turns(&fake, 2);
    assert_int_equal(fake_total(&fake), 0);
}

/* The relay goes: everything ends with DRAINING. */
static void test_draining(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "d", 10, 0, true);
    p->hold = true;
    struct client a = {.close_in_end = true}, b = {0}, q = {.close_in_end = true};
    short_quiet();
    come(&q, p, NULL);
    until_watched(1);
    struct fake_proc *other = fake_proc(&fake, "e", 10, 0, true);
    other->hold = true;
    come(&a, other, NULL);
    come(&b, other, NULL);
    fake_turns(&fake, 5);
    relay_free(relay);
    relay = NULL;
    assert_true(a.ended && b.ended);
    assert_int_equal(a.e.code, SG_E_DRAINING);
    assert_int_equal(b.e.code, SG_E_DRAINING);
    b.r = NULL;
    assert_true(q.ended);
    leave(&a);
    leave(&b);
    leave(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_readers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_call_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stuck_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_slow_pause_the_upstream, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ahead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_beyond_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_linger, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ceiling, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quiet_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quiet_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lively, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quiet_session_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unattended, setup, teardown),
        cmocka_unit_test_setup_teardown(test_started_by_its_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_draining, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
