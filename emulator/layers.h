/* Layers on disk: imported base trees, session uppers, snapshots.
 *
 *   STATE/base/<name>/        a base tree, imported once, ids already shifted for the tier
 *   STATE/sessions/<id>/      layer/upper/ work/ mnt/ of a live session
 *   STATE/layers/<snapshot>/  a session's layer/, renamed: immutable from then on.  (The upper itself belongs to
 *                             the sandbox, which may have made it unmovable for a rootless emulator.)
 *   STATE/trash/              what is being removed
 *   STATE/tier                the xattr flavour of this directory: layers of one flavour are never mounted
 * with the other
 *
 * Every function may block on the disk; any thread.  0 or errno, with one sentence in err where given.
 */
#ifndef SG_EMULATOR_LAYERS_H
#define SG_EMULATOR_LAYERS_H

#include "emulator/box.h"

/* Opens (creating as needed) a state directory: checks that it is writable, not on an overlay file system
 * where that cannot work, and of this tier; takes an exclusive lock for this process; cleans trash; unmounts
 * leftovers. */
struct layers;
int layers_open(const char *state_dir, struct box_host *host, struct layers **out, char err[BOX_TEXT]);
void layers_close(struct layers *l);

/* Imports a tar (plain, gzip, xz or zstd) or a directory as base `name`, inside the id-mapped namespace, into
 * a temporary directory that is renamed at the end: a base is there completely or not at all.  Already there:
 * 0 at once unless force.  progress (may be NULL) is called at most every 500 ms. */
typedef void layers_progress_fn(void *arg, uint64_t files, uint64_t bytes);
int layers_import_base(struct layers *l, const char *name, const char *source, bool force,
                       layers_progress_fn *progress, void *arg, char err[BOX_TEXT]);
/* In the plain tier the host is every base: always true. */
bool layers_has_base(const struct layers *l, const char *name);
/* Uses base trees of another state directory (read-only, shared by many emulators; same tier). */
int layers_share_bases(struct layers *l, const char *other_state_dir, char err[BOX_TEXT]);

/* Makes the directories of a session; *paths are valid until layers_session_free. */
struct layers_session {
    char upper[512], work[512], mount[512];
};
int layers_session_make(struct layers *l, const char *session_id, struct layers_session *out);
/* Builds the NULL-terminated lower list, topmost first: the given snapshot ids (newest first), then the base.
 * *out is one malloc'd block; the caller frees it with free(). */
int layers_lower(struct layers *l, const char *base, const char *const *snapshots, size_t n,
                 const char *const **out);
/* After box_stop: renames the upper into a layer, O(1), and removes the rest of the session directory.
 * *size_bytes: bytes in the layer. */
int layers_seal(struct layers *l, const char *session_id, const char *snapshot_id, uint64_t *size_bytes);
/* After box_stop: throws the session's files away. */
int layers_session_drop(struct layers *l, const char *session_id);
int layers_remove(struct layers *l, const char *snapshot_id);
/* Calls fn for every session directory left by a dead emulator. */
int layers_each_orphan(struct layers *l, void (*fn)(void *arg, const char *session_id), void *arg);

#endif
