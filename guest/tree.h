/* Signals to a process tree, found through /proc.  Only descendants of the root are ever touched; each is held
 * by a pidfd and checked again before the signal, so that a reused process id is never hit. */
#ifndef SG_GUEST_TREE_H
#define SG_GUEST_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tree_result {
    unsigned signalled;
    unsigned denied; /* EPERM: another user's */
};

/* Start time in clock ticks after boot, 0 when there is no such process (or no /proc). */
uint64_t proc_start_time(pid_t pid);

/* Signals every living descendant of root (not root itself).  SIGKILL and SIGTERM are repeated, for a bounded
 * time, until no descendant is left unsignalled (SIGTERM) or alive (SIGKILL).  root_start 0: root is the
 * caller.  False when root is not that process (any more) or /proc cannot be read. */
bool tree_signal(pid_t root, uint64_t root_start, int sig, struct tree_result *res);
/* Signals the process if it is still the one that began at `start`; false with errno. */
bool tree_signal_one(pid_t pid, uint64_t start, int sig);

#endif
