/* Many uploads share memory and have their turns; resumable ones keep what came.  U8; P32. */
#include "upload_owner.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_quiet(void *arg)
{
    ((struct owner *)arg)->quiet++;
}

/* ---- memory of all ---- */

/* Many more than there is memory for: each has its turn, parts end early, and all arrive. */
static void test_exhausted(void **state)
{
    (void)state;
    enum { N = 24 };
    static struct owner o[N];
    uint64_t size = PART + PART / 2;
    start_over(PART, 6 * BLOCK_BYTES);
    memset(o, 0, sizeof o);
    for (int i = 0; i < N; i++) {
        o[i].ready = i % 3 ? size : 0;
        begin(&o[i], size, i % 2 ? -1 : (int64_t)size);
    }
    int left = N;
    for (int turn = 0; turn < 200000 && left; turn++) {
        played_turns(1);
        left = 0;
        for (int i = 0; i < N; i++) {
            if (i % 3 == 0 && o[i].ready < size)
                give(&o[i], 4096);
            if (o[i].done && o[i].finish.n) {
                assert_true(o[i].ok);
                assert_int_equal(o[i].file_size, size);
                fs_request_free(&o[i].finish);
            }
            left += !o[i].done;
        }
        assert_true(blocks_in_use(all->blocks) <= 6);
    }
    assert_int_equal(left, 0);
    assert_true(played_rest());
    assert_there(size);
    assert_int_equal(blocks_in_use(all->blocks), 0);
}

/* Some hold all the memory and say nothing: the others wait in order, and go on when it comes back. */
static void test_waits_in_line(void **state)
{
    (void)state;
    enum { N = 6 };
    static struct owner o[N];
    start_over(PART, 2 * BLOCK_BYTES);
    memset(o, 0, sizeof o);
    for (int i = 0; i < N; i++) {
        o[i].ready = i < 2 ? 1 : 10;
        begin(&o[i], 10, 10);
        played_turns(2);
    }
    played_turns(20);
    for (int i = 2; i < N; i++)
        assert_int_equal(o[i].at, 0);
    upload_cancel(o[3].upload); /* one leaves the line */
    o[3].upload = NULL;
    give(&o[0], 9);
    int last = 2;
    while (!o[5].done) {
        played_turns(1);
        for (int i = 2; i < N; i++)
            if (o[i].at && i > last) {
                assert_true(i != 3);
                last = i;
            }
        assert_true(!o[5].at || o[4].at);
        assert_true(!o[4].at || o[2].at);
    }
    give(&o[1], 9);
    assert_true(played_until(&o[1].done) && played_rest());
    for (int i = 0; i < N; i++) {
        assert_true(o[i].ok || i == 3);
        fs_request_free(&o[i].finish);
    }
}

/* ---- resumable ones ---- */

static void begin_at(struct owner *o, uint64_t at, uint64_t end, bool finishes)
{
    o->size = end;
    o->at = at;
    fs_request_begin(&o->finish, "upload-finish");
    const struct upload_spec s = {.target = {.session_id = "sess-1"},
                                  .id = "r123",
                                  .at = at,
                                  .size = (int64_t)(end - at),
                                  .read = read_body,
                                  .finish = finishes ? &o->finish : NULL};
    o->upload = upload_start(all, &s, on_done, o, &o->e);
    assert_non_null(o->upload);
}

static void ends(struct owner *o)
{
    assert_true(played_until(&o->done) && played_rest());
    fs_request_free(&o->finish);
}

static void test_resumable(void **state)
{
    (void)state;
    uint64_t size = 4 * PART + 9, first = PART + 100;
    struct owner o = {.ready = first};
    begin_at(&o, 0, first, false);
    ends(&o);
    assert_true(o.ok);
    assert_int_equal(o.offset, first);
    assert_int_equal(played_find(".up-r123")->len, first);
    o = (struct owner){.ready = size};
    begin_at(&o, first, size, true);
    ends(&o);
    assert_true(o.ok);
    assert_int_equal(o.offset, size);
    assert_there(size);
    assert_string_equal(played.calls[played.ncalls - 1], "upload-finish --upload r123 --size 4194313");
    assert_int_equal(played_count("upload-remove"), 0);

    o = (struct owner){.ready = 10}; /* it goes on elsewhere */
    begin_at(&o, 7, 10, true);
    ends(&o);
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_UPLOAD_OFFSET);
    assert_int_equal(o.e.accepted, 0);
    assert_int_equal(o.offset, 7);
    assert_int_equal(played_count("upload-finish"), 1);

    start_over(PART, 64 * MIB);
    o = (struct owner){0}; /* an empty one */
    begin_at(&o, 0, 0, true);
    ends(&o);
    assert_true(o.ok);
    assert_there(0);
}

/* The body is cut, or its client leaves: what came is kept, and only then is it told. */
static void test_resumable_cut(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct owner o = {.ready = 2 * PART + 500, .abort_at_end = how == 0};
        start_over(PART, 64 * MIB);
        begin_at(&o, 0, how == 0 ? o.ready : 5 * PART, true);
        if (how == 0)
            o.upload->size = (int64_t)(5 * PART);
        while (o.at < o.ready)
            played_turns(1);
        played_turns(how == 2 ? 40 : 0);
        if (how) {
            upload_cancel(o.upload);
            assert_true(played_rest());
            assert_int_equal(o.times, 0);
        } else {
            assert_true(played_until(&o.done) && played_rest());
            assert_int_equal(o.e.code, SG_E_BAD_REQUEST);
            assert_int_equal(o.offset, 2 * PART + 500);
        }
        fs_request_free(&o.finish);
        const struct played_file *f = played_find(".up-r123");
        assert_non_null(f);
        assert_int_equal(f->len, 2 * PART + 500);
        for (uint64_t i = 0; i < f->len; i++)
            assert_int_equal(f->data[i], (unsigned char)byte_at(i));
        assert_int_equal(played_left(), 1);
        assert_int_equal(played_count("upload-finish"), 0);
    }
}

/* A part cannot be sent: what was before it is kept. */
static void test_resumable_fails(void **state)
{
    (void)state;
    struct owner o = {.ready = 6 * PART};
    played.faults[0].nth = 3;
    played.faults[0].fate = FATE_NO_SPACE;
    begin_at(&o, 0, 6 * PART, true);
    ends(&o);
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_NO_SPACE);
    assert_int_equal(o.offset, 2 * PART);
    assert_int_equal(played_find(".up-r123")->len, 2 * PART);
}

/* Who comes later wins: the first is told when its bytes are safe, and then the second goes on. */
static void test_settle(void **state)
{
    (void)state;
    struct owner o = {.ready = PART + 10}, other = {0}, third = {0};
    assert_false(upload_settle(all, "sess-1", "r123", on_quiet, &other));
    begin_at(&o, 0, 3 * PART, true);
    assert_false(upload_settle(all, "sess-2", "r123", on_quiet, &other));
    assert_false(upload_settle(all, "sess-1", "r12", on_quiet, &other));
    while (o.at < o.ready)
        played_turns(1);
    assert_true(upload_settle(all, "sess-1", "r123", on_quiet, &other));
    assert_true(upload_settle(all, "sess-1", "r123", on_quiet, &third));
    upload_settle_off(all, &third);
    assert_int_equal(other.quiet, 0);
    assert_true(played_until(&o.done) && played_rest());
    fs_request_free(&o.finish);
    assert_int_equal(o.e.code, SG_E_OVERLOADED);
    assert_int_equal(o.offset, PART + 10);
    assert_int_equal(played_find(".up-r123")->len, PART + 10);
    played_turns(5);
    assert_int_equal(other.quiet, 1);
    assert_int_equal(third.quiet, 0);
    assert_false(upload_settle(all, "sess-1", "r123", on_quiet, &other));
}

int main(void)
{
    sg_log_set_level(SG_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(test_exhausted),     TEST(test_waits_in_line),   TEST(test_resumable),
        TEST(test_resumable_cut), TEST(test_resumable_fails), TEST(test_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
