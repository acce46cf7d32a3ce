/* What a call of the store costs: `store sqlite FILE` or `store postgres URL`, printed as
 * `what callers calls/s p50_us p99_us`.
 *
 * read    one row by its key            (a record looks up what is known of its sandbox)
 * write   one row taken or renewed      (a claim, a beat; the disk is not waited for)
 * durable the same, waited for          (an intent that must be on the disk first)
 */
#include "base/clock.h"
#include "store/locks.h"
#include "store/watches.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLERS_MAX = 64, CALLS = 2000, WARM_UP = 50 };

struct caller {
    struct store *store;
    store_fn *fn;
    enum store_kind kind;
    char name[32];
    int calls, failed;
    int64_t *ns;
    pthread_t thread;
};

static enum sg_code read_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct caller *c = arg;
    bool has;
    return store_watch_has(db, c->name, &has, e);
}

static enum sg_code write_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct caller *c = arg;
    bool taken;
    return store_lock_take(db, c->name, c->name, 60000, &taken, e);
}

static void *run(void *arg)
{
    struct caller *c = arg;
    struct sg_error e;
    for (int i = 0; i < c->calls; i++) {
        int64_t from = sg_mono_ns();
        c->failed += store_call(c->store, c->kind, c->fn, c, &e) != SG_OK;
        c->ns[i] = sg_mono_ns() - from;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int measure(struct store *store, const char *what, enum store_kind kind, int callers)
{
    struct caller c[CALLERS_MAX];
    size_t n = 0;
    int failed = 0, calls = CALLS / callers + WARM_UP;
    int64_t *all = calloc((size_t)callers * (size_t)calls, sizeof *all);
    if (!all)
        return 1;
    int64_t from = sg_mono_ns();
    for (int i = 0; i < callers; i++) {
        c[i] = (struct caller){.store = store,
                               .fn = kind == STORE_READ ? read_fn : write_fn,
                               .kind = kind,
                               .calls = calls,
                               .ns = all + (size_t)i * (size_t)calls};
        (void)snprintf(c[i].name, sizeof c[i].name, "bench-%d", i);
        if (pthread_create(&c[i].thread, NULL, run, &c[i]))
            return 1;
    }
    for (int i = 0; i < callers; i++) {
        (void)pthread_join(c[i].thread, NULL);
        failed += c[i].failed;
    }
    double seconds = (double)(sg_mono_ns() - from) / 1e9;
    for (int i = 0; i < callers; i++)
        for (int j = WARM_UP; j < calls; j++)
            all[n++] = c[i].ns[j];
    qsort(all, n, sizeof *all, by_size);
    const int64_t *p50 = &all[n / 2], *p99 = &all[n * 99 / 100];
    (void)printf("%s %d %.0f %.0f %.0f %d\n", what, callers, (double)(callers * calls) / seconds,
                 (double)*p50 / 1e3, (double)*p99 / 1e3, failed);
    free(all);
    return 0;
}

int main(int argc, char **argv)
{
    struct sg_error e;
    struct store *store = NULL;
    static const int callers[] = {1, 8, CALLERS_MAX};
    bool postgres = argc == 3 && strcmp(argv[1], "postgres") == 0;
    if (argc != 3 || (!postgres && strcmp(argv[1], "sqlite") != 0)) {
        (void)fprintf(stderr, "usage: store sqlite FILE | store postgres URL\n");
        return 64;
    }
    const struct store_options o = {
        .path = postgres ? NULL : argv[2], .url = postgres ? argv[2] : NULL, .busy_ms = 60000};
    if (store_open(&o, &store, &e)) {
        (void)fprintf(stderr, "%s\n", e.detail);
        return 1;
    }
    int bad = 0;
    for (size_t i = 0; i < sizeof callers / sizeof *callers && !bad; i++) {
        bad |= measure(store, "read", STORE_READ, callers[i]);
        bad |= measure(store, "write", STORE_WRITE, callers[i]);
        bad |= measure(store, "durable", STORE_DURABLE, callers[i]);
    }
    store_close(store);
    return bad;
}
