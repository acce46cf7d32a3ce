/* Snapshots and their layers: chains, expiry, retention, and which layers are still needed.  Any thread; the
 * functions that remove files block on the disk, and take state->lock themselves.
 */
#ifndef SG_EMULATOR_SNAPSHOTS_H
#define SG_EMULATOR_SNAPSHOTS_H

#include "emulator/emulator.h"
#include "emulator/state.h"

enum { CHAIN_MAX = 400, CHAIN_GONE = -1, CHAIN_TOO_LONG = -2 };

/* With state->lock held: the ids from `id` up to the root, newest first (borrowed; valid while the lock is
 * held, longer when a live session has `id` as its source).  Count, or CHAIN_GONE when one of
 * them is gone, or CHAIN_TOO_LONG when they are more than can be mounted. */
int snapshots_chain(struct state *st, const char *id, const char *ids[CHAIN_MAX], const char **base);

/* Records a sealed layer as snapshot of a session, applies the sandbox's retention.  Counted; NULL without
 * memory.  expiration_ms -1: the sandbox's default. */
struct snapshot *snapshots_record(struct emulator *emu, struct session *s, const char *id, uint64_t size,
                                  bool manual, int64_t expiration_ms);
/* Marks one deleted and removes the layers nobody needs any more. */
void snapshots_delete(struct emulator *emu, struct snapshot *sn);
/* The same, and no tombstone stays: as what retention pushes out. */
void snapshots_evict(struct emulator *emu, struct snapshot *sn);
/* Those of a deleted sandbox that no other sandbox uses. */
void snapshots_delete_orphans(struct emulator *emu, const char *sandbox_uid);
/* Removes the layers that no usable snapshot and no live session needs. */
void snapshots_sweep(struct emulator *emu);

#endif
