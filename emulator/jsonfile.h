/* One JSON file, replaced atomically (not synced: an emulator promises to survive its own death, not the
 * machine's).  Any thread; blocks on the disk.
 */
#ifndef SG_EMULATOR_JSONFILE_H
#define SG_EMULATOR_JSONFILE_H

#include <jansson.h>
#include <stdbool.h>

/* Takes obj, which may be NULL (no memory).  False, logged, when the disk refuses; the old file stays then. */
bool jsonfile_store(const char *path, json_t *obj);

#endif
