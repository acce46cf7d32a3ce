/* The two tags by which the gateway knows its own sandboxes: who created it, and which allocation it is.  Callers cannot set
 * them and do not see them.
 */
#ifndef SG_CONTROL_TAGS_H
#define SG_CONTROL_TAGS_H

#include "vercel/sandboxes.h"

#include <jansson.h>

struct control;

#define CONTROL_TAG_RESERVED "sg."      /* beginning of all that are the gateway's */
#define CONTROL_TAG_OWNER    "sg.owner" /* id of the principal that created it */
#define CONTROL_TAG_ALLOC    "sg.alloc"

enum {
    CONTROL_ALLOC_TEXT = 65, /* 64 hexadecimal digits, and NUL */
    CONTROL_TAGS_MAX = 3,    /* of the upstream's five, two are kept for the gateway */
    CONTROL_TAG_KEY_MAX = 256,
    CONTROL_TAG_VALUE_MAX = 256, /* characters */
};

/* The value of CONTROL_TAG_ALLOC for a nonce (struct exchange): the same for the same one, whichever gateway asks.  NULL: a new
 * one, which needs no store.  Worker threads; blocks. */
SG_MUST_CHECK enum sg_code control_alloc(struct control *c, const char *nonce, char out[CONTROL_ALLOC_TEXT],
                                         struct sg_error *e);

/* ---- pure; any thread ---- */

bool control_tag_reserved(const char *key);
/* What a caller may set: at most CONTROL_TAGS_MAX, none of them reserved.  `base` is the pointer of the object ("/tags"). */
SG_MUST_CHECK enum sg_code control_tags_check(const json_t *tags, const char *base, struct sg_error *e);
/* Puts both into an object that is to be sent; owner NULL: none. */
SG_MUST_CHECK enum sg_code control_tags_add(json_t *tags, const char *owner, const char *alloc,
                                            struct sg_error *e);
/* Puts those that it has by now: for a PATCH, which replaces all. */
SG_MUST_CHECK enum sg_code control_tags_keep(json_t *tags, const struct vercel_sandbox *s,
                                             struct sg_error *e);
/* Its value, NULL when it has no such tag. */
const char *control_tag_of(const struct vercel_sandbox *s, const char *key);
/* Whether it is this allocation. */
bool control_is_alloc(const struct vercel_sandbox *s, const char *alloc);

/* ---- worker thread, blocking ---- */

/* Looks for the sandbox of an allocation in the upstream's list; *out (vercel_sandbox_clear) is its full record.
 * SANDBOX_NOT_FOUND: it is not there, or not yet. */
SG_MUST_CHECK enum sg_code control_find_alloc(struct control *c, const char *alloc,
                                              struct vercel_sandbox *out, struct sg_error *e);

#endif
