/* A guestlink made of memory, for unit tests of what stands above it: processes with byte logs, and an upstream
 * that cuts, repeats, overlaps, loses and delays.  Every line goes through the real wire format.  One loop.
 */
#ifndef FAKE_GUESTLINK_H
#define FAKE_GUESTLINK_H

#include "guestlink/guestlink.h"

enum { FAKE_PROCS = 8, FAKE_VERBS = 16, FAKE_WATCHED = 16 };

struct fake_proc {
    bool exists, tombstone, exited;
    char id[SG_WIRE_ID_MAX + 1];
    char spec[SG_WIRE_ID_MAX + 1];
    unsigned char *content[2]; /* all it will ever print */
    uint64_t total[2], written[2], oldest[2];
    enum sg_wire_how how;
    uint32_t value;
    bool descendants, ends_unattended;
    bool hold; /* prints and ends only when released */
    bool terminal, takes_input, lossless;
    uint64_t input; /* accepted, as its hello says */
    int starts;
};

/* Chances in 1/1000 per step or call, drawn from the seed. */
struct fake_faults {
    int cut;          /* the stream ends in the middle */
    int cut_at_hello; /* ... before the hello */
    int repeat;       /* a line comes again */
    int overlap;      /* a line begins before where it should */
    int hole;         /* bytes are left out silently */
    int more;         /* M in the middle */
    int early_exit;   /* X although bytes were not sent */
    int refuse;       /* not_sent, retryable */
};

enum fake_lost { LOST_NOT, LOST_NEVER_ARRIVED, LOST_ARRIVED, LOST_ARRIVES_LATE };

struct fake {
    struct sg_loop *loop;
    uint64_t rng;
    struct fake_proc procs[FAKE_PROCS];
    struct fake_faults faults;
    int lines_per_turn;                  /* 0: random 1..8 */
    size_t write_max;                    /* what a process prints per step, at most */
    enum fake_lost lose_start;           /* fate of the next start or run before its hello */
    bool lose_after_hello;               /* the next start or run is cut just after its hello */
    int lose_settles;                    /* so many settle answers are lost */
    bool settle_arrives;                 /* a lost settle has taken effect all the same */
    bool never_exit_tail;                /* the last byte of stdout never comes, whatever is asked */
    enum sg_code refuse_all;             /* every call is refused with this */
    int refuse_from;                     /* calls after so many are refused; 0: none */
    int hang;                            /* so many calls never answer until released by fake_release */
    const struct sg_wire_line *fs_lines; /* what fs says: so many of them before its last line */
    size_t fs_count;
    struct sg_wire_line fs_end;    /* its last line; kind 0: K */
    int lose_fs, refuse_fs;        /* so many of its answers are lost half way, or it is not sent at all */
    struct sg_wire_line act_line;  /* kind set: what acts (write … unattended) say before their last line */
    struct sg_wire_line act_error; /* kind set: their last line */
    int lose_acts, refuse_acts;    /* so many of their answers are lost, or not sent at all */
    bool late;                     /* a start that arrives with the next settle, after its claim */
    char late_id[SG_WIRE_ID_MAX + 1], late_spec[SG_WIRE_ID_MAX + 1];
    /* what was seen */
    int calls[FAKE_VERBS]; /* by fake_verb */
    int live, cancelled, abandoned;
    int watching;         /* processes in the watch calls that stand */
    char last_args[1024]; /* joined by spaces */
    uint64_t asked[2];    /* offsets of the last follow */
    struct fake_call *all;
};

enum fake_verb {
    V_RUN,
    V_START,
    V_FOLLOW,
    V_STATUS,
    V_LIST,
    V_SIGNAL,
    V_SETTLE,
    V_REMOVE,
    V_WATCH,
    V_OTHER,
    V_ACT,
    V_FS
};

/* The seed is SANDGATE_SEED or new; it is printed. */
void fake_init(struct fake *f, struct sg_loop *loop);
void fake_init_seeded(struct fake *f, struct sg_loop *loop, uint64_t seed); /* quietly */
void fake_free(struct fake *f);
struct guestlink *fake_link(struct fake *f);
uint64_t fake_random(struct fake *f, uint64_t below);
bool fake_chance(struct fake *f, int permille);
/* A process-to-be with random content; it exists once started, or at once with `exists`. */
struct fake_proc *fake_proc(struct fake *f, const char *id, size_t out, size_t err, bool exists);
struct fake_proc *fake_find(struct fake *f, const char *id);
void fake_wake(struct fake *f); /* calls that wait look again */
int fake_total(const struct fake *f);

/* Turns the loop until *flag or 20 s are over; false then. */
bool fake_until(struct fake *f, const bool *flag);
/* One turn of the loop, for a condition that a timer may bring, too: it never sleeps long. */
void fake_turn(struct fake *f);
void fake_turns(struct fake *f, int n);

#endif
