/* Uploads: parts that are cut come again alone, whatever is known of the length.  A16; P29 P31 P32. */
#include "upload_owner.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whole ---- */

/* Two calls for what fits one part; names that nobody else has. */
static void test_one_part(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 65536, PART - 1, PART};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int known = 0; known < 2; known++) {
            struct owner o;
            char want[256];
            start_over(PART, 64 * MIB);
            run(&o, sizes[i], known ? (int64_t)sizes[i] : -1);
            assert_true(o.ok);
            assert_int_equal(o.offset, sizes[i]);
            assert_int_equal(o.file_size, sizes[i]);
            assert_string_equal(o.word, "created");
            assert_int_equal(played.nwrites, 1);
            assert_int_equal(played.ncalls, 1);
            assert_int_equal(strncmp(played.writes[0].name, ".up-p", 5), 0);
            assert_int_equal(strcspn(played.writes[0].name + 4, "."), UPLOAD_ID_CHARS);
            (void)snprintf(want, sizeof want, "put --path dGFyZ2V0 --from %s --size %" PRIu64,
                           played.writes[0].name, sizes[i]);
            assert_string_equal(played.calls[0], want);
            assert_there(sizes[i]);
        }
}

static void test_many_parts(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {PART + 1, 3 * PART, 9 * PART + 12345};
    static const size_t chunks[] = {0, 1000, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int known = 0; known < 2; known++) {
            struct owner o = {.ready = sizes[i], .chunk = chunks[i]};
            start_over(PART, 64 * MIB);
            begin(&o, sizes[i], known ? (int64_t)sizes[i] : -1);
            assert_true(played_until(&o.done) && played_rest());
            fs_request_free(&o.finish);
            assert_true(o.ok);
            assert_there(sizes[i]);
            assert_int_equal(played.most_at_once, 1);
            size_t parts = (size_t)((sizes[i] + PART - 1) / PART);
            if (known)
                assert_int_equal(played.nwrites, parts);
            for (size_t k = 1; k < played.nwrites; k++) /* in order, one behind the other */
                assert_int_equal(offset_of(&played.writes[k]),
                                 offset_of(&played.writes[k - 1]) + played.writes[k - 1].size);
            assert_true(played_count("join") <= (int)(played.nwrites + 3) / 4);
            assert_int_equal(played_count("put"), 1);
            assert_int_equal(played_count("upload-remove"), 0);
        }
}

/* The body comes slowly, in odd pieces: a part of a known length is on its way meanwhile. */
static void test_streams(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct owner o = {0};
        uint64_t size = 2 * PART + 777;
        start_over(PART, 64 * MIB);
        begin(&o, size, known ? (int64_t)size : -1);
        for (uint64_t n = 1; o.ready < size; n = n * 3 + 7) {
            played_turns(4);
            give(&o, n);
            if (known && o.ready > 5000) {
                played_turns(4);
                assert_true(played.nwrites > 0 && played.writes[0].got > 0);
            }
        }
        give(&o, size);
        assert_true(played_until(&o.done) && played_rest());
        fs_request_free(&o.finish);
        assert_true(o.ok);
        assert_there(size);
    }
}

/* P32: however fast the body comes, no more of it is taken than one part and some of the next. */
static void test_memory(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct owner o = {.ready = 100 * MIB};
        start_over(PART, 64 * MIB);
        played.all = FATE_HANGS;
        begin(&o, 100 * MIB, known ? (int64_t)(100 * MIB) : -1);
        played_turns(200);
        assert_int_equal(played.writes[0].got, PART);
        assert_true(o.at <= PART + AHEAD);
        assert_true(blocks_in_use(all->blocks) <= (PART + AHEAD) / BLOCK_ROOM + 2);
        upload_cancel(o.upload);
        fs_request_free(&o.finish);
        assert_true(played_rest());
        assert_int_equal(blocks_in_use(all->blocks), 0);
    }
}

/* ---- parts that do not arrive ---- */

static void test_cuts(void **state)
{
    (void)state;
    static const enum played_fate fates[] = {FATE_CUT, FATE_LOST, FATE_LATE,
                                             FATE_500, FATE_429,  FATE_UNREACHED};
    for (size_t f = 0; f < sizeof fates / sizeof *fates; f++)
        for (int nth = 1; nth <= 4; nth += 1) {
            struct owner o;
            bool known = (f + (size_t)nth) % 2;
            uint64_t size = 3 * PART + 5;
            start_over(PART, 64 * MIB);
            played.faults[0].nth = nth;
            played.faults[0].fate = fates[f];
            played.faults[0].after = nth == 4 ? 3 : 300000;
            run(&o, size, known ? (int64_t)size : -1);
            assert_true(o.ok);
            played_turns(50); /* what comes late */
            /* that part came again, and no other one */
            uint64_t cut = offset_of(&played.writes[nth - 1]);
            for (size_t k = 0; k < played.nwrites; k++)
                for (size_t m = 0; m < k; m++)
                    assert_true(offset_of(&played.writes[k]) != offset_of(&played.writes[m]) ||
                                offset_of(&played.writes[k]) == cut);
            assert_int_equal(offset_of(&played.writes[nth]), cut);
            assert_int_equal(played.writes[nth].size, played.writes[nth - 1].size);
            if (fates[f] == FATE_LATE) { /* it met nobody: the target is right all the same */
                assert_string_not_equal(played.writes[nth].name, played.writes[nth - 1].name);
                assert_int_equal(played_find("target")->len, size);
                for (uint64_t i = 0; i < size; i++)
                    assert_int_equal(played_find("target")->data[i], (unsigned char)byte_at(i));
            } else {
                assert_there(size);
            }
        }
}

/* A file of one part, whose first try is cut: nothing of it stays. */
static void test_cut_single(void **state)
{
    (void)state;
    struct owner o;
    played.faults[0].nth = 1;
    played.faults[0].fate = FATE_LOST;
    run(&o, 1000, 1000);
    assert_true(o.ok);
    assert_there(1000);
    assert_int_equal(played_count("upload-remove"), 1);
}

/* The client is still sending when the part is cut: it comes again from its beginning, and goes on. */
static void test_cut_while_streaming(void **state)
{
    (void)state;
    struct owner o = {0};
    played.faults[0].nth = 1;
    played.faults[0].fate = FATE_CUT;
    played.faults[0].after = 1000;
    begin(&o, 5000, 5000);
    played_turns(3);
    give(&o, 2000);
    played_turns(10);
    give(&o, 1000);
    assert_true(played_rest());
    give(&o, 2000);
    assert_true(played_until(&o.done) && played_rest());
    fs_request_free(&o.finish);
    assert_true(o.ok);
    assert_there(5000);
    assert_int_equal(played.nwrites, 2);
}

/* Its bytes are taken, and there is no answer: after a while it is sent again. */
static void test_hangs(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        struct owner o;
        start_over(PART, 64 * MIB);
        all->tick_ms = 5;
        all->stall_ms = 300;
        played.faults[0].nth = nth;
        played.faults[0].fate = FATE_HANGS;
        run(&o, PART + 10, nth == 1 ? -1 : (int64_t)(PART + 10));
        assert_true(o.ok);
        assert_true(played.writes[nth - 1].cancelled);
        assert_int_equal(offset_of(&played.writes[nth]), offset_of(&played.writes[nth - 1]));
        assert_there(PART + 10);
    }
}

/* A slow client: a part does not stay on its way until an edge cuts it, but becomes what is there, and those that follow
 * are announced no longer. */
static void test_slow_client(void **state)
{
    (void)state;
    struct owner o = {0};
    uint64_t size = 2 * PART;
    all->tick_ms = 5;
    all->stream_ms = 200;
    begin(&o, size, (int64_t)size);
    for (bool cut = false; !cut; cut = played.nwrites > 1) {
        give(&o, o.ready < 300 * KIB ? 4096 : 0);
        played_turns(20);
    }
    assert_true(played.writes[0].cancelled);
    assert_int_equal(played.writes[0].size, PART);
    assert_true(played.writes[1].size <= 300 * KIB);
    give(&o, size);
    assert_true(played_until(&o.done) && played_rest());
    fs_request_free(&o.finish);
    assert_true(o.ok);
    for (size_t i = 2; i < played.nwrites; i++)
        assert_true(played.writes[i].size <= 304 * KIB);
    assert_there(size);
}

/* P31: it never arrives. */
static void test_given_up(void **state)
{
    (void)state;
    static const struct {
        enum played_fate fate;
        enum sg_code code;
        size_t writes;
        int removals;
    } cases[] = {
        {FATE_500, SG_E_UPSTREAM_UNAVAILABLE, UPLOAD_TRIES, 1},
        {FATE_UNREACHED, SG_E_UPSTREAM_UNREACHABLE, UPLOAD_TRIES, 0},
        {FATE_NO_SPACE, SG_E_NO_SPACE, 1, 1},
        {FATE_STALE, SG_E_STALE_SESSION, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner o;
        start_over(PART, 64 * MIB);
        played.all = cases[i].fate;
        run(&o, 10, 10);
        assert_false(o.ok);
        assert_int_equal(o.e.code, cases[i].code);
        assert_true(o.e.outcome == (cases[i].fate == FATE_UNREACHED ? SG_NOT_SENT : SG_NOT_STARTED));
        assert_int_equal(played.nwrites, cases[i].writes);
        assert_int_equal(played_count("upload-remove"), cases[i].removals);
        assert_int_equal(played_count("put"), 0);
        assert_nothing();
    }
}

/* A later part is refused: what arrived before goes, too. */
static void test_given_up_later(void **state)
{
    (void)state;
    struct owner o;
    played.faults[0].nth = 6;
    played.faults[0].fate = FATE_NO_SPACE;
    run(&o, 8 * PART, -1);
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_NO_SPACE);
    assert_int_equal(o.e.outcome, SG_NOT_STARTED);
    assert_nothing();
}

/* 413: parts become smaller, for those that come after, too. */
static void test_too_large(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct owner o;
        uint64_t size = 3 * PART + 100;
        start_over(PART, 64 * MIB);
        played.most = 300 * KIB;
        run(&o, size, known ? (int64_t)size : -1);
        assert_true(o.ok);
        assert_there(size);
        size_t before = played.nwrites;
        for (size_t i = 2; i < before; i++)
            assert_true(played.writes[i].size <= 256 * KIB);
        run(&o, PART, (int64_t)PART);
        assert_true(o.ok);
        assert_int_equal(played.nwrites, before + 4);
        assert_there(PART);
    }
    struct owner o;
    start_over(PART, 64 * MIB);
    played.all = FATE_TOO_LARGE; /* whatever its size */
    run(&o, PART, (int64_t)PART);
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_UPSTREAM_REJECTED);
    assert_nothing();
}

int main(void)
{
    sg_log_set_level(SG_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(test_one_part),
        TEST(test_many_parts),
        TEST(test_streams),
        TEST(test_memory),
        TEST(test_cuts),
        TEST(test_cut_single),
        TEST(test_cut_while_streaming),
        TEST(test_hangs),
        TEST(test_slow_client),
        TEST(test_given_up),
        TEST(test_given_up_later),
        TEST(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
