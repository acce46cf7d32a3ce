/* `input` and the calls that act once, against a monitor that the test plays itself: what is handed on, both ways,
 * whatever the other side does. */
#include "talk.h"

#include "base/core/carrier.h"
#include "guest/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

static const char id[] = "played";
static int record = -1; /* its directory */

/* A running program, whose monitor's place at the socket is ours. */
static int setup(void **state)
{
    if (harness_setup(state))
        return -1;
    struct answer a = start_sh(id, "exec sleep 1000");
    record = open(path_in(root, "s/played"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return a.last.kind == SG_WIRE_OK && record >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    close(record);
    return harness_teardown(state);
}

static int play(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/ctl", record);
    (void)unlinkat(record, "ctl", 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* The next connection, which has to say what for. */
static int take(int listener, char what)
{
    wait_fd(listener, POLLIN);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    wait_fd(fd, POLLIN);
    char c;
    assert_int_equal(read(fd, &c, 1), 1);
    assert_int_equal(c, what);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads n bytes; fails when fewer come. */
static void hear(int fd, void *buf, size_t n)
{
    for (size_t at = 0; at < n;) {
        wait_fd(fd, POLLIN);
        ssize_t r = read(fd, (char *)buf + at, n - at);
        assert_true(r > 0);
        at += (size_t)r;
    }
}

static void hear_end(int fd)
{
    char c;
    wait_fd(fd, POLLIN);
    assert_int_equal(read(fd, &c, 1), 0);
}

static void open_input(struct talk *t)
{
    talk_open(t, "input", "--session", "s", "--id", id, NULL);
    size_t n;
    assert_string_equal(talk_text(t, &n), SG_CARRIER_MAGIC);
}

/* `input` up to its C line; returns the monitor's end. */
static int open_carrier(struct talk *t, int listener)
{
    open_input(t);
    int fd = take(listener, 'I');
    say(fd, "C 3 100 1048576\n");
    struct sg_wire_line l = talk_line(t);
    assert_int_equal(l.kind, SG_WIRE_CARRIER);
    assert_true(l.epoch == 3 && l.accepted == 100 && l.room == 1048576);
    return fd;
}

static unsigned char noise[2 * 1024 * 1024];

static void make_noise(void)
{
    uint32_t x = 2463534242u;
    for (size_t i = 0; i < sizeof noise; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        noise[i] = (unsigned char)(x >> 11);
    }
}

static void assert_accepted(struct talk *t, uint64_t accepted)
{
    struct sg_wire_line l = talk_line(t);
    assert_int_equal(l.kind, SG_WIRE_ACCEPTED);
    assert_int_equal(l.accepted, accepted);
}

static void bytes_go_on_and_lines_come_back(void **state)
{
    (void)state;
    static struct talk t;
    static unsigned char got[5000];
    int listener = play(), fd = open_carrier(&t, listener);
    talk_send(&t, noise, 1);
    hear(fd, got, 1); /* one byte is not kept waiting for more */
    say(fd, "A 101 5 -\n");
    assert_accepted(&t, 101);
    talk_send(&t, noise + 1, sizeof got - 1);
    hear(fd, got + 1, sizeof got - 1);
    assert_memory_equal(got, noise, sizeof got);
    say(fd, "A 7");
    say(fd, "00 5 c"); /* a line in pieces */
    say(fd, "x\n");
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ACCEPTED && l.accepted == 700 && l.closed && l.unwanted);
    talk_send(&t, "last", 4);
    talk_close_input(&t);
    hear(fd, got, 4);
    assert_memory_equal(got, "last", 4);
    hear_end(fd); /* all was handed over, and is acknowledged before the end is told */
    say(fd, "A 704 5 -\nK\n");
    assert_accepted(&t, 704);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_OK);
    assert_int_equal(talk_end(&t), 0);
    close(fd);
    close(listener);
}

/* Nobody reads the answers: input goes on, and the newest answer is there in the end. */
static void unread_answers_hold_nothing_up(void **state)
{
    (void)state;
    enum { ANSWERS = 60000 };
    static struct talk t;
    unsigned char got[64];
    int listener = play(), fd = open_carrier(&t, listener);
    for (int i = 1; i <= ANSWERS; i++) {
        char line[64];
        snprintf(line, sizeof line, "A %d 1048576 -\n", i);
        wait_fd(fd, POLLOUT);
        say(fd, line);
        if (i % 1000 == 0) {
            talk_send(&t, noise, sizeof got);
            hear(fd, got, sizeof got);
            assert_memory_equal(got, noise, sizeof got);
        }
    }
    talk_close_input(&t);
    hear_end(fd);
    say(fd, "K\n");
    uint64_t last = 0;
    struct sg_wire_line l;
    size_t lines = 0;
    while ((l = talk_line(&t)).kind == SG_WIRE_ACCEPTED) {
        assert_true(l.accepted > last);
        last = l.accepted;
        lines++;
    }
    assert_int_equal(last, ANSWERS);
    assert_true(lines < ANSWERS); /* what a pipe holds, and the newest */
    assert_int_equal(l.kind, SG_WIRE_OK);
    assert_int_equal(talk_end(&t), 0);
    close(fd);
    close(listener);
}

/* The monitor reads nothing: our memory does not grow, its answers come through, and nothing is lost. */
static void unread_input_holds_no_answer_up(void **state)
{
    (void)state;
    static struct talk t;
    static unsigned char got[sizeof noise];
    int listener = play(), fd = open_carrier(&t, listener);
    assert_int_equal(fcntl(t.in, F_SETFL, O_NONBLOCK), 0);
    size_t sent = 0;
    for (int quiet = 0; quiet < 5 && sent < sizeof noise;) {
        ssize_t n = write(t.in, noise + sent, sizeof noise - sent);
        sent += n > 0 ? (size_t)n : 0;
        struct pollfd p = {.fd = t.in, .events = POLLOUT};
        quiet = poll(&p, 1, 100) > 0 ? 0 : quiet + 1;
    }
    assert_true(sent < 1024 * 1024); /* a pipe, our block, a socket's buffer */
    say(fd, "A 200 0 -\n");
    assert_accepted(&t, 200);
    for (size_t have = 0; have < sizeof got;) {
        if (sent < sizeof noise) {
            ssize_t n = write(t.in, noise + sent, sizeof noise - sent);
            sent += n > 0 ? (size_t)n : 0;
        }
        wait_fd(fd, POLLIN);
        ssize_t n = read(fd, got + have, sizeof got - have);
        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_memory_equal(got, noise, sizeof noise);
    say(fd, "E fenced - another carrier\n");
    close(fd);
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FENCED);
    assert_string_equal(l.text, "another carrier");
    assert_int_equal(talk_end(&t), 1);
    close(listener);
}

/* The monitor's last word counts although input was on its way that it did not read. */
static void last_word_of_a_monitor_that_closed(void **state)
{
    (void)state;
    static struct talk t;
    int listener = play(), fd = open_carrier(&t, listener);
    say(fd, "A 150 0 x\nE finished - the process has ended\n");
    talk_send(&t, noise, 30000);
    close(fd);
    assert_accepted(&t, 150);
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FINISHED);
    assert_int_equal(talk_end(&t), 1);
    close(listener);
}

static void one_connection_too_many_is_tried_again(void **state)
{
    (void)state;
    static struct talk t;
    char got[4];
    int listener = play();
    open_input(&t);
    talk_send(&t, "abcd", 4);
    for (int i = 0; i < 3; i++)
        close(take(listener, 'I'));
    int fd = take(listener, 'I');
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 50), 0); /* nothing is sent before the carrier is open */
    say(fd, "C 1 0 9\n");
    assert_int_equal(talk_line(&t).kind, SG_WIRE_CARRIER);
    hear(fd, got, 4);
    assert_memory_equal(got, "abcd", 4);
    close(fd); /* without a word, and the process lives: what was accepted is unknown */
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_INTERNAL);
    assert_string_equal(l.errno_name, "ECONNRESET");
    assert_int_equal(talk_end(&t), 1);
    close(listener);
}

/* A program may listen in its monitor's place: what it says is taken for nothing but what it is. */
static void nonsense_ends_a_carrier(void **state)
{
    (void)state;
    static struct talk t;
    static char endless[8000];
    memset(endless, 'A', sizeof endless - 1);
    const char *const bad[] = {"K\n",
                               "A 1 2 -\n",
                               "C 1 2 3\nC 2 2 3\n",
                               "D 1 0 QUJD\n",
                               "\n",
                               "C 1 2 3 4\n",
                               "C 1 2 3\nA 1\n",
                               "C 1 2 3\nK\nA 1 2 -\n",
                               "M\n",
                               endless,
                               "H running 0 0 0 0 1 2 - 0 a\n"};
    int listener = play();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        open_input(&t);
        int fd = take(listener, 'I');
        say(fd, bad[i]);
        struct sg_wire_line l = talk_line(&t);
        if (l.kind == SG_WIRE_CARRIER)
            l = talk_line(&t);
        assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_INTERNAL);
        assert_string_equal(l.errno_name, "EPROTO");
        assert_int_equal(talk_end(&t), 1);
        close(fd);
    }
    close(listener);
}

/* After its time an input ends by itself, with what it had read handed over and acknowledged. */
static void time_is_over(void **state)
{
    (void)state;
    static struct talk t;
    char got[3];
    int listener = play();
    setenv("SANDGATE_GUEST_LIFE_MS", "300", 1);
    int fd = open_carrier(&t, listener);
    talk_send(&t, "abc", 3);
    hear(fd, got, 3);
    hear_end(fd);
    say(fd, "A 103 5 -\nK\n");
    assert_accepted(&t, 103);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_MORE);
    assert_int_equal(talk_end(&t), 0);
    unsetenv("SANDGATE_GUEST_LIFE_MS");
    close(fd);
    close(listener);
}

static void what_is_no_socket(void **state)
{
    (void)state;
    static struct talk t;
    const struct {
        enum sg_wire_fail fail;
        const char *name;
    } cases[] = {{SG_WF_NO_INPUT, "nothing"},
                 {SG_WF_NO_INPUT, "file"},
                 {SG_WF_NO_INPUT, "link"},
                 {SG_WF_FINISHED, "nobody listens"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int listener = play();
        if (i < 3)
            assert_int_equal(renameat(record, "ctl", record, "other"), 0);
        if (i == 1)
            file_write(path_in(root, "s/played/ctl"), "x", 1);
        if (i == 2) /* to a socket that somebody listens at */
            assert_int_equal(symlinkat("other", record, "ctl"), 0);
        if (i == 3)
            close(listener);
        open_input(&t);
        struct sg_wire_line l = talk_line(&t);
        assert_int_equal(l.kind, SG_WIRE_ERROR);
        assert_string_equal(sg_wire_fail_name(l.fail), sg_wire_fail_name(cases[i].fail));
        assert_int_equal(talk_end(&t), 1);
        struct answer a = guest("lease", "--session", "s", "--id", id, "--ttl-ms", "5", NULL);
        assert_error(&a, cases[i].fail, "");
        (void)unlinkat(record, "ctl", 0);
        (void)unlinkat(record, "other", 0);
        if (i != 3)
            close(listener);
    }
}

/* U5: a terminal carries every byte, echoes none, and is left as it was. */
static void terminal_is_a_plain_pipe(void **state)
{
    (void)state;
    static struct talk t;
    unsigned char all[256], got[256];
    size_t n;
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (unsigned char)i;
    int listener = play();
    talk_open_terminal(&t, "input", "--session", "s", "--id", id, NULL);
    const char *text = talk_text(&t, &n); /* it is raw by now: no CR, and nothing was there before */
    assert_string_equal(text, SG_CARRIER_MAGIC);
    int fd = take(listener, 'I');
    say(fd, "C 1 0 9\n");
    assert_string_equal(talk_text(&t, &n), "C 1 0 9");
    talk_send(&t, all, sizeof all);
    hear(fd, got, sizeof got);
    assert_memory_equal(got, all, sizeof all);
    for (size_t i = 0; i < 100; i++) { /* more than a line discipline would keep of a line */
        talk_send(&t, noise + i * 250, 250);
        hear(fd, got, 250);
        assert_memory_equal(got, noise + i * 250, 250);
    }
    say(fd, "A 9 0 -\n");
    assert_string_equal(talk_text(&t, &n), "A 9 0 -"); /* and none of it came back */
    say(fd, "E fenced - x\n");
    assert_string_equal(talk_text(&t, &n), "E fenced - x");
    assert_int_equal(talk_end(&t), 1);
    close(fd);
    close(listener);
}

static void terminal_settings_come_back(void **state)
{
    (void)state;
    static struct talk t;
    int listener = play();
    size_t n;
    talk_open_terminal(&t, "input", "--session", "s", "--id", id, NULL);
    int slave = open(ptsname(t.out), O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct termios during, after;
    (void)talk_text(&t, &n);
    assert_int_equal(tcgetattr(slave, &during), 0);
    assert_int_equal(during.c_lflag & (ICANON | ECHO | ISIG | IEXTEN), 0);
    assert_int_equal(during.c_iflag & (IXON | IXOFF | ICRNL | ISTRIP), 0);
    assert_int_equal(during.c_oflag & OPOST, 0);
    int fd = take(listener, 'I');
    say(fd, "E finished - x\n");
    (void)talk_text(&t, &n);
    wait_until(pid_is_gone, &t.pid);
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_true((after.c_lflag & ICANON) && (after.c_lflag & ECHO) && (after.c_oflag & OPOST));
    assert_false(fcntl(slave, F_GETFL) & O_NONBLOCK);
    close(slave);
    assert_int_equal(talk_end(&t), 1);
    close(fd);
    close(listener);
}

static void magic_comes_before_every_failure(void **state)
{
    (void)state;
    static struct talk t;
    size_t n;
    talk_open(&t, "input", "--session", "s", NULL);
    assert_string_equal(talk_text(&t, &n), SG_CARRIER_MAGIC);
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_USAGE);
    assert_int_equal(talk_end(&t), 64);
    talk_open(&t, "input", "--session", "s", "--id", "never", NULL);
    assert_string_equal(talk_text(&t, &n), SG_CARRIER_MAGIC);
    l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_ERROR && l.fail == SG_WF_NO_RECORD);
    assert_int_equal(talk_end(&t), 1);
}

/* Whoever listened is gone: no carrier stays behind that would be in the next one's way. */
static void ends_with_its_reader(void **state)
{
    (void)state;
    static struct talk t;
    int listener = play(), fd = open_carrier(&t, listener);
    close(t.out);
    wait_until(pid_is_gone, &t.pid);
    hear_end(fd);
    close(t.in);
    close(fd);
    close(listener);
}

/* ---- acts ---- */

/* A call, the act that it has to say, and the answer of the monitor. */
static struct answer act(int listener, const char *const *args, const char *want, const char *answer)
{
    char got[256] = "";
    int out;
    pid_t pid = guest_spawn(NULL, args, &out);
    int fd = take(listener, 'A');
    hear(fd, got, strlen(want));
    assert_string_equal(got, want);
    say(fd, answer);
    close(fd);
    return answer_read(pid, out, (uint64_t[2]){0, 0});
}

static void acts_and_their_answers(void **state)
{
    (void)state;
    const struct {
        const char *args[12];
        const char *act;
    } acts[] = {
        {{"write", "--offset", "7", "--data", "QUJDRA=="}, "W 7 QUJDRA==\n"},
        {{"close", "--offset", "12"}, "C 12\n"},
        {{"resize", "--cols", "80", "--rows", "24"}, "R 80 24\n"},
        {{"cancel", "--signal", "15", "--grace-ms", "500"}, "T 15 500\n"},
        {{"ack", "--stdout", "3", "--stderr", "4"}, "K 3 4\n"},
        {{"lease", "--ttl-ms", "9000"}, "L 9000\n"},
        {{"unattended", "--ms", "0"}, "U 0\n"},
    };
    int listener = play();
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        const char *args[16] = {acts[i].args[0], "--session", "s", "--id", id};
        for (size_t k = 1; acts[i].args[k]; k++)
            args[4 + k] = acts[i].args[k];
        struct answer a = act(listener, args, acts[i].act, "K\n");
        assert_int_equal(a.last.kind, SG_WIRE_OK);
        assert_true(a.lines == 1 && a.rc == 0);
        a = act(listener, args, acts[i].act, "A 11 22 cx\n");
        assert_int_equal(a.lines, 2);
        assert_true(a.first.kind == SG_WIRE_ACCEPTED && a.first.accepted == 11 && a.first.closed);
        assert_int_equal(a.last.kind, SG_WIRE_OK);
        a = act(listener, args, acts[i].act, "E offset - accepted 5\n");
        assert_error(&a, SG_WF_OFFSET, "");
        assert_string_equal(a.last.text, "accepted 5");
        a = act(listener, args, acts[i].act, "D 1 0 QUJD\n");
        assert_error(&a, SG_WF_INTERNAL, "EPROTO");
        a = act(listener, args, acts[i].act, "K");
        assert_error(&a, SG_WF_INTERNAL, "EPROTO");
    }
    /* Closed without a word: said again. */
    const char *const args[] = {"lease", "--session", "s", "--id", id, "--ttl-ms", "5", NULL};
    int out;
    pid_t pid = guest_spawn(NULL, args, &out);
    close(take(listener, 'A'));
    int fd = take(listener, 'A');
    say(fd, "K\n"); /* answered before it was asked */
    close(fd);
    struct answer a = answer_read(pid, out, (uint64_t[2]){0, 0});
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    close(listener);
}

/* The most that one write may have travels whole, through a socket that holds less. */
static void largest_write(void **state)
{
    (void)state;
    static char text[GUEST_WRITE_MAX / 3 * 4 + 5], got[sizeof text + 16];
    memset(text, 'Q', GUEST_WRITE_MAX / 3 * 4);
    const char *const args[] = {"write", "--session", "s", "--id", id, "--offset", "0", "--data", text, NULL};
    int listener = play(), out;
    pid_t pid = guest_spawn(NULL, args, &out);
    int fd = take(listener, 'A');
    hear(fd, got, 4 + strlen(text) + 1);
    assert_memory_equal(got, "W 0 ", 4);
    assert_memory_equal(got + 4, text, strlen(text));
    assert_int_equal(got[4 + strlen(text)], '\n');
    say(fd, "A 73728 0 -\n");
    close(fd);
    struct answer a = answer_read(pid, out, (uint64_t[2]){0, 0});
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    memset(text + strlen(text), 'Q', 4);
    a = guest("write", "--session", "s", "--id", id, "--offset", "0", "--data", text, NULL);
    assert_error(&a, SG_WF_USAGE, "");
    close(listener);
}

int main(void)
{
    make_noise();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_on_and_lines_come_back),
        cmocka_unit_test(unread_answers_hold_nothing_up),
        cmocka_unit_test(unread_input_holds_no_answer_up),
        cmocka_unit_test(last_word_of_a_monitor_that_closed),
        cmocka_unit_test(one_connection_too_many_is_tried_again),
        cmocka_unit_test(nonsense_ends_a_carrier),
        cmocka_unit_test(time_is_over),
        cmocka_unit_test(what_is_no_socket),
        cmocka_unit_test(terminal_is_a_plain_pipe),
        cmocka_unit_test(terminal_settings_come_back),
        cmocka_unit_test(magic_comes_before_every_failure),
        cmocka_unit_test(ends_with_its_reader),
        cmocka_unit_test(acts_and_their_answers),
        cmocka_unit_test(largest_write),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
