/* Layers on disk: imports, snapshots over snapshots, limits, and clear refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "box_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* A shell command outside. */
__attribute__((format(printf, 1, 2))) static int host_sh(const char *fmt, ...)
{
    char line[8192];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return system(line);
}

static bool in_state(const char *path)
{
    char full[512];
    struct stat sb;
    snprintf(full, sizeof full, "%s/%s", fx.state, path);
    return lstat(full, &sb) == 0;
}

static uint64_t seal(struct session *s, const char *snapshot)
{
    uint64_t size = 0;
    char id[64];
    snprintf(id, sizeof id, "%s", s->id);
    session_stop(s);
    assert_int_equal(layers_seal(fx.layers, id, snapshot, &size), 0);
    char path[128];
    snprintf(path, sizeof path, "sessions/%s", id);
    assert_false(in_state(path));
    return size;
}

/* A snapshot is what the session saw; sessions over it see files, deletions and renames. */
static void test_chain(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_start(&fx, &s, "a", NULL), 0);
    sh(&s,
       "mkdir -p d/e && echo one > d/e/f && echo gone > g && head -c 100000 /dev/zero > z && "
       "sudo rm -rf /usr/share/perl5 2>/dev/null; rm -rf /tmp/x; ln -s d/e l && chmod 700 d/e",
       "");
    uint64_t size = seal(&s, "snap1");
    assert_true(size >= 100000 && size < 200000);

    const char *one[] = {"snap1", NULL};
    assert_int_equal(session_start(&fx, &s, "b", one), 0);
    sh(&s, "cat d/e/f g; wc -c < z; readlink l; stat -c %a d/e", "one\ngone\n100000\nd/e\n700\n");
    sh(&s, "rm g && mv d/e/f d/e/h && mv d moved && mkdir d && echo two > d/new && echo more >> moved/e/h",
       "");
    (void)seal(&s, "snap2");

    const char *two[] = {"snap2", "snap1", NULL};
    assert_int_equal(session_start(&fx, &s, "c", two), 0);
    sh(&s, "ls; ls d; cat moved/e/h", "d\nl\nmoved\nz\nnew\none\nmore\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "c"), 0);

    /* The parent is as it was. */
    assert_int_equal(session_start(&fx, &s, "d", one), 0);
    sh(&s, "ls; cat d/e/f", "d\ng\nl\nz\none\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "d"), 0);
    assert_int_equal(layers_remove(fx.layers, "snap2"), 0);
    assert_int_equal(layers_remove(fx.layers, "snap1"), 0);
    assert_int_equal(layers_remove(fx.layers, "snap1"), 0);
    assert_false(in_state("layers/snap1"));
}

/* rename(2) of a directory that comes from a snapshot: only the full tier keeps this promise. */
static void test_rename_of_lower_directory(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_start(&fx, &s, "r1", NULL), 0);
    sh(&s, "mkdir -p dir/sub && echo x > dir/sub/f", "");
    (void)seal(&s, "ren1");
    const char *one[] = {"ren1", NULL};
    assert_int_equal(session_start(&fx, &s, "r2", one), 0);
    bool full = box_host_tier(fx.host) == BOX_TIER_FULL;
    sh(&s, "python3 -c 'import os; os.rename(\"dir\", \"new\")' 2>&1 | grep -o 'Errno 18'; ls",
       full ? "new\n" : "Errno 18\ndir\n");
    (void)seal(&s, "ren2");
    const char *two[] = {"ren2", "ren1", NULL};
    assert_int_equal(session_start(&fx, &s, "r3", two), 0);
    sh(&s, full ? "cat new/sub/f; ls" : "cat dir/sub/f; ls", full ? "x\nnew\n" : "x\ndir\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "r3"), 0);
    assert_int_equal(layers_remove(fx.layers, "ren2"), 0);
    assert_int_equal(layers_remove(fx.layers, "ren1"), 0);
}

/* Files of one session only never reach a snapshot. */
static void test_session_files(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_start(&fx, &s, "e", NULL), 0);
    struct result r;
    const char *secret[] = {
        "sh", "-c", "echo secret > /run/secret; echo 1 > /dev/shm/x; grep -c testbox /etc/hosts", NULL};
    session_run(&s, 0, secret, NULL, &r);
    assert_string_equal(r.out, "1\n");
    (void)seal(&s, "files");
    assert_false(in_state("layers/files/upper/run/secret"));
    assert_false(in_state("layers/files/upper/etc/hosts"));
    assert_false(in_state("layers/files/upper/etc/hostname"));
    assert_false(in_state("layers/files/upper/etc/resolv.conf"));
    assert_false(in_state("layers/files/upper/dev"));
    assert_int_equal(layers_remove(fx.layers, "files"), 0);
}

/* Whatever a session left at the places we mount on, the next one starts, and nothing leads outside. */
static void test_hostile_root(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_start(&fx, &s, "h", NULL), 0);
    sh(&s,
       "sudo mkdir /tmp/aside; cd /etc && sudo umount hosts 2>/dev/null; sudo rm -f /etc/passwd- ; "
       "sudo sh -c 'rm -rf /vercel /home/vercel-sandbox; grep -v ^vercel-sandbox /etc/passwd > /p; "
       "cat /p > /etc/passwd; chown 1000:1000 /; chmod 0500 /'; echo ok",
       "ok\n");
    (void)seal(&s, "hostile");
    const char *one[] = {"hostile", NULL};
    assert_int_equal(session_start(&fx, &s, "h2", one), 0);
    sh(&s, "whoami; ls -d /vercel/sandbox /home/vercel-sandbox",
       "vercel-sandbox\n/home/vercel-sandbox\n/vercel/sandbox\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "h2"), 0);
    assert_int_equal(layers_remove(fx.layers, "hostile"), 0);
}

/* A hundred layers fit, although the kernel takes one page of options. */
static void test_many_layers(void **state)
{
    (void)state;
    enum { N = 110 };
    static char names[N][40];
    const char *chain[N + 1];
    chain[N] = NULL;
    struct session s;
    uint64_t size;
    struct layers_session dirs;
    for (int i = 0; i < N; i++) {
        char path[600];
        snprintf(names[i], sizeof names[i], "a-snapshot-with-a-rather-long-name-%d", i);
        assert_int_equal(layers_session_make(fx.layers, "m", &dirs), 0);
        snprintf(path, sizeof path, "%s/file%d", dirs.upper, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(layers_seal(fx.layers, "m", names[i], &size), 0);
        chain[i] = names[i];
    }
    assert_int_equal(session_start(&fx, &s, "many", chain), 0);
    sh(&s, "ls / | grep -c ^file", "110\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "many"), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(layers_remove(fx.layers, names[i]), 0);
}

/* Trees deeper than any path are removed. */
static void test_deep_tree(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_start(&fx, &s, "deep", NULL), 0);
    sh(&s,
       "python3 -c '\nimport os\nos.chdir(\"/tmp\")\nfor i in range(3000):\n  os.mkdir(\"dddddddddddd\")\n"
       "  os.chdir(\"dddddddddddd\")\nopen(\"f\",\"w\").close()\nos.chmod(\".\",0)\nprint(\"ok\")'",
       "ok\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "deep"), 0);
    assert_int_equal(host_sh("test -z \"$(ls -A %s/trash)\"", fx.state), 0);
}

static void test_names(void **state)
{
    (void)state;
    struct layers_session dirs;
    const char *const *lower = NULL;
    const char *bad[] = {"../x", NULL};
    assert_int_equal(layers_session_make(fx.layers, "../x", &dirs), EINVAL);
    assert_int_equal(layers_session_make(fx.layers, "", &dirs), EINVAL);
    assert_int_equal(layers_session_make(fx.layers, ".hidden", &dirs), EINVAL);
    assert_int_equal(layers_remove(fx.layers, "a/b"), EINVAL);
    assert_int_equal(layers_lower(fx.layers, "base", bad, 1, &lower), ENOENT);
    assert_int_equal(layers_lower(fx.layers, "no-such-base", NULL, 0, &lower), ENOENT);
    assert_false(layers_has_base(fx.layers, "../base/base"));
}

/* --- refusals --- */

static void refused(const char *dir, const char *word)
{
    struct layers *l = NULL;
    char err[BOX_TEXT];
    assert_int_not_equal(layers_open(dir, fx.host, &l, err), 0);
    if (strstr(err, word) == NULL || strstr(err, dir) == NULL)
        fail_msg("'%s' names neither %s nor %s", err, word, dir);
}

static void test_refusals(void **state)
{
    (void)state;
    char dir[300];
    refused(fx.state, "another emulator");
    refused("/proc/sandgate", "cannot use"); /* cannot be made */
    snprintf(dir, sizeof dir, "%s/other", fx.state);
    assert_int_equal(host_sh("mkdir %s && echo plain > %s/tier", dir, dir), 0);
    refused(dir, "another isolation");
    struct layers *l = fx.layers;
    char err[BOX_TEXT];
    assert_int_not_equal(layers_share_bases(l, dir, err), 0);
    assert_non_null(strstr(err, "another isolation"));
}

static void test_overlay_state(void **state)
{
    (void)state;
    char dir[300];
    snprintf(dir, sizeof dir, "%s/o/m", fx.state);
    assert_int_equal(host_sh("cd %s && mkdir -p o/l o/u o/w o/m && mount -t overlay none -o "
                             "lowerdir=o/l,upperdir=o/u,workdir=o/w o/m",
                             fx.state),
                     0);
    refused(dir, "use a volume");
    assert_int_equal(host_sh("umount %s", dir), 0);
}

/* --- import --- */

static uint64_t told_files;

static void on_progress(void *arg, uint64_t files, uint64_t bytes)
{
    (void)bytes;
    assert_ptr_equal(arg, &fx);
    told_files = files;
}

static void make_tree(char dir[300])
{
    snprintf(dir, 300, "%s/tree", fx.state);
    assert_int_equal(
        host_sh("rm -rf %s && mkdir -p %s/bin %s/etc/sub %s/root && cd %s && echo '#!/bin/sh' > bin/tool && "
                "chmod 4755 bin/tool && ln bin/tool bin/hard && ln -s tool bin/soft && ln -s /nowhere "
                "etc/resolv.conf && "
                "printf 'root:x:0:0::/root:/bin/sh\\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh\\n' > "
                "etc/passwd && "
                "chmod 711 etc/sub && chmod 700 root",
                dir, dir, dir, dir, dir),
        0);
}

static void look_at_import(const char *name)
{
    /* With one id only there is nobody to become, and the bit is not kept. */
    const char *suid = box_host_tier(fx.host) == BOX_TIER_SINGLE_ID ? "test -x" : "test -u";
    assert_int_equal(host_sh("cd %s/base/%s && test \"$(cat bin/tool)\" = '#!/bin/sh' && %s bin/tool && "
                             "test bin/tool -ef bin/hard && test \"$(readlink bin/soft)\" = tool && test ! "
                             "-L etc/resolv.conf && "
                             "test -f etc/resolv.conf && test \"$(stat -c %%a etc/sub)\" = 711 && "
                             "test \"$(sed -n 2p etc/passwd | cut -d: -f1,3)\" = vercel-sandbox:1000 && test "
                             "-d vercel/sandbox && "
                             "test -d proc && grep -q NOPASSWD etc/sudoers.d/vercel-sandbox",
                             fx.state, name, suid),
                     0);
}

static void test_import(void **state)
{
    (void)state;
    char dir[300];
    char tar[320];
    char line[32];
    char err[BOX_TEXT];
    make_tree(dir);
    assert_int_equal(layers_import_base(fx.layers, "from-dir", dir, false, on_progress, &fx, err), 0);
    assert_true(told_files >= 8);
    look_at_import("from-dir");
    static const char *const HOW[] = {"-cf", "-czf", "-cJf", "--zstd -cf"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(tar, sizeof tar, "%s/t%zu", fx.state, i);
        if (host_sh("tar -C %s %s %s . 2>/dev/null", dir, HOW[i], tar) != 0 && i == 3)
            continue; /* no zstd program to build the input with */
        snprintf(line, sizeof line, "from-tar%zu", i);
        assert_int_equal(layers_import_base(fx.layers, line, tar, false, NULL, NULL, err), 0);
        look_at_import(line);
    }
    /* There already: nothing is read. By force: replaced. */
    assert_int_equal(layers_import_base(fx.layers, "from-dir", "/nonexistent", false, NULL, NULL, err), 0);
    assert_int_not_equal(layers_import_base(fx.layers, "from-dir", "/nonexistent", true, NULL, NULL, err), 0);
    assert_non_null(strstr(err, "/nonexistent"));
    assert_true(layers_has_base(fx.layers, "from-dir"));
    assert_int_equal(layers_import_base(fx.layers, "from-dir", dir, true, NULL, NULL, err), 0);
    look_at_import("from-dir");
    /* A broken source leaves nothing. */
    assert_int_equal(host_sh("head -c 700 %s/t0 > %s/cut", fx.state, fx.state), 0);
    snprintf(tar, sizeof tar, "%s/cut", fx.state);
    assert_int_not_equal(layers_import_base(fx.layers, "cut", tar, false, NULL, NULL, err), 0);
    assert_true(err[0] != '\0');
    assert_false(layers_has_base(fx.layers, "cut"));
    assert_int_equal(host_sh("test -z \"$(ls -A %s/base | grep '^\\.')\"", fx.state), 0);
}

static void note(void *arg, const char *id)
{
    snprintf(arg, 64, "%s", id);
}

/* A session without an owner is found again, and its upper can still be sealed. */
static void test_orphans(void **state)
{
    (void)state;
    struct session s;
    char id[64] = "";
    uint64_t size = 0;
    assert_int_equal(session_start(&fx, &s, "orphan", NULL), 0);
    sh(&s, "echo kept > f", "");
    session_stop(&s); /* the emulator dies here */
    assert_int_equal(layers_each_orphan(fx.layers, note, id), 0);
    assert_string_equal(id, "orphan");
    assert_int_equal(layers_seal(fx.layers, "orphan", "adopted", &size), 0);
    const char *one[] = {"adopted", NULL};
    assert_int_equal(session_start(&fx, &s, "after", one), 0);
    sh(&s, "cat f", "kept\n");
    assert_int_equal(layers_seal(fx.layers, "after", "adopted", &size), EEXIST);
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "after"), 0);
    assert_int_equal(layers_remove(fx.layers, "adopted"), 0);
}

int main(int argc, char **argv)
{
    if (!fixture_become(argc > 1 ? argv[1] : NULL))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_rename_of_lower_directory),
        cmocka_unit_test(test_session_files),
        cmocka_unit_test(test_many_layers),
        cmocka_unit_test(test_deep_tree),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_orphans),
        /* from here on not in every tier: sudo cannot be asked with one id, and only root may mount */
        cmocka_unit_test(test_hostile_root),
        cmocka_unit_test(test_overlay_state),
    };
    const char *tier = argc > 1 ? argv[1] : "full";
    size_t n = sizeof tests / sizeof *tests;
    if (!strcmp(tier, "single-id"))
        n -= 2;
    else if (strcmp(tier, "full") != 0)
        n -= 1;
    return _cmocka_run_group_tests("emulator/layers", tests, n, open_all, close_all);
}
