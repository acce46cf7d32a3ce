/* A string-keyed table of pointers.  It copies keys and owns no values; not thread-safe (the caller locks).
 */
#ifndef SG_EMULATOR_STRMAP_H
#define SG_EMULATOR_STRMAP_H

#include <stdbool.h>
#include <stddef.h>

struct strmap_entry;
struct strmap {
    struct strmap_entry **slot;
    size_t slots, count;
};

void strmap_init(struct strmap *m);
void strmap_free(struct strmap *m);
void *strmap_get(const struct strmap *m, const char *key);
/* False when the key is there already (nothing changes) or memory ran out (*no_memory then true). */
bool strmap_add(struct strmap *m, const char *key, void *value, bool *no_memory);
void *strmap_remove(struct strmap *m, const char *key);
/* Calls fn for every value, in no order, until it returns false; fn must not change the table. */
void strmap_each(const struct strmap *m, bool (*fn)(void *arg, void *value), void *arg);

#endif
