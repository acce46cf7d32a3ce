/* Gateway tokens (G4: random, only hashes on disk, expiry, revocation; P52: constant-time comparison over
 * digests of fixed length, no short cut by length). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "auth/tokens.h"
#include "base/clock.h"
#include "base/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], path[128], lock_path[160];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/sg-tokens-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/tokens", dir);
    (void)snprintf(lock_path, sizeof lock_path, "%s.lock", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(lock_path);
    return rmdir(dir); /* fails when a temporary file was left behind */
}

static size_t slurp(char *out, size_t cap)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, cap - 1, f);
    (void)fclose(f);
    out[n] = '\0';
    return n;
}

static void append(const char *text)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void create(const char *name, int64_t expires_at, char token[TOKEN_TEXT])
{
    struct sg_error e;
    if (token_file_create(path, name, expires_at, NULL, token, &e))
        fail_msg("%s", e.detail);
}

static struct token_table *open_table(void)
{
    struct token_table *t;
    struct sg_error e;
    if (token_table_open(path, &t, &e))
        fail_msg("%s", e.detail);
    return t;
}

/* The table looks at the file at most every 500 ms: asks until it answers `want`, or the time is over. */
static enum sg_code check_until(struct token_table *t, const char *token, enum sg_code want)
{
    struct principal who;
    struct sg_error e;
    int64_t end = sg_mono_ms() + 10000;
    enum sg_code code;
    do {
        code = token_check(t, token, &who, &e);
        if (code != want)
            (void)usleep(20 * 1000); /* between two askings of a condition */
    } while (code != want && sg_mono_ms() < end);
    return code;
}

static void format_is_fixed_and_random(void **state)
{
    (void)state;
    char a[TOKEN_TEXT], b[TOKEN_TEXT];
    assert_int_equal(token_generate(a, NULL), SG_OK);
    assert_int_equal(token_generate(b, NULL), SG_OK);
    assert_int_equal(strlen(a), 60);
    assert_memory_equal(a, "sgt_", 4);
    assert_int_equal(a[16], '_');
    assert_null(strchr(a, '.'));
    assert_int_equal(strspn(a + 4, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
                     TOKEN_ID_LEN);
    assert_int_equal(strspn(a + 17, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"), 43);
    assert_string_not_equal(a + 4, b + 4);
    assert_string_not_equal(a + 17, b + 17);
}

static void g4_only_the_hash_is_on_disk(void **state)
{
    (void)state;
    char token[TOKEN_TEXT], text[4096], hex[65];
    unsigned char digest[32];
    create("build \"bot\"", 0, token);
    slurp(text, sizeof text);
    sg_sha256(token, strlen(token), digest);
    sg_hex(hex, digest, sizeof digest);
    assert_non_null(strstr(text, hex));
    assert_null(strstr(text, token));
    assert_null(strstr(text, token + 17)); /* the secret part alone */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(lock_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void check_header(struct token_table *t, const char *before, const char *token, const char *after,
                         enum sg_code want)
{
    char header[256];
    struct principal who;
    struct sg_error e;
    (void)snprintf(header, sizeof header, "%s%s%s", before, token, after);
    enum sg_code code = token_check_header(t, header, &who, &e);
    if (code != want)
        fail_msg("\"%s\" token \"%s\" gave %d", before, after, (int)code);
}

static void header_forms(void **state)
{
    (void)state;
    char token[TOKEN_TEXT];
    struct principal who;
    struct sg_error e;
    create("ci", 0, token);
    char short_one[TOKEN_TEXT];
    (void)snprintf(short_one, sizeof short_one, "%.59s", token);
    struct token_table *t = open_table();
    check_header(t, "Bearer ", token, "", SG_OK);
    check_header(t, "bEARER   ", token, "  ", SG_OK);
    check_header(t, "Bearer\t", token, "", SG_OK);
    check_header(t, "Bearer", token, "", SG_E_UNAUTHENTICATED);
    check_header(t, "Basic ", token, "", SG_E_UNAUTHENTICATED);
    check_header(t, "", token, "", SG_E_UNAUTHENTICATED);
    check_header(t, "Bearer ", token, " x", SG_E_UNAUTHENTICATED);
    check_header(t, "Bearer ", token, "x", SG_E_UNAUTHENTICATED);
    check_header(t, "Bearer x", token, "", SG_E_UNAUTHENTICATED);
    check_header(t, "Bearer ", short_one, "", SG_E_UNAUTHENTICATED);
    check_header(t, "Bearer ", "", "", SG_E_UNAUTHENTICATED);
    check_header(t, "", "", "", SG_E_UNAUTHENTICATED);
    assert_int_equal(token_check_header(t, NULL, &who, &e), SG_E_UNAUTHENTICATED);
    assert_int_equal(token_check(t, token, &who, &e), SG_OK);
    assert_string_equal(who.name, "ci");
    assert_memory_equal(who.id, token + 4, TOKEN_ID_LEN);
    token_table_free(t);
}

static void every_changed_character_counts(void **state)
{
    (void)state;
    char token[TOKEN_TEXT];
    struct principal who;
    struct sg_error e;
    create("ci", 0, token);
    struct token_table *t = open_table();
    for (size_t i = 0; i < TOKEN_TEXT - 1; i++) {
        char wrong[TOKEN_TEXT];
        memcpy(wrong, token, sizeof wrong);
        wrong[i] = wrong[i] == 'a' ? 'b' : 'a';
        assert_int_equal(token_check(t, wrong, &who, &e), SG_E_UNAUTHENTICATED);
        assert_null(strstr(e.detail, wrong + 17));
    }
    token_table_free(t);
}

static void g4_expiry(void **state)
{
    (void)state;
    char old[TOKEN_TEXT], future[TOKEN_TEXT], wrong[TOKEN_TEXT];
    struct principal who;
    struct sg_error e;
    create("old", 1700000000000, old);
    create("future", sg_wall_ms() + 60000, future);
    struct token_table *t = open_table();
    assert_int_equal(token_check(t, old, &who, &e), SG_E_TOKEN_EXPIRED);
    assert_string_equal(e.detail, "the token expired at 2023-11-14T22:13:20.000Z");
    assert_int_equal(token_check(t, future, &who, &e), SG_OK);
    assert_true(who.expires_at > sg_wall_ms());
    /* the expiry of a token is told to nobody who does not have it */
    memcpy(wrong, old, sizeof wrong);
    wrong[59] = wrong[59] == 'a' ? 'b' : 'a';
    assert_int_equal(token_check(t, wrong, &who, &e), SG_E_UNAUTHENTICATED);
    token_table_free(t);
}

static void g4_reload_and_revoke(void **state)
{
    (void)state;
    char a[TOKEN_TEXT], b[TOKEN_TEXT], id[TOKEN_ID_LEN + 1];
    struct sg_error e;
    struct token_table *t = open_table(); /* the file does not exist yet */
    create("a", 0, a);
    assert_int_equal(check_until(t, a, SG_OK), SG_OK);
    create("b", 0, b);
    assert_int_equal(check_until(t, b, SG_OK), SG_OK);
    (void)snprintf(id, sizeof id, "%.12s", a + 4);
    assert_int_equal(token_file_revoke(path, id, &e), SG_OK);
    assert_int_equal(check_until(t, a, SG_E_UNAUTHENTICATED), SG_E_UNAUTHENTICATED);
    assert_int_equal(check_until(t, b, SG_OK), SG_OK);
    assert_int_not_equal(token_file_revoke(path, id, &e), SG_OK);
    assert_non_null(strstr(e.detail, "no token with the id"));
    assert_int_equal(unlink(path), 0); /* no file is no token */
    assert_int_equal(check_until(t, b, SG_E_UNAUTHENTICATED), SG_E_UNAUTHENTICATED);
    token_table_free(t);
}

/* A file that cannot be read for a moment takes nobody's token away. */
static void unreadable_file_keeps_the_table(void **state)
{
    (void)state;
    char a[TOKEN_TEXT], b[TOKEN_TEXT], kept[160];
    struct principal who;
    struct sg_error e;
    create("a", 0, a);
    struct token_table *t = open_table();
    (void)snprintf(kept, sizeof kept, "%s/kept", dir);
    assert_int_equal(rename(path, kept), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* unreadable as a file, for root too */
    int64_t end = sg_mono_ms() + 1200;      /* long enough for two looks */
    while (sg_mono_ms() < end) {
        assert_int_equal(token_check(t, a, &who, &e), SG_OK);
        (void)usleep(50 * 1000);
    }
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(kept, path), 0);
    create("b", 0, b);
    assert_int_equal(check_until(t, b, SG_OK), SG_OK);
    token_table_free(t);
}

static void malformed_lines_are_skipped_and_kept(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "garbage\n",
        "{}\n",
        "\n",
        "{\"id\":\"short\",\"hash\":\"00\",\"name\":\"x\",\"created_at\":1}\n",
        "{\"id\":\"AAAAAAAAAAAA\",\"hash\":\"zz\",\"name\":\"x\",\"created_at\":1}\n",
        "{\"id\":\"AAAAAAAAAAA.\",\"hash\":"
        "\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"name\":\"x\",\"created_at\":1}\n",
        "{\"id\":\"AAAAAAAAAAAA\",\"hash\":"
        "\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"name\":\"\",\"created_at\":1}\n",
        "{\"id\":\"AAAAAAAAAAAA\",\"hash\":"
        "\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"name\":\"x\"}\n",
        "{\"id\":\"AAAAAAAAAAAA\",\"hash\":"
        "\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"name\":\"x\",\"created_at\":1,\"expires_at\":\"never\"}\n",
    };
    char a[TOKEN_TEXT], b[TOKEN_TEXT], text[8192], id[TOKEN_ID_LEN + 1];
    struct principal who;
    struct sg_error e;
    create("a", 0, a);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        append(bad[i]);
    append("cut without a line end");
    create("b", 0, b);
    struct token_table *t = open_table();
    assert_int_equal(token_check(t, a, &who, &e), SG_OK);
    assert_int_equal(token_check(t, b, &who, &e), SG_OK);
    /* an id whose stored line is broken is not a token of that id */
    assert_int_equal(token_check(t, "sgt_AAAAAAAAAAAA_0000000000000000000000000000000000000000000", &who, &e),
                     SG_E_UNAUTHENTICATED);
    token_table_free(t);
    (void)snprintf(id, sizeof id, "%.12s", a + 4);
    assert_int_equal(token_file_revoke(path, id, &e), SG_OK);
    slurp(text, sizeof text);
    assert_null(strstr(text, id));
    assert_non_null(strstr(text, "garbage\n"));
    assert_non_null(strstr(text, "cut without a line end\n"));
}

struct count {
    int n;
    char names[256];
};

static void count_one(void *arg, const struct principal *p, int64_t created_at)
{
    struct count *c = arg;
    c->n++;
    assert_true(created_at > 1700000000000);
    size_t len = strlen(c->names);
    (void)snprintf(c->names + len, sizeof c->names - len, "%s,", p->name);
}

enum { WRITERS = 2, EACH = 10 };

/* Two processes that create at the same time lose nothing. */
static void concurrent_creates_lose_nothing(void **state)
{
    (void)state;
    pid_t pids[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        if (pids[w] == 0) {
            int failed = 0;
            for (int i = 0; i < EACH; i++) {
                char token[TOKEN_TEXT];
                if (token_file_create(path, "x", 0, NULL, token, NULL))
                    failed = 1;
            }
            _exit(failed);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        assert_int_equal(status, 0);
    }
    struct count c = {0};
    assert_int_equal(token_file_each(path, count_one, &c, NULL), SG_OK);
    assert_int_equal(c.n, WRITERS * EACH);
}

static void list_names_all(void **state)
{
    (void)state;
    char token[TOKEN_TEXT];
    struct count c = {0};
    assert_int_equal(token_file_each(path, count_one, &c, NULL), SG_OK); /* no file: none */
    assert_int_equal(c.n, 0);
    create("one", 0, token);
    create("zw\xc3\xb6lf", 0, token);
    assert_int_equal(token_file_each(path, count_one, &c, NULL), SG_OK);
    assert_string_equal(c.names, "one,zw\xc3\xb6lf,");
}

static void names_are_checked(void **state)
{
    (void)state;
    char token[TOKEN_TEXT], longest[65];
    memset(longest, 'n', 64);
    longest[64] = '\0';
    struct sg_error e;
    assert_int_equal(token_file_create(path, "", 0, NULL, token, &e), SG_E_INVALID_FIELD);
    assert_int_equal(token_file_create(path, "a\nb", 0, NULL, token, &e), SG_E_INVALID_FIELD);
    assert_int_equal(token_file_create(path, "\xff", 0, NULL, token, &e), SG_E_INVALID_FIELD);
    assert_int_equal(token_file_create(path, longest, 0, NULL, token, &e), SG_E_INVALID_FIELD);
    longest[63] = '\0';
    assert_int_equal(token_file_create(path, longest, 0, NULL, token, &e), SG_OK);
}

/* P33: a token may be kept to one directory of the sandbox. */
static void p33_files_root(void **state)
{
    (void)state;
    static const char *const bad[] = {"/",   "x",     "x/y",     "/x/",  "//x",   "/x//y", "/.",   "/./x",
                                      "/..", "/x/..", "/x/../y", "/x/.", "/a\nb", "/\x7f", "/\xff"};
    static const char *const good[] = {"/w",      "/vercel/sandbox", "/...",
                                       "/.x/..y", "/a b\"\\",        "/\xc3\xbc/\xe2\x82\xac"};
    char token[TOKEN_TEXT], longest[TOKEN_ROOT_MAX + 2];
    struct principal who;
    struct sg_error e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (token_file_create(path, "a", 0, bad[i], token, &e) != SG_E_INVALID_FIELD)
            fail_msg("%s", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (token_file_create(path, "a", 0, good[i], token, &e))
            fail_msg("%s: %s", good[i], e.detail);
        struct token_table *t = open_table();
        assert_int_equal(token_check(t, token, &who, &e), SG_OK);
        assert_string_equal(who.files_root, good[i]);
        token_table_free(t);
    }
    for (size_t i = 0; i + 2 < sizeof longest; i += 2) { /* what takes most room in a line */
        longest[i] = '\xc3';
        longest[i + 1] = '\xbc';
    }
    longest[0] = '/';
    longest[1] = 'x';
    longest[TOKEN_ROOT_MAX] = 'y';
    longest[TOKEN_ROOT_MAX + 1] = '\0';
    longest[TOKEN_ROOT_MAX - 1] = 'x';
    assert_int_equal(token_file_create(path, "a", 0, longest, token, &e), SG_E_INVALID_FIELD);
    longest[TOKEN_ROOT_MAX] = '\0';
    assert_int_equal(token_file_create(path, "a", 1 + sg_wall_ms() * 2, longest, token, &e), SG_OK);
    struct token_table *t = open_table();
    assert_int_equal(token_check(t, token, &who, &e), SG_OK);
    assert_string_equal(who.files_root, longest);
    token_table_free(t);
    create("free", 0, token);
    t = open_table();
    assert_int_equal(token_check(t, token, &who, &e), SG_OK);
    assert_string_equal(who.files_root, "");
    token_table_free(t);
}

/* A root that cannot be read takes the token away, not the root. */
static void p33_damaged_roots_confine_all_the_more(void **state)
{
    (void)state;
    static const char *const bad[] = {"true",  "null",      "\"\"",         "\"/\"",
                                      "\"x\"", "\"/x/..\"", "\"/\\u0000\"", "[]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char token[TOKEN_TEXT], text[1024], hex[65], line[1200];
        unsigned char digest[32];
        struct principal who;
        struct sg_error e;
        assert_int_equal(token_generate(token, &e), SG_OK);
        sg_sha256(token, strlen(token), digest);
        sg_hex(hex, digest, sizeof digest);
        (void)snprintf(text, sizeof text, "{\"id\":\"%.12s\",\"hash\":\"%s\",\"name\":\"x\",\"created_at\":1",
                       token + 4, hex);
        (void)snprintf(line, sizeof line, "%s,\"files_root\":%s}\n", text, bad[i]);
        append(line);
        struct token_table *t = open_table();
        if (token_check(t, token, &who, &e) != SG_E_UNAUTHENTICATED)
            fail_msg("%s", bad[i]);
        token_table_free(t);
        (void)snprintf(line, sizeof line, "%s}\n", text);
        append(line);
        t = open_table();
        assert_int_equal(token_check(t, token, &who, &e), SG_OK);
        token_table_free(t);
        assert_int_equal(unlink(path), 0);
    }
}

static void unwritable_place_is_an_error(void **state)
{
    (void)state;
    char token[TOKEN_TEXT];
    struct sg_error e;
    assert_int_equal(token_file_create("/proc/no/tokens", "a", 0, NULL, token, &e), SG_E_FILE_ERROR);
    assert_non_null(strstr(e.detail, "/proc/no/tokens"));
    assert_string_equal(e.errno_name, "ENOENT");
    assert_int_equal(token[0], 0); /* nothing usable is left in the buffer */
}

static void symlink_stays_a_symlink(void **state)
{
    (void)state;
    char token[TOKEN_TEXT], link[160];
    struct sg_error e;
    struct stat st;
    create("a", 0, token);
    (void)snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(token_file_create(link, "b", 0, NULL, token, &e), SG_OK);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink(link), 0);
    struct token_table *t = open_table();
    struct principal who;
    assert_int_equal(token_check(t, token, &who, &e), SG_OK);
    token_table_free(t);
}

static void memory_tokens_survive_a_reload(void **state)
{
    (void)state;
    char mem[TOKEN_TEXT], disk[TOKEN_TEXT];
    struct principal who;
    struct sg_error e;
    struct token_table *t = open_table();
    assert_int_equal(token_generate(mem, &e), SG_OK);
    assert_int_equal(token_table_add_memory(t, mem, "dev", &e), SG_OK);
    assert_int_equal(token_table_add_memory(t, "sgt_short", "dev", &e), SG_E_INVALID_FIELD);
    create("disk", 0, disk);
    assert_int_equal(check_until(t, disk, SG_OK), SG_OK);
    assert_int_equal(token_check(t, mem, &who, &e), SG_OK);
    assert_string_equal(who.name, "dev");
    token_table_free(t);
    /* without any file */
    assert_int_equal(token_table_open(NULL, &t, &e), SG_OK);
    assert_int_equal(token_table_add_memory(t, mem, "dev", &e), SG_OK);
    assert_int_equal(token_check(t, mem, &who, &e), SG_OK);
    token_table_free(t);
}

struct hammer {
    struct token_table *t;
    const char *token;
    _Atomic int wrong;
    _Atomic int stop;
};

static void *hammer_run(void *arg)
{
    struct hammer *h = arg;
    while (!h->stop) {
        struct principal who;
        if (token_check(h->t, h->token, &who, NULL))
            h->wrong++;
    }
    return NULL;
}

/* A token that stays valid is accepted on every thread while the file is replaced under them. */
static void checks_during_reloads(void **state)
{
    (void)state;
    char a[TOKEN_TEXT], last[TOKEN_TEXT];
    create("a", 0, a);
    struct hammer h = {.t = open_table(), .token = a};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_run, &h), 0);
    for (int i = 0; i < 3; i++)
        create("more", 0, last);
    enum sg_code seen = check_until(h.t, last, SG_OK);
    h.stop = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(seen, SG_OK);
    assert_int_equal(h.wrong, 0);
    token_table_free(h.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        T(format_is_fixed_and_random),
        T(g4_only_the_hash_is_on_disk),
        T(header_forms),
        T(every_changed_character_counts),
        T(g4_expiry),
        T(g4_reload_and_revoke),
        T(unreadable_file_keeps_the_table),
        T(malformed_lines_are_skipped_and_kept),
        T(concurrent_creates_lose_nothing),
        T(list_names_all),
        T(names_are_checked),
        T(p33_files_root),
        T(p33_damaged_roots_confine_all_the_more),
        T(unwritable_place_is_an_error),
        T(symlink_stays_a_symlink),
        T(memory_tokens_survive_a_reload),
        T(checks_during_reloads),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
