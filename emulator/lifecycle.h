/* Sandboxes come, stop, come back and go.  Every function blocks until the change is done; changes of one
 * sandbox wait for each other, those of different sandboxes never do.
 */
#ifndef SG_EMULATOR_LIFECYCLE_H
#define SG_EMULATOR_LIFECYCLE_H

#include "emulator/emulator.h"
#include "emulator/state.h"

enum stop_kind {
    STOP_REQUEST,  /* automatic snapshot when persistent */
    STOP_TIMEOUT,  /* the same, unless the deadline was moved meanwhile */
    STOP_SNAPSHOT, /* a manual snapshot */
    STOP_DISCARD,  /* files are thrown away */
};

/* Takes the name, boots the first session.  `source`: snapshot id or "".  The sandbox is in the table and
 * *out a counted session when it returns 0; nothing is left behind otherwise. */
int lifecycle_create(struct emulator *emu, struct sandbox *sb, const char *source, struct session **out,
                     struct api_error *e);
/* The refusal of a name. */
int lifecycle_name_taken(const char *name, struct api_error *e);
/* A running session of the sandbox: the current one, or (resumed) a new one. */
int lifecycle_resume(struct emulator *emu, struct sandbox *sb, struct session **out, bool *resumed,
                     struct api_error *e);
/* Stops a session; one that has ended is fine.  expiration_ms: of a manual snapshot, -1 for the default.
 * *snapshot: counted, or NULL when none was taken. */
int lifecycle_stop(struct emulator *emu, struct session *s, enum stop_kind kind, int64_t expiration_ms,
                   struct snapshot **snapshot, struct api_error *e);
int lifecycle_delete(struct emulator *emu, struct sandbox *sb, bool orphan_snapshots, struct api_error *e);
void lifecycle_delete_snapshot(struct emulator *emu, struct snapshot *sn);
/* The end of a running session moved. */
void lifecycle_deadline_changed(struct emulator *emu);

/* Sessions of an emulator that died: aborted, their files kept as snapshots.  Once, before serving. */
void lifecycle_recover(struct emulator *emu);
/* The thread that ends sessions at their deadline. */
bool lifecycle_start_timer(struct emulator *emu);
/* Stops every session, in parallel, and the timer. */
void lifecycle_shutdown(struct emulator *emu);

/* A thread that wants to use the box of a session: 0, or the documented refusal when it does not run.  The box stays until
 * session_leave. */
int session_enter(struct session *s, struct api_error *e);
void session_leave(struct session *s);
/* The refusal alone, for calls that need a running session but not its box. */
int session_check(struct session *s, struct api_error *e);

/* An upload in progress: stopping the session shuts the socket down. */
struct upload {
    int fd;
    struct upload *next;
};
void session_add_upload(struct session *s, struct upload *u);
void session_remove_upload(struct session *s, struct upload *u);

#endif
