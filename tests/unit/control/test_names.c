/* One holder of a sandbox's name at a time, between gateways of one store; none without a store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/control.h"
#include "control/names.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    struct sg_loop *loop;
    struct store *store;
    struct control *a, *b, *other;
};

static struct control *control_of(struct pair *p, struct store *store, const char *upstream)
{
    const struct control_config config = {.loop = p->loop, .store = store, .upstream = upstream};
    struct control *c = control_new(&config);
    assert_non_null(c);
    return c;
}

static int set_up(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    struct sg_error e;
    assert_non_null(p);
    p->loop = sg_loop_new();
    const struct store_options o = {.loop = p->loop};
    assert_int_equal(store_open(&o, &p->store, &e), SG_OK);
    p->a = control_of(p, p->store, "team/project");
    p->b = control_of(p, p->store, "team/project");
    p->other = control_of(p, p->store, "team/another");
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *p = *state;
    struct control *all[] = {p->a, p->b, p->other};
    for (size_t i = 0; i < 3; i++)
        control_stop_jobs(all[i]);
    for (size_t i = 0; i < 3; i++)
        control_free(all[i]);
    store_close(p->store);
    sg_loop_free(p->loop);
    free(p);
    return 0;
}

static void one_holder_at_a_time(void **state)
{
    struct pair *p = *state;
    struct name_lock l, m, n, k;
    struct sg_error e;
    assert_int_equal(control_name_lock(p->a, "box", 0, &l, &e), SG_OK);
    assert_true(l.held);
    assert_int_equal(control_name_lock(p->b, "box", 60, &m, &e), SG_E_SANDBOX_TRANSITION);
    assert_int_equal(e.outcome, SG_NOT_SENT);
    assert_false(m.held);
    control_name_unlock(&m);
    assert_int_equal(control_name_lock(p->a, "box", 0, &m, &e),
                     SG_E_SANDBOX_TRANSITION); /* nor in one gateway */
    assert_int_equal(control_name_lock(p->b, "box2", 0, &n, &e), SG_OK);
    assert_int_equal(control_name_lock(p->other, "box", 0, &k, &e), SG_OK); /* another project's */
    control_name_unlock(&l);
    control_name_unlock(&l);
    assert_int_equal(control_name_lock(p->b, "box", 0, &m, &e), SG_OK);
    control_name_unlock(&m);
    control_name_unlock(&n);
    control_name_unlock(&k);
}

static void names_of_any_length(void **state)
{
    struct pair *p = *state;
    char name[800];
    struct name_lock l, m;
    struct sg_error e;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(control_name_lock(p->a, name, 0, &l, &e), SG_OK);
    assert_true(l.held);
    assert_int_equal(control_name_lock(p->b, name, 0, &m, &e), SG_E_SANDBOX_TRANSITION);
    name[700] = 'y';
    assert_int_equal(control_name_lock(p->b, name, 0, &m, &e), SG_OK);
    control_name_unlock(&m);
    control_name_unlock(&l);
}

static void goes_on_without_a_store(void **state)
{
    struct pair *p = *state;
    struct name_lock l;
    struct sg_error e;
    struct control *c = control_of(p, NULL, "team/project");
    assert_int_equal(control_name_lock(c, "box", 0, &l, &e), SG_OK);
    assert_false(l.held);
    control_name_unlock(&l);
    control_stop_jobs(c);
    control_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_holder_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_of_any_length, set_up, tear_down),
        cmocka_unit_test_setup_teardown(goes_on_without_a_store, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
