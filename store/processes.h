/* Processes as they were last seen, with the last bytes of their output: what can still be told when the session
 * they ran in is over.  Functions for store_fn; any thread.
 */
#ifndef SG_STORE_PROCESSES_H
#define SG_STORE_PROCESSES_H

#include "base/buf.h"
#include "base/core/wire.h"
#include "store/store.h"

enum {
    STORE_TAIL_MAX = 1024 * 1024, /* bytes kept of one stream */
    STORE_LIST_MAX = 16384,       /* processes of one list */
    STORE_ROW_COST = 512,         /* what a process without output counts as */
};

struct store_tail {
    uint64_t first; /* offset of its first byte */
    const void *data;
    size_t len; /* at most STORE_TAIL_MAX; 0: none */
};

struct store_process {    /* to be put; all borrowed */
    const char *upstream; /* whose sandbox names these are */
    const char *sandbox, *session_id;
    const struct sg_wire_process *p;
    struct store_tail tail[2];
    int64_t expires_ms; /* wall clock */
};
/* Keeps what says more: an end is never replaced by a process that still runs, nor bytes by earlier ones. */
SG_MUST_CHECK enum sg_code store_process_put(struct store_db *db, const struct store_process *p,
                                             struct sg_error *e);

struct stored_process { /* found; cleared by stored_process_clear */
    char session_id[128];
    struct sg_wire_process p; /* oldest and end: what can be read */
    bool complete;            /* it is known how it ended, and its last bytes are here */
    uint64_t seen[2];         /* how far its output went */
    int64_t expires_ms;
    struct sg_buf tail[2]; /* bytes oldest..end, where they were asked for */
};
void stored_process_clear(struct stored_process *p);

struct store_which {
    const char *upstream, *sandbox;
    const char *session_id; /* NULL: the last session that had it */
    const char *process_id;
};
/* bytes: also those of the streams with their bit set (1 stdout, 2 stderr).  PROCESS_NOT_FOUND. */
SG_MUST_CHECK enum sg_code store_process_get(struct store_db *db, const struct store_which *w, unsigned bytes,
                                             struct stored_process *out, struct sg_error *e);
/* Those of one session (NULL: the last one that is known), in the order of their start, without bytes;
 * STORE_LIST_MAX at most.  The array is freed by the caller; none: NULL and 0. */
SG_MUST_CHECK enum sg_code store_process_list(struct store_db *db, const char *upstream, const char *sandbox,
                                              const char *session_id, struct stored_process **out, size_t *n,
                                              struct sg_error *e);
/* They stay until then, all of this session. */
SG_MUST_CHECK enum sg_code store_process_keep(struct store_db *db, const char *session_id, int64_t expires_ms,
                                              struct sg_error *e);
/* Removes one process, in all sessions (process_id NULL: all of the sandbox).  *n: how many rows there were. */
SG_MUST_CHECK enum sg_code store_process_forget(struct store_db *db, const char *upstream,
                                                const char *sandbox, const char *process_id, int64_t *n,
                                                struct sg_error *e);
/* Removes some of what has expired, or of the oldest when all together is more than max_bytes.  *more: call again. */
SG_MUST_CHECK enum sg_code store_process_prune(struct store_db *db, int64_t now_ms, int64_t max_bytes,
                                               bool *more, struct sg_error *e);

#endif
