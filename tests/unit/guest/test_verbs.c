/* What the helper's calls do to real programs: input, terminals, ends, retention, scopes: U2, U4, U5, U7, P07, P21. */
#include "talk.h"

#include "base/core/b64.h"
#include "base/core/carrier.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static unsigned char noise[3 * 1024 * 1024 + 17];

static void make_noise(void)
{
    uint32_t x = 123456789u;
    for (size_t i = 0; i < sizeof noise; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        noise[i] = (unsigned char)(x >> 11);
    }
}

static const char *number(uint64_t v)
{
    static char ring[8][24];
    static size_t at;
    char *p = ring[at++ % 8];
    snprintf(p, sizeof ring[0], "%" PRIu64, v);
    return p;
}

/* start with some options before the program, which is a shell's script. */
#define START(id, script, ...)                                                                               \
    guest("start", "--session", "s", "--id", id, "--spec", "h", __VA_ARGS__, "--", "/bin/sh", "-c", script,  \
          NULL)
#define CALL(verb, id, ...) guest(verb, "--session", "s", "--id", id, __VA_ARGS__, NULL)

/* Follows to the end. */
static struct answer follow(const char *id)
{
    struct answer a = guest("follow", "--session", "s", "--id", id, NULL);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    return a;
}

static struct sg_wire_process status(const char *id)
{
    struct answer a = guest("status", "--session", "s", "--id", id, NULL);
    assert_int_equal(a.processes, 1);
    return a.process[0];
}

static void assert_done(const struct answer *a)
{
    assert_int_equal(a->last.kind, SG_WIRE_OK);
}

/* ---- input given at the start ---- */

static void input_data_and_its_end(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "s", "--id", "data", "--spec", "h", "--input-data",
                            "YQBi/w==", "--", "/bin/cat", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.len[0], 4);
    assert_memory_equal(a.out[0], "a\0b\377", 4);
    answer_free(&a);
    assert_int_equal(status("data").input, 4);
    assert_false(status("data").takes_input);
    a = CALL("write", "data", "--offset", "4", "--data", "eA==");
    assert_error(&a, SG_WF_FINISHED, "");
    /* P21: without any it is at its end at once. */
    a = run_sh("nothing", "cat; echo end");
    assert_text(&a, 0, "end\n");
    answer_free(&a);
}

static void input_file_is_read_once(void **state)
{
    (void)state;
    enum { SIZE = SG_CARRIER_SPOOL };
    char *up = path_in(root, ".up-in_1-A");
    file_write(up, noise, SIZE);
    for (int i = 0; i < 2; i++) { /* asked again it runs no second time, though the upload is gone */
        struct answer a = guest("run", "--session", "s", "--id", "file", "--spec", "h", "--input-file",
                                ".up-in_1-A", "--", "/bin/cat", NULL);
        assert_int_equal(a.last.kind, SG_WIRE_EXIT);
        assert_int_equal(a.len[0], SIZE);
        assert_memory_equal(a.out[0], noise, SIZE);
        answer_free(&a);
        assert_int_equal(access(up, F_OK), -1);
    }
    assert_int_equal(status("file").input, SIZE);
    struct answer a = START("gone", "cat", "--input-file", ".up-gone");
    assert_error(&a, SG_WF_FILE, "ENOENT");
    a = guest("status", "--session", "s", "--id", "gone", NULL);
    assert_error(&a, SG_WF_NO_RECORD, "");
    file_write(path_in(root, ".up-big"), noise, SIZE + 1);
    a = START("big", "cat", "--input-file", ".up-big");
    assert_error(&a, SG_WF_FILE, "EFBIG");
    file_write(path_in(scratch, "secret"), "secret", 6);
    assert_int_equal(symlink(path_in(scratch, "secret"), path_in(root, ".up-link")), 0);
    a = START("link", "cat", "--input-file", ".up-link");
    assert_error(&a, SG_WF_FILE, "ELOOP");
    assert_int_equal(mkfifo(path_in(root, ".up-fifo"), 0600), 0);
    a = START("fifo", "cat", "--input-file", ".up-fifo");
    assert_error(&a, SG_WF_FILE, "EINVAL");
    file_write(path_in(root, ".up-empty"), "", 0);
    a = guest("run", "--session", "s", "--id", "empty", "--spec", "h", "--input-file", ".up-empty", "--",
              "/bin/cat", NULL);
    assert_text(&a, 0, "");
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
}

/* ---- writes ---- */

static void writes_at_offsets(void **state)
{
    (void)state;
    struct answer a = START("cat", "cat; echo end", "--input-open", "--input-data", "YWJj");
    assert_done(&a);
    assert_true(a.first.process.takes_input && !a.first.process.terminal);
    a = CALL("write", "cat", "--offset", "3", "--data", "ZGVm");
    assert_done(&a);
    assert_int_equal(a.first.kind, SG_WIRE_ACCEPTED);
    assert_int_equal(a.first.accepted, 6);
    a = CALL("write", "cat", "--offset", "3", "--data", "ZGVmZw=="); /* half of it is there already */
    assert_int_equal(a.first.accepted, 7);
    a = CALL("write", "cat", "--offset", "0", "--data", "eHh4"); /* all of it */
    assert_int_equal(a.first.accepted, 7);
    a = CALL("write", "cat", "--offset", "8", "--data", "eHh4");
    assert_error(&a, SG_WF_OFFSET, "");
    assert_string_equal(a.last.text, "accepted 7");
    a = CALL("close", "cat", "--offset", "6");
    assert_error(&a, SG_WF_OFFSET, "");
    assert_string_equal(a.last.text, "accepted 7");
    assert_int_equal(status("cat").input, 7);
    for (int i = 0; i < 2; i++) {
        a = CALL("close", "cat", "--offset", "7");
        if (i == 0 || a.last.kind == SG_WIRE_OK) { /* the second may find it finished */
            assert_done(&a);
            assert_true(a.first.closed && a.first.accepted == 7);
        }
    }
    a = follow("cat");
    assert_text(&a, 0, "abcdefgend\n");
    answer_free(&a);
    a = CALL("write", "cat", "--offset", "7", "--data", "eA==");
    assert_error(&a, SG_WF_FINISHED, "");
}

static void input_that_nobody_takes(void **state)
{
    (void)state;
    struct answer a = start_sh("deaf", "exec sleep 1000");
    assert_false(a.first.process.takes_input);
    a = CALL("write", "deaf", "--offset", "0", "--data", "eA==");
    assert_error(&a, SG_WF_NO_INPUT, "");
    a = CALL("close", "deaf", "--offset", "0");
    assert_error(&a, SG_WF_NO_INPUT, "");
    a = CALL("resize", "deaf", "--cols", "80", "--rows", "24");
    assert_error(&a, SG_WF_NO_INPUT, "");
    static struct talk t;
    talk_open(&t, "input", "--session", "s", "--id", "deaf", NULL);
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_NO_INPUT);
    assert_int_equal(talk_end(&t), 1);
    a = CALL("cancel", "deaf", "--signal", "15", "--grace-ms", "0");
    assert_done(&a);
    a = follow("deaf");
    assert_int_equal(a.last.process.how, SG_HOW_SIGNAL);
    a = CALL("cancel", "deaf", "--signal", "15", "--grace-ms", "0");
    assert_error(&a, SG_WF_FINISHED, "");
    a = CALL("cancel", "no-such", "--signal", "15", "--grace-ms", "0");
    assert_error(&a, SG_WF_NO_RECORD, "");
}

/* ---- carriers ---- */

static void send_frame(struct talk *t, const struct sg_carrier_frame *f, const void *data)
{
    unsigned char head[SG_CARRIER_HEAD_MAX];
    size_t n = sg_carrier_encode(head, f);
    assert_true(n > 0);
    talk_send(t, head, n);
    if (f->kind == SG_CARRIER_DATA)
        talk_send(t, data, f->len);
}

static void send_data(struct talk *t, uint64_t offset, const void *data, size_t n)
{
    send_frame(t, &(struct sg_carrier_frame){.kind = SG_CARRIER_DATA, .offset = offset, .len = (uint32_t)n},
               data);
}

static struct sg_wire_line open_carrier(struct talk *t, const char *id)
{
    talk_open(t, "input", "--session", "s", "--id", id, NULL);
    struct sg_wire_line l = talk_line(t);
    assert_int_equal(l.kind, SG_WIRE_CARRIER);
    return l;
}

/* Three MiB and an odd number of bytes through carriers that come and go at any byte of a frame. */
static void carriers_come_and_go(void **state)
{
    (void)state;
    static struct talk t;
    uint64_t epoch = 0, accepted = 0, room;
    unsigned carriers = 0;
    struct answer a = START("sum", "exec cat", "--input-open");
    assert_done(&a);
    for (bool closed = false; !closed; carriers++) {
        struct sg_wire_line l = open_carrier(&t, "sum");
        assert_true(l.epoch > epoch && l.accepted >= accepted);
        epoch = l.epoch;
        accepted = l.accepted;
        room = l.room;
        uint64_t sent = accepted, stop = accepted + 400 * 1024 + carriers;
        while (sent < sizeof noise && sent < stop) {
            size_t n = 1 + (size_t)noise[sent] * 257;
            n = n < sizeof noise - sent ? n : sizeof noise - sent;
            while (sent + n > accepted + room) {
                l = talk_line(&t);
                assert_int_equal(l.kind, SG_WIRE_ACCEPTED);
                accepted = l.accepted;
                room = l.room;
            }
            send_data(&t, sent, noise + sent, n);
            sent += n;
        }
        if (sent == sizeof noise) {
            send_frame(&t, &(struct sg_carrier_frame){.kind = SG_CARRIER_CLOSE, .offset = sent}, NULL);
            closed = true;
        } else { /* and half a frame: the carrier that died in the middle */
            talk_send(&t, "D\0\0\0", 1 + carriers % 4);
        }
        talk_close_input(&t);
        while ((l = talk_line(&t)).kind == SG_WIRE_ACCEPTED)
            accepted = l.accepted;
        assert_true(l.kind == SG_WIRE_OK || (closed && l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FINISHED));
        assert_int_equal(accepted, sent); /* what was handed over was acknowledged before the end */
        (void)talk_end(&t);
    }
    assert_true(carriers > 5);
    a = follow("sum");
    assert_int_equal(a.len[0], sizeof noise);
    assert_memory_equal(a.out[0], noise, sizeof noise);
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    answer_free(&a);
}

static bool six_are_there(const void *id)
{
    return status(id).end[0] == 6;
}

/* One writer: the last that came. */
static void a_new_carrier_fences_the_old_one(void **state)
{
    (void)state;
    static struct talk old, new;
    struct answer a = START("fence", "exec cat", "--input-open");
    assert_done(&a);
    struct sg_wire_line first = open_carrier(&old, "fence");
    send_data(&old, 0, "abc", 3);
    assert_int_equal(talk_line(&old).accepted, 3);
    struct sg_wire_line second = open_carrier(&new, "fence");
    assert_true(second.epoch > first.epoch && second.accepted == 3);
    struct sg_wire_line l;
    while ((l = talk_line(&old)).kind == SG_WIRE_ACCEPTED)
        continue;
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FENCED);
    assert_int_equal(talk_end(&old), 1);
    send_data(&new, 0, "abcdef", 6); /* a part of it was accepted by the one before */
    while ((l = talk_line(&new)).kind == SG_WIRE_ACCEPTED && l.accepted < 6)
        continue;
    assert_int_equal(l.accepted, 6);
    wait_until(six_are_there, "fence");
    a = CALL("cancel", "fence", "--signal", "9", "--grace-ms", "0");
    assert_done(&a);
    while ((l = talk_line(&new)).kind == SG_WIRE_ACCEPTED)
        continue;
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FINISHED);
    assert_int_equal(talk_end(&new), 1);
    a = follow("fence");
    assert_text(&a, 0, "abcdef");
    answer_free(&a);
}

/* A signal does not wait behind input that the program does not read. */
static void signals_overtake_input(void **state)
{
    (void)state;
    static struct talk t;
    struct answer a =
        START("stuck", "trap 'echo int; exit 3' INT; while :; do sleep 0.05; done", "--input-open");
    assert_done(&a);
    struct sg_wire_line l = open_carrier(&t, "stuck");
    for (uint64_t at = 0; at + 60000 <= l.room; at += 60000)
        send_data(&t, at, noise, 60000);
    send_frame(&t, &(struct sg_carrier_frame){.kind = SG_CARRIER_SIGNAL, .signal = SIGINT}, NULL);
    a = follow("stuck");
    assert_text(&a, 0, "int\n");
    assert_int_equal(a.last.process.value, 3);
    answer_free(&a);
    while ((l = talk_line(&t)).kind == SG_WIRE_ACCEPTED)
        continue;
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FINISHED);
    (void)talk_end(&t);
}

/* P03 for input: nobody says more than is known. */
static void killed_monitor(void **state)
{
    (void)state;
    static struct talk t;
    struct answer a = START("orphan", "trap '' TERM; echo up; while :; do sleep 1; done", "--input-open");
    pid_t program = (pid_t)a.first.process.pid;
    (void)open_carrier(&t, "orphan");
    a = guest("follow", "--session", "s", "--id", "orphan", "--wait-ms", "10000", NULL);
    assert_text(&a, 0, "up\n");
    answer_free(&a);
    uint64_t v[5];
    started_numbers("orphan", v);
    assert_int_equal(kill((pid_t)v[2], SIGKILL), 0);
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FINISHED);
    (void)talk_end(&t);
    a = CALL("write", "orphan", "--offset", "0", "--data", "eA==");
    assert_error(&a, SG_WF_FINISHED, "");
    a = CALL("cancel", "orphan", "--signal", "15", "--grace-ms", "100"); /* itself, as nobody else is there */
    assert_done(&a);
    wait_until(pid_is_gone, &program);
    assert_int_equal(status("orphan").state, SG_PS_UNKNOWN);
}

/* ---- terminals ---- */

static bool file_is_80x25(const void *path)
{
    const char *t = file_text(path);
    return t && strstr(t, "25 80\n");
}

static void terminal(void **state)
{
    (void)state;
    static struct talk t;
    char script[PATH_MAX + 200];
    char *file = path_in(scratch, "size");
    snprintf(script, sizeof script,
             "stty -echo; stty size; trap 'stty size >%s' WINCH; while ! read l; do :; done; echo got $l",
             file);
    struct answer a = START("tty", script, "--pty", "100x30");
    assert_done(&a);
    assert_true(a.first.process.terminal && a.first.process.takes_input);
    a = guest("follow", "--session", "s", "--id", "tty", "--wait-ms", "10000", NULL);
    assert_text(&a, 0, "30 100\r\n");
    assert_true(a.terminal);
    assert_true(a.first.process.terminal);
    answer_free(&a);
    (void)open_carrier(&t, "tty");
    for (int i = 0; i < 2; i++) { /* over a carrier and by an act */
        if (i == 0)
            send_frame(&t, &(struct sg_carrier_frame){.kind = SG_CARRIER_RESIZE, .cols = 80, .rows = 25},
                       NULL);
        else
            a = CALL("resize", "tty", "--cols", "80", "--rows", "25");
        wait_until(file_is_80x25, file);
    }
    send_data(&t, 0, "hello\r", 6); /* as the key says it */
    a = follow("tty");
    assert_text(&a, 0, "30 100\r\ngot hello\r\n");
    assert_true(a.terminal);
    assert_true(a.last.process.end[1] == 0 && a.last.process.how == SG_HOW_EXIT);
    answer_free(&a);
    struct sg_wire_line l;
    while ((l = talk_line(&t)).kind == SG_WIRE_ACCEPTED)
        continue;
    assert_int_equal(l.fail, SG_WF_FINISHED);
    (void)talk_end(&t);
    a = guest("follow", "--session", "s", "--id", "tty", "--only", "1", "--limit", "5", NULL);
    assert_text(&a, 0, "30 10");
    assert_true(a.terminal);
    answer_free(&a);
}

/* ---- reading ---- */

static void reading_the_tail(void **state)
{
    (void)state;
    struct answer a = run_sh("tail", "printf 0123456789; printf abc >&2");
    answer_free(&a);
    a = guest_from(6, 0, "follow", "--session", "s", "--id", "tail", "--tail", "4", NULL);
    assert_text(&a, 0, "6789");
    assert_text(&a, 1, "abc"); /* shorter than that */
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    answer_free(&a);
    a = guest_from(10, 3, "follow", "--session", "s", "--id", "tail", "--tail", "0", "--limit", "9", NULL);
    assert_int_equal(a.lines, 2);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    a = guest("run", "--session", "s", "--id", "long", "--spec", "h", "--retain", "65536", "--max-output",
              "0", "--", "/bin/sh", "-c", "head -c 300000 /dev/zero; printf end", NULL);
    uint64_t oldest = status("long").oldest[0];
    assert_true(oldest > 0);
    a = guest_from(oldest, 0, "follow", "--session", "s", "--id", "long", "--tail", "9999999", NULL);
    assert_int_equal(a.next[0], 300003); /* from the oldest byte on, without a gap before it */
    assert_int_equal(a.gaps, 0);
    answer_free(&a);
    a = CALL("follow", "tail", "--tail", "4", "--stdout", "3");
    assert_error(&a, SG_WF_USAGE, "");
}

/* Both ways of being told (a `run` by its monitor, a `follow` by notifications), over many output files that begin
 * and go while they are read. */
static void live_output_is_exact_across_files(void **state)
{
    (void)state;
    enum { PIECE = 50021, PIECES = 60 };
    static unsigned char want[2][PIECE * PIECES / 2];
    char script[PATH_MAX + 300];
    char *file = path_in(scratch, "pieces");
    file_write(file, noise, sizeof noise);
    for (size_t i = 0; i < PIECES; i++)
        memcpy(want[i % 2] + i / 2 * PIECE, noise + i * PIECE, PIECE);
    snprintf(script, sizeof script,
             "i=0; while [ $i -lt %d ]; do dd if=%s bs=%d skip=$i count=1 2>/dev/null; "
             "dd if=%s bs=%d skip=$((i+1)) count=1 >&2 2>/dev/null; i=$((i+2)); done",
             PIECES, file, PIECE, file, PIECE);
    for (int i = 0; i < 2; i++) {
        struct answer a;
        if (i == 0) {
            a = guest("run", "--session", "s", "--id", "live0", "--spec", "h", "--retain", "2097152", "--",
                      "/bin/sh", "-c", script, NULL);
        } else {
            a = START("live1", script, "--retain", "2097152");
            assert_done(&a);
            a = follow("live1");
        }
        assert_int_equal(a.last.kind, SG_WIRE_EXIT);
        assert_int_equal(a.gaps, 0);
        for (int s = 0; s < 2; s++) {
            assert_int_equal(a.len[s], sizeof want[s]);
            assert_memory_equal(a.out[s], want[s], sizeof want[s]);
        }
        answer_free(&a);
    }
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Reads D lines until stdout's offset `end`. */
static void read_up_to(struct talk *t, uint64_t end)
{
    for (uint64_t at = 0; at < end;) {
        struct sg_wire_line l = talk_line(t);
        assert_int_equal(l.kind, SG_WIRE_DATA);
        at = l.offset + l.len;
        assert_true(at <= end);
    }
}

/* A follower looks every second whatever it was told; what it is told of it shows sooner: single bytes, more than
 * one block, the beginning of a file, and the end. */
static void changes_are_told_at_once(void **state)
{
    (void)state;
    static struct talk t;
    enum { BURST = 150000, ROUNDS = 6 };
    struct answer a =
        START("soon", "while read n; do head -c $n /dev/zero; done", "--input-open", "--retain", "268435456");
    assert_done(&a);
    talk_open(&t, "follow", "--session", "s", "--id", "soon", NULL);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_HELLO);
    uint64_t end = 0, slowest = 0, input = 0;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        uint64_t begun = now_ms();
        a = CALL("write", "soon", "--offset", number(input), "--data", i % 2 ? "MTUwMDAwCg==" : "MQo=");
        assert_done(&a);
        input = a.first.accepted;
        end += i % 2 ? BURST : 1;
        read_up_to(&t, end);
        slowest = now_ms() - begun > slowest ? now_ms() - begun : slowest;
        (void)poll(NULL, 0, 37 * i % 90); /* at another moment of the follower's second */
    }
    assert_true(slowest < 700);
    uint64_t begun = now_ms();
    a = CALL("close", "soon", "--offset", number(input));
    assert_done(&a);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_EXIT);
    assert_true(now_ms() - begun < 700);
    assert_int_equal(talk_end(&t), 0);
}

static bool is_paused(const void *id)
{
    return status(id).paused;
}

/* Nothing is dropped before it was acknowledged: the program waits. */
static void lossless_waits_for_acks(void **state)
{
    (void)state;
    enum { SIZE = 1000000 };
    char *file = path_in(scratch, "lossless");
    file_write(file, noise, SIZE);
    struct answer a = guest("start", "--session", "s", "--id", "keep", "--spec", "h", "--lossless",
                            "--retain", "131072", "--", "/bin/cat", file, NULL);
    assert_done(&a);
    assert_true(a.first.process.lossless);
    wait_until(is_paused, "keep");
    uint64_t at = 0;
    while (at < SIZE) {
        a = guest_from(at, 0, "follow", "--session", "s", "--id", "keep", "--stdout", number(at), "--wait-ms",
                       "10000", NULL);
        assert_int_equal(a.gaps, 0);
        assert_true(a.len[0] > 0 && a.len[0] <= 512 * 1024);
        assert_memory_equal(a.out[0], noise + at, a.len[0]);
        at = a.next[0];
        answer_free(&a);
        a = CALL("ack", "keep", "--stdout", number(at), "--stderr", "0");
        if (a.last.kind != SG_WIRE_OK)
            assert_error(&a, SG_WF_FINISHED, "");
    }
    a = guest_from(at, 0, "follow", "--session", "s", "--id", "keep", "--stdout", number(at), NULL);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.end[0], SIZE);
    assert_false(a.last.process.output_incomplete);
}

/* ---- scopes ---- */

/* How long the next program's first watcher may take, and its record stays after its scope has ended it. */
static void patience(const char *ms)
{
    setenv("SANDGATE_GUEST_PATIENCE_MS", ms, 1);
}

static void grace_and_then_kill(void **state)
{
    (void)state;
    struct answer a = start_sh("stubborn", "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done");
    a = guest("follow", "--session", "s", "--id", "stubborn", "--wait-ms", "10000", NULL);
    answer_free(&a);
    a = CALL("cancel", "stubborn", "--signal", "15", "--grace-ms", "300");
    assert_done(&a);
    a = follow("stubborn");
    assert_true(a.len[0] >= 8);
    assert_memory_equal(a.out[0], "up\nterm\n", 8);
    assert_int_equal(a.last.process.how, SG_HOW_SIGNAL);
    assert_int_equal(a.last.process.value, SIGKILL);
    answer_free(&a);
}

static void leases_end_programs(void **state)
{
    (void)state;
    patience("3000");
    struct answer a = START("lease", "exec sleep 1000", "--lease-ms", "60000");
    assert_done(&a);
    a = CALL("lease", "lease", "--ttl-ms", "200");
    assert_done(&a);
    a = follow("lease");
    assert_int_equal(a.last.process.how, SG_HOW_SCOPE);
    a = guest("remove", "--session", "s", "--id", "lease", NULL); /* although it would stay for a minute */
    assert_done(&a);
    a = START("lease2", "exec sleep 1000", "--lease-ms", "300");
    a = CALL("lease", "lease2", "--ttl-ms", "0");
    assert_done(&a);
    (void)poll(NULL, 0, 500); /* longer than the lease that it had */
    assert_int_equal(status("lease2").state, SG_PS_RUNNING);
    a = CALL("cancel", "lease2", "--signal", "9", "--grace-ms", "0");
    assert_done(&a);
}

static bool is_over(const void *id)
{
    return status(id).state == SG_PS_FINISHED;
}

/* It lives as long as somebody is attached, and a little longer. */
static void attended(void **state)
{
    (void)state;
    patience("3000");
    struct answer a = START("alone", "echo up; exec sleep 1000", "--unattended-ms", "250");
    assert_done(&a);
    const char *const args[] = {"follow", "--session", "s", "--id", "alone", "--attend", NULL};
    int fd[2];
    pid_t pid[2];
    for (int i = 0; i < 2; i++) {
        pid[i] = guest_spawn(NULL, args, &fd[i]);
        char hello[8];
        wait_fd(fd[i], POLLIN);
        assert_true(read(fd[i], hello, 1) == 1 && hello[0] == 'H');
    }
    a = guest("follow", "--session", "s", "--id", "alone", "--attend", "--wait-ms", "600", "--stdout", "3",
              NULL);
    assert_int_equal(a.last.kind, SG_WIRE_MORE);
    assert_int_equal(status("alone").state, SG_PS_RUNNING);
    assert_int_equal(kill(pid[0], SIGKILL), 0);
    (void)poll(NULL, 0, 500);
    assert_int_equal(status("alone").state, SG_PS_RUNNING); /* the other one is still there */
    close(fd[1]);                                           /* its reader leaves, and so does it */
    wait_until(is_over, "alone");
    assert_int_equal(status("alone").how, SG_HOW_SCOPE);
    close(fd[0]);
    wait_until(pid_is_gone, &pid[1]);
}

/* A `run` is attended by itself. */
static void run_attends(void **state)
{
    (void)state;
    patience("500");
    struct answer a = guest("run", "--session", "s", "--id", "run", "--spec", "h", "--unattended-ms", "100",
                            "--", "/bin/sh", "-c", "sleep 1.2; echo done", NULL);
    assert_text(&a, 0, "done\n");
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    answer_free(&a);
    a = START("never", "exec sleep 1000", "--unattended-ms", "100");
    a = CALL("unattended", "never", "--ms", "0");
    assert_done(&a);
    a = CALL("cancel", "never", "--signal", "9", "--grace-ms", "0");
    assert_done(&a);
}

static void misuse(void **state)
{
    (void)state;
    const char *const bad[][12] = {
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--pty", "80", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--pty", "0x24", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--pty", "80x65536", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--pty", "80x24x3", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--input-data", "QUJ", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--input-data", "", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--input-file", ".up-", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--input-file", ".up-a/b", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--input-file", "guest-0", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--input-file", ".up-a.b", "--", "true"},
        {"run", "--session", "s", "--id", "x", "--spec", "h", "--lossless", "--lossless", "--", "true"},
        {"settle", "--session", "s", "--id", "x", "--lossless"},
        {"write", "--session", "s", "--id", "x", "--offset", "0"},
        {"write", "--session", "s", "--id", "x", "--data", "eA=="},
        {"write", "--session", "s", "--id", "x", "--offset", "-1", "--data", "eA=="},
        {"write", "--session", "s", "--id", "x", "--offset", "0", "--data", "e A="},
        {"close", "--session", "s", "--id", "x"},
        {"resize", "--session", "s", "--id", "x", "--cols", "0", "--rows", "1"},
        {"resize", "--session", "s", "--id", "x", "--cols", "65536", "--rows", "1"},
        {"cancel", "--session", "s", "--id", "x", "--signal", "0", "--grace-ms", "1"},
        {"cancel", "--session", "s", "--id", "x", "--signal", "15"},
        {"ack", "--session", "s", "--id", "x", "--stdout", "1"},
        {"lease", "--session", "s", "--id", "x"},
        {"unattended", "--session", "s", "--id", "x", "--ms", "x"},
        {"input", "--session", "s", "--id", "x", "--", "true"},
        {"watch", "--session", "s"},
        {"watch", "--session", "s", "--id", "x", "--", "x", "0", "0"},
        {"watch", "--session", "s", "--", "x", "0"},
        {"watch", "--session", "s", "--", "../x", "0", "0"},
        {"watch", "--session", "s", "--", "x", "0", "-1"},
        {"follow", "--session", "s", "--id", "x", "--only", "0"},
        {"follow", "--session", "s", "--id", "x", "--tail", "x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd;
        pid_t pid = guest_spawn(NULL, bad[i], &fd);
        struct answer a = answer_read(pid, fd, (uint64_t[2]){0, 0});
        if (a.last.kind != SG_WIRE_ERROR || a.last.fail != SG_WF_USAGE)
            fail_msg("accepted line %zu", i);
        assert_error(&a, SG_WF_USAGE, "");
    }
    struct answer a = guest("run", "--session", "s", "--id", "x", "--spec", "h", "--input-data",
                            "eA==", "--input-file", ".up-a", "--", "true", NULL);
    assert_error(&a, SG_WF_USAGE, "");
}

int main(void)
{
    make_noise();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_data_and_its_end),
        cmocka_unit_test(input_file_is_read_once),
        cmocka_unit_test(writes_at_offsets),
        cmocka_unit_test(input_that_nobody_takes),
        cmocka_unit_test(carriers_come_and_go),
        cmocka_unit_test(a_new_carrier_fences_the_old_one),
        cmocka_unit_test(signals_overtake_input),
        cmocka_unit_test(killed_monitor),
        cmocka_unit_test(terminal),
        cmocka_unit_test(reading_the_tail),
        cmocka_unit_test(live_output_is_exact_across_files),
        cmocka_unit_test(changes_are_told_at_once),
        cmocka_unit_test(lossless_waits_for_acks),
        cmocka_unit_test(grace_and_then_kill),
        cmocka_unit_test(leases_end_programs),
        cmocka_unit_test(attended),
        cmocka_unit_test(run_attends),
        cmocka_unit_test(misuse),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
