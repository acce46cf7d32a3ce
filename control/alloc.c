#include "control/tags.h"

#include "control/control.h"

#include "base/crypto.h"

#include <stdio.h>
#include <string.h>

enum { FOUND_MAX = 10 };

/* The hash of a nonce that nobody guesses tells nothing of it. */
enum sg_code control_alloc(struct control *c, const char *nonce, char out[CONTROL_ALLOC_TEXT],
                           struct sg_error *e)
{
    (void)c;
    unsigned char hash[32];
    if (nonce) {
        char text[128];
        (void)snprintf(text, sizeof text, "%s:%s", CONTROL_TAG_ALLOC, nonce);
        sg_sha256(text, strlen(text), hash);
    } else if (!sg_random(hash, sizeof hash)) {
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for an allocation tag");
    }
    sg_hex(out, hash, sizeof hash);
    return SG_OK;
}

enum sg_code control_find_alloc(struct control *c, const char *alloc, struct vercel_sandbox *out,
                                struct sg_error *e)
{
    *out = (struct vercel_sandbox){0};
    char tag[sizeof CONTROL_TAG_ALLOC + CONTROL_ALLOC_TEXT];
    (void)snprintf(tag, sizeof tag, "%s:%s", CONTROL_TAG_ALLOC, alloc);
    const struct vercel_list_query q = {.limit = FOUND_MAX, .tag = tag};
    struct vercel_page page;
    enum sg_code rc = vercel_list(c->vercel, &q, &page, e);
    if (rc)
        return rc;
    char name[129] = "";
    for (size_t i = 0; i < page.n && !*name; i++)
        if (control_is_alloc(&page.items[i], alloc))
            (void)snprintf(name, sizeof name, "%s", page.items[i].name);
    vercel_page_clear(&page);
    if (!*name)
        return sg_fail(e, SG_E_SANDBOX_NOT_FOUND, SG_NOT_STARTED, "no sandbox has this allocation tag");
    return vercel_get(c->vercel, name, false, out, e);
}
