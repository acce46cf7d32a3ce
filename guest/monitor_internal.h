/* The parts of a monitor: monitor.c (setting up, the loop), monitor_child.c (the program's process until exec),
 * monitor_output.c (recording, the end), monitor_acts.c (what is asked for over `ctl`). */
#ifndef SG_GUEST_MONITOR_INTERNAL_H
#define SG_GUEST_MONITOR_INTERNAL_H

#include "guest/ctl_server.h"
#include "guest/feed.h"
#include "guest/monitor.h"
#include "guest/scope.h"
#include "guest/segment.h"

enum { MONITOR_BLOCK = 64 * 1024 };

struct monitor_stream {
    int fd; /* a pipe's read end or the terminal's master; -1: at its end, or not there */
    struct recorder rec;
    /* Lossless on a full disk: what was read and is not recorded yet. */
    size_t held_at, held_len;
    unsigned char held[MONITOR_BLOCK];
};

struct monitor {
    const struct monitor_spec *spec;
    int dir, state_fd, signal_fd;
    int bell;  /* -1 once nobody listens */
    int slave; /* our end of the program's side of the terminal, while it lives; -1: none */
    struct monitor_stream out[2];
    struct feed feed;
    struct ctl_server ctl;
    struct scope scope;
    pid_t program;
    uint64_t begun_ms, retry_ms; /* retry: of a full disk, 0: not */
    uint64_t hold_ms;            /* until when the exit record waits for a full disk */
    uint64_t remove_ms;          /* when the record goes, 0: never */
    bool ended, childless;
    bool exit_due;  /* the program has ended and the record does not say so yet */
    bool exit_told; /* it does */
    int wait_status;
    struct sg_wire_process p; /* what the exit record says */
    struct state_facts facts; /* what the record says */
};

/* What a program's process is made of. */
struct monitor_ends {
    const struct monitor *monitor;
    int in;       /* -1: nothing to read */
    int out[2];   /* unused with a terminal */
    int terminal; /* -1: pipes */
    int status;   /* where a failure is told */
};
/* For libc_spawn; arg: the ends.  Returns when nothing was executed. */
int monitor_child(void *arg);
void monitor_tell(int status_fd, int err, const char *text);

/* Reads what stream s holds, at most `budget` bytes, without waiting.  True when something was recorded. */
bool monitor_drain(struct monitor *m, unsigned s, size_t budget);
/* Whether stream s may be read now; otherwise its program waits. */
bool monitor_reads(const struct monitor *m, unsigned s);
/* A full disk: tries again.  True when something was recorded. */
bool monitor_retry(struct monitor *m, uint64_t now);
/* Tells whoever follows: a byte of follow.h. */
void monitor_ring(struct monitor *m, char what);
/* The program was reaped. */
void monitor_program_ended(struct monitor *m, uint64_t now);
/* Writes the exit record if it is due and the last bytes are recorded; or if their waiting has an end. */
void monitor_try_exit(struct monitor *m, uint64_t now);
/* The descendants let go of the output. */
void monitor_output_ended(struct monitor *m);
/* Brings the facts in the record up to date. */
void monitor_publish(struct monitor *m);

extern const struct ctl_ops monitor_ops; /* arg: the monitor */
/* Everything below the monitor gets KILL. */
void monitor_kill(struct monitor *m);

#endif
