/* The monitor of one program: starts it, records its output, and says how it ended.  It has left the command
 * that started it, is a child subreaper (what the program leaves behind stays below it), and lives until the
 * program's last descendant is gone. */
#ifndef SG_GUEST_MONITOR_H
#define SG_GUEST_MONITOR_H

#include "guest/record.h"

struct monitor_spec {
    const struct guest_root *root;
    const char *cwd;     /* NULL: our own */
    uint64_t timeout_ms; /* 0: none */
    uint64_t retain;
    char *const *argv;
    char **env;
    int bell;            /* write end of a pipe that gets a byte at every change of the record; -1 for none */
    uint16_t cols, rows; /* of the program's terminal; 0: it gets pipes */
    bool input_open;     /* more input may come over `ctl`; a terminal's input always is */
    const unsigned char *input; /* what the program reads first, borrowed; may be NULL */
    size_t input_len;           /* at most SG_CARRIER_SPOOL */
    bool lossless;              /* output pauses the program when `retain` bytes are not acknowledged */
    uint64_t lease_ms;          /* ends the tree unless renewed within; 0: none */
    uint64_t unattended_ms;     /* ends the tree so long after the last watcher has left; 0: never */
    const char *own_id; /* of a helper of our own: its record goes a while after its end; NULL: it stays */
};

/* What the monitor tells its starter through the status pipe when nothing was executed; on success the pipe
 * just closes. */
struct start_status {
    int err;
    char text[32];
};

/* What the record says of the program from the first moment. */
struct state_facts monitor_facts(const struct monitor_spec *spec);

/* Never returns.  dir and state of the draft and status_fd become its own. */
_Noreturn void monitor_run(const struct monitor_spec *m, const struct draft *d, int status_fd);

#endif
