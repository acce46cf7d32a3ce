/* The input of a process over carriers that fail at any byte.  A14, U2, U9; P22, P25. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "relay/input.h"
#include "tests/support/fake_carrier.h"
#include "tests/unit/relay/fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct fake_input *in;

/* Who writes: what he was told.  Static wherever it is used, for callbacks after an assertion has failed. */
struct who {
    struct writer *w;
    uint64_t accepted;
    size_t room;
    int told, refused;
    bool closed, unwanted, ended, heard;
    struct sg_error end, refusal;
};

static void on_accepted(void *arg, uint64_t accepted, size_t room, bool closed, bool unwanted)
{
    struct who *me = arg;
    assert_false(me->ended);
    assert_true(accepted >= me->accepted);
    assert_true(room <= INPUT_BUFFER);
    me->accepted = accepted;
    me->room = room;
    me->closed = closed;
    me->unwanted = unwanted;
    me->heard = true;
    me->told++;
}

static void on_refused(void *arg, const struct sg_error *e)
{
    struct who *me = arg;
    me->refused++;
    me->refusal = *e;
}

static void on_end(void *arg, const struct sg_error *e)
{
    struct who *me = arg;
    assert_false(me->ended);
    me->ended = true;
    me->end = *e;
}

static const struct writer_events events = {on_accepted, on_refused, on_end};

static enum sg_code try_open(struct who *me, bool takeover)
{
    struct sg_error e;
    struct writer_spec s = {
        .session = {.session_id = "sess-1"}, .id = "p1", .takeover = takeover, .terminal = true};
    *me = (struct who){0};
    me->w = writer_open(relay, &s, &events, me, &e);
    return me->w ? SG_OK : e.code;
}

static void begin(struct who *me)
{
    assert_int_equal(try_open(me, false), SG_OK);
}

static size_t put(struct who *me, uint64_t offset, const void *data, size_t len)
{
    struct sg_error e;
    size_t taken;
    assert_int_equal(writer_data(me->w, offset, data, len, &taken, &e), SG_OK);
    return taken;
}

static enum sg_code put_code(struct who *me, uint64_t offset, const char *text)
{
    struct sg_error e;
    size_t taken;
    return writer_data(me->w, offset, text, strlen(text), &taken, &e);
}

static void turn(void)
{
    (void)uv_run(sg_loop_uv(loop), UV_RUN_ONCE);
}

#define UNTIL(cond)                                                                                          \
    for (int64_t until_end = sg_mono_ms() + 20000; !(cond);) {                                               \
        assert_true(sg_mono_ms() < until_end);                                                               \
        nudge();                                                                                             \
        turn();                                                                                              \
    }

/* The loop never sleeps past a condition. */
static struct sg_timer *tick;
static void nudge(void)
{
    sg_timer_start(tick, 5);
}
static void on_tick(void *arg)
{
    (void)arg;
}

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 500, .backoff_max_ms = 4};
    int bad = fixture_open(&l);
    in = fake_input(&fake, "p1");
    tick = sg_timer_new(loop, on_tick, NULL);
    return bad || !tick;
}

static int teardown(void **state)
{
    sg_timer_free(tick);
    int bad = fixture_close(state);
    int left = in->live;
    bool wrong = in->wrong;
    if (wrong)
        print_error("%s\n", in->why);
    fake_inputs_free();
    return bad || left || wrong;
}

static void give_back(struct who *me)
{
    writer_release(me->w);
    fake_turns(&fake, 3);
}

/* ---- the property ---- */

struct story {
    unsigned char *all;
    size_t len, said; /* said: below it everything was given to a writer once */
    int signals[FAKE_SIGNALS], nsignals;
    unsigned cols, rows;
    uint64_t acked[2];
    bool close_said;
};

/* What nobody waited for was given up meanwhile: then the client goes on from where it is told. */
static void go_back(struct story *st, const struct sg_error *e)
{
    assert_int_equal(e->code, SG_E_STDIN_OFFSET);
    assert_true(e->accepted <= (int64_t)in->len);
    st->said = e->accepted >= 0 ? (size_t)e->accepted : in->len;
}

static void say_something(struct story *st, struct who *me)
{
    struct sg_error e;
    switch (fake_random(&fake, 12)) {
    case 0:
        if (st->nsignals < FAKE_SIGNALS &&
            !writer_signal(me->w, 1 + (int)fake_random(&fake, 30), fake_chance(&fake, 500), &e))
            st->nsignals++;
        break;
    case 1:
        st->cols = 1 + (unsigned)fake_random(&fake, 300);
        st->rows = 1 + (unsigned)fake_random(&fake, 100);
        assert_int_equal(writer_resize(me->w, st->cols, st->rows, fake_chance(&fake, 300), &e), SG_OK);
        break;
    case 2:
        for (int s = 0; s < 2; s++)
            st->acked[s] += fake_random(&fake, 1000);
        assert_int_equal(writer_ack(me->w, st->acked, &e), SG_OK);
        break;
    default: {
        /* from anywhere already said, often again */
        size_t from = st->said - (size_t)fake_random(&fake, st->said < 5000 ? st->said + 1 : 5000);
        from = fake_chance(&fake, 600) ? st->said : from;
        size_t n = (size_t)fake_random(&fake, st->len - from + 1);
        n = fake_chance(&fake, 800) && n > 3000 ? 1 + n % 3000 : n;
        size_t taken;
        if (writer_data(me->w, from, st->all + from, n, &taken, &e))
            go_back(st, &e);
        else
            st->said = from + taken > st->said ? from + taken : st->said;
    }
    }
}

static void live_through(struct story *st)
{
    static struct who me;
    struct sg_error e;
    begin(&me);
    int64_t end = sg_mono_ms() + 20000;
    while (!me.closed || (st->cols && (in->cols != st->cols || in->rows != st->rows)) ||
           in->acked[0] != st->acked[0] || in->acked[1] != st->acked[1]) {
        if (sg_mono_ms() >= end)
            fail_msg("stuck: said %zu of %zu, accepted %zu, told %llu, room %zu, %d carriers, size %u %u not "
                     "%u %u, acks %llu %llu not %llu %llu",
                     st->said, st->len, in->len, (unsigned long long)me.accepted, me.room, in->live, in->cols,
                     in->rows, st->cols, st->rows, (unsigned long long)in->acked[0],
                     (unsigned long long)in->acked[1], (unsigned long long)st->acked[0],
                     (unsigned long long)st->acked[1]);
        if (me.ended)
            fail_msg("ended by %s: %s", sg_error_row(me.end.code)->code, me.end.detail);
        if (me.refused) {
            go_back(st, &me.refusal);
            me.refused = 0;
        }
        if (st->said < st->len && fake_chance(&fake, 500))
            say_something(st, &me);
        if (fake_chance(&fake, 20)) { /* the client is cut off, and comes back to where it was told */
            writer_release(me.w);
            fake_turns(&fake, (int)fake_random(&fake, 4));
            begin(&me);
            if (fake_chance(&fake, 500) && st->said > in->len)
                st->said = in->len; /* what it says again is passed over */
        }
        if (st->said == st->len) {
            if (writer_close_input(me.w, st->len, &e))
                go_back(st, &e);
            else
                st->close_said = true;
        }
        nudge();
        turn();
    }
    assert_int_equal(me.accepted, st->len);
    give_back(&me);
}

/* What the guest accepted is what was written, each byte once, and then its end; the newest size and receipt
 * arrived; signals at most once each. */
static void test_exact(void **state)
{
    for (int round = 0; round < 60; round++) {
        struct story st = {.len = (size_t)fake_random(&fake, round % 10 ? 20000 : 3000000)};
        st.all = malloc(st.len + 1);
        assert_non_null(st.all);
        for (size_t i = 0; i < st.len; i++)
            st.all[i] = (unsigned char)fake_random(&fake, 256);
        bool bad = round % 4 != 0;
        in->cut = bad ? (int)fake_random(&fake, 60) : 0;
        in->cut_opening = bad ? (int)fake_random(&fake, 300) : 0;
        in->late = bad ? 500 : 0;
        in->more = bad ? (int)fake_random(&fake, 30) : 0;
        in->refuse = bad ? (int)fake_random(&fake, 200) : 0;
        in->no_socket = round % 2;
        in->spool = round % 3 ? SG_CARRIER_SPOOL : 100 + (size_t)fake_random(&fake, 70000);
        in->reads = round % 10 ? 1 + (int)fake_random(&fake, 20000) : 1 << 20;
        in->takes = round % 5 != 2 ? 0 : (bad ? 3000 : 1) + (size_t)fake_random(&fake, 3000);
        live_through(&st);
        assert_int_equal(in->len, st.len);
        assert_memory_equal(in->content, st.all, st.len);
        assert_true(in->closed);
        assert_true(in->nsignals <= st.nsignals);
        if (!bad)
            assert_int_equal(in->nsignals, st.nsignals);
        if (in->wrong)
            fail_msg("%s", in->why);
        free(st.all);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* ---- one thing at a time ---- */

/* Nothing costs a carrier until there is something to send; then one is enough. */
static void test_lazy(void **state)
{
    (void)state;
    static struct who me;
    begin(&me);
    fake_turns(&fake, 10);
    assert_int_equal(in->opened, 0);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.accepted == 1);
    for (int i = 1; i < 50; i++) {
        assert_int_equal(put(&me, INPUT_APPEND, "b", 1), 1);
        UNTIL(me.accepted == (uint64_t)i + 1);
    }
    assert_int_equal(in->opened, 1);
    assert_true(in->interactive);
    assert_int_equal(in->len, 50);
    assert_int_equal(writer_carrier(me.w), WRITER_INTERACTIVE);
    give_back(&me);
}

/* An idle carrier is given up, and the next byte opens another. */
static void test_idle(void **state)
{
    (void)state;
    struct relay_limits l = {.backoff_max_ms = 4, .input_idle_ms = 30};
    relay_set_limits(relay, &l);
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(in->live == 0);
    assert_int_equal(in->finished_carriers, 1);
    assert_int_equal(me.accepted, 1);
    assert_int_equal(put(&me, 1, "b", 1), 1);
    UNTIL(me.accepted == 2);
    assert_int_equal(in->opened, 2);
    assert_false(me.ended);
    give_back(&me);
}

/* The guest ends a carrier after its time: the next one is opened by the next byte, not before. */
static void test_more(void **state)
{
    (void)state;
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.accepted == 1);
    in->more = 1000;
    fake_input_wake(in);
    UNTIL(in->live == 0);
    in->more = 0;
    fake_turns(&fake, 10);
    assert_int_equal(in->opened, 1);
    assert_int_equal(put(&me, 1, "b", 1), 1);
    UNTIL(me.accepted == 2);
    assert_int_equal(in->opened, 2);
    give_back(&me);
}

/* A program that does not read: so much is held and no more, and a signal and a size pass by. */
static void test_full(void **state)
{
    (void)state;
    static unsigned char block[256 * 1024];
    static struct who me;
    struct sg_error e;
    in->reads = 0;
    begin(&me);
    size_t total = 0;
    for (int idle = 0; idle < 50;) {
        size_t n = put(&me, total, block, sizeof block);
        total += n;
        idle = n ? 0 : idle + 1;
        nudge();
        turn();
    }
    assert_int_equal(total, SG_CARRIER_SPOOL + INPUT_BUFFER);
    assert_int_equal(in->len, SG_CARRIER_SPOOL);
    assert_int_equal(writer_signal(me.w, SIGINT, true, &e), SG_OK);
    assert_int_equal(writer_resize(me.w, 100, 30, false, &e), SG_OK);
    UNTIL(in->nsignals == 1 && in->cols == 100);
    assert_int_equal(in->signals[0], SIGINT);
    in->reads = 1 << 20; /* it reads again */
    fake_input_wake(in);
    UNTIL(me.accepted == total);
    assert_int_equal(in->opened, 1);
    assert_int_equal(me.room, INPUT_BUFFER);
    give_back(&me);
}

static void test_signals(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    begin(&me);
    for (int i = 0; i < 16; i++)
        assert_int_equal(writer_signal(me.w, 1 + i, i % 2, &e), SG_OK);
    assert_int_equal(writer_signal(me.w, 1, true, &e), SG_E_OVERLOADED);
    assert_int_equal(writer_signal(me.w, 65, true, &e), SG_E_INVALID_FIELD);
    UNTIL(in->nsignals == 16);
    for (int i = 0; i < 16; i++)
        assert_int_equal(in->signals[i], i % 2 ? 1 + i : -(1 + i));
    in->cut = 1000; /* what was sent is not sent again */
    fake_input_wake(in);
    UNTIL(in->live == 0);
    in->cut = 0;
    assert_int_equal(put(&me, INPUT_APPEND, "x", 1), 1);
    UNTIL(me.accepted == 1);
    assert_int_equal(in->nsignals, 16);
    give_back(&me);
}

/* The newest size and receipt are told again after a cut, without waiting for other input; and a redraw shows the
 * program another size first. */
static void test_sizes(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    uint64_t got[2] = {70, 3};
    begin(&me);
    assert_int_equal(writer_resize(me.w, 80, 24, true, &e), SG_OK);
    UNTIL(in->nsizes == 2);
    assert_int_equal(in->sizes[0][1], 23);
    assert_int_equal(in->sizes[1][1], 24);
    assert_int_equal(in->sizes[0][0], 80);
    assert_int_equal(writer_ack(me.w, got, &e), SG_OK);
    UNTIL(in->acked[0] == 70 && in->acked[1] == 3);
    in->cols = in->rows = 0; /* as if they had been lost with the carrier */
    in->acked[0] = in->acked[1] = 0;
    in->cut = 1000;
    fake_input_wake(in);
    UNTIL(in->live == 0);
    in->cut = 0;
    UNTIL(in->cols == 80 && in->rows == 24 && in->acked[0] == 70 && in->acked[1] == 3);
    assert_int_equal(writer_resize(me.w, 0, 24, false, &e), SG_E_INVALID_FIELD);
    assert_int_equal(writer_resize(me.w, 80, 70000, false, &e), SG_E_INVALID_FIELD);
    give_back(&me);
}

/* Receipts that come fast travel together. */
static void test_receipts(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    begin(&me);
    for (uint64_t i = 1; i <= 2000; i++) {
        uint64_t got[2] = {i * 100, i};
        assert_int_equal(writer_ack(me.w, got, &e), SG_OK);
        fake_turns(&fake, 1);
    }
    UNTIL(in->acked[0] == 200000 && in->acked[1] == 2000);
    assert_in_range(in->nacks, 1, 60);
    give_back(&me);
}

/* ---- who writes ---- */

static void test_one_writer(void **state)
{
    (void)state;
    static struct who a, b;
    assert_false(writer_present(relay, "sess-1", "p1"));
    begin(&a);
    assert_true(writer_present(relay, "sess-1", "p1"));
    assert_false(writer_present(relay, "sess-2", "p1"));
    assert_int_equal(try_open(&b, false), SG_E_WRITER_EXISTS);
    assert_int_equal(put(&a, 0, "aa", 2), 2);
    UNTIL(a.accepted == 2);
    assert_int_equal(try_open(&b, true), SG_OK);
    assert_int_equal(put_code(&a, 2, "x"), SG_E_WRITER_REPLACED);
    UNTIL(a.ended);
    assert_int_equal(a.end.code, SG_E_WRITER_REPLACED);
    assert_int_equal(a.end.outcome, SG_FINISHED);
    assert_int_equal(a.end.accepted, 2);
    UNTIL(b.heard);
    assert_int_equal(b.accepted, 2); /* where it stands, before anything was written */
    assert_int_equal(put(&b, 2, "b", 1), 1);
    UNTIL(b.accepted == 3);
    assert_int_equal(in->opened, 1); /* the same carrier */
    writer_release(a.w);
    give_back(&b);
    assert_false(writer_present(relay, "sess-1", "p1"));
    assert_memory_equal(in->content, "aab", 3);
}

/* Taking over a full input: what was on its way still arrives, what was not is dropped, and the new writer hears
 * where it may begin only when that is certain. */
static void test_take_over_full(void **state)
{
    (void)state;
    static unsigned char block[256 * 1024];
    static struct who a, b;
    in->reads = 0;
    memset(block, 'a', sizeof block);
    begin(&a);
    for (int i = 0; i < 20; i++) {
        (void)put(&a, INPUT_APPEND, block, sizeof block);
        nudge();
        turn();
    }
    UNTIL(in->len == SG_CARRIER_SPOOL);
    assert_int_equal(try_open(&b, true), SG_OK);
    UNTIL(a.ended && b.heard);
    assert_int_equal(a.end.outcome, SG_NOT_STARTED);
    assert_int_equal(a.end.accepted, SG_CARRIER_SPOOL);
    assert_int_equal(b.accepted, SG_CARRIER_SPOOL);
    assert_int_equal(put(&b, b.accepted, "b", 1), 1);
    in->reads = 1 << 20;
    fake_input_wake(in);
    UNTIL(b.accepted == SG_CARRIER_SPOOL + 1);
    assert_int_equal(in->content[SG_CARRIER_SPOOL], 'b');
    writer_release(a.w);
    give_back(&b);
}

/* A client that goes away leaves what it wrote on its way; the next one goes on. */
static void test_release(void **state)
{
    (void)state;
    static struct who a, b;
    struct sg_error e;
    begin(&a);
    assert_int_equal(put(&a, 0, "hello ", 6), 6);
    writer_release(a.w); /* nothing was sent yet */
    begin(&b);
    assert_int_equal(put(&b, 0, "hello world", 11), 11); /* says again what it is not sure of */
    assert_int_equal(writer_close_input(b.w, 11, &e), SG_OK);
    UNTIL(b.closed);
    assert_int_equal(put(&b, 3, "lo world", 8), 8); /* known */
    assert_int_equal(put_code(&b, 11, "!"), SG_E_STDIN_CLOSED);
    assert_int_equal(writer_close_input(b.w, 11, &e), SG_OK);
    assert_int_equal(writer_close_input(b.w, 4, &e), SG_E_STDIN_OFFSET);
    give_back(&b);
    assert_memory_equal(in->content, "hello world", 11);
    assert_int_equal(in->len, 11);
    assert_true(in->closed);
}

/* Another gateway opens a carrier: the writer here has lost its place. */
static void test_fenced(void **state)
{
    (void)state;
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.accepted == 1);
    fake_input_fence(in);
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_WRITER_REPLACED);
    assert_int_equal(me.end.outcome, SG_FINISHED);
    give_back(&me);
    assert_int_equal(in->opened, 1);
}

/* A carrier of our own that was given up for lost comes up late and fences its successor: no other writer is meant. */
static void test_late_one_of_ours(void **state)
{
    (void)state;
    static struct who me;
    in->cut_opening = in->late = 1000;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(in->pending_late == 1);
    in->cut_opening = 0;
    UNTIL(me.accepted == 1);
    UNTIL(in->pending_late == 0);
    assert_int_equal(put(&me, 1, "b", 1), 1);
    UNTIL(me.accepted == 2);
    assert_false(me.ended);
    fake_input_fence(in); /* but this is another */
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_WRITER_REPLACED);
    give_back(&me);
}

/* While our carrier was given up, somebody else wrote at the offset that our writer goes on at: his bytes must not be
 * taken for ours. */
static void test_written_meanwhile(void **state)
{
    (void)state;
    struct relay_limits l = {.backoff_max_ms = 4, .input_idle_ms = 20};
    relay_set_limits(relay, &l);
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(in->live == 0);
    fake_input_write(in, "XYZ", 3);
    assert_int_equal(put(&me, 1, "b", 1), 1);
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_WRITER_REPLACED);
    assert_int_equal(me.end.outcome, SG_NOT_STARTED);
    give_back(&me);
    begin(&me); /* a new one asks first */
    writer_claim(me.w);
    UNTIL(me.heard);
    assert_int_equal(me.accepted, 4);
    assert_int_equal(put(&me, 4, "b", 1), 1);
    UNTIL(me.accepted == 5);
    assert_memory_equal(in->content, "aXYZb", 5);
    give_back(&me);
}

/* ---- where the input stands ---- */

static void test_offsets(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    fake_input_write(in, "0123456789", 10);
    begin(&me);
    assert_int_equal(put(&me, 12, "cd", 2), 2); /* waits for the position, which is 10 */
    assert_int_equal(put_code(&me, 15, "f"), SG_E_STDIN_OFFSET);
    UNTIL(me.refused);
    assert_int_equal(me.refusal.code, SG_E_STDIN_OFFSET);
    assert_int_equal(me.refusal.accepted, 10);
    assert_int_equal(in->len, 10);
    UNTIL(me.heard);
    assert_int_equal(put_code(&me, 12, "c"), SG_E_STDIN_OFFSET);
    assert_int_equal(put(&me, 8, "89ab", 4), 4);
    UNTIL(me.accepted == 12);
    assert_int_equal(put(&me, 2, "23", 2), 2);
    assert_int_equal(writer_close_input(me.w, 13, &e), SG_E_STDIN_OFFSET);
    assert_int_equal(put_code(&me, UINT64_MAX - 1, "c"), SG_E_INVALID_FIELD);
    assert_false(me.ended);
    give_back(&me);
    assert_memory_equal(in->content, "0123456789ab", 12);

    begin(&me); /* at the end, wherever that is */
    assert_int_equal(put(&me, INPUT_APPEND, "c", 1), 1);
    assert_int_equal(put(&me, INPUT_APPEND, "d", 1), 1);
    UNTIL(me.accepted == 14);
    give_back(&me);
    assert_memory_equal(in->content, "0123456789abcd", 14);
}

/* The program ends after it got everything, and nobody had heard of that. */
static void test_ends_with_all(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    begin(&me);
    assert_int_equal(put(&me, 0, "ab", 2), 2);
    UNTIL(me.accepted == 2);
    in->mute = true;
    assert_int_equal(put(&me, 2, "c", 1), 1);
    assert_int_equal(writer_close_input(me.w, 3, &e), SG_OK);
    UNTIL(in->closed);
    in->finished = true;
    fake_input_wake(in);
    UNTIL(me.ended);
    assert_true(me.closed);
    assert_int_equal(me.end.code, SG_E_PROCESS_FINISHED);
    assert_int_equal(me.end.outcome, SG_FINISHED);
    assert_int_equal(me.end.accepted, 3);
    give_back(&me);
}

/* It ends without the rest: that is told too. */
static void test_ends_without_the_rest(void **state)
{
    (void)state;
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "ab", 2), 2);
    UNTIL(me.accepted == 2);
    in->finished = true;
    assert_int_equal(put(&me, 2, "c", 1), 1);
    fake_input_wake(in);
    UNTIL(me.ended);
    assert_false(me.closed);
    assert_int_not_equal(me.end.outcome, SG_FINISHED);
    assert_int_equal(me.end.accepted, in->len);
    give_back(&me);
}

/* A single act writes beside a carrier that lingers, and the next writer comes before the carrier tells. */
static void test_passed_by(void **state)
{
    (void)state;
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "0123456", 7), 7);
    UNTIL(me.accepted == 7);
    in->mute = true; /* what comes by the act is not told in time */
    fake_input_write(in, "789", 3);
    give_back(&me);
    writer_passed_by(relay, "sess-1", "p1");
    in->mute = false;
    begin(&me);
    assert_int_equal(put(&me, 10, "ab", 2), 2);
    UNTIL(me.accepted == 12);
    assert_int_equal(me.refused, 0);
    writer_passed_by(relay, "sess-1", "p1"); /* a writer's own position stays */
    assert_int_equal(put(&me, 12, "c", 1), 1);
    UNTIL(me.accepted == 13);
    give_back(&me);
    assert_memory_equal(in->content, "0123456789abc", 13);
}

static void test_close(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    begin(&me);
    assert_int_equal(put(&me, 0, "ab", 2), 2);
    assert_int_equal(writer_close_input(me.w, UINT64_MAX, &e), SG_OK);
    assert_int_equal(put_code(&me, UINT64_MAX, "c"), SG_E_STDIN_CLOSED);
    in->mute = true; /* the answer is lost with the carrier */
    UNTIL(in->closed);
    in->no_input = true;
    in->cut = 1000;
    in->mute = false;
    fake_input_wake(in);
    UNTIL(in->live == 0);
    in->cut = 0;
    UNTIL(me.closed || me.ended);
    if (me.ended) { /* the bytes were in doubt, too: it may not be called a success */
        assert_int_equal(me.end.code, SG_E_STDIN_CLOSED);
        assert_int_equal(me.end.outcome, SG_OUTCOME_UNKNOWN);
    }
    give_back(&me);
    assert_int_equal(in->len, 2);
}

/* The program closed its end: what was not read is of no use, and nothing is sent any more. */
static void test_unwanted(void **state)
{
    (void)state;
    static struct who me;
    struct sg_error e;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.accepted == 1);
    in->stops_reading = true;
    assert_int_equal(put(&me, 1, "bbb", 3), 3);
    UNTIL(me.unwanted);
    assert_int_equal(me.room, 0);
    assert_int_equal(put_code(&me, UINT64_MAX, "c"), SG_E_STDIN_CLOSED);
    assert_int_equal(writer_close_input(me.w, UINT64_MAX, &e), SG_E_STDIN_CLOSED);
    assert_int_equal(writer_signal(me.w, SIGINT, true, &e), SG_OK);
    UNTIL(in->nsignals == 1);
    assert_false(me.ended);
    give_back(&me);
}

static void test_guest_refuses(void **state)
{
    (void)state;
    static struct who me;
    in->no_input = true;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_STDIN_CLOSED);
    assert_int_equal(me.end.outcome, SG_NOT_STARTED);
    assert_int_equal(put_code(&me, 1, "b"), SG_E_STDIN_CLOSED);
    give_back(&me);
    in->no_input = false;
    in->finished = true;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_PROCESS_FINISHED);
    give_back(&me);
    in->finished = false;
    in->root = true; /* tried again as root */
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.accepted == 1);
    assert_true(in->sudo);
    give_back(&me);
}

/* ---- upstream fails ---- */

static void test_gives_up(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 60, .backoff_max_ms = 4};
    relay_set_limits(relay, &l);
    static struct who me;
    in->refuse_code = SG_E_UPSTREAM_UNAVAILABLE;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_UPSTREAM_UNAVAILABLE);
    assert_int_equal(me.end.outcome, SG_NOT_STARTED);
    assert_in_range(in->opened, 3, 70);
    give_back(&me);
    in->refuse_code = SG_E_STALE_SESSION; /* at once */
    in->opened = 0;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.ended);
    assert_int_equal(me.end.code, SG_E_STALE_SESSION);
    assert_int_equal(in->opened, 1);
    give_back(&me);
}

/* Carriers that say nothing: before they are open, and after. */
static void test_silence(void **state)
{
    (void)state;
    struct relay_limits l = {.backoff_max_ms = 4, .carrier_open_ms = 20, .input_idle_ms = 40};
    relay_set_limits(relay, &l);
    static struct who me;
    in->hang = 2;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    UNTIL(me.accepted == 1);
    assert_int_equal(in->opened, 3);
    in->mute = true;
    assert_int_equal(put(&me, 1, "b", 1), 1);
    UNTIL(in->len == 2 && in->opened == 4);
    in->mute = false;
    UNTIL(me.accepted == 2);
    assert_int_equal(in->len, 2);
    give_back(&me);
}

/* What a client left behind is not sent for ever when it does not get through. */
static void test_orphan(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 50, .backoff_max_ms = 4};
    relay_set_limits(relay, &l);
    static struct who me;
    in->cut = 1000;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    in->spool = 0; /* nothing is ever accepted */
    writer_release(me.w);
    UNTIL(in->opened > 2);
    int64_t end = sg_mono_ms() + 20000;
    int before = -1;
    while (in->opened != before && sg_mono_ms() < end) {
        before = in->opened;
        for (int64_t quiet = sg_mono_ms() + 40; sg_mono_ms() < quiet;) {
            nudge();
            turn();
        }
    }
    assert_true(sg_mono_ms() < end);
    begin(&me); /* and a new one begins anew */
    give_back(&me);
}

/* The gateway shuts down with input on its way. */
static void test_drain(void **state)
{
    static struct who me;
    begin(&me);
    assert_int_equal(put(&me, 0, "a", 1), 1);
    relay_free(relay);
    relay = NULL;
    assert_true(me.ended);
    assert_int_equal(me.end.code, SG_E_DRAINING);
    assert_int_equal(me.end.outcome, SG_NOT_STARTED);
    fake_turns(&fake, 3);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lazy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_take_over_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_release, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fenced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_one_of_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_written_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_offsets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_with_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_without_the_rest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passed_by, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unwanted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_guest_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gives_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
