/* One preparation, as its parts share it.  Private to control/prepare*.c. */
#ifndef SG_CONTROL_PREPARE_IMPL_H
#define SG_CONTROL_PREPARE_IMPL_H

#include "control/prepare.h"

#include "base/buf.h"
#include "control/control.h"

#include <pthread.h>
#include <stdatomic.h>

struct prepare {
    struct prepare *next;
    struct prepares *all;
    struct control *c;
    const struct prepare_order *o;
    struct store_prep row;
    atomic_bool lost; /* somebody else works on it by now */
    char session_id[CONTROL_SESSION_TEXT], *cwd;
    struct sg_buf log; /* not yet in the store */
    int64_t log_end, flushed_ms;
    bool in_doubt; /* there may be a capture that nobody knows of */
    bool in_line;  /* the log does not stand at the beginning of a line */
};

struct prepares {
    struct control *c;
    int64_t hold_ms;
    pthread_mutex_t lock; /* guards the list; not held over calls */
    struct prepare *first;
};

/* ---- prepare_hold.c: that somebody works on it, what the store is told, the log ---- */

void prepare_add(struct prepare *p);
void prepare_take_off(struct prepare *p);
/* Between two things that are done: may the next one begin? */
SG_MUST_CHECK enum sg_code prepare_go_on(struct prepare *p, struct sg_error *e);
SG_MUST_CHECK enum sg_code prepare_note_builder(struct prepare *p, bool *held, struct sg_error *e);
/* p->row, as READY or FAILED; old_snapshot (may be NULL) is no longer needed then, nor the builder ("": none). */
SG_MUST_CHECK enum sg_code prepare_note_end(struct prepare *p, const char *builder, const char *alloc,
                                            const char *old_snapshot, bool *held, struct sg_error *e);
SG_MUST_CHECK enum sg_code prepare_note_leave(struct prepare *p, struct sg_error *e);
void prepare_say(struct prepare *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
step_output_fn prepare_output, prepare_output_inside;
/* What is not yet in the store. */
void prepare_flush(struct prepare *p);

/* ---- prepare_builder.c ---- */

/* Until its session runs.  *late: its create may still arrive. */
SG_MUST_CHECK enum sg_code prepare_allocate(struct prepare *p, bool *late, struct sg_error *e);
void prepare_remove_builder(struct prepare *p, const char *name, const char *alloc, bool late,
                            const char *why);
void prepare_remove_left(struct prepare *p, const struct store_prep *was);
void prepare_drop_captures(struct prepare *p, const char *name, const char *why);
void prepare_drop_snapshot(struct control *c, const char *id, const char *why);
SG_MUST_CHECK enum sg_code prepare_pause(struct prepare *p, struct sg_error *e);

/* ---- prepare_capture.c ---- */

/* Fills p->row.snapshot_id; p->in_doubt where that failed and there may be one. */
SG_MUST_CHECK enum sg_code prepare_capture(struct prepare *p, struct sg_error *e);

enum { PREPARE_LIST_MAX = 10 /* snapshots of a builder, which has one at most */ };

#endif
