/* Drives: storage that outlives sandboxes.  A drive is mounted for writing by one session at a time, and by any
 * number of sessions as a frozen copy.
 *
 * The fields of a drive are guarded by state->lock, its files by `content`: held for reading while they are
 * copied, for writing while they are removed; taken after `op` of a sandbox and before state->lock.  Functions
 * block on the disk unless they only look.  maxSizeBytes is remembered and shown; nothing enforces it.
 */
#ifndef SG_EMULATOR_DRIVES_H
#define SG_EMULATOR_DRIVES_H

#include "emulator/box.h"
#include "emulator/emulator.h"
#include "emulator/layers_drives.h"
#include "emulator/state.h"

struct drive {
    atomic_int refs;
    pthread_rwlock_t content;
    char id[ID_TEXT];
    char name[DRIVE_NAME_TEXT];
    char project[PROJECT_TEXT];
    char parent[ID_TEXT], root[ID_TEXT]; /* "": no fork */
    int region;
    uint64_t max_bytes;
    int64_t created_ms, updated_ms;
    bool bound; /* a session had it: its top belongs to the sandbox user */
    bool used;  /* it has been seen with something in it */
    bool deleted;
    char session_id[ID_TEXT]; /* who writes to it; "": nobody.  Not on disk: sessions end with the emulator */
    char sandbox_name[NAME_TEXT];
};

static const uint64_t DRIVE_BYTES_MAX = UINT64_C(16) << 40;
enum { DRIVE_BYTES_UNIT = 4096 };

/* state.c */
struct drive *drive_new(void);
struct drive *drive_ref(struct drive *d);
void drive_unref(struct drive *d);
/* 0, EEXIST or ENOMEM. */
int drives_add(struct state *st, struct drive *d);

/* Counted, by name or (by_id) by id too; NULL: there is none.  An empty project finds it in any. */
struct drive *drives_find(struct state *st, const char *project, const char *name, bool by_id);
/* As state_all_sandboxes. */
struct drive **drives_all(struct state *st, const char *project, size_t *n);

/* region -1 and max_bytes 0: not given.  Counted, or NULL. */
struct drive *drives_get_or_create(struct emulator *emu, const char *project, const char *name, int region,
                                   uint64_t max_bytes, bool *created, struct api_error *e);
struct drive *drives_fork(struct emulator *emu, struct drive *source, const char *name, struct api_error *e);
int drives_delete(struct emulator *emu, struct drive *d, struct api_error *e);

/* Whether settings can be had: every drive is there, in the region; now: and can be mounted at this moment. */
int drives_check(struct emulator *emu, const char *project, const struct settings *set, bool now,
                 struct api_error *e);

/* What a session's box binds; the strings live here. */
struct drive_binding {
    size_t n;
    struct box_mount mounts[MOUNTS_MAX];
    char source[MOUNTS_MAX][LAYERS_DRIVE_PATH];
    char target[MOUNTS_MAX][MOUNT_PATH_TEXT];
};
/* With the sandbox's `op`, the session's directory made: takes the drives of the sandbox's settings.  Nothing
 * is taken when it fails. */
int drives_attach(struct emulator *emu, struct session *s, struct drive_binding *out, struct api_error *e);
/* With `op`: the box runs, and the drives are the sandbox user's. */
void drives_started(struct emulator *emu, struct session *s);
/* With `op`: gives back what attach took. */
void drives_detach(struct emulator *emu, struct session *s);

/* After persist_load: removes files that belong to no drive. */
void drives_recover(struct emulator *emu);

/* With state->lock. */
void drives_render(struct sg_buf *out, const struct drive *d);

#endif
