/* Stores for tests, on the database that the program's first argument names: "sqlite" or "postgres" (a server of its
 * own, which pg_server.py starts and ends).
 *
 *     int main(int argc, char **argv)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(…), …};
 *         return ANY_STORE_RUN(argc, argv, tests);
 *     }
 *
 * and in a test: struct store *s = any_store_new(loop); … store_close(s);
 *
 * Include after cmocka.h.  Failures end the test.
 */
#ifndef SG_TESTS_ANY_STORE_H
#define SG_TESTS_ANY_STORE_H

#include "store/store.h"

#include <stdbool.h>

#define ANY_STORE_RUN(argc, argv, tests)                                                                     \
    any_store_run(argc, argv, #tests, tests, sizeof(tests) / sizeof *(tests))
int any_store_run(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t n);

bool any_store_is_postgres(void);

/* Stores of any_store_new and any_store_again do everything once in vain before, to show that it can be repeated; false
 * for tests that count. */
extern bool any_store_rehearses;

/* An empty database, and a store on it.  loop may be NULL. */
struct store *any_store_new(struct sg_loop *loop);
/* Another store on the same database, as a second gateway would open it. */
struct store *any_store_again(struct sg_loop *loop);
/* How the same database is opened, for what else a test wants to say; the texts stay until the next any_store_new. */
struct store_options any_store_options(void);
/* An empty database, not opened. */
void any_store_empty(void);

/* Of the PostgreSQL server, waited for. */
enum any_store_act { ANY_STORE_KILL, ANY_STORE_START, ANY_STORE_FREEZE, ANY_STORE_THAW };
void any_store_server(enum any_store_act act);
/* The folder of its socket. */
const char *any_store_socket_folder(void);
/* Statements on the server, past the store. */
void any_store_sql(const char *sql);

#endif
