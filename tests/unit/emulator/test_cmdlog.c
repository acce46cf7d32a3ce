/* A command's log: readers from any offset get the same bytes, in memory and from the file, whole lines, at
 * once.  (U5) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "emulator/cmdlog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 20000 };

static const char *spill_dir(void)
{
    const char *d = getenv("TMPDIR");
    return d ? d : "/tmp";
}

static int make_line(char *out, size_t cap, int i)
{
    return snprintf(
        out, cap, "{\"n\":%d,\"t\":\"%.*s\xe2\x82\xac\"}\n", i, i % 90,
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

static void *write_lines(void *arg)
{
    char line[256];
    for (int i = 0; i < LINES; i++)
        cmdlog_append(arg, line, (size_t)make_line(line, sizeof line, i));
    cmdlog_end(arg);
    return NULL;
}

struct reader {
    struct cmdlog *log;
    size_t piece;
    bool good;
};

/* Reads to the end and compares every line. */
static void *read_lines(void *arg)
{
    struct reader *r = arg;
    char *buf = malloc(r->piece);
    uint64_t at = 0;
    int i = 0;
    char want[256];
    size_t have = 0, len = (size_t)make_line(want, sizeof want, 0);
    bool same = buf != NULL;
    for (;;) {
        ssize_t n = cmdlog_read(r->log, at, buf, r->piece, sg_mono_ms() + 20000);
        if (n <= 0) {
            same = same && n == CMDLOG_END;
            break;
        }
        at += (uint64_t)n;
        for (ssize_t k = 0; k < n && same; k++) {
            same = buf[k] == want[have++];
            if (have == len) {
                have = 0;
                len = (size_t)make_line(want, sizeof want, ++i);
            }
        }
    }
    r->good = same && i == LINES && have == 0;
    free(buf);
    return NULL;
}

static void test_writer_and_readers(void **state)
{
    (void)state;
    struct cmdlog log;
    assert_int_equal(cmdlog_init(&log, spill_dir()), 0);
    struct reader r[4] = {
        {&log, 65536, false}, {&log, 4096, false}, {&log, 300, false}, {&log, 131072, false}};
    pthread_t t[4], w;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_lines, &r[i]), 0);
    assert_int_equal(pthread_create(&w, NULL, write_lines, &log), 0);
    pthread_join(w, NULL);
    assert_int_equal(pthread_create(&t[3], NULL, read_lines, &r[3]), 0); /* comes late */
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_true(r[i].good);
    }
    assert_true(log.fd >= 0); /* it did spill */
    assert_false(cmdlog_lost(&log));
    cmdlog_free(&log);
}

static void test_deadline_and_end(void **state)
{
    (void)state;
    struct cmdlog log;
    char buf[64];
    assert_int_equal(cmdlog_init(&log, spill_dir()), 0);
    assert_int_equal(cmdlog_read(&log, 0, buf, sizeof buf, sg_mono_ms() + 20), CMDLOG_AGAIN);
    assert_false(cmdlog_wait_end(&log, sg_mono_ms() + 20));
    cmdlog_append(&log, "abc\n", 4);
    assert_int_equal(cmdlog_read(&log, 0, buf, sizeof buf, sg_mono_ms()), 4);
    assert_int_equal(log.fd, -1); /* little output needs no file */
    cmdlog_end(&log);
    assert_int_equal(cmdlog_read(&log, 4, buf, sizeof buf, sg_mono_ms()), CMDLOG_END);
    assert_true(cmdlog_wait_end(&log, sg_mono_ms()));
    cmdlog_free(&log);
}

/* A piece that has no whole line in it is still never cut inside a character. */
static void test_no_divided_character(void **state)
{
    (void)state;
    struct cmdlog log;
    char buf[8];
    assert_int_equal(cmdlog_init(&log, spill_dir()), 0);
    cmdlog_append(&log,
                  "aaaaaa\xe2\x82\xac"
                  "bbbbbbbbbb\n",
                  20);
    assert_int_equal(cmdlog_read(&log, 0, buf, sizeof buf, sg_mono_ms()), 6);
    assert_int_equal(cmdlog_read(&log, 6, buf, sizeof buf, sg_mono_ms()), 8);
    cmdlog_free(&log);
}

/* Without a place to spill, the log says that something is missing instead of pretending. */
static void test_no_disk(void **state)
{
    (void)state;
    struct cmdlog log;
    static char big[70000];
    memset(big, 'x', sizeof big);
    assert_int_equal(cmdlog_init(&log, "/nonexistent/directory"), 0);
    cmdlog_append(&log, "abc\n", 4);
    cmdlog_append(&log, big, sizeof big);
    cmdlog_append(&log, "def\n", 4);
    cmdlog_end(&log);
    assert_true(cmdlog_lost(&log));
    assert_int_equal(log.end, 4);
    cmdlog_free(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writer_and_readers),
        cmocka_unit_test(test_deadline_and_end),
        cmocka_unit_test(test_no_divided_character),
        cmocka_unit_test(test_no_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
