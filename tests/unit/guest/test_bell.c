/* How a follower learns of changes: from the monitor, over a connection (U6: many followers of many processes cost
 * no watches, of which a user has few). */
#include "guest/ctl_server.h"
#include "guest/follow.h"
#include "harness.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct open_kinds {
    size_t sockets, watches;
};

static struct open_kinds kinds_of(pid_t pid)
{
    struct open_kinds k = {0};
    char dir[64], path[PATH_MAX], link[PATH_MAX];
    snprintf(dir, sizeof dir, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = '\0';
        k.sockets += !strncmp(link, "socket:", 7);
        k.watches += strstr(link, "inotify") != NULL;
    }
    if (d)
        closedir(d);
    return k;
}

static bool is_connected(const void *pid)
{
    return kinds_of(*(const pid_t *)pid).sockets == 1;
}

static bool is_watching(const void *pid)
{
    return kinds_of(*(const pid_t *)pid).watches == 1;
}

static const char *gated(const char *gate)
{
    static char script[PATH_MAX + 100];
    snprintf(script, sizeof script, "echo a; while [ ! -e %s ]; do sleep 0.02; done; echo b; exit 3", gate);
    return script;
}

static void see_the_end(pid_t pid, int fd, const char *gate)
{
    const uint64_t from[2] = {0, 0};
    file_write(gate, "", 0);
    struct answer a = answer_read(pid, fd, from);
    assert_text(&a, 0, "a\nb\n");
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    assert_int_equal(a.last.process.value, 3);
    answer_free(&a);
}

static pid_t follow(const char *id, int *fd)
{
    const char *const args[] = {"follow", "--session", "s", "--id", id, NULL};
    return guest_spawn(NULL, args, fd);
}

static void followers_hold_a_connection_and_no_watch(void **state)
{
    (void)state;
    int fd;
    const char *gate = path_in(scratch, "gate1");
    struct answer a = start_sh("rung", gated(gate));
    answer_free(&a);
    pid_t pid = follow("rung", &fd);
    wait_until(is_connected, &pid);
    assert_int_equal(kinds_of(pid).watches, 0);
    see_the_end(pid, fd, gate);
}

static char next_ring(int fd)
{
    char c = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    return read(fd, &c, 1) == 1 ? c : 0;
}

static void bells_say_what_changed(void **state)
{
    (void)state;
    const char *one = path_in(scratch, "one"), *two = path_in(scratch, "two"),
               *three = path_in(scratch, "three");
    char script[3 * PATH_MAX + 200];
    snprintf(script, sizeof script,
             "for f in %s %s %s; do while [ ! -e $f ]; do sleep 0.02; done; echo x; done", one, two, three);
    struct answer a = start_sh("says", script);
    answer_free(&a);
    int fd = ctl_open("says", 'B');
    assert_true(fd >= 0);
    assert_int_equal(next_ring(fd), BELL_ALL); /* what was before the connection */
    file_write(one, "", 0);
    assert_int_equal(next_ring(fd), BELL_FILES);
    file_write(two, "", 0);
    assert_int_equal(next_ring(fd), BELL_OUTPUT);
    file_write(three, "", 0);
    char c = next_ring(fd); /* the last output and the end may be one event */
    if (c == BELL_OUTPUT)
        c = next_ring(fd);
    assert_int_equal(c, BELL_ALL);
    close(fd);
}

/* Who finds no place watches the record as before. */
static void more_than_there_is_room_for(void **state)
{
    (void)state;
    int bells[CTL_BELLS], fd;
    const char *gate = path_in(scratch, "gate2");
    struct answer a = start_sh("full", gated(gate));
    answer_free(&a);
    for (size_t i = 0; i < CTL_BELLS; i++) {
        bells[i] = ctl_open("full", 'B');
        assert_int_equal(next_ring(bells[i]), BELL_ALL);
    }
    pid_t pid = follow("full", &fd);
    wait_until(is_watching, &pid);
    see_the_end(pid, fd, gate);
    for (size_t i = 0; i < CTL_BELLS; i++)
        close(bells[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_hold_a_connection_and_no_watch),
        cmocka_unit_test(bells_say_what_changed),
        cmocka_unit_test(more_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
