/* The same by the interactive socket, and what takes its place where there is none.
 * C6 P63 P64 */
#include "carrier_play.h"

#include <string.h>

static void reset_owner(struct setup *s)
{
    s->o = (struct owner){
        .data = s->data, .len = s->o.len, .piece = 65536, .finish = s->o.finish, .try_socket = true};
    s->u.len = 0;
    s->u.closed = false;
}

/* Typed bytes go over one connection, an upload too, and finishing is an end as asked for. */
static void test_socket(void **state)
{
    (void)state;
    for (int noise = 0; noise < 2; noise++) {
        struct setup s = {.o.try_socket = true, .u.socket = noise ? SOCKET_NOISE : SOCKET_GOOD};
        open_setup(&s, 3 * 1024 * 1024);
        begin(&s);
        bring(&s.o);
        while (s.o.accepted < s.o.len && !s.o.done)
            uv_run(sg_loop_uv(s.f.loop), UV_RUN_ONCE);
        assert_true(s.o.interactive);
        assert_false(s.o.done);
        assert_false(s.u.early);
        assert_memory_equal(s.u.received, s.data, s.o.len);
        assert_int_equal(s.o.kinds[0], 'C');
        carrier_finish(s.o.carrier);
        fixture_run(&s.f, &s.o.done);
        assert_int_equal(s.o.line.kind, SG_WIRE_OK);
        assert_int_equal(s.u.runs, 0);
        assert_string_equal(s.u.start, "{\"type\":\"start\",\"command\":\"" GUEST_ROOT "/guest-" HASH
                                       "\",\"args\":[\"input\",\"--session\",\"sbx_1\",\"--id\",\"p1\"],"
                                       "\"env\":[],\"cwd\":\"/\"}");
        close_setup(&s);
    }
}

static void test_socket_as_root(void **state)
{
    (void)state;
    struct setup s = {.o.try_socket = true, .o.root = true, .u.socket = SOCKET_GOOD};
    open_setup(&s, 10);
    begin(&s);
    run_until_kinds(&s, "C");
    assert_non_null(
        strstr(s.u.start, "\"command\":\"sudo\",\"args\":[\"" GUEST_ROOT "/guest-" HASH "\",\"input\""));
    carrier_cancel(s.o.carrier);
    close_setup(&s);
}

/* Whatever is wrong with the socket before the magic, the other way is taken without a word, and for a while the
 * socket is not tried again. */
static void test_falls_back(void **state)
{
    (void)state;
    static const enum socket sockets[] = {SOCKET_NONE, SOCKET_LOUD, SOCKET_REFUSED, SOCKET_EXITS,
                                          SOCKET_DIES};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        struct setup s = {.o.try_socket = true, .o.finish = true, .u.socket = sockets[i]};
        open_setup(&s, 100000);
        for (int again = 0; again < 2; again++) {
            begin(&s);
            bring(&s.o);
            fixture_run(&s.f, &s.o.done);
            check_all_there(&s);
            assert_false(s.o.interactive);
            assert_false(s.u.early);
            assert_int_equal(s.u.terminals, sockets[i] == SOCKET_EXITS ? again + 1 : 1);
            reset_owner(&s);
        }
        close_setup(&s);
    }
}

/* Once the guest has spoken there is no other way any more. */
static void test_socket_ends(void **state)
{
    (void)state;
    static const enum socket sockets[] = {SOCKET_DIES_LATER, SOCKET_NONSENSE};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        struct setup s = {.o.try_socket = true, .u.socket = sockets[i]};
        open_setup(&s, 10);
        begin(&s);
        fixture_run(&s.f, &s.o.done);
        assert_false(s.o.has_line);
        assert_int_equal(s.u.runs, 0);
        close_setup(&s);
    }
    struct setup s = {
        .o.try_socket = true, .u.socket = SOCKET_GOOD, .u.last = "E fenced - another carrier\n"};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    assert_int_equal(s.o.line.fail, SG_WF_FENCED);
    close_setup(&s);
}

static void test_socket_cancel_and_shutdown(void **state)
{
    (void)state;
    for (int when = 0; when < 30; when++) {
        struct setup s = {.o.try_socket = true, .u.socket = when % 3 ? SOCKET_GOOD : SOCKET_DIES};
        open_setup(&s, 300000);
        begin(&s);
        bring(&s.o);
        for (int i = 0; i < when && !s.o.done; i++)
            short_turn(&s);
        if (when % 2) {
            carrier_cancel(s.o.carrier);
            s.o.cancelled = true;
        }
        close_setup(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket),
        cmocka_unit_test(test_socket_as_root),
        cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_socket_ends),
        cmocka_unit_test(test_socket_cancel_and_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
