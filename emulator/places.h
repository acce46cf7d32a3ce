/* Regions and plans: what the real service offers where, and to whom.  Constant; any thread. */
#ifndef SG_EMULATOR_PLACES_H
#define SG_EMULATOR_PLACES_H

#include <stdbool.h>
#include <stdint.h>

enum { REGIONS = 19, REGION_DEFAULT = 0 };

const char *region_name(int region);
/* -1: there is no such region. */
int region_find(const char *name);

struct plan {
    const char *name;
    int64_t session_max_ms; /* with all extensions */
    int vcpus_max;
    unsigned running_max;
    bool failover;
    uint64_t drive_default_bytes;
};

/* "hobby", "pro"; NULL is what holds when no plan is asked for: the largest limits there are.  NULL when there
 * is no such plan. */
const struct plan *plan_find(const char *name);

#endif
