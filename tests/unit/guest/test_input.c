/* Standard input: bytes at offsets, backpressure, end of file, one carrier at a time.  A12, A13, P21, P22, P23, P28. */
#include "harness.h"

#include "base/core/b64.h"
#include "base/core/sha256.h"
#include "guest/ctl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct answer start_open(const char *id, const char *script)
{
    return guest("start", "--session", "s", "--id", id, "--spec", "h", "--input-open", "--", "/bin/sh", "-c",
                 script, NULL);
}

static struct answer end_of(const char *id)
{
    struct answer a = guest("status", "--session", "s", "--id", id, "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].state, SG_PS_FINISHED);
    return guest("follow", "--session", "s", "--id", id, NULL);
}

static struct sg_wire_line write_at(const char *id, uint64_t offset, const void *data, size_t n)
{
    static char act[CTL_ACT_MAX];
    int len = snprintf(act, sizeof act, "W %" PRIu64 " ", offset);
    assert_true((size_t)len + SG_B64_LEN(n) < sizeof act);
    len += (int)sg_b64_encode(act + len, data, n);
    act[len] = '\0';
    return ctl_say(id, act);
}

static void assert_says(const struct sg_wire_line *l, enum sg_wire_fail f, const char *text)
{
    assert_int_equal(l->kind, SG_WIRE_ERROR);
    assert_string_equal(sg_wire_fail_name(l->fail), sg_wire_fail_name(f));
    if (text)
        assert_string_equal(l->text, text);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* P21 */
static void closed_by_default(void **state)
{
    (void)state;
    uint64_t begun = now_ms();
    struct answer a = guest("run", "--session", "s", "--id", "cat", "--spec", "h", "--", "cat", NULL);
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    assert_int_equal(a.last.process.value, 0);
    assert_true(now_ms() - begun < 1000);
    a = start_sh("nothing", "exec sleep 1000");
    assert_false(a.first.process.takes_input);
    struct sg_wire_line l = write_at("nothing", 0, "x", 1);
    assert_says(&l, SG_WF_NO_INPUT, "the program takes no input");
    l = ctl_say("nothing", "R 80 24");
    assert_says(&l, SG_WF_NO_INPUT, "the program has no terminal");
    int fd = ctl_open("nothing", 'I');
    assert_true(ctl_line(fd, &l));
    assert_says(&l, SG_WF_NO_INPUT, NULL);
    assert_false(ctl_line(fd, &l));
    close(fd);
}

/* A12: a finite input ends by itself, whatever is in it. */
static void given_at_the_start(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "s", "--id", "given", "--spec", "h", "--input-data",
                            "YQD/Cg==", "--", "cat", NULL);
    assert_int_equal(a.len[0], 4);
    assert_memory_equal(a.out[0], "a\0\xff\n", 4);
    assert_int_equal(a.last.process.value, 0);
    answer_free(&a);
    a = guest("status", "--session", "s", "--id", "given", NULL);
    assert_int_equal(a.process[0].input, 4);
    /* More than a pipe holds, and a program that takes its time with it. */
    static char mib[1 << 20];
    file_write(path_in(root, ".up-in"), mib, sizeof mib);
    a = guest("run", "--session", "s", "--id", "file", "--spec", "h", "--input-file", ".up-in", "--",
              "/bin/sh", "-c", "dd bs=1 count=3 2>/dev/null; wc -c", NULL);
    assert_int_equal(a.len[0], 3 + strlen("1048573\n"));
    assert_memory_equal(a.out[0], "\0\0\0001048573\n", a.len[0]);
    assert_int_equal(access(path_in(root, ".up-in"), F_OK), -1);
    answer_free(&a);
    /* Open: what was given is only the beginning. */
    a = guest("start", "--session", "s", "--id", "more", "--spec", "h", "--input-open", "--input-data",
              "YWI=", "--", "cat", NULL);
    assert_true(a.first.process.takes_input);
    struct sg_wire_line l = write_at("more", 2, "cd", 2);
    assert_int_equal(l.accepted, 4);
    l = ctl_say("more", "C 4");
    assert_true(l.closed);
    a = end_of("more");
    assert_text(&a, 0, "abcd");
    answer_free(&a);
}

/* A12: before the first line has come nothing is printed; every act can be repeated. */
static void writes_at_offsets(void **state)
{
    (void)state;
    struct answer a = start_open("lines", "while read -r x; do echo \"got $x\"; done; echo end");
    assert_true(a.first.process.takes_input);
    struct sg_wire_line l = write_at("lines", 0, "one\n", 4);
    assert_int_equal(l.kind, SG_WIRE_ACCEPTED);
    assert_int_equal(l.accepted, 4);
    a = guest("follow", "--session", "s", "--id", "lines", "--wait-ms", "20000", NULL);
    assert_text(&a, 0, "got one\n");
    answer_free(&a);
    l = write_at("lines", 0, "one\n", 4); /* the answer was lost */
    assert_int_equal(l.accepted, 4);
    l = write_at("lines", 2, "e\ntwo\n", 6); /* overlaps */
    assert_int_equal(l.accepted, 8);
    l = write_at("lines", 9, "x", 1);
    assert_says(&l, SG_WF_OFFSET, "accepted 8");
    l = ctl_say("lines", "C 7");
    assert_says(&l, SG_WF_OFFSET, "accepted 8");
    a = guest("status", "--session", "s", "--id", "lines", NULL);
    assert_int_equal(a.process[0].input, 8);
    assert_true(a.process[0].takes_input);
    l = ctl_say("lines", "C 8");
    assert_true(l.kind == SG_WIRE_ACCEPTED && l.closed);
    assert_int_equal(l.room, 0);
    a = end_of("lines");
    assert_text(&a, 0, "got one\ngot two\nend\n");
    assert_int_equal(a.first.process.input, 8);
    assert_false(a.first.process.takes_input);
    answer_free(&a);
}

static void malformed_acts(void **state)
{
    (void)state;
    struct answer a = start_open("acts", "exec cat");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    const char *const bad[] = {"",          "W",     "W 0",    "W 0 %%%%", "W x YQ==",
                               "W 0  YQ==", "C",     "C 0 0",  "C -1",     "R 0 1",
                               "R 1 70000", "T 0 0", "T 65 0", "T 9",      "K 1",
                               "Q",         "L",     "U ",     "K 1 2 ",   "C 99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sg_wire_line l = ctl_say("acts", bad[i]);
        assert_says(&l, SG_WF_USAGE, NULL);
    }
    int fd = ctl_open("acts", '?');
    struct sg_wire_line l;
    assert_false(ctl_line(fd, &l));
    close(fd);
    /* A line without end is cut, and nothing else is disturbed. */
    fd = ctl_open("acts", 'A');
    static char junk[CTL_ACT_MAX + 4096];
    memset(junk, 'W', sizeof junk);
    (void)send(fd, junk, sizeof junk, MSG_NOSIGNAL);
    assert_false(ctl_line(fd, &l));
    close(fd);
    l = write_at("acts", 0, "fine", 4);
    assert_int_equal(l.accepted, 4);
    l = ctl_say("acts", "C 4");
    assert_true(l.closed);
    a = end_of("acts");
    assert_text(&a, 0, "fine");
    answer_free(&a);
}

/* P22: 10 MiB through one carrier, never more than its credit. */
static void large_input_by_credit(void **state)
{
    (void)state;
    enum { SIZE = 10 * 1024 * 1024 + 777 };
    unsigned char *data = malloc(SIZE), sum[32];
    assert_non_null(data);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < SIZE; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (unsigned char)(x >> 32);
    }
    struct sg_sha256 s;
    sg_sha256_init(&s);
    sg_sha256_update(&s, data, SIZE);
    sg_sha256_final(&s, sum);
    struct answer a = start_open("sum", "exec sha256sum");
    int fd = ctl_open("sum", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(fd, &l));
    assert_int_equal(l.kind, SG_WIRE_CARRIER);
    assert_int_equal(l.epoch, 1);
    assert_int_equal(l.room, SG_CARRIER_SPOOL);
    uint64_t sent = 0;
    while (sent < SIZE) {
        uint64_t room = l.accepted + l.room - sent;
        size_t n = room < 60000 ? (size_t)room : 60000;
        n = n < SIZE - sent ? n : (size_t)(SIZE - sent);
        if (n) {
            carrier_data(fd, sent, data + sent, n);
            sent += n;
        } else {
            assert_true(ctl_line(fd, &l));
            assert_int_equal(l.kind, SG_WIRE_ACCEPTED);
        }
    }
    carrier_frame(fd, (struct sg_carrier_frame){.kind = SG_CARRIER_CLOSE, .offset = SIZE});
    while (l.kind == SG_WIRE_ACCEPTED && ctl_line(fd, &l))
        continue;
    assert_says(&l, SG_WF_FINISHED, NULL); /* the program's end is the carrier's */
    close(fd);
    a = end_of("sum");
    char want[80];
    for (int i = 0; i < 32; i++)
        snprintf(want + 2 * i, 3, "%02x", sum[i]);
    snprintf(want + 64, sizeof want - 64, "  -\n");
    assert_text(&a, 0, want);
    answer_free(&a);
    free(data);
}

/* P23, A13: the program reads nothing, the spool is full, and a signal gets through all the same. */
static void signals_do_not_wait_behind_data(void **state)
{
    (void)state;
    struct answer a =
        start_open("deaf", "trap 'echo heard; exit 3' TERM; echo up; while :; do sleep 0.01; done");
    a = guest("follow", "--session", "s", "--id", "deaf", "--wait-ms", "20000", NULL);
    answer_free(&a);
    int fd = ctl_open("deaf", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(fd, &l));
    static const unsigned char zeros[64 * 1024];
    uint64_t at = 0;
    while (l.room > 0 || at < l.accepted) { /* until the spool and the pipe are full */
        size_t n = l.room < sizeof zeros ? (size_t)l.room : sizeof zeros;
        if (n) {
            carrier_data(fd, at, zeros, n);
            at += n;
        }
        l = carrier_accepted(fd, at);
        if (n == 0)
            break;
    }
    assert_true(at >= SG_CARRIER_SPOOL);
    carrier_frame(fd,
                  (struct sg_carrier_frame){.kind = SG_CARRIER_SIGNAL, .signal = SIGTERM, .whole = false});
    while (ctl_line(fd, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_says(&l, SG_WF_FINISHED, NULL);
    close(fd);
    a = end_of("deaf");
    assert_text(&a, 0, "up\nheard\n");
    assert_int_equal(a.last.process.value, 3);
    assert_int_equal(a.first.process.input, at);
    answer_free(&a);
}

static void more_than_the_room_is_a_fault(void **state)
{
    (void)state;
    struct answer a = start_open("full", "exec sleep 1000");
    int fd = ctl_open("full", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(fd, &l));
    static const unsigned char zeros[64 * 1024];
    for (uint64_t at = 0; at < 2 * SG_CARRIER_SPOOL; at += sizeof zeros) {
        struct sg_carrier_frame f = {.kind = SG_CARRIER_DATA, .offset = at, .len = sizeof zeros};
        unsigned char head[SG_CARRIER_HEAD_MAX];
        size_t n = sg_carrier_encode(head, &f);
        if (send(fd, head, n, MSG_NOSIGNAL) != (ssize_t)n || send(fd, zeros, sizeof zeros, MSG_NOSIGNAL) < 0)
            break; /* it was cut already */
    }
    while (ctl_line(fd, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_says(&l, SG_WF_USAGE, NULL);
    close(fd);
    a = guest("status", "--session", "s", "--id", "full", NULL);
    assert_int_equal(a.process[0].state, SG_PS_RUNNING); /* the fault was the carrier's */
    uint64_t accepted = a.process[0].input;
    assert_true(accepted >= SG_CARRIER_SPOOL);
    /* The next carrier goes on where this one was, and an act takes what there is room for. */
    fd = ctl_open("full", 'I');
    assert_true(ctl_line(fd, &l));
    assert_int_equal(l.epoch, 2);
    assert_int_equal(l.accepted, accepted);
    struct sg_wire_line w = write_at("full", accepted, zeros, sizeof zeros);
    assert_int_equal(w.accepted, accepted + l.room);
    assert_int_equal(w.room, 0);
    close(fd);
}

/* One writer: a new carrier fences the old one, whose unfinished frame counts for nothing. */
static void epochs_fence(void **state)
{
    (void)state;
    struct answer a = start_open("epochs", "exec cat");
    int one = ctl_open("epochs", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(one, &l));
    carrier_data(one, 0, "first ", 6);
    (void)carrier_accepted(one, 6);
    assert_int_equal(send(one, "D\0\0\0\0\0\0\0\6\0\0\0\4par", 16, MSG_NOSIGNAL),
                     16); /* one byte is missing */
    int two = ctl_open("epochs", 'I');
    assert_true(ctl_line(two, &l));
    assert_int_equal(l.kind, SG_WIRE_CARRIER);
    assert_int_equal(l.epoch, 2);
    assert_int_equal(l.accepted, 6);
    while (ctl_line(one, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_says(&l, SG_WF_FENCED, NULL);
    assert_false(ctl_line(one, &l));
    close(one);
    carrier_data(two, 0, "first second", 12); /* sent again from where the other may not have come to */
    (void)carrier_accepted(two, 12);
    carrier_data(two, 13, "x", 1);
    while (ctl_line(two, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_says(&l, SG_WF_OFFSET, "accepted 12");
    close(two);
    /* A carrier that ends itself: what came is worked off, half a frame is nothing, and no end of file. */
    int three = ctl_open("epochs", 'I');
    assert_true(ctl_line(three, &l));
    carrier_data(three, 12, "!", 1);
    assert_int_equal(send(three, "D\0\0", 3, MSG_NOSIGNAL), 3);
    assert_int_equal(shutdown(three, SHUT_WR), 0);
    while (ctl_line(three, &l) && l.kind == SG_WIRE_ACCEPTED)
        assert_int_equal(l.accepted, 13);
    assert_int_equal(l.kind, SG_WIRE_OK);
    assert_false(ctl_line(three, &l));
    close(three);
    a = guest("status", "--session", "s", "--id", "epochs", NULL);
    assert_int_equal(a.process[0].state, SG_PS_RUNNING);
    l = ctl_say("epochs", "C 13");
    assert_true(l.closed);
    a = end_of("epochs");
    assert_text(&a, 0, "first second!");
    answer_free(&a);
}

static bool input_is_unwanted(const void *id)
{
    struct answer a = guest("status", "--session", "s", "--id", (const char *)id, NULL);
    return !a.process[0].takes_input;
}

/* The program closes its end: told at once, though nothing is written; the program goes on. */
static void program_that_wants_no_more(void **state)
{
    (void)state;
    char script[2 * PATH_MAX + 80];
    char *fifo = path_in(scratch, "fifo-close"), *last = path_in(scratch, "fifo-last");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkfifo(last, 0600), 0);
    snprintf(script, sizeof script, "head -c 3; read x <%s; exec <&-; read x <%s; echo done", fifo, last);
    struct answer a = start_open("closes", script);
    int fd = ctl_open("closes", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(fd, &l));
    carrier_data(fd, 0, "abc", 3);
    l = carrier_accepted(fd, 3);
    assert_false(l.unwanted);
    file_write(fifo, "x\n", 2);
    do
        assert_true(ctl_line(fd, &l));
    while (l.kind == SG_WIRE_ACCEPTED && !l.unwanted);
    assert_true(l.unwanted);
    carrier_data(fd, 3, "lost", 4); /* was on its way: no fault, not accepted */
    wait_until(input_is_unwanted, "closes");
    struct sg_wire_line w = write_at("closes", 3, "x", 1);
    assert_says(&w, SG_WF_NO_INPUT, "the program takes no more input");
    w = write_at("closes", 0, "abc", 3); /* of what was accepted before the answer stays the same */
    assert_int_equal(w.accepted, 3);
    assert_true(w.unwanted);
    file_write(last, "x\n", 2);
    while (ctl_line(fd, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_says(&l, SG_WF_FINISHED, NULL);
    close(fd);
    a = end_of("closes");
    assert_text(&a, 0, "abcdone\n");
    assert_int_equal(a.first.process.input, 3);
    answer_free(&a);
}

/* What the program leaves behind reads the rest and its end of file; nothing more is taken. */
static void descendants_get_the_end(void **state)
{
    (void)state;
    char script[PATH_MAX + 80];
    char *file = path_in(scratch, "rest");
    snprintf(script, sizeof script, "exec 3<&0; (read x; cat <&3 >%s.new; mv %s.new %s) <%s & exit 0", file,
             file, file, path_in(scratch, "fifo-rest"));
    assert_int_equal(mkfifo(path_in(scratch, "fifo-rest"), 0600), 0);
    struct answer a = guest("start", "--session", "s", "--id", "heir", "--spec", "h", "--input-open",
                            "--input-data", "cmVzdAo=", "--", "/bin/sh", "-c", script, NULL);
    a = guest("status", "--session", "s", "--id", "heir", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].state, SG_PS_FINISHED);
    struct sg_wire_line l = write_at("heir", 5, "x", 1);
    assert_says(&l, SG_WF_FINISHED, NULL);
    file_write(path_in(scratch, "fifo-rest"), "go\n", 3);
    wait_until(file_has_text, file);
    assert_string_equal(file_text(file), "rest\n");
}

/* Peers that do not read, say nothing or are too many take nothing from the others. */
static void hostile_peers(void **state)
{
    (void)state;
    struct answer a = start_open("peers", "exec cat");
    int fds[2 * CTL_CONNECTIONS];
    for (int i = 0; i < 2 * CTL_CONNECTIONS; i++)
        fds[i] = ctl_open("peers", 'W');
    struct sg_wire_line l;
    unsigned cut = 0;
    for (int i = CTL_CONNECTIONS; i < 2 * CTL_CONNECTIONS; i++)
        cut += fds[i] < 0 || !ctl_line(fds[i], &l);
    assert_int_equal(cut, CTL_CONNECTIONS);
    l = write_at("peers", 0, "still", 5); /* watchers never take the places of acts */
    assert_int_equal(l.accepted, 5);
    for (int i = 0; i < 2 * CTL_CONNECTIONS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    l = ctl_say("peers", "C 5");
    assert_true(l.closed);
    a = end_of("peers");
    assert_text(&a, 0, "still");
    answer_free(&a);
    assert_int_equal(ctl_open("peers", 'A'), -1); /* the monitor is gone: refused at once */
}

/* P28: once the program has been reaped nothing is signalled, by whatever way. */
static void ended_is_ended(void **state)
{
    (void)state;
    char script[PATH_MAX + 80];
    char *fifo = path_in(scratch, "fifo-p28");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    /* The child holds the output, so the monitor lives on. */
    snprintf(script, sizeof script, "(read x <%s) & exit 0", fifo);
    struct answer a = run_sh("reaped", script);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    struct sg_wire_line l = ctl_say("reaped", "C 0");
    assert_says(&l, SG_WF_FINISHED, NULL);
    int fd = ctl_open("reaped", 'I');
    assert_true(ctl_line(fd, &l));
    assert_says(&l, SG_WF_FINISHED, NULL);
    close(fd);
    a = guest("signal", "--session", "s", "--id", "reaped", "--signal", "15", "--only-program", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
    l = ctl_say("reaped", "T 15 0"); /* what is left of it can be ended still */
    assert_int_equal(l.kind, SG_WIRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_by_default),
        cmocka_unit_test(given_at_the_start),
        cmocka_unit_test(writes_at_offsets),
        cmocka_unit_test(malformed_acts),
        cmocka_unit_test(large_input_by_credit),
        cmocka_unit_test(signals_do_not_wait_behind_data),
        cmocka_unit_test(more_than_the_room_is_a_fault),
        cmocka_unit_test(epochs_fence),
        cmocka_unit_test(program_that_wants_no_more),
        cmocka_unit_test(descendants_get_the_end),
        cmocka_unit_test(hostile_peers),
        cmocka_unit_test(ended_is_ended),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
