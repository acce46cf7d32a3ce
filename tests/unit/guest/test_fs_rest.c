/* Whether a file may be in the middle of a write: A16, E10. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "guest/fs.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char path[64];
static int fd;

static int setup(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/sandgate-rest-XXXXXX");
    fd = mkstemp(path);
    return fd < 0 || write(fd, "0123456789", 10) != 10;
}

static int teardown(void **state)
{
    (void)state;
    close(fd);
    return unlink(path);
}

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool rests(double *took)
{
    struct stat st, now;
    assert_int_equal(fstat(fd, &st), 0);
    double began = seconds();
    bool yes = fs_rest(fd, &st);
    *took = seconds() - began;
    assert_int_equal(fstat(fd, &now), 0);
    if (yes)
        assert_true(st.st_size <= now.st_size);
    return yes;
}

static void set_time(time_t s, long ns)
{
    const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = s, .tv_nsec = ns}};
    assert_int_equal(futimens(fd, t), 0);
}

/* What was written just now is waited for, once; what was long ago is not. */
static void waits_for_what_is_new(void **state)
{
    (void)state;
    double took;
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    assert_true(rests(&took));
    assert_true(took > 0.005 && took < 5);
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    const struct timespec set[] = {{1, 5}, {now.tv_sec - 3, 5}, {now.tv_sec + 100, 5}, {now.tv_sec, 0}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        double least = 1;
        for (int k = 0; k < 20; k++) { /* the machine may be busy elsewhere */
            set_time(set[i].tv_sec, set[i].tv_nsec);
            assert_true(rests(&took));
            least = took < least ? took : least;
        }
        assert_true(least < 0.005);
    }
}

static atomic_bool over;

static void *write_in_place(void *arg)
{
    bool appends = arg != NULL;
    for (off_t at = 10; !atomic_load(&over); at += appends) {
        if (pwrite(fd, "y", 1, appends ? at : 0) != 1)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return NULL;
}

static bool rests_while_written(bool appends)
{
    pthread_t thread;
    double took;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&thread, NULL, write_in_place, appends ? &over : NULL), 0);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    bool yes = rests(&took);
    atomic_store(&over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(took < 10);
    return yes;
}

/* Written in place all the time it never rests (but for a writer that the machine has put to sleep); a log need not. */
static void never_rests(void **state)
{
    (void)state;
    int restless = 0;
    for (int i = 0; i < 5; i++) {
        restless += !rests_while_written(false);
        assert_true(rests_while_written(true));
    }
    assert_true(restless > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waits_for_what_is_new, setup, teardown),
        cmocka_unit_test_setup_teardown(never_rests, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
