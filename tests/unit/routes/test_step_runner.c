/* The thread that runs a step and the loop that follows it: output in order and with backpressure, ends, letting go.  E13. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/jobs.h"
#include "routes/step_runner.h"
#include "tests/support/fake_files.h"
#include "tests/support/fake_guestlink.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct sg_loop *loop;
    struct fake fake;
    struct jobs *jobs;
    struct gateway gw;
    struct step_runner runner;
} t;

/* Of control/ the runner knows no more. */
struct jobs *control_jobs(struct control *c)
{
    (void)c;
    return t.jobs;
}

static int setup(void **state)
{
    (void)state;
    const struct relay_limits l = {.give_up_ms = 500, .settle_ms = 400, .backoff_max_ms = 4};
    t.loop = sg_loop_new();
    fake_init(&t.fake, t.loop);
    t.jobs = jobs_new(t.loop);
    t.gw = (struct gateway){.loop = t.loop, .relay = relay_new(t.loop, fake_link(&t.fake))};
    relay_set_limits(t.gw.relay, &l);
    t.runner = step_runner_of(&t.gw);
    return !t.jobs;
}

static int teardown(void **state)
{
    (void)state;
    jobs_stop(t.jobs);
    jobs_free(t.jobs);
    relay_free(t.gw.relay);
    fake_turns(&t.fake, 4);
    fake_files_reset();
    int left = t.fake.live;
    sg_loop_free(t.loop);
    fake_free(&t.fake);
    return left;
}

/* One step on a thread of its own. */
struct run {
    const char *id;
    bool background;
    int slow_ms; /* pause at each piece of output */
    json_t *step;
    unsigned char *got[2];
    size_t len[2], ticks;
    enum sg_code rc;
    struct step_result res;
    struct sg_error e;
    pthread_t thread;
    struct sg_task ended;
    bool over; /* loop */
};

static void on_output(void *arg, int stream, const void *data, size_t len)
{
    struct run *r = arg;
    if (!len) {
        r->ticks++;
        return;
    }
    if (r->slow_ms)
        (void)poll(NULL, 0, r->slow_ms);
    r->got[stream] = realloc(r->got[stream], r->len[stream] + len);
    if (!r->got[stream])
        abort();
    memcpy(r->got[stream] + r->len[stream], data, len);
    r->len[stream] += len;
}

static void on_ended(struct sg_task *task)
{
    ((struct run *)((char *)task - offsetof(struct run, ended)))->over = true;
}

static void *run_thread(void *arg)
{
    struct run *r = arg;
    const struct step_session s = {"box", "sess-1", "/vercel/sandbox", NULL};
    r->rc = t.runner.run(t.runner.arg, &s, r->step, r->id, r->background, on_output, r, &r->res, &r->e);
    sg_loop_post(t.loop, &r->ended);
    return NULL;
}

static void begin(struct run *r)
{
    r->step = json_pack("{s[ss]s{ss}}", "argv", "sh", "x", "env", "A", "1");
    r->ended.fn = on_ended;
    assert_non_null(r->step);
    assert_int_equal(pthread_create(&r->thread, NULL, run_thread, r), 0);
}

static void finish(struct run *r)
{
    assert_true(fake_until(&t.fake, &r->over));
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    json_decref(r->step);
}

static void clear(struct run *r)
{
    free(r->got[0]);
    free(r->got[1]);
}

static void test_output_and_end(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&t.fake, "p1", 5000, 300, false);
    p->value = 7;
    struct run r = {.id = "p1"};
    begin(&r);
    finish(&r);
    assert_int_equal(r.rc, SG_OK);
    assert_int_equal(r.res.exit_code, 7);
    assert_int_equal(r.len[0], 5000);
    assert_memory_equal(r.got[0], p->content[0], 5000);
    assert_int_equal(r.len[1], 300);
    assert_memory_equal(r.got[1], p->content[1], 300);
    assert_int_equal(p->starts, 1);
    assert_int_equal(fake_total(&t.fake), 1); /* one call of the upstream */
    clear(&r);
}

/* A thread that is slow to take it holds the stream, and misses nothing; also when the stream is cut all the time. */
static void test_backpressure(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&t.fake, "p1", 900000, 0, false);
    t.fake.write_max = 100000;
    t.fake.faults = (struct fake_faults){.cut = 5, .repeat = 20, .more = 5};
    struct run r = {.id = "p1", .slow_ms = 1};
    begin(&r);
    finish(&r);
    assert_int_equal(r.rc, SG_OK);
    assert_int_equal(r.len[0], 900000);
    assert_memory_equal(r.got[0], p->content[0], 900000);
    assert_int_equal(p->starts, 1);
    clear(&r);
}

static void test_signal(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&t.fake, "p1", 0, 0, false);
    p->how = SG_HOW_SIGNAL;
    p->value = 9;
    struct run r = {.id = "p1"};
    begin(&r);
    finish(&r);
    assert_int_equal(r.res.exit_code, -1);
    assert_int_equal(r.res.signal, 9);
    clear(&r);
}

/* It runs, that is enough; what it prints is nobody's. */
static void test_background(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&t.fake, "p1", 100, 0, false);
    p->hold = true;
    struct run r = {.id = "p1", .background = true};
    begin(&r);
    finish(&r);
    assert_int_equal(r.rc, SG_OK);
    assert_int_equal(p->starts, 1);
    assert_false(p->exited);
    assert_int_equal(r.len[0], 0);
    clear(&r);
}

/* The answer of the start was lost: it is not run twice. */
static void test_lost_start(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&t.fake, "p1", 10, 0, false);
    t.fake.lose_start = LOST_ARRIVED;
    struct run r = {.id = "p1"};
    begin(&r);
    finish(&r);
    assert_int_equal(r.rc, SG_OK);
    assert_int_equal(r.len[0], 10);
    assert_int_equal(p->starts, 1);
    clear(&r);
}

static void test_refused(void **state)
{
    (void)state;
    t.fake.refuse_all = SG_E_STALE_SESSION;
    struct run r = {.id = "p1"};
    begin(&r);
    finish(&r);
    assert_int_equal(r.rc, SG_E_STALE_SESSION);
    clear(&r);
}

/* The gateway stops while a step goes on: its thread is let go soon, and whoever stops waits for it. */
static void test_stopping(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&t.fake, "p1", 100, 0, false);
    p->hold = true;
    struct run r = {.id = "p1"};
    begin(&r);
    while (!p->starts)
        fake_turns(&t.fake, 1);
    jobs_stop(t.jobs);
    finish(&r);
    assert_int_equal(r.rc, SG_E_DRAINING);
    assert_int_equal(r.e.outcome, SG_STARTED);
    assert_false(p->exited);
    clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output_and_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backpressure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_background, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_start, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stopping, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
