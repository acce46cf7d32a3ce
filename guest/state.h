/* The file `state` of a record: its lock and everything that is short.
 *
 * One page, written whole when the record is made, so that no later write to it needs room on the disk.  Each slot
 * holds one line and is zero before it is written:
 *
 *   spec      the spec hash and LF
 *   started   "S1 pid start wall_ms" and LF, by the program's process just before exec
 *   monitor   "M1 pid start" and LF, by the monitor; the program is not said to run before
 *   exit      an X line of base/core/wire.h when the program has ended
 *   exit      another when its descendants let go of the output later: counts instead of the first
 *   facts     "F input input flags" and LF: bytes of input accepted, and letters as in wire.h
 *
 * All but the facts are written once, so that a reader sees a line or, the LF missing, none; the facts carry their
 * number twice, and are read again when the two differ.  The file is locked (flock) by the monitor while it lives,
 * and by its child until exec.
 */
#ifndef SG_GUEST_STATE_H
#define SG_GUEST_STATE_H

#include "guest/guest.h"

#include <sys/types.h>

enum { STATE_SIZE = 1024 };
#define STATE_NAME "state"

/* What changes while the program runs. */
struct state_facts {
    uint64_t input;
    bool terminal, takes_input, lossless, paused, ends_unattended;
};

struct state_started {
    pid_t program;
    uint64_t program_start; /* clock ticks after boot, 0 when unknown */
    uint64_t wall_ms;
};

/* Each is one write; false with errno. */
bool state_create(int fd, const char *spec, const struct state_facts *f);
bool state_put_started(int fd, const struct state_started *s);
bool state_clear_started(int fd);
bool state_put_monitor(int fd, pid_t pid, uint64_t start);
/* `again`: in the second slot. */
bool state_put_exit(int fd, bool again, const struct sg_wire_process *p);
bool state_put_facts(int fd, const struct state_facts *f);

/* What the file held; whoever runs in the sandbox may have written anything. */
struct state {
    char text[STATE_SIZE];
};
/* Zeros for what cannot be read. */
void state_read(int fd, struct state *s);
bool state_has_spec(const struct state *s, const char *spec);
/* False when the slot holds no such line. */
bool state_started(const struct state *s, struct state_started *out);
bool state_monitor(const struct state *s, pid_t *pid, uint64_t *start);
bool state_exit(const struct state *s, struct sg_wire_process *x);
bool state_facts(const struct state *s, struct state_facts *out);

#endif
