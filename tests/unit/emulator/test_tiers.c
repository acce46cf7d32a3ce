/* Where little is missing for a better tier, the sentence says what.  As root; each case in a process and with mounts
 * of its own. (D7, E2) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "box_fixture.h"
#include "emulator/box_host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

struct outcome {
    enum box_tier tier;
    char says[BOX_TEXT];
};

/* The host's helper is there, and nobody may run it. */
static bool hide(const char *path)
{
    return access(path, F_OK) != 0 ||
           (mount("/dev/null", path, NULL, MS_BIND, NULL) == 0 && access(path, F_OK) == 0);
}

static bool without_newuidmap(void)
{
    return hide("/usr/bin/newuidmap") && hide("/bin/newuidmap") && hide("/usr/local/bin/newuidmap");
}

static bool without_newgidmap(void)
{
    return hide("/usr/bin/newgidmap") && hide("/bin/newgidmap") && hide("/usr/local/bin/newgidmap");
}

static bool with_nosuid(void)
{
    return mount("/usr/bin", "/usr/bin", NULL, MS_BIND, NULL) == 0 &&
           mount(NULL, "/usr/bin", NULL, MS_BIND | MS_REMOUNT | MS_NOSUID, NULL) == 0;
}

static bool as_it_is(void)
{
    return true;
}

/* Starts a spawner as the user of a variant, after `prepare` in private mounts. */
static struct outcome start(const char *variant, bool (*prepare)(void))
{
    struct outcome o = {.tier = BOX_TIER_PLAIN};
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct box_host *host = NULL;
        char err[BOX_TEXT] = "";
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            !prepare() || !fixture_become(variant)) {
            snprintf(o.says, sizeof o.says, "the case cannot be prepared");
        } else if (box_host_start(false, &host, err) != 0) {
            snprintf(o.says, sizeof o.says, "it does not start: %.200s", err);
        } else {
            o.tier = box_host_tier(host);
            snprintf(o.says, sizeof o.says, "%s", box_host_advice(host));
            box_host_stop(host);
        }
        _exit(write(p[1], &o, sizeof o) == (ssize_t)sizeof o ? 0 : 1);
    }
    close(p[1]);
    assert_int_equal(read(p[0], &o, sizeof o), sizeof o);
    close(p[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return o;
}

static void advised(const char *variant, bool (*prepare)(void), const char *what)
{
    struct outcome o = start(variant, prepare);
    if (o.tier != BOX_TIER_SINGLE_ID || strstr(o.says, what) == NULL)
        fail_msg("tier %s says '%s', which does not name %s", box_tier_name(o.tier), o.says, what);
    if (strchr(o.says, '\n') != NULL || o.says[strlen(o.says) - 1] != '.')
        fail_msg("'%s' is no sentence", o.says);
}

static void test_missing_helper(void **state)
{
    (void)state;
    advised("rootless", without_newuidmap, "install the package uidmap");
    advised("rootless", without_newgidmap, "install the package uidmap");
}

static void test_useless_helper(void **state)
{
    (void)state;
    advised("rootless", with_nosuid, "set-uid root");
}

static void test_no_range(void **state)
{
    (void)state;
    advised("single-id", as_it_is, "/etc/subuid and /etc/subgid");
}

static void test_nothing_missing(void **state)
{
    (void)state;
    struct outcome o = start("rootless", as_it_is);
    assert_int_equal(o.tier, BOX_TIER_ROOTLESS);
    assert_string_equal(o.says, "");
    o = start("full", as_it_is);
    assert_int_equal(o.tier, BOX_TIER_FULL);
    assert_string_equal(o.says, "");
}

int main(void)
{
    if (!fixture_become("full"))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_helper),
        cmocka_unit_test(test_useless_helper),
        cmocka_unit_test(test_no_range),
        cmocka_unit_test(test_nothing_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
