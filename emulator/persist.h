/* The state on disk: one JSON file per object under STATE/meta, replaced atomically (not synced: an emulator
 * promises to survive its own death, not the machine's).  Called with the sandbox's `op` held or at start; blocks on the disk.
 */
#ifndef SG_EMULATOR_PERSIST_H
#define SG_EMULATOR_PERSIST_H

#include "emulator/state.h"

/* False, logged, when the disk refuses.  They take the locks they need for a copy. */
bool persist_sandbox(struct state *st, struct sandbox *sb);
bool persist_session(struct state *st, struct session *s);
bool persist_snapshot(struct state *st, struct snapshot *sn);
void persist_forget_sandbox(struct state *st, const struct sandbox *sb);
void persist_forget_session(struct state *st, const struct session *s);
void persist_forget_snapshot(struct state *st, const struct snapshot *sn);
struct drive;
bool persist_drive(struct state *st, struct drive *d);
void persist_forget_drive(struct state *st, const struct drive *d);

/* Reads everything; files that make no sense are logged and left alone. */
bool persist_load(struct state *st, char err[256]);

#endif
