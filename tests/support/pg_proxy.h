/* Stands between a store and its PostgreSQL, and cuts a connection at the worst moment.  Failures end the test. */
#ifndef SG_TESTS_PG_PROXY_H
#define SG_TESTS_PG_PROXY_H

enum pg_cut {
    PG_CUT_NOTHING,
    PG_CUT_BEFORE_COMMIT, /* the server never hears it */
    PG_CUT_AFTER_COMMIT,  /* the server does it, and its answer is lost */
    PG_CUT_BEGIN,         /* the connection was dead before anything was asked */
};

struct pg_proxy;
/* `folder` is the one with the server's socket. */
struct pg_proxy *pg_proxy_new(const char *folder);
/* The folder with this one's socket. */
const char *pg_proxy_folder(const struct pg_proxy *p);
/* The next connection to which it applies is cut; afterwards all goes through. */
void pg_proxy_cut(struct pg_proxy *p, enum pg_cut cut);
/* How many were cut. */
int pg_proxy_cuts(struct pg_proxy *p);
void pg_proxy_free(struct pg_proxy *p);

#endif
