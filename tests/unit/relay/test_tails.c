/* What is saved of processes, when, and at which price.  P09, P10, C7. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "relay/feed.h"
#include "relay/tails.h"
#include "store/processes.h"
#include "store/watches.h"
#include "tests/unit/relay/fixture.h"
#include "vercel/sandboxes.h"

#include <stdlib.h>
#include <string.h>

enum { MIB = 1024 * 1024 };

static struct store *store;
static struct tails *tails;
static const struct relay_session session = {.session_id = "sess-1", .cwd = "/"};

/* ---- the upstream's word on sandboxes ---- */

struct look {
    bool pending;
    vercel_get_fn *done;
    void *arg;
};

static struct {
    int looks;
    struct look look;
    const char *session_id;
    enum vercel_status status;
    int64_t started_at, timeout_ms;
    enum sg_code fail;
} up;

struct vercel_call *vercel_get_start(struct vercel_client *c, const char *name, bool resume,
                                     vercel_get_fn *done, void *arg, struct sg_error *e)
{
    (void)c;
    (void)e;
    assert_string_equal(name, "box");
    assert_false(resume);
    up.looks++;
    up.look = (struct look){true, done, arg};
    return (struct vercel_call *)(void *)&up.look;
}

void __real_vercel_call_cancel(struct vercel_call *call);
void __wrap_vercel_call_cancel(struct vercel_call *call);
void __wrap_vercel_call_cancel(struct vercel_call *call)
{
    if ((void *)call == (void *)&up.look)
        up.look.pending = false;
    else
        __real_vercel_call_cancel(call);
}

static void answer_look(void)
{
    struct sg_error e;
    struct vercel_sandbox s = {.name = "box",
                               .session_id = up.session_id,
                               .status = up.status,
                               .session_status = up.status,
                               .session_started_at = up.started_at,
                               .session_timeout_ms = up.timeout_ms};
    if (!up.look.pending)
        return;
    up.look.pending = false;
    (void)sg_fail(&e, up.fail ? up.fail : SG_E_INTERNAL, SG_NOT_STARTED, "scripted");
    up.look.done(up.look.arg, up.fail ? NULL : &s, up.fail ? &e : NULL);
}

/* ---- fixture ---- */

static void with_tails(const struct tails_config *c)
{
    struct tails_config own = c ? *c : (struct tails_config){0};
    own.store = store;
    own.upstream = "u";
    tails = tails_new(relay, &own);
    assert_non_null(tails);
    tails_session(tails, "box", &session, 0);
}

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {
        .give_up_ms = 500, .give_up_bounded_ms = 300, .settle_ms = 400, .retry_ms = 200, .backoff_max_ms = 4};
    struct sg_error e;
    if (fixture_open(&l))
        return 1;
    memset(&up, 0, sizeof up);
    struct store_options o = {.loop = loop};
    return store_open(&o, &store, &e) != SG_OK;
}

/* The store outlives the relay, and tells the tails before they are freed. */
static int teardown(void **state)
{
    (void)state;
    tails_stop(tails);
    assert_false(up.look.pending);
    relay_free(relay);
    fake_turns(&fake, 4);
    fake_files_reset();
    int left = fake.live;
    store_close(store);
    tails_free(tails);
    tails = NULL;
    sg_loop_free(loop);
    fake_free(&fake);
    return left;
}

/* ---- the store's word ---- */

struct question {
    const char *id;
    struct stored_process *out;
};

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct question *q = arg;
    const struct store_which w = {"u", "box", "sess-1", q->id};
    return store_process_get(db, &w, 3, q->out, e);
}

static bool saved(const char *id, struct stored_process *out)
{
    struct sg_error e;
    struct question q = {id, out};
    return store_call(store, STORE_READ, get_fn, &q, &e) == SG_OK;
}

/* Turns the loop until it is saved (with an end, if `ended`). */
static void until_saved(const char *id, bool ended, struct stored_process *out)
{
    int64_t until = sg_mono_ms() + 20000;
    for (;;) {
        if (saved(id, out)) {
            if (!ended || out->p.how != SG_HOW_NONE)
                return;
            stored_process_clear(out);
        }
        assert_true(sg_mono_ms() < until);
        fake_turns(&fake, 1);
    }
}

static void is_tail(const struct stored_process *p, const struct fake_proc *of, int s)
{
    uint64_t from = of->total[s] > MIB ? of->total[s] - MIB : 0;
    assert_int_equal(p->p.end[s], of->total[s]);
    assert_in_range(p->p.oldest[s], from, from + 128 * 1024);
    assert_int_equal(p->tail[s].len, of->total[s] - p->p.oldest[s]);
    if (p->tail[s].len)
        assert_memory_equal(p->tail[s].data, of->content[s] + p->p.oldest[s], p->tail[s].len);
}

/* ---- running ---- */

struct result {
    bool done;
};

static void on_run(void *arg, const struct run_result *res, const struct sg_error *e)
{
    struct result *r = arg;
    (void)res;
    (void)e;
    r->done = true;
}

static const char *const argv[] = {"sh", NULL};

static void run(const char *id, size_t max)
{
    struct process_spec s = {.session = session, .id = id, .argv = argv};
    struct result r = {false};
    struct sg_error e;
    assert_non_null(run_start(relay, &s, max, 10000, on_run, &r, &e));
    assert_true(fake_until(&fake, &r.done));
}

static void on_started(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct result *r = arg;
    (void)p;
    (void)e;
    r->done = true;
}

static void start(const char *id)
{
    struct process_spec s = {.session = session, .id = id, .argv = argv};
    struct result r = {false};
    struct sg_error e;
    assert_int_equal(process_start(relay, &s, on_started, &r, &e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
}

/* ---- when processes end ---- */

static void test_a_run_is_saved_for_nothing(void **state)
{
    (void)state;
    with_tails(NULL);
    struct fake_proc *p = fake_proc(&fake, "p", 5000, 77, false);
    run("p", MIB);
    struct stored_process got;
    until_saved("p", true, &got);
    assert_int_equal(fake_total(&fake), 1);
    assert_int_equal(got.p.value, 7);
    assert_true(got.complete);
    is_tail(&got, p, 0);
    is_tail(&got, p, 1);
    assert_in_range(got.expires_ms, sg_wall_ms() + 86400000 - 20000, sg_wall_ms() + 86400000);
    stored_process_clear(&got);
}

static void test_silent_ones_too(void **state)
{
    (void)state;
    with_tails(NULL);
    (void)fake_proc(&fake, "p", 0, 0, false);
    run("p", MIB);
    struct stored_process got;
    until_saved("p", true, &got);
    assert_int_equal(fake_total(&fake), 1);
    assert_true(got.complete);
    stored_process_clear(&got);
}

static void test_what_a_run_did_not_read_is_read_once(void **state)
{
    (void)state;
    with_tails(NULL);
    fake.write_max = 300000;
    struct fake_proc *p = fake_proc(&fake, "p", 3 * MIB, 2 * MIB, false);
    run("p", 1000);
    struct stored_process got;
    until_saved("p", true, &got);
    assert_true(got.complete);
    is_tail(&got, p, 0);
    is_tail(&got, p, 1);
    assert_true(got.p.oldest[0] > MIB);
    assert_int_equal(fake.calls[V_LIST], 0);
    stored_process_clear(&got);
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    (void)arg;
    (void)stream;
    (void)offset;
    (void)data;
    (void)len;
    return true;
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    (void)arg;
    (void)p;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    (void)arg;
    (void)stream;
    (void)from;
    (void)to;
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct result *r = arg;
    (void)p;
    (void)e;
    r->done = true;
}

static void test_a_followed_one_is_saved_from_the_ring(void **state)
{
    (void)state;
    static const struct follower_events events = {on_hello, on_data, on_gap, on_end};
    with_tails(NULL);
    fake.write_max = 100000;
    struct fake_proc *p = fake_proc(&fake, "p", 3 * MIB, 500, false);
    start("p");
    struct result r = {false};
    struct sg_error e;
    struct follow_spec spec = {.session = session, .id = "p", .only = -1};
    struct reader *reader = reader_open(relay, &spec, &events, &r, &e);
    assert_non_null(reader);
    assert_true(fake_until(&fake, &r.done));
    reader_close(reader);
    int calls = fake_total(&fake);
    struct stored_process got;
    until_saved("p", true, &got);
    assert_int_equal(fake_total(&fake), calls); /* all was at hand */
    assert_true(got.complete);
    is_tail(&got, p, 0);
    is_tail(&got, p, 1);
    stored_process_clear(&got);
}

static void test_the_exit_is_kept_when_its_bytes_cannot_be_read_P10(void **state)
{
    (void)state;
    with_tails(NULL);
    fake.write_max = 300000;
    (void)fake_proc(&fake, "p", 3 * MIB, 0, false);
    fake.refuse_all = 0;
    fake.refuse_from = 1; /* the run is answered, and nothing after it */
    run("p", 1000);
    struct stored_process got;
    until_saved("p", true, &got);
    assert_int_equal(got.p.value, 7);
    assert_false(got.complete);
    stored_process_clear(&got);
}

static void test_a_start_is_remembered_as_running(void **state)
{
    (void)state;
    with_tails(NULL);
    fake_proc(&fake, "p", 100, 0, false)->hold = true;
    start("p");
    struct stored_process got;
    until_saved("p", false, &got);
    assert_int_equal(got.p.how, SG_HOW_NONE);
    assert_false(got.complete);
    stored_process_clear(&got);
}

static enum sg_code nothing_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)db;
    (void)arg;
    (void)e;
    return SG_OK;
}

static bool all_written;

static void on_written(struct store_work *w)
{
    (void)w;
    all_written = true;
}

static void test_nothing_of_a_destroyed_sandbox_comes_back(void **state)
{
    (void)state;
    with_tails(NULL);
    (void)fake_proc(&fake, "p", 100, 0, false);
    tails_gone(tails, "sess-1", NULL);
    run("p", MIB);
    struct store_work last = {.kind = STORE_WRITE, .fn = nothing_fn, .done = on_written};
    all_written = false;
    assert_true(store_submit(store, &last)); /* behind the save */
    assert_true(fake_until(&fake, &all_written));
    struct stored_process got;
    assert_false(saved("p", &got));
}

static void on_forgotten(void *arg)
{
    *(bool *)arg = true;
}

/* Neither what was saved of it nor a save on its way is told of after a removal. */
static void test_nothing_of_a_removed_process_comes_back(void **state)
{
    (void)state;
    bool forgotten = false;
    with_tails(NULL);
    (void)fake_proc(&fake, "p", 100, 0, false);
    (void)fake_proc(&fake, "other", 100, 0, false);
    run("other", MIB);
    run("p", MIB);
    tails_forget(tails, "box", "sess-1", "p", on_forgotten, &forgotten);
    run("p", MIB);
    assert_true(fake_until(&fake, &forgotten));
    struct store_work last = {.kind = STORE_WRITE, .fn = nothing_fn, .done = on_written};
    all_written = false;
    assert_true(store_submit(store, &last)); /* behind the saves */
    assert_true(fake_until(&fake, &all_written));
    struct stored_process got;
    assert_false(saved("p", &got));
    assert_true(saved("other", &got));
    stored_process_clear(&got);
}

/* ---- before an ordered end ---- */

static void on_ready(void *arg)
{
    *(bool *)arg = true;
}

static void before_end(void)
{
    bool ready = false;
    (void)tails_before_end(tails, "box", &session, on_ready, &ready);
    assert_true(fake_until(&fake, &ready));
}

static void test_before_the_end_everything_is_saved(void **state)
{
    (void)state;
    with_tails(NULL);
    fake.write_max = 300000;
    struct fake_proc *done = fake_proc(&fake, "done", 2 * MIB, 10, false), *quiet, *loud;
    run("done", MIB);
    quiet = fake_proc(&fake, "quiet", 0, 0, false);
    quiet->hold = true;
    start("quiet");
    loud = fake_proc(&fake, "loud", 2 * MIB, 4000, false);
    start("loud");
    loud->hold = true; /* it has printed all, and does not end */
    loud->written[0] = loud->total[0];
    loud->written[1] = loud->total[1];
    struct stored_process got;
    until_saved("done", true, &got);
    stored_process_clear(&got);
    int follows = fake.calls[V_FOLLOW];
    before_end();
    assert_int_equal(fake.calls[V_LIST], 1);
    assert_int_equal(fake.calls[V_FOLLOW], follows + 1); /* of the loud one alone */
    assert_true(saved("done", &got));
    assert_true(got.complete);
    is_tail(&got, done, 0);
    stored_process_clear(&got);
    assert_true(saved("quiet", &got));
    assert_int_equal(got.p.how, SG_HOW_NONE);
    stored_process_clear(&got);
    assert_true(saved("loud", &got));
    assert_int_equal(got.p.how, SG_HOW_NONE);
    assert_false(got.complete);
    is_tail(&got, loud, 0);
    is_tail(&got, loud, 1);
    stored_process_clear(&got);
    before_end(); /* once more: nothing has changed, so nothing is read */
    assert_int_equal(fake.calls[V_FOLLOW], follows + 1);
}

static void test_a_session_without_processes_costs_nothing(void **state)
{
    (void)state;
    with_tails(NULL);
    before_end();
    assert_int_equal(fake_total(&fake), 0);
}

static enum sg_code watch_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_watch_put(db, arg, sg_wall_ms(), e);
}

static void test_processes_of_another_gateway_are_saved_too(void **state)
{
    (void)state;
    struct sg_error e;
    with_tails(NULL);
    struct fake_proc *p = fake_proc(&fake, "p", 1000, 0, true);
    p->written[0] = 1000;
    p->hold = true;
    fake_turns(&fake, 50); /* what this one loads, it has loaded */
    struct store_watch w = {"u", "sess-1", "box", "/", NULL, 0};
    assert_int_equal(store_call(store, STORE_WRITE, watch_fn, &w, &e), SG_OK);
    before_end();
    struct stored_process got;
    assert_true(saved("p", &got));
    is_tail(&got, p, 0);
    stored_process_clear(&got);
}

static void test_a_sandbox_that_does_not_answer_holds_nobody_up(void **state)
{
    (void)state;
    const struct tails_config c = {.stop_ms = 150};
    with_tails(&c);
    fake.write_max = 5000;
    struct fake_proc *p = fake_proc(&fake, "p", 1000, 0, false);
    start("p");
    p->hold = true;
    fake.hang = 100;
    int64_t began = sg_mono_ms();
    before_end();
    assert_in_range(sg_mono_ms() - began, 100, 15000);
    fake.hang = 0;
}

static void test_two_ends_share_one_sweep_and_one_may_leave(void **state)
{
    (void)state;
    with_tails(NULL);
    struct fake_proc *p = fake_proc(&fake, "p", 1000, 0, false);
    start("p");
    p->hold = true;
    bool first = false, second = false, third = false;
    assert_non_null(tails_before_end(tails, "box", &session, on_ready, &first));
    assert_non_null(tails_before_end(tails, "box", &session, on_ready, &second));
    tails_cancel(tails_before_end(tails, "box", &session, on_ready, &third));
    assert_true(fake_until(&fake, &first));
    assert_true(second);
    assert_false(third);
    assert_int_equal(fake.calls[V_LIST], 1);
}

static void test_stopping_tells_who_waits(void **state)
{
    (void)state;
    with_tails(NULL);
    struct fake_proc *p = fake_proc(&fake, "p", 1000, 0, false);
    start("p");
    p->hold = true;
    fake.hang = 100;
    bool ready = false;
    assert_non_null(tails_before_end(tails, "box", &session, on_ready, &ready));
    fake_turns(&fake, 20);
    assert_false(ready);
    tails_stop(tails);
    assert_true(ready);
    assert_null(tails_before_end(tails, "box", &session, on_ready, &ready));
}

/* ---- before the deadline ---- */

static bool waits_for_look(void *arg)
{
    (void)arg;
    return up.look.pending;
}

static void until_true(bool (*cond)(void *arg), void *arg)
{
    int64_t until = sg_mono_ms() + 20000;
    while (!cond(arg)) {
        assert_true(sg_mono_ms() < until);
        fake_turns(&fake, 1);
    }
}

static void running_until(int64_t deadline)
{
    up.session_id = "sess-1";
    up.status = VERCEL_RUNNING;
    up.started_at = 1000;
    up.timeout_ms = deadline - 1000;
}

static struct fake_proc *one_that_runs(void)
{
    struct fake_proc *p = fake_proc(&fake, "p", 1000, 0, false);
    start("p");
    p->hold = true;
    p->written[0] = p->total[0];
    return p;
}

static void test_saved_before_the_deadline(void **state)
{
    (void)state;
    const struct tails_config c = {.before_ms = 100};
    with_tails(&c);
    int64_t deadline = sg_wall_ms() + 500;
    tails_session(tails, "box", &session, deadline);
    struct fake_proc *p = one_that_runs();
    assert_int_equal(up.looks, 0);
    until_true(waits_for_look, NULL);
    assert_true(deadline - sg_wall_ms() <= 130); /* not before its time */
    assert_int_equal(fake.calls[V_LIST], 0);     /* not before it is known that the deadline stands */
    running_until(deadline);
    answer_look();
    struct stored_process got;
    int64_t until = sg_mono_ms() + 20000;
    do {
        until_saved("p", false, &got);
        if (got.tail[0].len == 1000)
            break;
        stored_process_clear(&got);
        fake_turns(&fake, 1);
    } while (sg_mono_ms() < until);
    is_tail(&got, p, 0);
    stored_process_clear(&got);
    until_true(waits_for_look, NULL); /* after the deadline: did it move? */
    up.status = VERCEL_STOPPED;
    answer_look();
    assert_int_equal(up.looks, 2);
}

static void test_what_is_started_after_the_sweep_is_saved_by_another(void **state)
{
    (void)state;
    const struct tails_config c = {.before_ms = 10000}; /* so a quarter of what is left */
    with_tails(&c);
    int64_t deadline = sg_wall_ms() + 2000;
    tails_session(tails, "box", &session, deadline);
    (void)one_that_runs();
    running_until(deadline);
    for (int sweeps = 1; sweeps <= 2; sweeps++) {
        until_true(waits_for_look, NULL);
        answer_look();
        int64_t until = sg_mono_ms() + 20000;
        while (fake.calls[V_LIST] < sweeps && sg_mono_ms() < until)
            fake_turns(&fake, 1);
        assert_int_equal(fake.calls[V_LIST], sweeps);
        struct fake_proc *late = fake_proc(&fake, sweeps == 1 ? "late" : "later", 0, 0, false);
        late->hold = true;
        if (sweeps == 1)
            start("late");
    }
    struct stored_process got;
    until_saved("late", false, &got);
    stored_process_clear(&got);
}

static void test_a_deadline_that_moved_is_waited_for(void **state)
{
    (void)state;
    const struct tails_config c = {.before_ms = 100};
    with_tails(&c);
    int64_t deadline = sg_wall_ms() + 400;
    tails_session(tails, "box", &session, deadline);
    (void)one_that_runs();
    until_true(waits_for_look, NULL);
    running_until(deadline + 900);
    answer_look();
    fake_turns(&fake, 20);
    assert_int_equal(fake.calls[V_LIST], 0);
    until_true(waits_for_look, NULL);
    assert_true(deadline + 900 - sg_wall_ms() <= 130); /* not before its time */
    answer_look();
    int64_t until = sg_mono_ms() + 20000;
    while (!fake.calls[V_LIST] && sg_mono_ms() < until)
        fake_turns(&fake, 1);
    assert_int_equal(fake.calls[V_LIST], 1);
}

static void test_a_look_that_fails_does_not_cost_the_output(void **state)
{
    (void)state;
    const struct tails_config c = {.before_ms = 100};
    with_tails(&c);
    tails_session(tails, "box", &session, sg_wall_ms() + 400);
    (void)one_that_runs();
    until_true(waits_for_look, NULL);
    up.fail = SG_E_UPSTREAM_RATE_LIMITED;
    answer_look();
    int64_t until = sg_mono_ms() + 20000;
    while (!fake.calls[V_LIST] && sg_mono_ms() < until)
        fake_turns(&fake, 1);
    assert_int_equal(fake.calls[V_LIST], 1);
}

static void test_a_session_that_is_over_is_let_go(void **state)
{
    (void)state;
    const struct tails_config c = {.before_ms = 100};
    with_tails(&c);
    tails_session(tails, "box", &session, sg_wall_ms() + 400);
    (void)one_that_runs();
    until_true(waits_for_look, NULL);
    running_until(sg_wall_ms() + 100000);
    up.session_id = "sess-2";
    answer_look();
    fake_turns(&fake, 20);
    assert_int_equal(fake.calls[V_LIST], 0);
    assert_int_equal(up.looks, 1);
}

static void test_an_unknown_deadline_is_asked_for(void **state)
{
    (void)state;
    const struct tails_config c = {.before_ms = 100};
    with_tails(&c);
    (void)one_that_runs();
    until_true(waits_for_look, NULL);
    running_until(sg_wall_ms() + 100000);
    answer_look();
    fake_turns(&fake, 20);
    assert_int_equal(fake.calls[V_LIST], 0);
    assert_int_equal(up.looks, 1);
}

static void test_a_restarted_gateway_knows_what_to_do(void **state)
{
    (void)state;
    struct sg_error e;
    struct fake_proc *p = fake_proc(&fake, "p", 1000, 0, true);
    p->written[0] = 1000;
    p->hold = true;
    int64_t deadline = sg_wall_ms() + 600;
    struct store_watch w = {"u", "sess-1", "box", "/", NULL, deadline};
    assert_int_equal(store_call(store, STORE_WRITE, watch_fn, &w, &e), SG_OK);
    const struct tails_config c = {.before_ms = 100};
    struct tails_config own = c;
    own.store = store;
    own.upstream = "u";
    tails = tails_new(relay, &own);
    until_true(waits_for_look, NULL);
    assert_true(deadline - sg_wall_ms() <= 130); /* not before its time */
    running_until(deadline);
    answer_look();
    struct stored_process got;
    until_saved("p", false, &got);
    is_tail(&got, p, 0);
    stored_process_clear(&got);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_run_is_saved_for_nothing),
        T(test_silent_ones_too),
        T(test_what_a_run_did_not_read_is_read_once),
        T(test_a_followed_one_is_saved_from_the_ring),
        T(test_the_exit_is_kept_when_its_bytes_cannot_be_read_P10),
        T(test_a_start_is_remembered_as_running),
        T(test_nothing_of_a_destroyed_sandbox_comes_back),
        T(test_nothing_of_a_removed_process_comes_back),
        T(test_before_the_end_everything_is_saved),
        T(test_a_session_without_processes_costs_nothing),
        T(test_processes_of_another_gateway_are_saved_too),
        T(test_a_sandbox_that_does_not_answer_holds_nobody_up),
        T(test_two_ends_share_one_sweep_and_one_may_leave),
        T(test_stopping_tells_who_waits),
        T(test_saved_before_the_deadline),
        T(test_what_is_started_after_the_sweep_is_saved_by_another),
        T(test_a_deadline_that_moved_is_waited_for),
        T(test_a_look_that_fails_does_not_cost_the_output),
        T(test_a_session_that_is_over_is_let_go),
        T(test_an_unknown_deadline_is_asked_for),
        T(test_a_restarted_gateway_knows_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
