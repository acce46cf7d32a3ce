/* Drives in boxes: bound for reading and writing, frozen copies, forks, and what a hostile tree can do.  (E9) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "box_fixture.h"
#include "emulator/layers_drives.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct fixture fx;

static int open_all(void **state)
{
    (void)state;
    return fixture_open(&fx, false) ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    fixture_close(&fx);
    return 0;
}

static void sh(struct session *s, const char *line, const char *want)
{
    struct result r;
    session_sh(s, line, &r);
    assert_int_equal(r.error, 0);
    assert_string_equal(r.out, want);
}

static void drop(struct session *s)
{
    session_stop(s);
    assert_int_equal(layers_session_drop(fx.layers, s->id), 0);
}

/* Starts a session with the drive at /data; fresh: it was never bound before. */
static void with_drive(struct session *s, const char *id, const char *drive, bool fresh)
{
    char path[LAYERS_DRIVE_PATH];
    layers_drive_path(fx.layers, drive, path);
    const struct box_mount m = {.source = path, .target = "/data", .give = fresh};
    assert_int_equal(session_start_mounted(&fx, s, id, NULL, &m, 1), 0);
}

/* A session with a frozen copy of the drive at /mnt/a b/ro. */
static void with_copy(struct session *s, const char *id, const char *drive)
{
    struct layers_session dirs;
    char path[LAYERS_DRIVE_PATH], err[BOX_TEXT];
    assert_int_equal(layers_session_make(fx.layers, id, &dirs), 0);
    assert_int_equal(layers_drive_freeze(fx.layers, drive, id, 0, path, err), 0);
    const struct box_mount m = {.source = path, .target = "/mnt/a b/ro", .read_only = true};
    assert_int_equal(session_start_mounted(&fx, s, id, NULL, &m, 1), 0);
}

/* What one session writes the next one finds; it belongs to the sandbox user and is in no snapshot. */
static void test_read_write(void **state)
{
    (void)state;
    struct session s;
    bool used = true;
    uint64_t size = 0;
    assert_int_equal(layers_drive_make(fx.layers, "d1"), 0);
    assert_int_equal(layers_drive_used(fx.layers, "d1", &used), 0);
    assert_false(used);
    with_drive(&s, "w1", "d1", true);
    sh(&s, "cd /data && mkdir sub && echo one > sub/f && ln -s sub/f l && ln sub/f h && chmod 640 sub/f", "");
    sh(&s, "mknod /data/dev c 1 3 2>/dev/null || echo refused", "refused\n");
    session_stop(&s);
    assert_int_equal(layers_seal(fx.layers, "w1", "without", &size), 0);
    assert_int_equal(layers_drive_used(fx.layers, "d1", &used), 0);
    assert_true(used);

    const char *one[] = {"without", NULL};
    assert_int_equal(session_start(&fx, &s, "w2", one), 0);
    sh(&s, "ls -A /data", "");
    drop(&s);
    with_drive(&s, "w3", "d1", false);
    sh(&s, "cat /data/l; echo two >> /data/sub/f; stat -c %a /data/sub/f", "one\n640\n");
    sh(&s, "rm -r /data/sub && ls /data | tr '\\n' ' '", "h l ");
    drop(&s);
    assert_int_equal(layers_remove(fx.layers, "without"), 0);
    assert_int_equal(layers_drive_remove(fx.layers, "d1"), 0);
}

/* A frozen copy is whole, later changes do not reach it, and nobody inside can write to it. */
static void test_frozen(void **state)
{
    (void)state;
    struct session w, r;
    assert_int_equal(layers_drive_make(fx.layers, "d2"), 0);
    with_drive(&w, "f1", "d2", true);
    sh(&w,
       "cd /data && mkdir -p deep/er && echo x > deep/er/f && ln deep/er/f h && ln -s /etc/passwd out && "
       "mkfifo p"
       " && chmod 700 deep && touch -d '2001-02-03 04:05:06 UTC' deep/er/f",
       "");
    with_copy(&r, "f2", "d2");
    sh(&w, "echo later > /data/later; echo more >> /data/h", "");
    sh(&r, "cd '/mnt/a b/ro' && cat deep/er/f h; ls | tr '\\n' ' '; readlink out; stat -c %a deep",
       "x\nx\ndeep h out p /etc/passwd\n700\n");
    sh(&r, "cd '/mnt/a b/ro' && stat -c %Y deep/er/f; test deep/er/f -ef h && echo same",
       "981173106\nsame\n");
    sh(&r, "touch '/mnt/a b/ro/new' 2>&1 | grep -c 'Read-only file system'", "1\n");
    sh(&r, "sudo -n touch '/mnt/a b/ro/new' 2>/dev/null || echo refused", "refused\n");
    sh(&r, "sudo -n mount -o remount,rw '/mnt/a b/ro' 2>/dev/null || echo refused", "refused\n");
    drop(&r);
    drop(&w);
    assert_int_equal(layers_drive_remove(fx.layers, "d2"), 0);
}

static void test_fork(void **state)
{
    (void)state;
    struct session s;
    char err[BOX_TEXT];
    assert_int_equal(layers_drive_make(fx.layers, "d3"), 0);
    with_drive(&s, "k1", "d3", true);
    sh(&s, "echo from > /data/f && chmod 0 /data/f && chmod 500 /data", "");
    drop(&s);
    assert_int_equal(layers_drive_fork(fx.layers, "d3", "d4", err), 0);
    assert_int_not_equal(layers_drive_fork(fx.layers, "d3", "d4", err), 0); /* is there */
    assert_int_not_equal(layers_drive_fork(fx.layers, "no", "d5", err), 0);
    with_drive(&s, "k2", "d4", false);
    sh(&s, "chmod 700 /data; chmod 600 /data/f; cat /data/f; echo own > /data/g; stat -c %u /data",
       box_host_tier(fx.host) == BOX_TIER_SINGLE_ID ? "from\n0\n" : "from\n1000\n");
    drop(&s);
    with_drive(&s, "k3", "d3", false);
    sh(&s, "ls /data", "f\n");
    drop(&s);
    assert_int_equal(layers_drive_remove(fx.layers, "d3"), 0);
    assert_int_equal(layers_drive_remove(fx.layers, "d4"), 0);
}

static bool only_keep(void *arg, const char *id)
{
    (void)arg;
    return strcmp(id, "keep") == 0;
}

static void test_sweep_and_names(void **state)
{
    (void)state;
    char path[512];
    struct stat sb;
    assert_int_equal(layers_drive_make(fx.layers, "keep"), 0);
    assert_int_equal(layers_drive_make(fx.layers, "stale"), 0);
    assert_int_equal(layers_drive_make(fx.layers, "stale"), EEXIST);
    assert_int_equal(layers_drive_make(fx.layers, "../up"), EINVAL);
    assert_int_equal(layers_drives_sweep(fx.layers, only_keep, NULL), 0);
    snprintf(path, sizeof path, "%s/drives/stale", fx.state);
    assert_int_equal(stat(path, &sb), -1);
    snprintf(path, sizeof path, "%s/drives/keep/data", fx.state);
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(layers_drive_remove(fx.layers, "keep"), 0);
    assert_int_equal(layers_drive_remove(fx.layers, "keep"), 0); /* gone is gone */
}

/* A session left a link, or a file, where the drive shall be: it is found inside the box or refused. */
static void test_hostile_target(void **state)
{
    (void)state;
    struct session s;
    char path[LAYERS_DRIVE_PATH];
    uint64_t size = 0;
    assert_int_equal(layers_drive_make(fx.layers, "d6"), 0);
    layers_drive_path(fx.layers, "d6", path);
    assert_int_equal(session_start(&fx, &s, "h1", NULL), 0);
    sh(&s, "mkdir real && ln -s /vercel/sandbox/real link && echo > file", "");
    session_stop(&s);
    assert_int_equal(layers_seal(fx.layers, "h1", "hostile", &size), 0);
    const char *one[] = {"hostile", NULL};
    struct box_mount m = {.source = path, .target = "/vercel/sandbox/link/in", .give = true};
    assert_int_equal(session_start_mounted(&fx, &s, "h2", one, &m, 1), 0);
    sh(&s, "echo y > real/in/f && cat link/in/f", "y\n");
    drop(&s);
    m.target = "/vercel/sandbox/file";
    assert_int_equal(session_start_mounted(&fx, &s, "h3", one, &m, 1), ENOTDIR);
    assert_int_equal(layers_session_drop(fx.layers, "h3"), 0);
    assert_int_equal(layers_remove(fx.layers, "hostile"), 0);
    assert_int_equal(layers_drive_remove(fx.layers, "d6"), 0);
}

int main(int argc, char **argv)
{
    if (!fixture_become(argc > 1 ? argv[1] : NULL))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_write),     cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_fork),           cmocka_unit_test(test_sweep_and_names),
        cmocka_unit_test(test_hostile_target),
    };
    return cmocka_run_group_tests_name("emulator/drives", tests, open_all, close_all);
}
