/* Private to the layers module. */
#ifndef SG_EMULATOR_LAYERS_DIR_H
#define SG_EMULATOR_LAYERS_DIR_H

#include "emulator/box_host.h"
#include "emulator/layers.h"

#include <stdatomic.h>

enum { LAYERS_PATH = 512, LAYERS_STATE_MAX = 320, LAYERS_NAME_MAX = 64, LAYERS_SHARED_MAX = 4 };

struct layers {
    char dir[LAYERS_STATE_MAX + 1]; /* absolute */
    int fd, lock;
    struct box_host *host;
    atomic_uint serial; /* makes names in trash unique */
    char shared[LAYERS_SHARED_MAX][LAYERS_STATE_MAX + 1];
    size_t n_shared;
};

/* [A-Za-z0-9_-][A-Za-z0-9._-]{0,63} */
bool layers_name_valid(const char *name);
/* Gives root of a box the directory, where that is another id than ours. */
int layers_give(const struct layers *l, int dirfd, const char *path);
/* Renames `path` (relative to the state directory) into the trash and removes it there.  0 also when it does
 * not exist. */
int layers_trash(struct layers *l, const char *path);
/* Flushes the entries of a directory of the state directory. */
int layers_sync_dir(const struct layers *l, const char *path);

#endif
