/* Uploads: the old file or the whole new one, whatever fails.  A16, A17, U8; P29, P31, P35. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/fake_guestlink.h"
#include "transfer/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sg_loop *loop;
static struct fake fake;

/* ---- fs/write made of memory ---- */

static struct {
    struct vercel_file_write w;
    char path[256];
    vercel_done_fn *done;
    void *arg;
    bool active, cancelled, resumed;
    size_t got;
    unsigned char body[1024];
    bool refuse;
} put;

struct vercel_call *vercel_file_write_start(struct vercel_client *c, const struct vercel_file_write *w,
                                            vercel_done_fn *done, void *arg, struct sg_error *e)
{
    assert_ptr_equal(c, guestlink_client(fake_link(&fake)));
    if (put.refuse) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory");
        return NULL;
    }
    put.w = *w;
    (void)snprintf(put.path, sizeof put.path, "%s", w->path);
    put.done = done;
    put.arg = arg;
    put.active = true;
    return (struct vercel_call *)(void *)&put;
}

void vercel_call_resume(struct vercel_call *call)
{
    assert_ptr_equal(call, &put);
    put.resumed = true;
}

void vercel_call_cancel(struct vercel_call *call)
{
    assert_ptr_equal(call, &put);
    assert_true(put.active);
    put.active = false;
    put.cancelled = true;
}

/* Reads the body until it pauses or ends; true at the end. */
static bool pump(void)
{
    for (;;) {
        size_t n = put.w.read(put.arg, (char *)put.body + put.got, sizeof put.body - put.got);
        if (n == VERCEL_READ_PAUSE)
            return false;
        if (n == 0)
            return true;
        put.got += n;
    }
}

static void put_ends(const struct sg_error *e)
{
    put.active = false;
    put.done(put.arg, e);
}

/* ---- the owner ---- */

struct owner {
    const char *body;
    size_t at, ready; /* given so far; may be given */
    bool done, ok, created;
    int times;
    struct sg_error e;
};

static size_t read_body(void *arg, char *buf, size_t cap)
{
    struct owner *o = arg;
    size_t n = o->ready - o->at;
    if (n == 0)
        return o->at == strlen(o->body) ? 0 : VERCEL_READ_PAUSE;
    n = n < cap ? n : cap;
    memcpy(buf, o->body + o->at, n);
    o->at += n;
    return n;
}

static void on_done(void *arg, bool created, const struct sg_error *e)
{
    struct owner *o = arg;
    o->done = true;
    o->times++;
    o->ok = !e;
    o->created = created;
    if (e)
        o->e = *e;
}

static struct upload *begin(struct owner *o, const char *path, int mode, bool parents, bool exclusive)
{
    struct upload_spec s = {.session_id = "sess-1",
                            .cwd = "/vercel/sandbox",
                            .path = path,
                            .mode = mode,
                            .parents = parents,
                            .exclusive = exclusive,
                            .size = strlen(o->body),
                            .read = read_body};
    return upload_start(fake_link(&fake), &s, on_done, o, &o->e);
}

static int setup(void **state)
{
    (void)state;
    memset(&put, 0, sizeof put);
    loop = sg_loop_new();
    fake_init(&fake, loop);
    return !loop;
}

static int teardown(void **state)
{
    (void)state;
    fake_turns(&fake, 20);
    int left = fake.live;
    sg_loop_free(loop);
    fake_free(&fake);
    return left;
}

/* Two upstream calls; the body exactly; a file of our own until the commit. */
static void test_upload(void **state)
{
    (void)state;
    struct owner o = {.body = "hello\nworld", .ready = 3};
    struct upload *u = begin(&o, "dir/a file", 0755, true, true);
    assert_non_null(u);
    assert_int_equal(strncmp(put.path, GUEST_ROOT "/.up-put-", sizeof GUEST_ROOT "/.up-put-" - 1), 0);
    assert_int_equal(put.w.mode, 0600);
    assert_int_equal(put.w.size, 11);
    assert_false(pump());
    o.ready = 11;
    upload_resume(u);
    assert_true(put.resumed);
    assert_true(pump());
    assert_int_equal(put.got, 11);
    assert_memory_equal(put.body, "hello\nworld", 11);
    put_ends(NULL);
    assert_true(fake_until(&fake, &o.done));
    assert_true(o.ok && o.created);
    char want[512];
    (void)snprintf(
        want, sizeof want,
        "commit --from %s --to /vercel/sandbox/dir/a file --size 11 --mode 755 --parents --exclusive ",
        put.path);
    assert_string_equal(fake.last_args, want);
    assert_int_equal(fake_total(&fake), 1);
}

static void test_replaced(void **state)
{
    (void)state;
    fake.commit_word = "replaced";
    struct owner o = {.body = ""};
    assert_non_null(begin(&o, "/abs", -1, false, false));
    assert_true(pump());
    put_ends(NULL);
    assert_true(fake_until(&fake, &o.done));
    assert_true(o.ok);
    assert_false(o.created);
    assert_non_null(strstr(fake.last_args, "--to /abs --size 0 "));
    assert_null(strstr(fake.last_args, "--mode"));
}

/* P31: it fails half way: the target was not touched, and what was uploaded is taken away. */
static void test_put_fails(void **state)
{
    (void)state;
    struct owner o = {.body = "x", .ready = 1};
    assert_non_null(begin(&o, "f", -1, false, false));
    struct sg_error e;
    sg_fail(&e, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN, "cut");
    put_ends(&e);
    assert_true(o.done);
    assert_int_equal(o.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(o.e.outcome, SG_NOT_STARTED);
    fake_turns(&fake, 5);
    assert_int_equal(fake.calls[V_UNLINK], 1);
    assert_int_equal(fake.calls[V_COMMIT], 0);
    assert_non_null(strstr(fake.last_args, put.path));
}

/* Nothing left the gateway, or the session is over: there is nothing to take away. */
static void test_nothing_to_take_away(void **state)
{
    (void)state;
    struct sg_error e;
    struct owner o = {.body = "x"}, p = {.body = "x"}, q = {.body = "x"};
    assert_non_null(begin(&o, "f", -1, false, false));
    sg_fail(&e, SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT, "refused");
    put_ends(&e);
    assert_true(o.done && !o.ok);
    assert_non_null(begin(&p, "f", -1, false, false));
    sg_fail(&e, SG_E_STALE_SESSION, SG_NOT_STARTED, "over");
    put_ends(&e);
    assert_int_equal(p.e.code, SG_E_STALE_SESSION);
    put.refuse = true;
    assert_null(begin(&q, "f", -1, false, false));
    assert_false(q.done);
    fake_turns(&fake, 5);
    assert_int_equal(fake_total(&fake), 0);
}

static void test_file_errors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum sg_wire_fail fail;
        enum sg_code code;
    } cases[] = {
        {"ENOENT", SG_WF_FILE, SG_E_FILE_NOT_FOUND},    {"EEXIST", SG_WF_FILE, SG_E_FILE_EXISTS},
        {"EACCES", SG_WF_FILE, SG_E_PERMISSION_DENIED}, {"EPERM", SG_WF_FILE, SG_E_PERMISSION_DENIED},
        {"EISDIR", SG_WF_FILE, SG_E_IS_DIRECTORY},      {"ENOTDIR", SG_WF_FILE, SG_E_NOT_DIRECTORY},
        {"ENOSPC", SG_WF_FILE, SG_E_NO_SPACE},          {"ENOSPC", SG_WF_NO_SPACE, SG_E_NO_SPACE},
        {"ELOOP", SG_WF_FILE, SG_E_FILE_ERROR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner o = {.body = "x", .ready = 1};
        fake.upload_there = true;
        fake.commit_error =
            (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = cases[i].fail, .text = "why"};
        (void)snprintf(fake.commit_error.errno_name, sizeof fake.commit_error.errno_name, "%s",
                       cases[i].name);
        assert_non_null(begin(&o, "f", -1, false, false));
        put_ends(NULL);
        assert_true(fake_until(&fake, &o.done));
        assert_int_equal(o.e.code, cases[i].code);
        assert_int_equal(o.e.outcome, SG_NOT_STARTED);
        assert_string_equal(o.e.errno_name, cases[i].name);
        assert_string_equal(o.e.detail, "why");
    }
    fake_turns(&fake, 5);
    assert_int_equal(fake.calls[V_UNLINK], 0); /* a refused commit clears up by itself */
}

/* The commit's answer is lost.  It never arrived: asked again, done.  It arrived: nobody can tell any more. */
static void test_lost_commit(void **state)
{
    (void)state;
    struct owner o = {.body = "x", .ready = 1}, p = {.body = "x", .ready = 1};
    fake.lose_commits = 2;
    assert_non_null(begin(&o, "f", -1, false, false));
    put_ends(NULL);
    assert_true(fake_until(&fake, &o.done));
    assert_true(o.ok);
    assert_int_equal(fake.calls[V_COMMIT], 3);
    fake.lose_commits = 1;
    fake.lose_start = LOST_ARRIVED; /* the fate of lost commits, too */
    fake.upload_there = true;
    assert_non_null(begin(&p, "f", -1, false, false));
    put_ends(NULL);
    assert_true(fake_until(&fake, &p.done));
    assert_false(p.ok);
    assert_int_equal(p.e.outcome, SG_OUTCOME_UNKNOWN);
}

/* Lost, and then the upstream cannot be reached at all: not "not sent", for the first may have arrived. */
static void test_lost_then_refused(void **state)
{
    (void)state;
    struct owner o = {.body = "x", .ready = 1};
    fake.lose_commits = 1;
    fake.refuse_from = 1;
    assert_non_null(begin(&o, "f", -1, false, false));
    put_ends(NULL);
    assert_true(fake_until(&fake, &o.done));
    assert_int_equal(o.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
}

/* Never an answer: unknown after a few tries, and cleared up. */
static void test_commit_unreachable(void **state)
{
    (void)state;
    struct owner o = {.body = "x", .ready = 1};
    fake.lose_commits = 1000;
    assert_non_null(begin(&o, "f", -1, false, false));
    put_ends(NULL);
    assert_true(fake_until(&fake, &o.done));
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(fake.calls[V_COMMIT], 3);
    fake_turns(&fake, 10);
    assert_int_equal(fake.calls[V_UNLINK], 1);
    assert_int_equal(o.times, 1);
}

/* The client leaves: the upload goes, the old file stays; a commit under way is seen through. */
static void test_cancel(void **state)
{
    (void)state;
    struct owner o = {.body = "xyz", .ready = 1}, p = {.body = "x", .ready = 1};
    struct upload *u = begin(&o, "f", -1, false, false);
    assert_non_null(u);
    assert_false(pump());
    upload_cancel(u);
    assert_true(put.cancelled);
    fake_turns(&fake, 5);
    assert_int_equal(fake.calls[V_UNLINK], 1);
    assert_int_equal(fake.calls[V_COMMIT], 0);
    fake.upload_there = true;
    u = begin(&p, "f", -1, false, false);
    assert_non_null(u);
    put_ends(NULL);
    upload_cancel(u);
    fake_turns(&fake, 5);
    assert_int_equal(fake.calls[V_COMMIT], 1);
    assert_int_equal(fake.cancelled, 0);
    assert_int_equal(o.times + p.times, 0);
}

static void test_paths(void **state)
{
    (void)state;
    struct owner o = {.body = "x"};
    char *longest = malloc(5000);
    assert_non_null(longest);
    memset(longest, 'a', 4999);
    longest[4999] = '\0';
    assert_null(begin(&o, "", -1, false, false));
    assert_int_equal(o.e.code, SG_E_INVALID_PATH);
    assert_null(begin(&o, longest, -1, false, false));
    assert_int_equal(o.e.code, SG_E_INVALID_PATH);
    assert_null(begin(&o, "caf\xe9", -1, false, false));
    assert_int_equal(o.e.code, SG_E_UNSUPPORTED);
    assert_false(o.done || put.active);
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_upload, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_put_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_to_take_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_then_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commit_unreachable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
