/* How uploads end: joined, put in their place, refused, left by their client; the target is whole or untouched.  A17 U8; P31. */
#include "upload_owner.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- joining ---- */

static void test_joins(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct owner o;
        start_over(PART, 64 * MIB);
        played.lose_join = i == 0 ? 1 : i == 1 ? 2 : 0;
        played.refuse_join = i == 2 ? 2 : 0;
        run(&o, 6 * PART + 1, -1);
        assert_true(o.ok);
        assert_there(6 * PART + 1);
    }
    struct owner o;
    start_over(PART, 64 * MIB);
    played.refuse_join = 2 * FS_TRIES; /* for longer than a call tries by itself */
    run(&o, 6 * PART + 1, -1);
    assert_true(o.ok);
    assert_there(6 * PART + 1);
    start_over(PART, 64 * MIB);
    played.refuse_join = 100; /* for ever */
    run(&o, 6 * PART + 1, -1);
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(o.e.outcome, SG_NOT_STARTED);
    assert_nothing();
    start_over(PART, 64 * MIB);
    played.join_no_space = true;
    run(&o, 3 * PART, (int64_t)(3 * PART));
    assert_false(o.ok);
    assert_int_equal(o.e.code, SG_E_NO_SPACE);
    assert_int_equal(o.e.outcome, SG_NOT_STARTED);
    assert_nothing();
}

/* Joins run beside the parts, and the parts do not run away from them. */
static void test_joins_beside(void **state)
{
    (void)state;
    struct owner o = {.ready = 40 * PART};
    played.hold_joins = true;
    played.chunk = MIB;
    begin(&o, 40 * PART, (int64_t)(40 * PART));
    played_turns(500);
    assert_int_equal(played.nwrites, UPLOAD_BATCHES * UPLOAD_BATCH_PARTS);
    assert_int_equal(played_count("join"), 1);
    played.hold_joins = false;
    assert_true(played_until(&o.done) && played_rest());
    fs_request_free(&o.finish);
    assert_true(o.ok);
    assert_there(40 * PART);
    assert_int_equal(played_count("join"), 10);
}

/* ---- the last step ---- */

static void test_lost_finish(void **state)
{
    (void)state;
    struct owner o;
    played.lose_finish = 2; /* it never arrived: asked again, done */
    played.cut_finish = true;
    run(&o, 10, 10);
    assert_true(o.ok);
    assert_int_equal(played_count("put"), 3);
    assert_there(10);
    start_over(PART, 64 * MIB);
    played.lose_finish = 1; /* it arrived: nobody can tell any more */
    run(&o, 10, 10);
    assert_false(o.ok);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(o.e.code, SG_E_UPSTREAM_UNAVAILABLE);
    assert_there(10);
    start_over(PART, 64 * MIB);
    played.lose_finish = 100; /* never an answer: cleared up */
    played.cut_finish = true;
    run(&o, 10, 10);
    assert_false(o.ok);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_nothing();
}

/* One that takes longer than a call may goes on where it was. */
static void test_long_finish(void **state)
{
    (void)state;
    struct owner o;
    played.more_finish = 2;
    run(&o, 10, 10);
    assert_true(o.ok);
    assert_int_equal(o.times, 1);
    assert_int_equal(played_count("put"), 3);
    assert_null(strstr(played.calls[0], "--cursor"));
    assert_non_null(strstr(played.calls[1], "--size 10 --cursor Mg=="));
    assert_null(strstr(played.calls[2], "YzI="));
    assert_non_null(strstr(played.calls[2], "--cursor MQ=="));
    assert_there(10);
    start_over(PART, 64 * MIB);
    o = (struct owner){.ready = 10}; /* also when nobody hears it any more */
    played.more_finish = 3;
    begin(&o, 10, 10);
    while (!played_count("put"))
        played_turns(1);
    leave(&o);
    assert_true(played_rest());
    assert_there(10);
    start_over(PART, 64 * MIB);
    played.more_finish = 1; /* part of it is done when it fails */
    played.finish_error =
        (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_FILE, .errno_name = "EACCES"};
    run(&o, 10, 10);
    assert_int_equal(o.e.code, SG_E_PERMISSION_DENIED);
    assert_int_equal(o.e.outcome, SG_OUTCOME_UNKNOWN);
}

static void test_refused_finish(void **state)
{
    (void)state;
    static const struct {
        enum sg_wire_fail fail;
        const char *errno_name;
        enum sg_code code;
    } cases[] = {
        {SG_WF_FILE, "EEXIST", SG_E_FILE_EXISTS},        {SG_WF_FILE, "EACCES", SG_E_PERMISSION_DENIED},
        {SG_WF_NO_SPACE, "ENOSPC", SG_E_NO_SPACE},       {SG_WF_STALE, "ESTALE", SG_E_PRECONDITION_FAILED},
        {SG_WF_DIGEST, "EBADMSG", SG_E_DIGEST_MISMATCH}, {SG_WF_ARCHIVE, "-", SG_E_ARCHIVE_REFUSED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner o;
        start_over(PART, 64 * MIB);
        played.finish_error =
            (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = cases[i].fail, .text = "why"};
        (void)snprintf(played.finish_error.errno_name, sizeof played.finish_error.errno_name, "%s",
                       cases[i].errno_name);
        run(&o, 10, 10);
        assert_false(o.ok);
        assert_int_equal(o.e.code, cases[i].code);
        assert_int_equal(o.e.outcome, SG_NOT_STARTED);
        assert_string_equal(o.e.detail, "why");
        assert_int_equal(played.ncalls, 1); /* who refuses removes what it was given */
        assert_nothing();
    }
}

/* ---- bodies that end otherwise ---- */

static void test_bad_ends(void **state)
{
    (void)state;
    static const struct {
        uint64_t size;
        int64_t announced;
        bool aborted;
    } cases[] = {
        {100, 200, false},
        {200, 100, false},
        {100, 200, true},
        {100, -1, true},
        {0, 1, false},
        {1, 0, false},
        {3 * MIB, -1, true},
        {3 * MIB, 4 * MIB, false},
        {3 * MIB, 3 * MIB - 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner o = {.ready = cases[i].size, .abort_at_end = cases[i].aborted};
        start_over(PART, 64 * MIB);
        begin(&o, cases[i].size, cases[i].announced);
        assert_true(played_until(&o.done) && played_rest());
        fs_request_free(&o.finish);
        assert_false(o.ok);
        assert_int_equal(o.e.code, SG_E_BAD_REQUEST);
        assert_int_equal(o.e.outcome, SG_NOT_STARTED);
        assert_int_equal(played_count("put"), 0);
        assert_nothing();
    }
}

/* ---- the client leaves ---- */

static void test_cancel(void **state)
{
    (void)state;
    bool ended = false;
    for (int after = 0; !ended; after++) { /* at each turn of its life */
        struct owner o = {.ready = 5 * PART};
        bool finishing;
        start_over(PART, 64 * MIB);
        all->backoff_ms = 0; /* a wait is many turns of the loop, all alike */
        played.chunk = 300000;
        played.faults[0].nth = 2;
        played.faults[0].fate = FATE_429;
        begin(&o, 5 * PART, after % 2 ? -1 : (int64_t)(5 * PART));
        played_turns(after);
        finishing = played_count("put") > 0;
        ended = o.times > 0;
        if (ended) {
            fs_request_free(&o.finish);
            continue;
        }
        leave(&o);
        assert_true(played_rest());
        assert_int_equal(o.times, 0);
        if (finishing) /* seen through, unheard */
            assert_there(5 * PART);
        else
            assert_nothing();
    }
}

static void test_cancel_amid(void **state)
{
    (void)state;
    struct owner o = {.ready = 2000};
    begin(&o, 5000, 5000); /* while it waits for the client */
    played_turns(10);
    leave(&o);
    assert_true(played_rest());
    assert_nothing();

    start_over(PART, 64 * MIB);
    o = (struct owner){.ready = 6 * PART};
    played.hold_joins = true; /* while parts are joined: they are removed when that has ended */
    begin(&o, 6 * PART, (int64_t)(6 * PART));
    played_turns(300);
    assert_int_equal(played_count("join"), 1);
    leave(&o);
    played_turns(10);
    assert_int_equal(played_count("upload-remove"), 0);
    played.hold_joins = false;
    assert_true(played_rest());
    assert_int_equal(played_count("upload-remove"), 1);
    assert_nothing();

    start_over(PART, 64 * MIB);
    o = (struct owner){.ready = 10}; /* in the last step */
    begin(&o, 10, 10);
    while (!played_count("put"))
        played_turns(1);
    leave(&o);
    assert_true(played_rest());
    assert_there(10);

    start_over(PART, 64 * MIB);
    o = (struct owner){.ready = 2000}; /* what the upstream still makes of a cut part goes, too */
    all->linger_ms = 60;
    begin(&o, 5000, 5000);
    played_turns(10);
    leave(&o);
    played_turns(10);
    assert_int_equal(played_count("upload-remove"), 0);
    played_keep(played.writes[0].name, "late", 4);
    while (!played_count("upload-remove"))
        played_turns(1);
    assert_true(played_rest());
    assert_nothing();

    start_over(PART, 64 * MIB);
    o = (struct owner){.ready = 10}; /* before anything began */
    begin(&o, 10, 10);
    leave(&o);
    assert_true(played_rest());
    assert_int_equal(played.nwrites + played.ncalls, 0);
}

/* The gateway goes: who still waits is told, once. */
static void test_freed_amid(void **state)
{
    (void)state;
    struct owner o = {.ready = 100}, p = {.ready = 5 * PART}, q = {.ready = 3 * PART}, r = {.ready = 10};
    begin(&o, 200, 200);
    begin(&p, 5 * PART, -1);
    begin(&q, 4 * PART, (int64_t)(4 * PART));
    begin(&r, 10, 10);
    while (!played_count("put"))
        played_turns(1);
    upload_cancel(o.upload);
    upload_cancel(p.upload);
    start_over(PART, 64 * MIB);
    fs_request_free(&o.finish);
    fs_request_free(&p.finish);
    fs_request_free(&q.finish);
    fs_request_free(&r.finish);
    assert_int_equal(o.times + p.times, 0);
    assert_int_equal(q.times + r.times, 2);
    assert_true(q.e.code == SG_E_DRAINING && q.e.outcome == SG_NOT_STARTED);
    assert_true(r.e.code == SG_E_DRAINING && r.e.outcome == SG_OUTCOME_UNKNOWN);
}

int main(void)
{
    sg_log_set_level(SG_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(test_joins),       TEST(test_joins_beside),   TEST(test_lost_finish),
        TEST(test_long_finish), TEST(test_refused_finish), TEST(test_bad_ends),
        TEST(test_cancel),      TEST(test_cancel_amid),    TEST(test_freed_amid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
