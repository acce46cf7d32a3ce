/* Foreign JSON read in place: one pass, two allocations however many values it has.  For answers that are read
 * once and dropped; request bodies and what is changed or kept go through base/json.h.  Accepts exactly what
 * jansson's json_loadb accepts with no flags, but for the bounds below and NUL bytes, of which jansson lets
 * some pass (tests/fuzz/fuzz_json_doc.c compares the two).  Pure; any thread, one document on one thread at a time.
 */
#ifndef SG_BASE_JSON_DOC_H
#define SG_BASE_JSON_DOC_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SG_JDOC_DEPTH_MAX = 64,      /* nested arrays and objects */
    SG_JDOC_NODES_MAX = 1 << 19, /* values and keys */
};

enum sg_jtype { SG_JNULL, SG_JFALSE, SG_JTRUE, SG_JINTEGER, SG_JREAL, SG_JSTRING, SG_JARRAY, SG_JOBJECT };

/* A value; the values inside it follow it in memory, keys as strings before their values. */
struct sg_jnode {
    enum sg_jtype type;
    uint32_t span; /* nodes of this value, itself included: its next sibling is at + span */
    uint32_t len;  /* bytes of a string; values of an array; members of an object */
    union {
        const char *text; /* UTF-8 without NUL inside, NUL-terminated */
        int64_t integer;
        double real;
    } u;
};

struct sg_jdoc {
    char *text; /* cut up: strings are unescaped where they stood */
    struct sg_jnode *nodes;
    size_t count, cap;
};

/* Reads one array or object.  text[len] must be a NUL.  The text (to be freed with free()) becomes the
 * document's when it succeeds; else the caller's still, spoiled.  False: not JSON, beyond a bound, or no
 * memory. */
SG_MUST_CHECK bool sg_jdoc_parse(char *text, size_t len, struct sg_jdoc *out);
/* Of a zeroed one too. */
void sg_jdoc_free(struct sg_jdoc *d);
static inline const struct sg_jnode *sg_jdoc_root(const struct sg_jdoc *d)
{
    return d->nodes;
}

/* The member of that name, of several the last; NULL when absent, or when obj is NULL or no object. */
const struct sg_jnode *sg_jn_get(const struct sg_jnode *obj, const char *key);
/* Its value, or the default when absent or of another type.  Integers are also read from reals that hold one
 * exactly enough, as sg_jget_int. */
const char *sg_jn_str(const struct sg_jnode *obj, const char *key, const char *dflt);
int64_t sg_jn_int(const struct sg_jnode *obj, const char *key, int64_t dflt);
bool sg_jn_bool(const struct sg_jnode *obj, const char *key, bool dflt);

static inline bool sg_jn_is(const struct sg_jnode *v, enum sg_jtype type)
{
    return v && v->type == type;
}
static inline bool sg_jn_is_bool(const struct sg_jnode *v)
{
    return v && (v->type == SG_JTRUE || v->type == SG_JFALSE);
}

#endif
