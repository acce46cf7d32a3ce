/* Drives on disk: a directory each, that boxes bind.
 *
 *   STATE/drives/<id>/data             what the drive holds
 *   STATE/sessions/<id>/mounts/<n>/data   a drive as it was when the session began; goes with the session
 *
 * Every function may block on the disk; any thread.  0 or errno.
 */
#ifndef SG_EMULATOR_LAYERS_DRIVES_H
#define SG_EMULATOR_LAYERS_DRIVES_H

#include "emulator/layers.h"

enum { LAYERS_DRIVE_PATH = 512 };

/* A new empty drive; nothing is left behind on failure. */
int layers_drive_make(struct layers *l, const char *id);
/* A new drive with the contents of another; err says what failed. */
int layers_drive_fork(struct layers *l, const char *from, const char *id, char err[BOX_TEXT]);
/* Freezes a drive into a session's directory (which exists) as its mount number n; path: what to bind. */
int layers_drive_freeze(struct layers *l, const char *from, const char *session_id, unsigned n,
                        char path[LAYERS_DRIVE_PATH], char err[BOX_TEXT]);
/* What to bind for reading and writing. */
void layers_drive_path(const struct layers *l, const char *id, char path[LAYERS_DRIVE_PATH]);
/* Whether there is anything in it. */
int layers_drive_used(struct layers *l, const char *id, bool *used);
int layers_drive_remove(struct layers *l, const char *id);
/* Removes the drives that `known` does not know. */
int layers_drives_sweep(struct layers *l, bool (*known)(void *arg, const char *id), void *arg);

/* Empties a directory outside the state directory and removes it. */
int layers_wipe(struct layers *l, const char *path);

#endif
