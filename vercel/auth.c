#include "vercel/auth.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>

/* curl_slist wants char *; it never writes through it. */
static char *unconst(const char *s)
{
    return (char *)(uintptr_t)s;
}

struct vercel_auth *vercel_auth_new(const struct sg_secret *token, int64_t expires_ms)
{
    struct vercel_auth *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    struct sg_buf b;
    sg_buf_init(&b, sg_secret_len(token) + 64);
    if (sg_buf_reserve(&b, sg_secret_len(token) + 32) && /* at once: growing would leave copies behind */
        sg_buf_adds(&b, "Authorization: Bearer ") && sg_buf_adds(&b, sg_secret_bytes(token)))
        a->line = sg_secret_new(b.data, b.len);
    sg_buf_wipe(&b);
    if (!a->line) {
        free(a);
        return NULL;
    }
    a->refs = 1;
    a->expires_ms = expires_ms;
    a->list[0] = (struct curl_slist){unconst(sg_secret_bytes(a->line)), &a->list[1]};
    a->list[1] = (struct curl_slist){unconst("Expect:"), NULL}; /* no waiting for "100 Continue" */
    return a;
}

struct vercel_auth *vercel_auth_ref(struct vercel_auth *a)
{
    a->refs++;
    return a;
}

void vercel_auth_unref(struct vercel_auth *a)
{
    if (!a || --a->refs)
        return;
    sg_secret_free(a->line);
    free(a);
}

bool vercel_auth_expired(const struct vercel_auth *a)
{
    return a->expires_ms && a->expires_ms <= sg_wall_ms();
}
