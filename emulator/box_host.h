/* Private to the box module: the emulator's side of the spawner and of all boxes.
 *
 * One reader thread takes what agents say on their own account (ends of processes, end of the box); one
 * delivery thread calls on_exit.  They are two, so that a caller may hold a lock of its own around box_exec
 * and take the same lock in on_exit: the reader never waits for it.
 *
 * `lock` protects the lists and every mutable field below; it is never held over I/O.
 */
#ifndef SG_EMULATOR_BOX_HOST_H
#define SG_EMULATOR_BOX_HOST_H

#include "emulator/box.h"
#include "emulator/box_msg.h"

#include <pthread.h>

enum box_proc_state {
    BP_ASKED,   /* the request is out */
    BP_RUNNING, /* the agent said yes */
    BP_ENDED,   /* ended before the answer was read */
    BP_LOST     /* the box ended before the answer was read */
};

/* One program.  Allocated before it is asked for, so that its end can never be lost for want of memory. */
struct box_proc {
    struct box_proc *next;
    struct box *box;
    uint64_t token;
    enum box_proc_state state;
    pid_t pid;
    int status;
    struct rusage usage;
};

struct box {
    struct box *next;
    struct box_host *host;
    int ctl, pidfd;
    box_exit_fn *on_exit;
    void *on_exit_arg;
    struct box_proc *procs;
    bool dead;            /* the reader saw the end of ctl and will not touch the box again */
    unsigned calls;       /* threads inside a request */
    unsigned undelivered; /* ends waiting for the delivery thread */
    uint64_t cpu_us;      /* last reading */
};

struct box_host {
    enum box_tier tier;
    char flavour[128];
    uid_t root_uid; /* the host's id of root in a box */
    int spawner;    /* socket */
    pid_t spawner_pid;
    int epoll, wake;
    pthread_t reader, deliverer;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    uint64_t last_token;
    struct box *boxes;
    struct box_proc *ended_first, **ended_last;
};

/* --- box_host.c --- */
/* Sends m with a fresh reply socket in front of fds, and waits for the answer, which replaces m.  timeout_ms 0:
 * no limit.  progress sees BOX_OP_PROGRESS messages.  0 or errno of the transport; ESRCH: the peer is gone. */
int box_rpc(int sock, struct box_msg *m, const int *fds, size_t n_fds, int timeout_ms,
            void (*progress)(void *arg, const struct box_msg *m), void *arg, int out[BOX_MSG_FDS]);
void box_proc_deliver(struct box_proc *p); /* lock held: hands p to the delivery thread */
int box_host_watch(struct box_host *host, struct box *box);

/* Runs a helper over the directory.  0 or errno with a sentence; m holds the answer. */
int box_host_helper(struct box_host *host, enum box_helper_kind kind, int dir, int source,
                    void (*progress)(void *arg, const struct box_msg *m), void *arg, struct box_msg *m,
                    char err[BOX_TEXT]);

#endif
