/* Bytes out of a session: files that change, what was put aside and is not what it was, hostile lines, owners that leave.
 * A16, E11; P29, P30. */
#include "tests/unit/transfer/download_play.h"

#include "base/core/file_tag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file changes ---- */

static void test_errors(void **state)
{
    (void)state;
    plan.calls[0] = FAILS;
    plan.error = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_FILE, .errno_name = "ENOENT"};
    assert_true(begin());
    run();
    check_fails(SG_E_FILE_NOT_FOUND);
    assert_string_equal(owner.e.errno_name, "ENOENT");
    assert_int_equal(owner.heads, 0);
    assert_int_equal(box.calls, 1);
}

/* Before the first byte it is begun anew, three times. */
static void test_changed_before(void **state)
{
    (void)state;
    plan.error = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_CHANGED};
    for (int i = 0; i < DOWNLOAD_TRIES; i++) {
        world_reset(SIZE);
        plan.error = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_CHANGED};
        for (int k = 0; k < i; k++)
            plan.calls[k] = FAILS;
        assert_true(begin());
        run();
        if (i <= 3)
            check_bytes(0, SIZE);
        else
            check_fails(SG_E_FILE_CHANGED);
        assert_int_equal(owner.heads, i <= 3);
    }
}

/* Written to between two parts: what was not told yet is forgotten, else it is cut. */
static void test_changed_between(void **state)
{
    (void)state;
    bool anew = false, cut = false;
    for (int i = 0; i < 100; i++) {
        world_reset(SIZE);
        plan.reads[0] = i % 2 ? NOT_SENT : FINE; /* no byte yet, for a while */
        assert_true(begin());
        while (box.fetches < 2)
            assert_true(step());
        bool told = owner.heads;
        touch();
        run();
        if (owner.ok) {
            assert_false(told);
            check_bytes(0, SIZE);
            anew = anew || owner.opens > 1;
        } else {
            check_fails(SG_E_FILE_CHANGED);
            assert_true(owner.heads);
            cut = true;
        }
    }
    assert_true(anew && cut);
}

/* A log is written to meanwhile: it comes as long as it was. */
static void test_growing(void **state)
{
    (void)state;
    int grew = 0;
    for (int i = 0; i < 20; i++) {
        world_reset(SIZE - 1000);
        plan.grows = 100;
        assert_true(begin());
        run();
        check_bytes(0, owner.file.size);
        grew += box.size > SIZE - 1000;
    }
    assert_true(grew > 10);
}

/* ---- what was put aside is not what it was ---- */

/* Whatever becomes of it: it is put aside once more, from the same place. */
static void test_damaged(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            for (int which = 1; which <= 5; which++) {
                world_reset(SIZE);
                plan.is_chunked = chunked;
                assert_true(begin());
                while (lying() == 0 || box.fetches < which)
                    assert_true(step());
                for (size_t k = 0; k < STAGED; k++) {
                    struct staged *s = &box.staged[k];
                    if (!s->name[0])
                        continue;
                    s->data = realloc(s->data, s->len + 3);
                    memset(s->data + s->len, 1, 3);
                    if (how == 0)
                        unstage(s->name);
                    else
                        s->len = how == 1 ? s->len + 3 : s->len / 2;
                }
                run();
                check_bytes(0, SIZE);
            }
        }
    }
}

/* ---- hostile lines ---- */

static struct sg_wire_line hostile[8], hostile_end;
static size_t nhostile;

static void say_hostile(struct guest_call *c)
{
    unstage(option(c, "--drop"));
    for (size_t i = 0; i < nhostile; i++) {
        if (hostile[i].kind == SG_WIRE_DATA) {
            c->data[c->n] = malloc(hostile[i].len);
            memset(c->data[c->n], 7, hostile[i].len);
        }
        if (hostile[i].kind == SG_WIRE_NAME && hostile[i].name[0] == 's')
            stage(option(c, "--stage"), 0, 10);
        say(c, hostile[i]);
    }
    c->last = hostile_end;
}

static void test_hostile(void **state)
{
    (void)state;
#define S                                                                                                    \
    {                                                                                                        \
        .kind = SG_WIRE_FILE, .file = {.type = 'f' }                                                         \
    }
#define N(text)                                                                                              \
    {                                                                                                        \
        .kind = SG_WIRE_NAME, .name = (const unsigned char *)(text), .name_len = sizeof(text) - 1            \
    }
#define D(at)                                                                                                \
    {                                                                                                        \
        .kind = SG_WIRE_DATA, .channel = 1, .offset = (at), .len = 5                                         \
    }
    static const struct {
        struct sg_wire_line lines[5];
        enum sg_wire_kind last;
    } cases[] = {
        {{{0}}, SG_WIRE_OK}, /* no file */
        {{S}, SG_WIRE_MORE}, /* more, and not where */
        {{S, N("s10")}, SG_WIRE_MORE},
        {{S, N("cX")}, SG_WIRE_OK}, /* nothing more, and yet where */
        {{S, N("s10"), N("cX")}, SG_WIRE_OK},
        {{S, N("s")}, SG_WIRE_OK},
        {{S, N("s-1")}, SG_WIRE_OK},
        {{S, N("s1x")}, SG_WIRE_OK},
        {{S, N("s99999999999999999999999")}, SG_WIRE_OK},
        {{S, N("s204801")}, SG_WIRE_OK}, /* more than it was asked for */
        {{S, N("s10"), N("s10")}, SG_WIRE_OK},
        {{S, N("s10"), D(0)}, SG_WIRE_OK}, /* both ways */
        {{S, D(0), N("s10")}, SG_WIRE_OK},
        {{S, D(0), D(6)}, SG_WIRE_OK}, /* a hole */
        {{S, D(0), D(0)}, SG_WIRE_OK}, /* twice */
        {{S, D(0), N("c")}, SG_WIRE_MORE},
        {{S, D(0), N("cX"), N("cY")}, SG_WIRE_MORE},
        {{S, D(0), N("c\xffX")}, SG_WIRE_MORE},
        {{S, D(0), N("c\nX")}, SG_WIRE_MORE},
        {{D(0), S}, SG_WIRE_OK}, /* bytes of no file */
        {{N("s10"), N("cX")}, SG_WIRE_MORE},
        {{S, N("cX")}, SG_WIRE_MORE}, /* never anything */
        {{S, N("s0"), N("cX")}, SG_WIRE_MORE},
        {{S, D(0)}, SG_WIRE_EXIT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_reset(SIZE);
        memcpy(hostile, cases[i].lines, sizeof cases[i].lines);
        for (nhostile = 0; hostile[nhostile].kind; nhostile++)
            continue;
        hostile_end = (struct sg_wire_line){.kind = cases[i].last};
        hostile_end.process.how = SG_HOW_EXIT;
        plan.says = say_hostile;
        assert_true(begin());
        run();
        assert_int_equal(owner.dones, 1);
        if (owner.ok || owner.e.code != SG_E_UPSTREAM_BAD_RESPONSE || lying())
            fail_msg("case %zu", i);
        assert_true(box.fetches <= 4);
        assert_int_equal(lying(), 0);
    }
}

/* "same" is an answer to the very first question only. */
static void test_same_too_late(void **state)
{
    (void)state;
    assert_true(begin());
    while (owner.len == 0)
        assert_true(step());
    static const struct sg_wire_line lines[] = {S};
    memcpy(hostile, lines, sizeof lines);
    nhostile = 1;
    hostile_end = (struct sg_wire_line){.kind = SG_WIRE_OK, .text = "same"};
    plan.says = say_hostile;
    run();
    assert_true(owner.heads == 1 && !owner.same);
}

/* An archive cannot be asked for twice: what was delivered of a part stays the only one of its kind. */
static void test_archive(void **state)
{
    (void)state;
    for (int lost = 0; lost < 4; lost++) {
        world_reset(SIZE);
        fs_request_free(&owner.request);
        fs_request_begin(&owner.request, "tar");
        box.full = lost == 3;
        plan.calls[2] = lost == 1 ? LOST : lost == 3 ? CUT : FINE;
        plan.cut_at[2] = 20;
        plan.reads[2] = lost == 2 ? CUT : FINE;
        assert_true(begin());
        run();
        if (lost == 3)
            check_fails(SG_E_UPSTREAM_UNREACHABLE);
        else
            check_bytes(0, SIZE);
    }
    world_reset(SIZE);
    fs_request_free(&owner.request);
    fs_request_begin(&owner.request, "tar");
    plan.reads[0] = CUT;
    plan.cut_at[0] = 100;
    assert_true(begin());
    while (owner.len == 0)
        assert_true(step());
    unstage_all();
    run();
    check_fails(SG_E_UPSTREAM_UNAVAILABLE);
}

/* ---- who asked leaves ---- */

static void test_leaves(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        world_reset(i % 5 ? SIZE : 50000);
        box.full = i % 3 == 0;
        owner.slow = i % 2;
        owner.leaves_at_open = i % 40 == 7;
        owner.leaves_at_head = i % 40 == 17;
        if (i % 4 == 0)
            owner.leaves_at = 1 + chance(SIZE);
        assert_true(begin());
        if (i % 4)
            for (uint64_t k = chance(120); k && step(); k--)
                if (owner.gone || owner.dones)
                    break;
        if (i % 4 && !owner.gone && !owner.dones)
            leave();
        int before = owner.heads;
        run();
        assert_int_equal(lying(), 0);
        if (i % 4)
            assert_int_equal(owner.heads, before);
    }
}

/* Everything at once, by chance: what comes is exact, and nothing is left where the last word could be said. */
static void test_everything(void **state)
{
    (void)state;
    int ok = 0;
    for (int i = 0; i < 300; i++) {
        world_reset(chance(2) ? SIZE - chance(300000) : chance(300000));
        plan.chance = 20 + (int)chance(150);
        plan.grows = chance(3) ? 0 : 30;
        plan.changes = chance(3) ? 0 : 5;
        plan.is_chunked = chance(2);
        box.full = chance(4) == 0;
        owner.slow = chance(2);
        if (chance(4) == 0)
            owner.leaves_at = chance(SIZE);
        uint64_t from = chance(3) ? 0 : chance(box.size);
        fs_request_number(&owner.request, "--offset", (int64_t)from);
        assert_true(begin());
        for (int k = 0; step(); k++) {
            assert_true(k < 1000000);
            if (chance(200) == 0)
                box.full = !box.full;
            if (owner.gone || owner.dones)
                plan.chance = 0;
        }
        play_is_over();
        if (owner.ok)
            assert_int_equal(owner.len, owner.file.size - from);
        assert_true(owner.len <= box.size - from || !owner.len);
        if (owner.len)
            assert_memory_equal(owner.got, box.data + from, owner.len);
        if (lying() > 0)
            fail_msg("%zu parts left, turn %d", lying(), i);
        ok += owner.ok;
    }
    assert_true(ok > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(errors),  T(changed_before), T(changed_between), T(growing),
                                       T(damaged), T(hostile),        T(same_too_late),   T(archive),
                                       T(leaves),  T(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
