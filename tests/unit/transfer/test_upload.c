/* Uploads: parts that are cut come again alone, and the target is the whole body or untouched.  A16 A17 U8; P29 P31 P32. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "played.h"
#include "transfer/upload_impl.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB   UINT64_C(1024)
#define MIB   (KIB * KIB)
#define PART  MIB
#define AHEAD (PART / 2)

static struct sg_loop *loop;
static struct uploads *all;

struct owner {
    uint64_t size, ready, at; /* of the body: its length, as much may be read, as much was */
    size_t chunk;             /* bytes that one read gives at most; 0: any */
    bool abort_at_end;        /* it is cut there */
    bool waits;
    struct upload *upload;
    struct fs_request finish;
    bool done, ok;
    int times, quiet;
    uint64_t offset, file_size;
    char word[16];
    struct sg_error e;
};

static char byte_at(uint64_t i)
{
    return (char)((i * 131 + (i >> 8) * 17 + (i >> 16)) & 0xff);
}

static size_t read_body(void *arg, char *buf, size_t cap)
{
    struct owner *o = arg;
    uint64_t n = (o->ready < o->size ? o->ready : o->size) - o->at;
    assert_false(o->done);
    if (n == 0 && o->at == o->size)
        return o->abort_at_end ? VERCEL_READ_ABORT : 0;
    o->waits = n == 0;
    if (n == 0)
        return VERCEL_READ_PAUSE;
    n = n < cap ? n : cap;
    n = o->chunk && n > o->chunk ? o->chunk : n;
    for (uint64_t i = 0; i < n; i++)
        buf[i] = byte_at(o->at + i);
    o->at += n;
    return (size_t)n;
}

static void on_done(void *arg, const struct fs_answer *a, uint64_t offset, const struct sg_error *e)
{
    struct owner *o = arg;
    o->done = true;
    o->times++;
    o->ok = !e;
    o->offset = offset;
    o->upload = NULL;
    if (e)
        o->e = *e;
    if (a && a->n)
        o->file_size = a->items[0].file.size;
    if (a)
        (void)snprintf(o->word, sizeof o->word, "%s", a->word);
}

static void on_quiet(void *arg)
{
    ((struct owner *)arg)->quiet++;
}

static void begin(struct owner *o, uint64_t size, int64_t announced)
{
    o->size = size;
    fs_request_begin(&o->finish, "put");
    fs_request_text(&o->finish, "--path", "dGFyZ2V0");
    const struct upload_spec s = {.target = {.session_id = "sess-1", .cwd = "/vercel/sandbox"},
                                  .size = announced,
                                  .read = read_body,
                                  .finish = &o->finish};
    o->upload = upload_start(all, &s, on_done, o, &o->e);
    assert_non_null(o->upload);
    assert_false(o->done);
}

static void run(struct owner *o, uint64_t size, int64_t announced)
{
    *o = (struct owner){.ready = size};
    begin(o, size, announced);
    assert_true(played_until(&o->done));
    assert_true(played_rest());
    fs_request_free(&o->finish);
    assert_int_equal(o->times, 1);
}

static void give(struct owner *o, uint64_t n)
{
    o->ready += n;
    if (o->upload && o->waits) {
        o->waits = false;
        upload_resume(o->upload);
    }
}

/* The target is what the body was, and lies alone. */
static void assert_there(uint64_t size)
{
    const struct played_file *f = played_find("target");
    assert_non_null(f);
    assert_int_equal(f->len, size);
    for (uint64_t i = 0; i < size; i++)
        if (f->data[i] != (unsigned char)byte_at(i))
            fail_msg("byte %" PRIu64 " differs", i);
    assert_int_equal(played_left(), 1);
}

static void assert_nothing(void)
{
    assert_null(played_find("target"));
    assert_int_equal(played_left(), 0);
}

static void start_over(uint64_t part, uint64_t pool)
{
    uploads_free(all);
    if (loop) {
        played_turns(5);
        sg_loop_free(loop);
        (void)played_end();
    }
    loop = sg_loop_new();
    assert_non_null(loop);
    played_begin(loop);
    const struct upload_limits l = {.part_bytes = part, .pool_bytes = pool};
    all = uploads_new(loop, played_link(), &l);
    assert_non_null(all);
    all->backoff_ms = 4;
    all->linger_ms = 0;
}

static int setup(void **state)
{
    (void)state;
    loop = NULL;
    all = NULL;
    start_over(PART, 64 * MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    played_turns(5);
    bool quiet = TAILQ_EMPTY(&all->list) && blocks_in_use(all->blocks) == 0;
    uploads_free(all);
    sg_loop_free(loop);
    int left = played_end();
    return left || !quiet;
}

static uint64_t offset_of(const struct played_write *w)
{
    const char *dot = strrchr(w->name, '.');
    return dot ? strtoull(dot + 1, NULL, 10) : UINT64_MAX;
}

static void leave(struct owner *o)
{
    if (o->upload)
        upload_cancel(o->upload);
    fs_request_free(&o->finish);
    o->done = true; /* read and done must not be called any more: read_body looks */
}

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
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_part),
        TEST(test_many_parts),
        TEST(test_streams),
        TEST(test_memory),
        TEST(test_cuts),
        TEST(test_cut_single),
        TEST(test_cut_while_streaming),
        TEST(test_given_up),
        TEST(test_hangs),
        TEST(test_slow_client),
        TEST(test_given_up_later),
        TEST(test_too_large),
        TEST(test_joins),
        TEST(test_joins_beside),
        TEST(test_lost_finish),
        TEST(test_refused_finish),
        TEST(test_long_finish),
        TEST(test_bad_ends),
        TEST(test_cancel),
        TEST(test_cancel_amid),
        TEST(test_exhausted),
        TEST(test_waits_in_line),
        TEST(test_resumable),
        TEST(test_resumable_cut),
        TEST(test_resumable_fails),
        TEST(test_settle),
        TEST(test_freed_amid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
