/* Logins, their tokens and projects: what they open, and that they outlive the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/account.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], file[96];

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/sandgate-account-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(file, sizeof file, "%s/account.json", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(dir);
}

static struct account *open_it(bool approve)
{
    char err[256] = "";
    struct account *a = account_open(dir, approve, err);
    if (!a)
        fail_msg("%s", err);
    return a;
}

static struct account_tokens logged_in(struct account *a)
{
    char code[ACCOUNT_CODE_TEXT], user[16];
    struct account_tokens t = {0};
    assert_true(account_device_begin(a, code, user));
    assert_true(account_device_decide(a, user, true));
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_DONE);
    return t;
}

static bool good(struct account *a, const char *token)
{
    char project[ACCOUNT_NAME_TEXT];
    return account_token_ok(a, token, project);
}

static void test_login(void **state)
{
    (void)state;
    struct account *a = open_it(false);
    char code[ACCOUNT_CODE_TEXT], user[16];
    struct account_tokens t;
    assert_true(account_device_begin(a, code, user));
    assert_int_equal(strlen(user), 9);
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_PENDING);
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_SLOW_DOWN); /* at once again */
    assert_false(account_device_decide(a, "BBBB-BBBB", true));
    assert_true(account_device_decide(a, user, true));
    assert_false(account_device_decide(a, user, false)); /* decided is decided */
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_DONE);
    assert_true(good(a, t.access));
    assert_false(good(a, t.refresh));
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_UNKNOWN); /* once */
    assert_int_equal(account_device_poll(a, "no such code", &t), ACCOUNT_UNKNOWN);

    assert_true(account_device_begin(a, code, user));
    assert_true(account_device_decide(a, user, false));
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_DENIED);
    account_free(a);

    a = open_it(true);
    assert_true(account_device_begin(a, code, user));
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_DONE);
    account_free(a);
}

static void test_refresh_and_revoke(void **state)
{
    (void)state;
    struct account *a = open_it(false);
    struct account_tokens first = logged_in(a), second;
    assert_int_equal(account_refresh(a, first.access, &second), ACCOUNT_UNKNOWN);
    assert_int_equal(account_refresh(a, first.refresh, &second), ACCOUNT_DONE);
    assert_false(good(a, first.access));
    assert_true(good(a, second.access));
    assert_int_equal(account_refresh(a, first.refresh, &first), ACCOUNT_UNKNOWN); /* used up */
    struct account_tokens other = logged_in(a);
    account_revoke(a, "nobody's");
    account_revoke(a, second.access);
    assert_false(good(a, second.access));
    assert_int_equal(account_refresh(a, second.refresh, &first), ACCOUNT_UNKNOWN);
    assert_true(good(a, other.access));
    account_free(a);
}

static void test_restart(void **state)
{
    (void)state;
    struct account *a = open_it(false);
    struct account_project made, found;
    char project[ACCOUNT_NAME_TEXT], text[8192] = "";
    struct account_tokens t = logged_in(a);
    char *jwt = account_jwt(a, "team_a", "prj_a");
    assert_non_null(jwt);
    assert_int_equal(account_project_add(a, "first", &made), 0);
    assert_int_equal(account_project_add(a, "first", &found), EEXIST);
    account_free(a);

    struct stat sb;
    assert_int_equal(stat(file, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_null(strstr(text, t.access)); /* hashes only */
    assert_null(strstr(text, t.refresh));

    a = open_it(false);
    assert_true(good(a, t.access));
    assert_true(account_token_ok(a, jwt, project));
    assert_string_equal(project, "prj_a");
    assert_true(account_project(a, "first", &found));
    assert_string_equal(found.id, made.id);
    assert_true(account_project(a, made.id, &found));
    assert_false(account_project(a, "second", &found));
    account_free(a);
    free(jwt);
}

/* Whatever is changed in a token, it opens nothing. */
static void test_forged_jwt(void **state)
{
    (void)state;
    struct account *a = open_it(false);
    char *jwt = account_jwt(a, "team_a", "prj_a");
    assert_non_null(jwt);
    size_t n = strlen(jwt);
    for (size_t i = 0; i < n; i++) {
        char old = jwt[i];
        jwt[i] = old == 'A' ? 'B' : 'A';
        assert_false(good(a, jwt));
        jwt[i] = '\0';
        assert_false(good(a, jwt));
        jwt[i] = old;
    }
    assert_true(good(a, jwt));
    assert_false(good(a, ""));
    assert_false(good(a, "."));
    assert_false(good(a, ".."));
    assert_false(good(a, "eyJhbGciOiJub25lIn0.e30."));
    char *huge = malloc(1 << 16);
    assert_non_null(huge);
    memset(huge, '.', (1 << 16) - 1);
    huge[(1 << 16) - 1] = '\0';
    assert_false(good(a, huge));
    free(huge);
    free(jwt);
    account_free(a);
}

static void test_bounds(void **state)
{
    (void)state;
    struct account *a = open_it(true);
    char code[ACCOUNT_CODE_TEXT], user[16], first_code[ACCOUNT_CODE_TEXT];
    struct account_tokens t;
    assert_true(account_device_begin(a, first_code, user));
    for (int i = 0; i < 100; i++)
        assert_true(account_device_begin(a, code, user));
    assert_int_equal(account_device_poll(a, first_code, &t), ACCOUNT_UNKNOWN); /* the oldest went */
    assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_DONE);
    struct account_tokens early = t;
    for (int i = 0; i < 100; i++) {
        assert_true(account_device_begin(a, code, user));
        assert_int_equal(account_device_poll(a, code, &t), ACCOUNT_DONE);
    }
    assert_false(good(a, early.access));
    assert_true(good(a, t.access));
    account_free(a);
}

static void test_nonsense_file(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "{", "[]", "{}", "{\"key\":\"zz\"}", "{\"key\":\"00\",\"grants\":[{}]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char err[256] = "";
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fputs(texts[i], f);
        fclose(f);
        assert_null(account_open(dir, false, err));
        assert_non_null(strstr(err, "account.json"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_login, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refresh_and_revoke, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_restart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forged_jwt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nonsense_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
