#include "emulator/places.h"

#include <stddef.h>
#include <string.h>

static const char *const names[REGIONS] = {"iad1", "sfo1", "cle1", "cdg1", "fra1", "arn1", "sin1",
                                           "pdx1", "lhr1", "icn1", "bom1", "cpt1", "dub1", "gru1",
                                           "hkg1", "syd1", "yul1", "hnd1", "kix1"};

const char *region_name(int region)
{
    return region >= 0 && region < REGIONS ? names[region] : names[REGION_DEFAULT];
}

int region_find(const char *name)
{
    for (int i = 0; i < REGIONS; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

const struct plan *plan_find(const char *name)
{
    static const struct plan table[] = {
        {"hobby", INT64_C(45) * 60000, 4, 10, false, UINT64_C(1) << 30},
        {"pro", INT64_C(24) * 60 * 60000, 8, 10000, true, UINT64_C(1) << 40},
        {"enterprise", INT64_C(24) * 60 * 60000, 32, 10000, true, UINT64_C(1) << 40},
    };
    if (!name)
        return &table[2];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}
