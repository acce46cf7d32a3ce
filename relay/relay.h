/* Process streams: exact bytes at offsets, whatever happens to the connections that carry them.
 *
 * A process is addressed by its session and id; the guest in the sandbox holds its record, so any gateway can
 * serve any process.  Everything here runs on the loop's thread and never blocks.
 */
#ifndef SG_RELAY_H
#define SG_RELAY_H

#include "guestlink/guestlink.h"

struct relay;
struct relay *relay_new(struct sg_loop *loop, struct guestlink *g);
/* Ends every follower, run and act with DRAINING; none of them may be touched afterwards. */
void relay_free(struct relay *r);

/* Times, milliseconds; the defaults hold where 0 is given. */
struct relay_limits {
    int64_t give_up_ms;         /* 60 s: a follower without one successful answer */
    int64_t give_up_bounded_ms; /* 15 s: a bounded read, whose caller waits */
    int64_t settle_ms;          /* 20 s: how long a lost start is asked after */
    int64_t retry_ms;           /* 5 s: how long an idempotent act is tried again */
    int64_t pause_max_ms;       /* 5 s: a stream paused for longer is cut and asked for again */
    int64_t slow_reader_ms;     /* 30 s: an attached client that reads nothing for so long is closed */
    int64_t keepalive_ms;       /* 20 s: between keepalive records */
    int64_t backoff_max_ms;     /* 2 s; the first wait is a twentieth of it */
    int64_t linger_ms;          /* 10 s: a feed that nobody reads is kept for so long */
    int64_t quiet_ms;        /* 30 s: a process that said nothing for so long shares a stream with others */
    int64_t ring_total;      /* 64 MiB: bytes in all rings together */
    int64_t input_idle_ms;   /* 60 s: a carrier of input on which nothing was sent for so long is given up */
    int64_t carrier_open_ms; /* 30 s: for a carrier to open, and to end */
};
void relay_set_limits(struct relay *r, const struct relay_limits *l);
const struct relay_limits *relay_limits(const struct relay *r);

struct relay_session { /* copied wherever it is given */
    const char *session_id;
    const char *arch; /* NULL: amd64 */
    const char *cwd;  /* the session's working directory, absolute */
};

/* ---- follow: one process's output from given offsets ---- */

struct relay_process { /* what is known of a process */
    struct sg_wire_process p;
};

struct follower_events {
    /* First, and once only: the process exists; its state and offsets. */
    void (*on_hello)(void *arg, const struct sg_wire_process *p);
    /* Bytes at `offset` of stream 0 (stdout, or a terminal) or 1 (stderr): contiguous, none twice.  They are taken either
     * way; false pauses what follows until follower_resume. */
    bool (*on_data)(void *arg, int stream, uint64_t offset, const void *data, size_t len);
    /* from..to are no longer kept; the next byte is at `to`.  Not for bounded reads: those end with
     * OUTPUT_EVICTED. */
    void (*on_gap)(void *arg, int stream, uint64_t from, uint64_t to);
    /* The end, once: p set when the process ended (how, value, flags, end offsets) or, for a bounded read,
     * when all that was asked for has been delivered (how may be NONE); else e (STALE_SESSION when the
     * session ended, PROCESS_NOT_FOUND, OUTPUT_EVICTED, UPSTREAM_…).  When the missing tail of an ended
     * process cannot be read, p with output_incomplete.  The follower stays until follower_close. */
    void (*on_end)(void *arg, const struct sg_wire_process *p, const struct sg_error *e);
};

struct follow_spec {
    struct relay_session session;
    const char *id;
    uint64_t offset[2];
    int only;        /* -1 both; 0 or 1: that stream alone */
    bool bounded;    /* a read: deliver what is there (at most limit), do not wait for the end */
    uint64_t limit;  /* bounded: bytes at most; 0: all up to the end at hello time */
    int64_t wait_ms; /* bounded: wait this long for a first byte or the exit */
    bool gaps;       /* bounded: tell gaps instead of ending with OUTPUT_EVICTED */
    bool attend;     /* counts as somebody who is attached to the process */
    /* The process is started by the first call, and asked for in the same way until it is known: then it is followed
     * from the offsets, which are 0.  Borrowed until the follower is there; its input must fit the call.  What is
     * refused is told as by process_start. */
    const struct process_spec *start;
    bool
        lively; /* of a reader: it waits for answers to keystrokes, so the process keeps a stream of its own */
};

struct follower;
/* Survives cuts of the upstream stream: asks again from where it is, with backoff; gives up after 60 s
 * without one successful answer. */
struct follower *follower_open(struct relay *r, const struct follow_spec *s, const struct follower_events *ev,
                               void *arg, struct sg_error *e);
void follower_resume(struct follower *f);
/* What the newest hello and the exit said; all zero before the first hello. */
const struct sg_wire_process *follower_known(const struct follower *f);
/* No further callbacks; may be called inside any callback, and must be called once, after on_end too. */
void follower_close(struct follower *f);

/* ---- start ---- */

struct process_spec {
    struct relay_session session;
    const char *id; /* caller's or generated; valid by sg_wire_id_valid, sg_wire_id_own as `own` says */
    const char *const *argv; /* NULL-terminated */
    const char *cwd;         /* NULL: the session's */
    json_t *env;             /* object of strings or NULL */
    bool env_replace;
    bool sudo;
    const char
        *user; /* the start is refused (UNSUPPORTED) when programs do not run as him; NULL: as whom they do */
    int64_t timeout_ms;    /* 0: none */
    int64_t retain_bytes;  /* 0: the default */
    bool lossless;         /* the program pauses when so much is kept unacknowledged */
    unsigned cols, rows;   /* of its terminal; 0: none */
    bool input_open;       /* takes input until it is closed */
    const void *input;     /* given to it at once, then the end unless input_open; NULL: none; copied */
    size_t input_len;      /* PROCESS_INPUT_MAX at most */
    int64_t lease_ms;      /* ends unless the lease is renewed; 0: none */
    int64_t unattended_ms; /* ends so long after the last client left; 0: never */
    bool
        own; /* a helper of the gateway's: argv are the guest's own arguments; goes with its record, is shown nowhere */
};
enum {
    PROCESS_INPUT_MAX = 1024 * 1024, /* input given at the start */
    PROCESS_WRITE_MAX = 72 * 1024, /* input that travels with a call; more is uploaded first: one call more */
    PROCESS_SIDE_MAX = 1000,       /* columns or rows of a terminal */
};
/* Hash of everything that makes the process what it is: the same id with another hash is a conflict. hex[65].
 */
void process_spec_hash(const struct process_spec *s, char hex[65]);

/* Starts and returns when it runs: exactly once, also when answers are lost (settled by the guest's record).
 * p: the state after the start; else e with the outcome. */
typedef void process_start_fn(void *arg, const struct sg_wire_process *p, const struct sg_error *e);
SG_MUST_CHECK enum sg_code process_start(struct relay *r, const struct process_spec *s,
                                         process_start_fn *done, void *arg, struct sg_error *e);

/* Of a start or a run: an earlier start under this id was given up, and nothing ever ran under it. */
bool process_start_given_up(const struct sg_error *e);

/* ---- run: start, collect, answer; one upstream call when it is short ---- */

struct run_result {
    struct sg_wire_process p; /* how NONE: still running when wait_ms was over */
    const char *out[2];       /* the first max_output bytes of stdout and stderr, borrowed */
    size_t len[2];
    struct sg_buf *own[2]; /* where out lies, for sg_buf_take inside the callback; NULL: only borrowed */
    bool truncated;        /* more was printed than max_output, or evicted before it was read */
    bool output_complete;
};
typedef void run_done_fn(void *arg, const struct run_result *res, const struct sg_error *e);
struct run;
/* max_output: bytes kept per stream; wait_ms: answer then even when it still runs (0: when it
 * has ended).  A start that is not yet known by then is waited for a little longer (state starting after that). */
struct run *run_start(struct relay *r, const struct process_spec *s, size_t max_output, int64_t wait_ms,
                      run_done_fn *done, void *arg, struct sg_error *e);
/* Stops listening before `done` was called; the process goes on (a start under way is completed).  After
 * `done` the run is gone. */
void run_cancel(struct run *run);

/* ---- single acts ---- */

/* status (wait_ms: until it ended or the time is over) and list. */
typedef void process_status_fn(void *arg, const struct sg_wire_process *list, size_t n,
                               const struct sg_error *e);
SG_MUST_CHECK enum sg_code process_status(struct relay *r, const struct relay_session *s, const char *id,
                                          int64_t wait_ms, process_status_fn *done, void *arg,
                                          struct sg_error *e);
SG_MUST_CHECK enum sg_code process_list(struct relay *r, const struct relay_session *s,
                                        process_status_fn *done, void *arg, struct sg_error *e);
/* Any act that answers K or E: signal, remove.  `sudo` runs it as root (for processes started with sudo). */
typedef void process_act_fn(void *arg, const struct sg_error *e);
SG_MUST_CHECK enum sg_code process_signal(struct relay *r, const struct relay_session *s, const char *id,
                                          int signal_number, bool only_program, bool sudo,
                                          process_act_fn *done, void *arg, struct sg_error *e);
SG_MUST_CHECK enum sg_code process_remove(struct relay *r, const struct relay_session *s, const char *id,
                                          process_act_fn *done, void *arg, struct sg_error *e);

/* ---- acts on a process's input, terminal and scope: each one upstream call ----
 *
 * Tried again where the answer was lost, because twice is as good as once.  PROCESS_FINISHED when it has ended.
 * `sudo` as above. */

struct process_target {
    struct relay_session session;
    const char *id;
    bool sudo;
};

/* Where the input stands afterwards. */
struct process_input {
    uint64_t accepted, room;
    bool closed;   /* everything was accepted and the program gets its end of file */
    bool unwanted; /* the program takes no more */
};
typedef void process_input_fn(void *arg, const struct process_input *in, const struct sg_error *e);
/* Input at `offset`, without a carrier: what is below the accepted position is passed over; no more is taken than
 * there is room for.  STDIN_OFFSET (with e->accepted) beyond it; STDIN_CLOSED.  len: 1..PROCESS_WRITE_MAX. */
SG_MUST_CHECK enum sg_code process_write(struct relay *r, const struct process_target *t, uint64_t offset,
                                         const void *data, size_t len, process_input_fn *done, void *arg,
                                         struct sg_error *e);
/* End of input after `offset` bytes. */
SG_MUST_CHECK enum sg_code process_close_input(struct relay *r, const struct process_target *t,
                                               uint64_t offset, process_input_fn *done, void *arg,
                                               struct sg_error *e);
/* 1..PROCESS_SIDE_MAX each.  UNSUPPORTED without a terminal. */
SG_MUST_CHECK enum sg_code process_resize(struct relay *r, const struct process_target *t, unsigned cols,
                                          unsigned rows, process_act_fn *done, void *arg, struct sg_error *e);
/* The signal to the tree now, KILL to what is left of it after the grace.  Asked once, unless it was not sent. */
SG_MUST_CHECK enum sg_code process_cancel(struct relay *r, const struct process_target *t, int signal_number,
                                          int64_t grace_ms, process_act_fn *done, void *arg,
                                          struct sg_error *e);
/* Output before these offsets was received.  Without lossless retention it changes nothing. */
SG_MUST_CHECK enum sg_code process_ack(struct relay *r, const struct process_target *t,
                                       const uint64_t received[2], process_act_fn *done, void *arg,
                                       struct sg_error *e);
/* The lease from now on; 0: none any more. */
SG_MUST_CHECK enum sg_code process_lease(struct relay *r, const struct process_target *t, int64_t ttl_ms,
                                         process_act_fn *done, void *arg, struct sg_error *e);
/* How long after the last client left it ends; 0: never. */
SG_MUST_CHECK enum sg_code process_unattended(struct relay *r, const struct process_target *t, int64_t ms,
                                              process_act_fn *done, void *arg, struct sg_error *e);

#endif
