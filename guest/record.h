/* The records of processes: ROOT/<session>/<id>/ and the small files in it.
 *
 *   state      the lock, and all that is short: see state.h
 *   ctl        the monitor's socket: see ctl.h
 *   tombstone  renamed into place, so it is whole or absent; an E line: nothing can start under this id any more
 *   out.N err.N  output from offset N (twenty digits) on; see segment.h
 *
 * A record is built under a temporary name with its lock held and then renamed into place, so whoever finds
 * it may conclude from the lock: held = alive; free and not started = never started; free, started and no
 * exit = unknown.
 */
#ifndef SG_GUEST_RECORD_H
#define SG_GUEST_RECORD_H

#include "guest/state.h"

#include <sys/types.h>

struct guest_root {
    int fd;
    bool chown; /* we are root and the directory is somebody's: give what we create to them */
    uid_t uid;
    gid_t gid;
};

enum tomb_kind { TOMB_NONE, TOMB_SETTLED, TOMB_REMOVED, TOMB_EXEC };

struct record {
    struct sg_wire_process p;
    bool alive; /* the lock is held */
    enum tomb_kind tomb;
    struct guest_fail why;                 /* of a tombstone */
    pid_t monitor;                         /* 0 when unknown */
    uint64_t program_start, monitor_start; /* clock ticks after boot, 0 when unknown */
};

const char *guest_root_path(void);
/* Opens (and when asked creates) the root; false with *f. */
bool root_open(struct guest_root *r, bool create, struct guest_fail *f);
/* Gives fd to the owner of the root if need be. */
bool root_own(const struct guest_root *r, int fd);

/* Opens ROOT/<session>, -1 with errno.  When created, records of other sessions are removed. */
int session_open(const struct guest_root *r, const char *session, bool create);
/* Opens a directory below dir without following a link; -1 with errno. */
int dir_open(int dir, const char *name);
/* Creates name in dir with the contents; false with errno. */
bool file_put(const struct guest_root *r, int dir, const char *name, const void *data, size_t len);

/* A new record under a temporary name in the session, with its lock held. */
struct draft {
    char name[64]; /* below the session; "" when there is none */
    int dir, state;
};
/* Builds a draft: with a spec and facts for a process, without (NULL) as a tombstone of kind TOMB_SETTLED. */
bool draft_make(const struct guest_root *r, int session, const char *spec, const struct state_facts *facts,
                struct draft *d, struct guest_fail *f);
/* Renames it to id; false with errno (EEXIST: the id is taken). */
bool draft_place(int session, struct draft *d, const char *id);
/* Deletes it (if it was not placed) and closes what is open. */
void draft_drop(int session, struct draft *d);

/* Writes the tombstone of an existing record. */
bool tomb_put(const struct guest_root *r, int dir, enum tomb_kind kind, int err, const char *text);

/* Reads what the record in dir says now.  False with *f when it cannot be read at all. */
bool record_load(int dir, const char *id, struct record *rec, struct guest_fail *f);
/* The same without looking at the output unless it has to: oldest is 0 then, and end too while the process runs. */
bool record_poll(int dir, const char *id, struct record *rec, struct guest_fail *f);
/* Whether the record was made for this spec. */
bool record_has_spec(int dir, const char *spec);

/* Deletes everything below dir/name, and it; limited depth, errors are passed over. */
void tree_delete(int dir, const char *name, int depth);
/* Deletes the record's files but for the tombstone. */
void record_clear(int dir);

#endif
