/* Rows of requests with an Idempotency-Key: who may run, what is replayed, and what time does to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/db.h"
#include "store/idempotency.h"
#include "tests/support/any_store.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static struct store *s;
static struct store_key_limits limits;

static int open_store(void **state)
{
    (void)state;
    limits = (struct store_key_limits){.keep_ms = 60000, .silence_ms = 60000};
    s = any_store_new(NULL);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    store_close(s);
    return 0;
}

/* ---- asking ---- */

static unsigned char hash[2][32];

struct asking {
    struct store_key_ask ask;
    struct store_key_found found;
};

static enum sg_code ask_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct asking *a = arg;
    return store_key_ask(db, &a->ask, &limits, &a->found, e);
}

static enum sg_code try_ask(struct asking *a, const char *principal, char key, char body, const char *owner,
                            bool full, struct sg_error *e)
{
    static unsigned made;
    char nonce[STORE_KEY_NONCE_TEXT];
    memset(hash[0], key, sizeof hash[0]);
    memset(hash[1], body, sizeof hash[1]);
    (void)snprintf(nonce, sizeof nonce, "nonce%u", ++made);
    a->ask = (struct store_key_ask){.upstream = "u",
                                    .principal = principal,
                                    .scope = hash[0],
                                    .request = hash[1],
                                    .nonce = nonce,
                                    .operation = nonce,
                                    .owner = owner,
                                    .full = full};
    store_key_found_init(&a->found);
    return store_call(s, STORE_DURABLE, ask_fn, a, e);
}

static enum store_key_verdict ask(struct asking *a, const char *principal, char key, char body,
                                  const char *owner)
{
    struct sg_error e;
    assert_int_equal(try_ask(a, principal, key, body, owner, false, &e), SG_OK);
    return a->found.verdict;
}

/* ---- what becomes of it ---- */

struct deed {
    struct store_key k;
    const char *note;
    const struct store_key_answer *answer;
    bool open, answered, drop, held;
};

static enum sg_code deed_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct deed *d = arg;
    if (d->drop)
        return store_key_drop(db, &d->k, e);
    if (d->note)
        return store_key_note(db, &d->k, d->note, &d->held, e);
    if (d->answer)
        return store_key_done(db, &d->k, &limits, d->answer, &d->held, e);
    if (d->open)
        return store_key_open(db, &d->k, &limits, d->answered, &d->held, e);
    return store_key_beat(db, &d->k, &d->held, e);
}

static bool doing(const struct asking *a, const char *owner, struct deed d)
{
    struct sg_error e;
    d.k = (struct store_key){"u", a->ask.principal, a->found.id, owner};
    assert_int_equal(store_call(s, STORE_DURABLE, deed_fn, &d, &e), SG_OK);
    return d.held;
}

static void answer_with(struct store_key_answer *a, int status, const char *head, const char *body)
{
    *a = (struct store_key_answer){.status = status, .type = 1};
    sg_buf_init(&a->head, STORE_KEY_HEAD_MAX);
    sg_buf_init(&a->body, STORE_KEY_BODY_MAX);
    assert_true(sg_buf_adds(&a->head, head) && sg_buf_adds(&a->body, body));
}

static bool done(const struct asking *a, const char *owner, int status, const char *head, const char *body)
{
    struct store_key_answer answer;
    answer_with(&answer, status, head, body);
    bool held = doing(a, owner, (struct deed){.answer = &answer});
    sg_buf_free(&answer.head);
    sg_buf_free(&answer.body);
    return held;
}

/* ---- tests ---- */

static void test_one_runs_and_its_answer_is_replayed(void **state)
{
    (void)state;
    struct asking first, again;
    assert_int_equal(ask(&first, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    assert_false(first.found.again);
    assert_string_equal(first.found.note, "");
    assert_int_equal(ask(&again, "p", 'k', 'b', "two"), STORE_KEY_BUSY);
    assert_int_equal(ask(&again, "p", 'k', 'c', "two"), STORE_KEY_OTHER);
    assert_int_equal(ask(&again, "p", 'k', 'b', "one"), STORE_KEY_RUN); /* its own, once more */
    assert_false(again.found.again);
    assert_string_equal(again.found.nonce, first.found.nonce);
    assert_false(done(&first, "two", 200, "", "not theirs"));
    assert_true(done(&first, "one", 201, "Location: /x\n", "{\"a\":1}"));
    assert_true(done(&first, "one", 201, "Location: /x\n", "{\"a\":1}")); /* the answer to it was lost */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(&again, "p", 'k', 'b', "three"), STORE_KEY_REPLAY);
        assert_int_equal(again.found.answer.status, 201);
        assert_int_equal(again.found.answer.type, 1);
        assert_string_equal(again.found.answer.head.data, "Location: /x\n");
        assert_int_equal(again.found.answer.body.len, 7);
        assert_memory_equal(again.found.answer.body.data, "{\"a\":1}", 7);
        store_key_found_clear(&again.found);
    }
    assert_int_equal(ask(&again, "p", 'k', 'c', "three"), STORE_KEY_OTHER);
    store_key_found_clear(&again.found);
}

static void test_principals_and_keys_are_apart(void **state)
{
    (void)state;
    struct asking a, b;
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    assert_int_equal(ask(&b, "q", 'k', 'b', "two"), STORE_KEY_RUN);
    assert_string_not_equal(a.found.nonce, b.found.nonce);
    assert_int_equal(ask(&b, "p", 'l', 'c', "two"), STORE_KEY_RUN);
    assert_true(doing(&b, "two", (struct deed){0}));
    assert_false(doing(&b, "one", (struct deed){0}));
}

static void test_what_did_nothing_is_as_new(void **state)
{
    (void)state;
    struct asking a, b;
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    (void)doing(&a, "two", (struct deed){.drop = true});
    assert_int_equal(ask(&b, "p", 'k', 'b', "two"), STORE_KEY_BUSY);
    (void)doing(&a, "one", (struct deed){.drop = true});
    assert_int_equal(ask(&b, "p", 'k', 'c', "two"), STORE_KEY_RUN); /* with another body, even */
    assert_false(b.found.again);
    assert_string_not_equal(a.found.nonce, b.found.nonce);
}

static void test_what_is_left_open_is_run_again_with_its_nonce_and_note(void **state)
{
    (void)state;
    struct asking a, b, c;
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    assert_true(doing(&a, "one", (struct deed){.note = "session"}));
    assert_false(doing(&a, "two", (struct deed){.note = "another"}));
    assert_true(doing(&a, "one", (struct deed){.open = true}));
    assert_int_equal(ask(&b, "p", 'k', 'b', "two"), STORE_KEY_RUN);
    assert_true(b.found.again);
    assert_false(b.found.answered);
    assert_string_equal(b.found.nonce, a.found.nonce);
    assert_string_equal(b.found.note, "session");
    assert_int_equal(ask(&c, "p", 'k', 'b', "one"), STORE_KEY_BUSY); /* the first has no claim any more */
    assert_false(doing(&a, "one", (struct deed){0}));
    assert_true(doing(&b, "two", (struct deed){.open = true, .answered = true}));
    assert_int_equal(ask(&c, "p", 'k', 'b', "three"), STORE_KEY_RUN);
    assert_true(c.found.again && c.found.answered);
    assert_true(doing(&c, "three", (struct deed){.open = true})); /* that it was answered stays true */
    assert_int_equal(ask(&c, "p", 'k', 'b', "four"), STORE_KEY_RUN);
    assert_true(c.found.answered);
}

static void test_silence_gives_it_away(void **state)
{
    (void)state;
    struct asking a, b;
    limits.silence_ms = 30;
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    (void)poll(NULL, 0, 50);
    assert_true(doing(&a, "one", (struct deed){0})); /* late, and nobody else came */
    limits.silence_ms = 60000;
    assert_int_equal(ask(&b, "p", 'k', 'b', "two"), STORE_KEY_BUSY);
    (void)poll(NULL, 0, 50);
    limits.silence_ms = 30;
    assert_int_equal(ask(&b, "p", 'k', 'b', "two"), STORE_KEY_RUN);
    assert_true(b.found.again);
    assert_string_equal(b.found.nonce, a.found.nonce);
    assert_false(doing(&a, "one", (struct deed){0}));
    assert_false(done(&a, "one", 200, "", "too late"));
    assert_true(done(&b, "two", 200, "", ""));
}

static enum sg_code prune_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_key_prune(db, &limits, arg, e);
}

static enum sg_code usage_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_key_usage(db, arg, e);
}

static int64_t usage(void)
{
    struct sg_error e;
    int64_t bytes = -1;
    assert_int_equal(store_call(s, STORE_READ, usage_fn, &bytes, &e), SG_OK);
    return bytes;
}

static void test_what_has_expired_is_removed_and_what_runs_is_not(void **state)
{
    (void)state;
    struct sg_error e;
    struct asking a, b;
    bool more = true;
    limits.keep_ms = 1;
    assert_int_equal(usage(), 0);
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    assert_int_equal(ask(&b, "p", 'l', 'b', "two"), STORE_KEY_RUN);
    assert_true(done(&b, "two", 200, "", "0123456789"));
    int64_t both = usage();
    assert_true(both > 2 * 512);
    (void)poll(NULL, 0, 10);
    assert_int_equal(ask(&b, "p", 'k', 'b', "three"), STORE_KEY_BUSY); /* expired, but it runs */
    assert_int_equal(store_call(s, STORE_WRITE, prune_fn, &more, &e), SG_OK);
    assert_false(more);
    assert_in_range(usage(), 1, both / 2);
    assert_true(doing(&a, "one", (struct deed){0}));
    assert_true(done(&a, "one", 200, "", ""));
    (void)poll(NULL, 0, 10);
    assert_int_equal(ask(&b, "p", 'k', 'c', "three"), STORE_KEY_RUN); /* also before it is removed */
    assert_false(b.found.again);
}

static void test_no_room_refuses_new_ones_only(void **state)
{
    (void)state;
    struct sg_error e;
    struct asking a, b;
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    assert_true(done(&a, "one", 200, "", "x"));
    assert_int_equal(try_ask(&b, "p", 'l', 'b', "two", true, &e), SG_E_OVERLOADED);
    assert_int_equal(e.outcome, SG_NOT_SENT);
    assert_int_equal(try_ask(&b, "p", 'k', 'b', "two", true, &e), SG_OK);
    assert_int_equal(b.found.verdict, STORE_KEY_REPLAY);
    store_key_found_clear(&b.found);
}

struct looking {
    const char *principal, *operation;
    enum store_key_state state;
    struct store_key_answer answer;
};

static enum sg_code look_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct looking *l = arg;
    return store_key_operation(db, "u", l->principal, l->operation, &limits, &l->state, &l->answer, e);
}

static enum store_key_state look(const char *principal, const char *operation, struct looking *l)
{
    struct sg_error e;
    *l = (struct looking){.principal = principal, .operation = operation};
    sg_buf_init(&l->answer.head, STORE_KEY_HEAD_MAX);
    sg_buf_init(&l->answer.body, STORE_KEY_BODY_MAX);
    assert_int_equal(store_call(s, STORE_READ, look_fn, l, &e), SG_OK);
    return l->state;
}

static void test_operations_are_found_by_their_principal(void **state)
{
    (void)state;
    struct asking a;
    struct looking l;
    assert_int_equal(ask(&a, "p", 'k', 'b', "one"), STORE_KEY_RUN);
    char operation[STORE_KEY_OPERATION_TEXT];
    (void)snprintf(operation, sizeof operation, "%s", a.found.nonce); /* that of this test's rows */
    assert_int_equal(look("p", operation, &l), STORE_KEY_RUNS);
    assert_int_equal(look("q", operation, &l), STORE_KEY_NONE);
    assert_true(doing(&a, "one", (struct deed){.open = true}));
    assert_int_equal(look("p", operation, &l), STORE_KEY_ENDED);
    assert_int_equal(ask(&a, "p", 'k', 'b', "two"), STORE_KEY_RUN);
    assert_true(done(&a, "two", 201, "ETag: \"1\"\n", "made"));
    assert_int_equal(look("p", operation, &l), STORE_KEY_DONE);
    assert_string_equal(l.answer.head.data, "ETag: \"1\"\n");
    assert_string_equal(l.answer.body.data, "made");
    sg_buf_free(&l.answer.head);
    sg_buf_free(&l.answer.body);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_runs_and_its_answer_is_replayed, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_principals_and_keys_are_apart, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_what_did_nothing_is_as_new, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_what_is_left_open_is_run_again_with_its_nonce_and_note,
                                        open_store, close_store),
        cmocka_unit_test_setup_teardown(test_silence_gives_it_away, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_what_has_expired_is_removed_and_what_runs_is_not, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(test_no_room_refuses_new_ones_only, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_operations_are_found_by_their_principal, open_store,
                                        close_store),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
