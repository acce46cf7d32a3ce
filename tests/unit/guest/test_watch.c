/* One call that watches many processes: S1, and the notifications that it rests on. */
#include "talk.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WATCH_MAX = 256 };

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A program that says `word` (and LF) when it is told to, and then sleeps, or ends. */
static char *told_program(const char *id, const char *word, bool ends)
{
    char name[80], script[PATH_MAX + 200];
    snprintf(name, sizeof name, "fifo-%s", id);
    char *fifo = path_in(scratch, name);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(script, sizeof script, "read x <%s; %s%s; %s", fifo, *word ? "echo " : ":", word,
             ends ? "exit 7" : "exec sleep 1000");
    struct answer a = start_sh(id, script);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    return fifo;
}

static struct sg_wire_process told_of(struct talk *t, const char *id)
{
    struct sg_wire_line l = talk_line(t);
    assert_int_equal(l.kind, SG_WIRE_PROCESS);
    if (id)
        assert_string_equal(l.process.id, id);
    return l.process;
}

static void end_with_more(struct talk *t)
{
    assert_int_equal(talk_line(t).kind, SG_WIRE_MORE);
    assert_int_equal(talk_end(t), 0);
}

static void assert_quiet(const struct talk *t)
{
    struct pollfd p = {.fd = t->out, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 150), 0);
}

static void nothing_was_ever_started(void **state)
{
    (void)state;
    static struct talk t;
    for (int i = 0; i < 2; i++) { /* without a root, and without a session in it */
        talk_open(&t, "watch", "--session", "s", "--", "a", "0", "0", "b", "5", "0", NULL);
        assert_int_equal(told_of(&t, "a").state, SG_PS_NOT_STARTED);
        assert_int_equal(told_of(&t, "b").state, SG_PS_NOT_STARTED);
        end_with_more(&t);
        struct answer a =
            guest("settle", "--session", "other", "--id", "a", NULL); /* from here on there is a root */
        assert_int_equal(a.last.kind, SG_WIRE_OK);
    }
}

/* Each is told of when there is something new of it, and once. */
static void each_when_it_is_news(void **state)
{
    (void)state;
    static struct talk t;
    char *out = told_program("out", "word", false), *silent = told_program("silent", "", true);
    struct answer a = run_sh("past", "echo old; exit 3");
    answer_free(&a);
    a = guest("settle", "--session", "s", "--id", "tomb", NULL);
    a = start_sh("known", "printf abc; printf de >&2; exec sleep 1000");
    a = guest("follow", "--session", "s", "--id", "known", "--wait-ms", "10000", NULL);
    while (a.next[0] < 3 || a.next[1] < 2) {
        answer_free(&a);
        a = guest("follow", "--session", "s", "--id", "known", "--wait-ms", "50", NULL);
    }
    answer_free(&a);
    talk_open(&t, "watch", "--session", "s", "--", "out", "0", "0", "past", "4", "0", "silent", "0", "0",
              "known", "3", "2", "none", "0", "0", "tomb", "0", "0", NULL);
    struct sg_wire_process p = told_of(&t, "past");
    assert_true(p.state == SG_PS_FINISHED && p.how == SG_HOW_EXIT && p.value == 3 && p.end[0] == 4);
    assert_int_equal(told_of(&t, "none").state, SG_PS_NOT_STARTED);
    assert_int_equal(told_of(&t, "tomb").state, SG_PS_NOT_STARTED);
    assert_quiet(&t); /* of `known` all that there is was seen */
    uint64_t begun = now_ms();
    file_write(out, "x\n", 2);
    p = told_of(&t, "out");
    assert_true(p.state == SG_PS_RUNNING && p.end[0] == 5);
    assert_true(now_ms() - begun < 500); /* told by a notification, not by looking every second */
    file_write(silent, "x\n", 2);
    p = told_of(&t, "silent");
    assert_true(p.state == SG_PS_FINISHED && p.value == 7 && p.end[0] == 0);
    a = guest("signal", "--session", "s", "--id", "known", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    p = told_of(&t, "known");
    assert_true(p.how == SG_HOW_SIGNAL && p.end[0] == 3 && p.end[1] == 2);
    end_with_more(&t); /* all were told of */
    /* One byte more than was seen is news, on either stream. */
    talk_open(&t, "watch", "--session", "s", "--", "known", "2", "2", NULL);
    (void)told_of(&t, "known");
    end_with_more(&t);
}

static void its_time_is_over(void **state)
{
    (void)state;
    static struct talk t;
    struct answer a = start_sh("quiet", "exec sleep 1000");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    setenv("SANDGATE_GUEST_LIFE_MS", "250", 1);
    uint64_t begun = now_ms();
    talk_open(&t, "watch", "--session", "s", "--", "quiet", "0", "0", NULL);
    end_with_more(&t);
    assert_true(now_ms() - begun >= 250);
    unsetenv("SANDGATE_GUEST_LIFE_MS");
}

/* A monitor that is killed, and one that is removed, are ends too. */
static void ends_without_a_word(void **state)
{
    (void)state;
    static struct talk t;
    struct answer a = start_sh("lost", "exec sleep 1000");
    a = start_sh("removed", "exec sleep 1000");
    uint64_t v[5];
    started_numbers("lost", v);
    talk_open(&t, "watch", "--session", "s", "--", "lost", "0", "0", "removed", "0", "0", NULL);
    assert_quiet(&t);
    uint64_t begun = now_ms();
    assert_int_equal(kill((pid_t)v[2], SIGKILL), 0);
    struct sg_wire_process p = told_of(&t, "lost");
    assert_true(p.state == SG_PS_UNKNOWN && p.how == SG_HOW_UNKNOWN && p.output_incomplete);
    assert_true(now_ms() - begun < 500);
    a = guest("remove", "--session", "s", "--id", "removed", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    p = told_of(&t, "removed");
    assert_true(p.state == SG_PS_FINISHED || p.state == SG_PS_NOT_STARTED);
    end_with_more(&t);
    a = guest("remove", "--session", "s", "--id", "lost", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

/* A process that is named twice, with different offsets, is two. */
static void named_twice(void **state)
{
    (void)state;
    static struct talk t;
    char *fifo = told_program("twice", "0123456789", false);
    talk_open(&t, "watch", "--session", "s", "--", "twice", "0", "0", "twice", "100", "0", NULL);
    file_write(fifo, "x\n", 2);
    assert_int_equal(told_of(&t, "twice").end[0], 11);
    assert_quiet(&t);
    struct answer a = guest("signal", "--session", "s", "--id", "twice", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_int_equal(told_of(&t, "twice").how, SG_HOW_SIGNAL);
    end_with_more(&t);
}

/* What cannot be a record is no reason to stay silent about the others. */
static void records_that_are_none(void **state)
{
    (void)state;
    static struct talk t;
    file_write(path_in(root, "s/file"), "x", 1);
    assert_int_equal(symlink("quiet", path_in(root, "s/link")), 0);
    assert_int_equal(mkdir(path_in(root, "s/empty"), 0700), 0);
    talk_open(&t, "watch", "--session", "s", "--", "file", "0", "0", "link", "0", "0", "empty", "0", "0",
              NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(told_of(&t, NULL).state, SG_PS_NOT_STARTED);
    end_with_more(&t);
}

static size_t open_descriptors(pid_t pid)
{
    size_t n = 0;
    for (int fd = 0; fd < 300; fd++) {
        char path[64], to[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        n += readlink(path, to, sizeof to) > 0;
    }
    return n;
}

/* U6: as many as one call takes cost no descriptors each, and each of them is heard. */
static void as_many_as_one_call_takes(void **state)
{
    (void)state;
    static struct talk t;
    enum { LIVE = 24 };
    static char ids[WATCH_MAX + 1][16];
    const char *args[3 * (WATCH_MAX + 1) + 5] = {"watch", "--session", "s", "--"};
    char *fifos[LIVE];
    size_t n = 4;
    for (size_t i = 0; i <= WATCH_MAX; i++) { /* every one of few processes many times */
        snprintf(ids[i], sizeof ids[i], "many%zu", i % LIVE);
        if (i < LIVE)
            fifos[i] = told_program(ids[i], "now", false);
        args[n++] = ids[i];
        args[n++] = "0";
        args[n++] = "0";
    }
    int fd;
    pid_t pid = guest_spawn(NULL, args, &fd);
    struct answer a = answer_read(pid, fd, (uint64_t[2]){0, 0});
    assert_error(&a, SG_WF_USAGE, ""); /* one too many */
    args[n - 3] = NULL;
    t = (struct talk){.in = -1};
    t.pid = guest_spawn(NULL, args, &t.out);
    assert_quiet(&t);
    assert_true(open_descriptors(t.pid) < 12);
    size_t told = 0;
    for (size_t i = 0; i < LIVE; i++) {
        file_write(fifos[i], "x\n", 2);
        for (size_t k = 0; k < WATCH_MAX / LIVE + (i < WATCH_MAX % LIVE); k++, told++)
            (void)told_of(&t, ids[i]);
    }
    assert_int_equal(told, WATCH_MAX);
    end_with_more(&t);
}

static bool is_over(const void *id)
{
    struct answer a = guest("status", "--session", "s", "--id", (const char *)id, NULL);
    return a.process[0].state == SG_PS_FINISHED;
}

/* Watching is being there: the process lives until it is told of, or the watcher goes. */
static void watchers_attend(void **state)
{
    (void)state;
    static struct talk t;
    setenv("SANDGATE_GUEST_PATIENCE_MS", "3000", 1);
    struct answer a = guest("start", "--session", "s", "--id", "kept", "--spec", "h", "--unattended-ms",
                            "200", "--", "/bin/sleep", "1000", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    talk_open(&t, "watch", "--session", "s", "--attend", "--", "kept", "0", "0", NULL);
    for (int i = 0; i < 4; i++)
        assert_quiet(&t);
    assert_int_equal(kill(t.pid, SIGKILL), 0);
    assert_int_equal(talk_end(&t), -SIGKILL);
    wait_until(is_over, "kept");
    a = guest("status", "--session", "s", "--id", "kept", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_SCOPE);
    unsetenv("SANDGATE_GUEST_PATIENCE_MS");
}

static void ends_with_its_reader(void **state)
{
    (void)state;
    static struct talk t;
    talk_open(&t, "watch", "--session", "s", "--", "quiet", "0", "0", NULL);
    assert_quiet(&t);
    close(t.out);
    wait_until(pid_is_gone, &t.pid);
    close(t.in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_was_ever_started),
        cmocka_unit_test(each_when_it_is_news),
        cmocka_unit_test(its_time_is_over),
        cmocka_unit_test(ends_without_a_word),
        cmocka_unit_test(named_twice),
        cmocka_unit_test(records_that_are_none),
        cmocka_unit_test(as_many_as_one_call_takes),
        cmocka_unit_test(watchers_attend),
        cmocka_unit_test(ends_with_its_reader),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
