/* Things of a relay that are found by the process they belong to: session and id.  Embedded, so that adding cannot
 * fail.  Loop thread.
 */
#ifndef SG_RELAY_NAMED_H
#define SG_RELAY_NAMED_H

enum { NAMED_BUCKETS = 512 };

struct named {
    struct named *next, **prev;  /* prev NULL: in no table */
    const char *session_id, *id; /* of the thing around it */
};

struct named_table {
    struct named *buckets[NAMED_BUCKETS];
};

struct named *named_find(struct named_table *t, const char *session_id, const char *id);
/* session_id and id must be set. */
void named_add(struct named_table *t, struct named *n);
/* Nothing when it is in no table. */
void named_remove(struct named *n);

#endif
