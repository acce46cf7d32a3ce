/* Private to vercel/: the token as requests carry it.  Counted, because a request that is under way holds on to the one it
 * was begun with while a newer one takes its place.  Loop thread. */
#ifndef SG_VERCEL_AUTH_H
#define SG_VERCEL_AUTH_H

#include "base/crypto.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

struct vercel_auth {
    unsigned refs;
    struct sg_secret *line;    /* the whole Authorization header line */
    struct curl_slist list[2]; /* the shared tail of every request's headers */
    int64_t expires_ms;        /* wall clock; 0: not known */
};
/* The token is borrowed.  NULL when out of memory. */
struct vercel_auth *vercel_auth_new(const struct sg_secret *token, int64_t expires_ms);
struct vercel_auth *vercel_auth_ref(struct vercel_auth *a);
void vercel_auth_unref(struct vercel_auth *a); /* NULL is fine */
bool vercel_auth_expired(const struct vercel_auth *a);

#endif
