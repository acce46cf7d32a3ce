/* Bytes out of a session: short and long, cuts, and answers that are lost.  A16, E11; P29, P30, P32. */
#include "tests/unit/transfer/download_play.h"

#include "base/core/file_tag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nothing goes wrong ---- */

/* What is short is one call, nothing is put aside; empty files, too. */
static void test_short(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, LINE, LINE + 1, DOWNLOAD_INLINE};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world_reset(sizes[i]);
        assert_true(begin());
        run();
        check_bytes(0, sizes[i]);
        assert_int_equal(owner.file.size, sizes[i]);
        assert_int_equal(owner.opens, 1);
        assert_int_equal(box.calls, 1);
        assert_int_equal(box.reads, 0);
        assert_int_equal(box.most, 0);
    }
}

/* Two calls for each part and one to clear up; never more than two parts lie there, and another one comes. */
static void test_long(void **state)
{
    (void)state;
    static const struct {
        uint64_t size;
        int parts, rest;
    } cases[] = {{DOWNLOAD_INLINE + 1, 1, 0}, {PART, 1, 0}, {2 * PART, 2, 0}, {5 * PART, 5, 0}, {SIZE, 5, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_reset(cases[i].size);
        assert_true(begin());
        run();
        check_bytes(0, cases[i].size);
        assert_int_equal(box.reads, cases[i].parts);
        assert_int_equal(box.fetches, cases[i].parts + cases[i].rest);
        assert_int_equal(box.drops, 1);
        assert_true(box.most <= 3);
        assert_int_equal(nslept, 0);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        int64_t offset, limit, tail;
    } cases[] = {{10, 5, -1},        {0, 1, -1},      {SIZE - 1, 100, -1}, {SIZE, 1, -1},
                 {SIZE + 5, 5, -1},  {100, SIZE, -1}, {7, 2 * PART, -1},   {-1, -1, 1},
                 {-1, -1, 3 * PART}, {-1, 0, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_reset(SIZE);
        uint64_t from = cases[i].offset >= 0 ? (uint64_t)cases[i].offset : 0, len = SIZE;
        from = cases[i].tail >= 0 ? SIZE - (uint64_t)cases[i].tail : from < SIZE ? from : SIZE;
        len = SIZE - from;
        if (cases[i].limit >= 0 && (uint64_t)cases[i].limit < len)
            len = (uint64_t)cases[i].limit;
        if (cases[i].offset >= 0)
            fs_request_number(&owner.request, "--offset", cases[i].offset);
        if (cases[i].limit >= 0)
            fs_request_number(&owner.request, "--limit", cases[i].limit);
        if (cases[i].tail >= 0)
            fs_request_number(&owner.request, "--tail", cases[i].tail);
        assert_true(begin());
        run();
        check_bytes(from, len);
        assert_int_equal(owner.file.size, SIZE);
    }
}

static void test_same(void **state)
{
    (void)state;
    char tag[SG_FILE_TAG_LEN + 1];
    box.facts.size = box.size;
    sg_file_tag(&box.facts, tag);
    fs_request_text(&owner.request, "--unless", tag);
    assert_true(begin());
    run();
    check_bytes(0, 0);
    assert_true(owner.same);
    assert_int_equal(box.calls, 1);
    touch();
    owner_reset();
    fs_request_text(&owner.request, "--unless", tag);
    assert_true(begin());
    run();
    check_bytes(0, SIZE);
    assert_false(owner.same);
}

/* The disk is full: everything comes with the answers, in parts. */
static void test_full_disk(void **state)
{
    (void)state;
    box.full = true;
    assert_true(begin());
    run();
    check_bytes(0, SIZE);
    assert_int_equal(box.reads + box.drops, 0);
    assert_int_equal(box.fetches, SIZE / PART + 1);
}

static void test_slow_owner(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        world_reset(SIZE);
        box.full = full;
        owner.slow = true;
        assert_true(begin());
        run();
        check_bytes(0, SIZE);
    }
}

static void test_as_root(void **state)
{
    (void)state;
    owner.request.sudo = true;
    assert_true(begin());
    for (bool dropped = false; !dropped && step();)
        for (size_t i = 0; i < CALLS; i++) {
            if (!calls[i].used)
                continue;
            dropped = strcmp(option(&calls[i], "--op"), "drop") == 0;
            assert_int_equal(calls[i].sudo, !dropped);
        }
    run();
    check_bytes(0, SIZE);
}

/* ---- cuts ---- */

/* One read is cut anywhere: this part is read again, alone. */
static void test_cut_read(void **state)
{
    (void)state;
    static const int at[] = {0, 1, PART / 2, PART - 1, PART};
    for (int which = 0; which < 5; which++) {
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            world_reset(SIZE);
            plan.reads[which] = CUT;
            plan.cut_at[which] = at[i];
            assert_true(begin());
            run();
            check_bytes(0, SIZE);
            assert_int_equal(box.reads, at[i] == PART ? 5 : 6);
            assert_int_equal(box.fetches, 6);
        }
    }
}

/* Cut again and again, but each time a little further: that goes on for as long as it takes. */
static void test_a_little_further(void **state)
{
    (void)state;
    world_reset(PART);
    for (int i = 0; i < 50; i++) {
        plan.reads[i] = CUT;
        plan.cut_at[i] = 4000 * (i + 1);
    }
    assert_true(begin());
    run();
    check_bytes(0, PART);
    assert_int_equal(box.reads, 51);
    assert_int_equal(box.fetches, 1);
}

/* Not one more byte: that ends, and has waited longer each time. */
static void test_no_further(void **state)
{
    (void)state;
    static const enum sg_code codes[] = {SG_E_UPSTREAM_UNREACHABLE, SG_E_UPSTREAM_UNAVAILABLE,
                                         SG_E_UPSTREAM_BAD_RESPONSE};
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
        world_reset(SIZE);
        plan.code = codes[k];
        for (int i = 0; i < 20; i++) {
            plan.reads[i] = CUT;
            plan.cut_at[i] = 1000;
        }
        assert_true(begin());
        run();
        check_fails(codes[k]);
        assert_int_equal(owner.len, 1000);
        assert_int_equal(box.reads, DOWNLOAD_TRIES);
        for (int i = 1; i < DOWNLOAD_TRIES - 1; i++)
            assert_true(slept[i] == 2 * slept[i - 1]);
    }
}

static void test_no_first_byte(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        plan.reads[i] = NOT_SENT;
    assert_true(begin());
    run();
    check_fails(SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(owner.heads, 0); /* P30 */
    assert_int_equal(box.reads, DOWNLOAD_TRIES);
}

/* What will not pass is not tried again; what needs time is the caller's, until something was told. */
static void test_not_tried_again(void **state)
{
    (void)state;
    static const enum sg_code codes[] = {SG_E_STALE_SESSION, SG_E_SANDBOX_NOT_RUNNING, SG_E_DRAINING,
                                         SG_E_UPSTREAM_RATE_LIMITED, SG_E_PERMISSION_DENIED};
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
        world_reset(SIZE);
        plan.code = codes[k];
        plan.calls[0] = NOT_SENT;
        assert_true(begin());
        run();
        check_fails(codes[k]);
        assert_int_equal(box.calls, 1);

        world_reset(SIZE);
        plan.code = codes[k];
        plan.reads[0] = CUT;
        assert_true(begin());
        run();
        check_fails(codes[k]);
        assert_int_equal(owner.heads, 0);
    }
    world_reset(SIZE);
    plan.code = SG_E_UPSTREAM_RATE_LIMITED;
    plan.retry_after = 7000;
    plan.reads[2] = CUT;
    plan.cut_at[2] = 5;
    assert_true(begin());
    run();
    check_bytes(0, SIZE);
    assert_int_equal(slept[0], 7000);
}

/* ---- lost answers ---- */

static void test_lost_calls(void **state)
{
    (void)state;
    static const enum fate fates[] = {NOT_SENT, NOT_ARRIVED, LOST, CUT};
    for (size_t k = 0; k < sizeof fates / sizeof *fates; k++) {
        for (int which = 0; which < 6; which++) {
            for (int cut_at = 0; cut_at < (fates[k] == CUT ? 4 : 1); cut_at++) {
                world_reset(SIZE);
                plan.calls[which] = fates[k];
                plan.cut_at[which] = cut_at;
                assert_true(begin());
                run();
                check_bytes(0, SIZE);
                assert_int_equal(box.fetches, 7);
                assert_int_equal(owner.opens, which == 0 && fates[k] == CUT && cut_at ? 2 : 1);
            }
        }
    }
}

/* An answer with bytes that is cut goes on behind them. */
static void test_cut_bytes(void **state)
{
    (void)state;
    for (int which = 0; which < 6; which++) {
        for (int cut_at = 0; cut_at < 54; cut_at += 9) {
            world_reset(SIZE);
            box.full = true;
            plan.calls[which] = CUT;
            plan.cut_at[which] = cut_at;
            assert_true(begin());
            run();
            check_bytes(0, SIZE);
        }
    }
}

static void test_lost_for_good(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        plan.calls[i] = NOT_ARRIVED;
    assert_true(begin());
    run();
    check_fails(SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(box.fetches, FS_TRIES);
    assert_int_equal(owner.heads, 0);

    world_reset(SIZE);
    for (int i = 2; i < 40; i++)
        plan.calls[i] = NOT_SENT;
    assert_true(begin());
    run();
    assert_int_equal(owner.dones, 1);
    assert_false(owner.ok); /* what was put aside cannot be removed now: the sandbox's sweep is left */
    assert_int_equal(owner.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_true(owner.len <= 2 * PART);
    assert_memory_equal(owner.len ? owner.got : box.data, box.data, owner.len);
}

/* A call whose answer was lost puts its bytes aside only much later, while others do: they are removed in the end. */
static void test_late(void **state)
{
    (void)state;
    int clean = 0;
    for (int i = 0; i < 40; i++) {
        world_reset(SIZE);
        plan.calls[i % 4] = LATE;
        assert_true(begin());
        run();
        assert_true(owner.ok);
        assert_int_equal(owner.len, SIZE);
        assert_memory_equal(owner.got, box.data, SIZE);
        clean += lying() == 0;
        unstage_all();
    }
    assert_true(clean >= 20); /* all but those that came even after the end */
}

/* The answer to the last call, which clears up, is lost; it is asked again. */
static void test_lost_drop(void **state)
{
    (void)state;
    static const enum fate fates[] = {NOT_SENT, NOT_ARRIVED, LOST};
    for (size_t k = 0; k < sizeof fates / sizeof *fates; k++) {
        world_reset(PART);
        plan.calls[1] = fates[k];
        assert_true(begin());
        run();
        check_bytes(0, PART);
        assert_int_equal(box.drops, 2);
    }
}

/* An upstream that says nothing: who asked is told in time, and whatever nobody hears ends, too. */
static void test_silent(void **state)
{
    (void)state;
    uint64_t began = now_ms;
    plan.calls[0] = SILENT;
    assert_true(begin());
    while (!owner.dones)
        assert_true(step());
    assert_int_equal(now_ms - began, DOWNLOAD_FIRST_MS);
    run();
    check_fails(SG_E_UPSTREAM_TIMEOUT);
    assert_int_equal(owner.heads, 0);
    assert_true(now_ms - began < 60000);
    assert_int_equal(box.abandoned, 1);
    assert_int_equal(box.drops, 1);

    world_reset(SIZE); /* who asked has left */
    plan.calls[0] = SILENT;
    assert_true(begin());
    leave();
    run();
    assert_int_equal(box.abandoned, 1);

    world_reset(PART); /* the last call */
    plan.calls[1] = SILENT;
    began = now_ms;
    assert_true(begin());
    run();
    assert_true(owner.ok && owner.len == PART);
    assert_int_equal(box.drops, 1);
    assert_true(now_ms - began < 60000);
}

static void test_no_memory(void **state)
{
    (void)state;
    plan.calls[0] = FAILS;
    assert_false(begin());
    assert_int_equal(owner.e.code, SG_E_OUT_OF_MEMORY);
    world_reset(SIZE);
    owner.request.failed = true;
    assert_false(begin());
    assert_int_equal(owner.e.outcome, SG_NOT_SENT);
    assert_int_equal(box.calls, 0);

    world_reset(SIZE);
    plan.calls[3] = FAILS;
    plan.reads[2] = FAILS;
    assert_true(begin());
    run();
    check_bytes(0, SIZE); /* it passes */
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(short),      T(long),      T(ranges),           T(same),       T(full_disk),     T(slow_owner),
        T(as_root),    T(cut_read),  T(a_little_further), T(no_further), T(no_first_byte), T(not_tried_again),
        T(lost_calls), T(cut_bytes), T(lost_for_good),    T(late),       T(lost_drop),     T(silent),
        T(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
