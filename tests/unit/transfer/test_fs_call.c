/* File operations over the guest: what is sent, what is asked again, and what an answer may hold.  C8, E10; P33, P35. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/b64.h"
#include "tests/support/fake_guestlink.h"
#include "transfer/fs_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sg_loop *loop;
static struct fake fake;

struct owner {
    bool done, ok, more;
    int times;
    struct sg_error e;
    struct fs_item *items;
    size_t n;
    char bytes[4096];
    char word[32];
    bool has_at;
    struct fs_item at;
    char at_name[64];
};

static void on_done(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct owner *o = arg;
    o->done = true;
    o->times++;
    o->ok = a != NULL;
    assert_true((a == NULL) != (e == NULL));
    if (e) {
        o->e = *e;
        return;
    }
    o->more = a->more;
    o->n = a->n;
    o->has_at = a->at != NULL;
    if (a->at) {
        o->at = *a->at;
        (void)snprintf(o->at_name, sizeof o->at_name, "%s", a->bytes + a->at->name);
    }
    (void)snprintf(o->word, sizeof o->word, "%s", a->word);
    if (!a->n)
        return;
    o->items = calloc(a->n, sizeof *o->items);
    assert_non_null(o->items);
    memcpy(o->items, a->items, a->n * sizeof *o->items);
    const struct fs_item *last = &a->items[a->n - 1];
    size_t len = last->data + last->data_len + 1;
    memcpy(o->bytes, a->bytes, len < sizeof o->bytes ? len : sizeof o->bytes);
}

static struct fs_call *begin(struct owner *o, const struct fs_request *r)
{
    const struct fs_target t = {.session_id = "sess-1", .cwd = "/vercel/sandbox"};
    return fs_call_start(fake_link(&fake), &t, r, on_done, o, &o->e);
}

static void run(struct owner *o, const struct fs_request *r)
{
    *o = (struct owner){0};
    assert_non_null(begin(o, r));
    assert_false(o->done); /* no callback before it returns */
    assert_true(fake_until(&fake, &o->done));
    assert_int_equal(o->times, 1);
}

static int setup(void **state)
{
    (void)state;
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

/* Every kind of option, and bytes that are no text. */
static void test_arguments(void **state)
{
    (void)state;
    struct owner o;
    struct fs_request r = {0};
    static const char name[] = "a \n'$(x)\xff";
    char base64[64] = {0}, want[256];
    (void)sg_b64_encode(base64, name, sizeof name - 1);
    fs_request_begin(&r, "chmod");
    fs_request_bytes(&r, "--path", name, sizeof name - 1);
    fs_request_octal(&r, "--mode", 0644);
    fs_request_number(&r, "--mtime-ns", -5);
    fs_request_text(&r, "--access", "rw");
    fs_request_flag(&r, "--recursive");
    run(&o, &r);
    assert_true(o.ok);
    (void)snprintf(want, sizeof want,
                   "fs --op chmod --path %s --mode 644 --mtime-ns -5 --access rw --recursive ", base64);
    assert_string_equal(fake.last_args, want);
    assert_int_equal(fake_total(&fake), 1);
    fs_request_free(&r);
    assert_null(r.args[0]);
}

/* More options than there is room for are refused, not cut off. */
static void test_too_many_arguments(void **state)
{
    (void)state;
    struct owner o = {0};
    struct fs_request r = {0};
    fs_request_begin(&r, "stat");
    for (int i = 0; i < FS_ARGS_MAX; i++)
        fs_request_flag(&r, "--x");
    assert_true(r.failed);
    assert_null(begin(&o, &r));
    assert_int_equal(o.e.outcome, SG_NOT_SENT);
    assert_int_equal(fake_total(&fake), 0);
    fs_request_free(&r);
}

static const unsigned char *u(const char *s)
{
    return (const unsigned char *)s;
}

/* Names and targets come back as they are, NUL behind each. */
static void test_files(void **state)
{
    (void)state;
    const struct sg_wire_line lines[] = {
        {.kind = SG_WIRE_FILE,
         .name = u("a\xff"),
         .name_len = 2,
         .file = {.type = 'f', .mode = 0640, .size = 7}},
        {.kind = SG_WIRE_FILE,
         .name = u("l"),
         .name_len = 1,
         .data = u("../to"),
         .len = 5,
         .file = {.type = 'l'}},
    };
    struct owner o;
    struct fs_request r = {.reads = true};
    fake.fs_lines = lines;
    fake.fs_count = 2;
    fake.fs_end.kind = SG_WIRE_MORE;
    fs_request_begin(&r, "list");
    run(&o, &r);
    assert_true(o.ok && o.more);
    assert_int_equal(o.n, 2);
    assert_int_equal(o.items[0].file.mode, 0640);
    assert_int_equal(o.items[0].file.size, 7);
    assert_int_equal(o.items[0].data_len, 0);
    assert_string_equal(o.bytes + o.items[0].name, "a\xff");
    assert_string_equal(o.bytes + o.items[1].name, "l");
    assert_string_equal(o.bytes + o.items[1].data, "../to");
    free(o.items);
    fs_request_free(&r);
}

/* A line that came in pieces is one; the file is named once, and its lines know it. */
static void test_text_in_pieces(void **state)
{
    (void)state;
    const struct sg_wire_line lines[] = {
        {.kind = SG_WIRE_TEXT,
         .line = 3,
         .offset = 10,
         .name = u("f"),
         .name_len = 1,
         .data = u("one "),
         .len = 4,
         .goes_on = true},
        {.kind = SG_WIRE_TEXT, .line = 3, .offset = 14, .data = u("two"), .len = 3, .cut = true},
        {.kind = SG_WIRE_TEXT, .line = 9, .offset = 40, .data = u("x"), .len = 1, .context = true},
        {.kind = SG_WIRE_TEXT, .line = 1, .offset = 0, .name = u("g"), .name_len = 1},
    };
    struct owner o;
    struct fs_request r = {.reads = true};
    fake.fs_lines = lines;
    fake.fs_count = 4;
    fs_request_begin(&r, "grep");
    run(&o, &r);
    assert_true(o.ok && !o.more);
    assert_int_equal(o.n, 3);
    assert_string_equal(o.bytes + o.items[0].data, "one two");
    assert_int_equal(o.items[0].data_len, 7);
    assert_int_equal(o.items[0].offset, 10);
    assert_true(o.items[0].cut && !o.items[0].context && !o.items[0].goes_on);
    assert_string_equal(o.bytes + o.items[1].name, "f");
    assert_true(o.items[1].context);
    assert_string_equal(o.bytes + o.items[2].name, "g");
    assert_string_equal(o.bytes + o.items[2].data, "");
    free(o.items);
    fs_request_free(&r);
}

/* Where a search whose time was over goes on is no line of a file, and only that. */
static void test_late(void **state)
{
    (void)state;
    const struct sg_wire_line lines[] = {
        {.kind = SG_WIRE_TEXT, .line = 3, .name = u("f"), .name_len = 1, .data = u("x"), .len = 1},
        {.kind = SG_WIRE_TEXT, .line = 7, .name = u("g"), .name_len = 1, .goes_on = true},
    };
    struct owner o;
    struct fs_request r = {.reads = true};
    fake.fs_lines = lines;
    fake.fs_count = 2;
    fake.fs_end.kind = SG_WIRE_MORE;
    fs_request_begin(&r, "grep");
    run(&o, &r);
    assert_true(o.ok && o.more && o.has_at);
    assert_int_equal(o.n, 1);
    assert_int_equal(o.at.line, 7);
    assert_string_equal(o.at_name, "g");
    free(o.items);
    fake.fs_count = 1;
    run(&o, &r);
    assert_true(o.ok && o.more && !o.has_at);
    assert_int_equal(o.n, 1);
    free(o.items);
    fake.fs_lines = lines + 1;
    run(&o, &r);
    assert_true(o.ok && o.more && o.has_at);
    assert_int_equal(o.n, 0);
    fs_request_free(&r);
}

/* An answer that is cut is asked for again, from its beginning; what may not be done twice is not. */
static void test_lost_answers(void **state)
{
    (void)state;
    const struct sg_wire_line lines[] = {{.kind = SG_WIRE_NAME, .name = u("a"), .name_len = 1},
                                         {.kind = SG_WIRE_NAME, .name = u("b"), .name_len = 1}};
    struct owner o;
    struct fs_request r = {.reads = true, .again = true}, once = {0};
    fake.fs_lines = lines;
    fake.fs_count = 2;
    fake.lose_fs = FS_TRIES - 1;
    fs_request_begin(&r, "glob");
    run(&o, &r);
    assert_true(o.ok);
    assert_int_equal(o.n, 2);
    assert_int_equal(fake.calls[V_FS], FS_TRIES);
    free(o.items);

    fake.lose_fs = FS_TRIES;
    run(&o, &r);
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(fake.calls[V_FS], 2 * FS_TRIES);

    fake.lose_fs = 1;
    fs_request_begin(&once, "move");
    run(&o, &once);
    assert_false(o.ok);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(fake.calls[V_FS], 2 * FS_TRIES + 1);
    fs_request_free(&r);
    fs_request_free(&once);
}

/* What was not sent is asked again whatever it is, and stays "not sent" when it never goes. */
static void test_not_sent(void **state)
{
    (void)state;
    struct owner o;
    struct fs_request r = {0};
    fs_request_begin(&r, "move");
    fake.refuse_fs = 1;
    run(&o, &r);
    assert_true(o.ok);
    assert_int_equal(fake.calls[V_FS], 2);
    fake.refuse_fs = 100;
    run(&o, &r);
    assert_int_equal(o.e.outcome, SG_NOT_SENT);
    assert_int_equal(fake.calls[V_FS], 2 + FS_TRIES);
    fs_request_free(&r);
}

/* After an answer was lost, a refusal says nothing of the first try. */
static void test_lost_then_refused(void **state)
{
    (void)state;
    struct owner o;
    struct fs_request r = {.again = true};
    fs_request_begin(&r, "remove");
    fake.lose_fs = 1;
    fake.fs_end = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_FILE, .errno_name = "EACCES"};
    run(&o, &r);
    assert_int_equal(o.e.code, SG_E_PERMISSION_DENIED);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
    fs_request_free(&r);
}

/* P33 and the typed errors of C8. */
static void test_file_errors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        enum sg_code code;
    } cases[] = {
        {"ENOENT", "why", SG_E_FILE_NOT_FOUND},
        {"EEXIST", "why", SG_E_FILE_EXISTS},
        {"ENOTEMPTY", "why", SG_E_NOT_EMPTY},
        {"EISDIR", "why", SG_E_IS_DIRECTORY},
        {"ENOTDIR", "why", SG_E_NOT_DIRECTORY},
        {"EACCES", "why", SG_E_PERMISSION_DENIED},
        {"ENOSPC", "why", SG_E_NO_SPACE},
        {"ELOOP", "why", SG_E_FILE_ERROR},
        {"EXDEV", "outside", SG_E_PATH_OUTSIDE_ROOT},
        {"EXDEV", "making the link", SG_E_FILE_ERROR},
    };
    struct owner o;
    struct fs_request r = {0}, parts = {.parts = true};
    fs_request_begin(&r, "stat");
    fs_request_begin(&parts, "remove");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.fs_end = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_FILE};
        (void)snprintf(fake.fs_end.errno_name, sizeof fake.fs_end.errno_name, "%s", cases[i].name);
        (void)snprintf(fake.fs_end.text, sizeof fake.fs_end.text, "%s", cases[i].text);
        run(&o, &r);
        assert_int_equal(o.e.code, cases[i].code);
        assert_string_equal(o.e.errno_name, cases[i].name);
        assert_int_equal(o.e.outcome, SG_NOT_STARTED);
    }
    run(&o, &parts);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
    fs_request_free(&r);
    fs_request_free(&parts);
}

/* Bounded: an answer beyond the ceiling is refused, and what is read on takes no more memory. */
static void test_too_long(void **state)
{
    (void)state;
    enum { LINES = FS_ANSWER_MAX / SG_WIRE_DATA_MAX + 100 };
    static unsigned char text[SG_WIRE_DATA_MAX];
    struct sg_wire_line *lines = calloc(LINES, sizeof *lines);
    assert_non_null(lines);
    for (int i = 0; i < LINES; i++)
        lines[i] = (struct sg_wire_line){
            .kind = SG_WIRE_TEXT, .line = (uint64_t)i + 1, .data = text, .len = sizeof text};
    struct owner o;
    struct fs_request r = {.reads = true, .again = true};
    fake.fs_lines = lines;
    fake.fs_count = LINES;
    fake.lines_per_turn = 1000;
    fs_request_begin(&r, "lines");
    run(&o, &r);
    assert_int_equal(o.e.code, SG_E_OVERLOADED);
    assert_int_equal(o.e.outcome, SG_FINISHED);
    assert_int_equal(fake.calls[V_FS], 1);
    fs_request_free(&r);
    free(lines);
}

/* Who asked is gone: what reads is ended in the sandbox, and what changes something is not. */
static void test_cancel(void **state)
{
    (void)state;
    struct owner o = {0};
    struct fs_request reads = {.reads = true}, moves = {0};
    fs_request_begin(&reads, "grep");
    fs_request_begin(&moves, "move");
    struct fs_call *c = begin(&o, &reads), *d = begin(&o, &moves);
    assert_non_null(c);
    assert_non_null(d);
    fs_call_cancel(c);
    assert_int_equal(fake.abandoned, 1);
    fs_call_cancel(d);
    fs_request_free(&reads);
    fs_request_free(&moves);
    fake_turns(&fake, 10);
    assert_int_equal(o.times, 0);
    assert_int_equal(fake.cancelled, 2);
    assert_int_equal(fake.abandoned, 1);
}

static void test_word(void **state)
{
    (void)state;
    struct owner o;
    struct fs_request r = {.reads = true};
    fs_request_begin(&r, "exists");
    fake.fs_end = (struct sg_wire_line){.kind = SG_WIRE_OK, .text = "yes"};
    run(&o, &r);
    assert_string_equal(o.word, "yes");
    fs_request_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_then_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_word, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
