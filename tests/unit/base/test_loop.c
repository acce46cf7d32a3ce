/* The loop: tasks from other threads in order, timers freed inside their callback, hooks before graves. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/loop.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, TASKS = 2000 };

struct numbered {
    struct sg_task task;
    struct poster *from;
    int number;
};

struct poster {
    struct sg_loop *loop;
    int *left;
    int next; /* the number that must come next */
    struct numbered tasks[TASKS];
};

static void on_numbered(struct sg_task *task)
{
    struct numbered *n = (struct numbered *)task;
    assert_int_equal(n->number, n->from->next);
    n->from->next++;
    if (--*n->from->left == 0)
        sg_loop_stop(n->from->loop);
}

static void *post_all(void *arg)
{
    struct poster *p = arg;
    for (int i = 0; i < TASKS; i++) {
        p->tasks[i] = (struct numbered){.task.fn = on_numbered, .from = p, .number = i};
        sg_loop_post(p->loop, &p->tasks[i].task);
    }
    return NULL;
}

static void tasks_of_a_thread_run_in_order(void **state)
{
    (void)state;
    struct sg_loop *loop = sg_loop_new();
    assert_non_null(loop);
    int left = THREADS * TASKS;
    struct poster *p = calloc(THREADS, sizeof *p);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        p[i].loop = loop;
        p[i].left = &left;
        assert_int_equal(pthread_create(&t[i], NULL, post_all, &p[i]), 0);
    }
    sg_loop_run(loop);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(p[i].next, TASKS);
    }
    sg_loop_free(loop);
    free(p);
}

struct ticking {
    struct sg_loop *loop;
    struct sg_timer *timer;
    int fired, hooks;
    bool buried, hook_after_burial;
    struct sg_grave grave;
    int64_t started;
};

static void on_tick(void *arg)
{
    struct ticking *t = arg;
    t->fired++;
    sg_timer_free(t->timer); /* inside its own callback */
    t->timer = NULL;
    assert_true(sg_mono_ms() - t->started >= 20);
    sg_loop_bury(t->loop, &t->grave);
}

static bool on_hook(void *arg)
{
    struct ticking *t = arg;
    t->hooks++;
    t->hook_after_burial = t->buried;
    return false;
}

static void on_grave(struct sg_grave *grave)
{
    struct ticking *t = (struct ticking *)((char *)grave - offsetof(struct ticking, grave));
    t->buried = true;
    assert_false(t->hook_after_burial); /* the hooks of this turn ran before */
    sg_loop_stop(t->loop);
}

static void timers_hooks_and_graves(void **state)
{
    (void)state;
    struct ticking t = {.started = sg_mono_ms()};
    t.grave.fn = on_grave;
    t.loop = sg_loop_new();
    assert_non_null(t.loop);
    assert_int_equal(sg_loop_on_turn(t.loop, on_hook, &t), 0);
    t.timer = sg_timer_new(t.loop, on_tick, &t);
    sg_timer_start(t.timer, 20);
    assert_true(sg_timer_active(t.timer));
    sg_loop_run(t.loop);
    assert_int_equal(t.fired, 1);
    assert_true(t.buried);
    assert_true(t.hooks > 0);
    sg_loop_off_turn(t.loop, on_hook, &t);
    sg_loop_free(t.loop);
}

/* What was posted but not run when the loop ends still runs: nothing waits for ever. */
static int ran;
static void on_late(struct sg_task *task)
{
    (void)task;
    ran++;
}

static void leftovers_run_at_the_end(void **state)
{
    (void)state;
    struct sg_loop *loop = sg_loop_new();
    struct sg_task task = {.fn = on_late};
    sg_loop_post(loop, &task);
    sg_loop_free(loop);
    assert_int_equal(ran, 1);
}

/* A log line is one JSON object whatever the values hold. */
static void log_lines_are_json(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    int saved = dup(STDERR_FILENO);
    dup2(p[1], STDERR_FILENO);
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN, "no answer");
    sg_log(SG_LOG_INFO, "event", "text", "s", "q\"\\\n\x01\xff", "n", "i", (int64_t)-5, "yes", "b", 1, "none",
           "s", (const char *)NULL, "error", "e", &e, NULL);
    sg_log(SG_LOG_DEBUG, "hidden", NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(p[1]);
    char line[4096];
    ssize_t n = read(p[0], line, sizeof line - 1);
    close(p[0]);
    assert_true(n > 0);
    line[n] = '\0';
    assert_null(strstr(line, "hidden"));
    assert_int_equal(line[n - 1], '\n');
    json_t *v = json_loads(line, 0, NULL);
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(v, "event")), "event");
    assert_int_equal(json_integer_value(json_object_get(v, "n")), -5);
    assert_string_equal(json_string_value(json_object_get(v, "code")), "upstream_timeout");
    assert_string_equal(json_string_value(json_object_get(v, "outcome")), "unknown");
    assert_true(json_is_null(json_object_get(v, "none")));
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_of_a_thread_run_in_order),
        cmocka_unit_test(timers_hooks_and_graves),
        cmocka_unit_test(leftovers_run_at_the_end),
        cmocka_unit_test(log_lines_are_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
