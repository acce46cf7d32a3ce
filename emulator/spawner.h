/* Private to the box module: the spawner process. */
#ifndef SG_EMULATOR_SPAWNER_H
#define SG_EMULATOR_SPAWNER_H

#include "emulator/box.h"

#include <stdbool.h>
#include <sys/types.h>

struct box_msg;

/* How ids of a box become ids of the host. */
enum id_mapping {
    MAP_SHIFTED, /* by us: 0..65535 → ID_BASE.. */
    MAP_SUBIDS,  /* by newuidmap/newgidmap: 0 → us, the rest → our subordinate range */
    MAP_SINGLE   /* 0 → us, nothing else */
};

enum { ID_BASE = 100000, ID_COUNT = 65536 };

struct id_map {
    enum id_mapping how;
    unsigned long uid_start, uid_count; /* MAP_SUBIDS */
    unsigned long gid_start, gid_count;
};

/* --- spawner_ids.c --- */
/* The ranges of this user in /etc/subuid and /etc/subgid; false when there are none of use or no helper. */
bool id_map_subids(struct id_map *map);
/* One sentence: what this user lacks for that. */
const char *id_map_advice(void);
/* Writes the maps of a process in a new user namespace.  0 or errno. */
int id_map_write(const struct id_map *map, pid_t pid);

/* The life of the spawner.  Never returns to the caller's code. */
_Noreturn void spawner_run(int sock, bool plain);

#endif
