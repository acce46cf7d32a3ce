/* Private to transfer/upload*.c: one upload from its first byte to its end.  Loop thread.
 *
 * upload.c        its life: made, told, ended; what all uploads share
 * upload_body.c   the body comes in, into a chain of blocks
 * upload_part.c   parts of it go out, again where they were cut
 * upload_join.c   the guest joins them, and at last does what they came for; what is left behind is removed
 *
 * The chain holds the bytes from `base` on.  The part on its way is its beginning; what follows was read ahead.  So a part
 * can be made shorter at any time (no memory for the rest, refused as too large, too slow): it is sent again as what it is
 * then.  Each attempt whose fate is unknown leaves its name behind: what comes late of it meets nobody.
 */
#ifndef SG_TRANSFER_UPLOAD_IMPL_H
#define SG_TRANSFER_UPLOAD_IMPL_H

#include "transfer/blocks.h"
#include "transfer/upload.h"

#include "base/loop.h"

enum {
    UPLOAD_PART_MIN = 256 * 1024,
    UPLOAD_ID_MAX = 32,
    UPLOAD_NONCE = 8,
    UPLOAD_BATCHES = 4,        /* of parts that wait to be joined, before no more are sent */
    UPLOAD_BATCH_PARTS = 4,    /* joined at once */
    UPLOAD_ROUNDS = 1000,      /* calls of an act that lasts */
    UPLOAD_STREAM_MS = 120000, /* a part is on its way no longer than this because its bytes come slowly */
    UPLOAD_STALL_MS = 60000,   /* and this when its bytes are there and are not taken, or not answered */
    UPLOAD_TICK_MS = 5000,
    UPLOAD_BACKOFF_MS = 200, /* doubled with each try, plus up to as much again */
    UPLOAD_BACKOFF_MAX_MS = 5000,
    UPLOAD_LINGER_MS = 2000, /* what was cut may still arrive for so long: it is removed only then */
};
#define UPLOAD_BATCH_BYTES (UINT64_C(64) * 1024 * 1024)

enum upload_phase {
    UPLOAD_FLOWS,   /* the body comes in, and its parts go out */
    UPLOAD_FAILS,   /* what is under way in the sandbox ends first */
    UPLOAD_ENDS,    /* finish was asked */
    UPLOAD_CLEARS,  /* what is left of it is being removed */
    UPLOAD_IS_OVER, /* its memory goes at the end of the turn */
};

/* Parts one behind the other with one nonce. */
struct upload_batch {
    char nonce[UPLOAD_NONCE + 1];
    uint64_t at, end;
    unsigned parts;
};

struct upload_part {
    bool active;   /* there is one: on its way, or to be sent again */
    uint64_t size; /* its beginning is the upload's base */
    uint64_t given;
    struct chain_mark mark;
    struct vercel_call *call; /* NULL: it waits to be sent again */
    bool call_waits;          /* it was told to pause */
    int tries;
    int64_t started_ms, moved_ms; /* monotonic */
};

struct upload {
    TAILQ_ENTRY(upload) link;
    struct uploads *all;
    enum upload_phase phase;
    char *session_id, *arch, *cwd;
    char id[UPLOAD_ID_MAX + 1];
    bool resumable;
    uint64_t start;
    int64_t size; /* of the body; -1: not known */
    vercel_read_fn *read;
    const struct fs_request *finish; /* the owner's */
    upload_done_fn *done;            /* NULL: nobody listens any more */
    void *arg;

    /* the body */
    bool source_waits; /* read paused */
    bool ended;        /* all of it is here */
    bool starved;      /* there is no block for more */
    bool broken;       /* it ended otherwise; why says how */
    bool is_cut;       /* of a resumable one: no more of it comes; what is here is kept */
    struct sg_error why;
    uint64_t came;
    struct chain held;
    struct blocks_wait wait;

    /* what is sent, and joined */
    uint64_t base, limit; /* place of the first byte held; bytes of a part at most */
    struct upload_part part;
    char nonce[UPLOAD_NONCE + 1]; /* of the next part */
    bool sent;                    /* a byte may lie in the sandbox */
    bool dirty;                   /* also something that no act takes away */
    int64_t cut_ms;               /* monotonic: when an attempt was last cut; 0: none was */
    struct upload_batch open;     /* parts that are there; parts 0: none */
    struct upload_batch batches[UPLOAD_BATCHES];
    size_t nbatches;
    uint64_t joined; /* as much lies in the joined file */

    struct fs_request request; /* of the call: join, finish or removal */
    unsigned rounds;           /* of finish, so far */
    struct fs_call *call;
    int call_tries;
    bool pauses; /* before the call is made again */
    bool began;  /* finish said that it goes on: part of it is done */
    char from[sizeof ".up-" + UPLOAD_ID_MAX + 1 + UPLOAD_NONCE + 24]; /* what finish is given */

    struct sg_timer *kick, *clock; /* step(); backoff and ticks of a part */
    struct sg_timer *later;        /* of the call; NULL until it is needed */
    struct sg_grave grave;
};

TAILQ_HEAD(upload_list, upload);

struct upload_settler {
    struct upload_settler *next;
    char *session_id;
    char id[UPLOAD_ID_MAX + 1];
    upload_quiet_fn *fn;
    void *arg;
};

struct uploads {
    struct sg_loop *loop;
    struct guestlink *guestlink;
    struct blocks *blocks;
    uint64_t part_bytes; /* becomes less where the upstream refuses so much */
    uint64_t backoff_ms, linger_ms, tick_ms;
    int64_t stream_ms, stall_ms;
    struct upload_list list;
    struct upload_settler *settlers; /* in their order */
    struct sg_timer *tell;           /* those that wait for nothing any more */
};

/* ---- upload.c ---- */

/* Everything that can go on does.  Not from inside a callback of the transport. */
void upload_step(struct upload *u);
/* upload_step, soon. */
void upload_kick(struct upload *u);
/* It fails with e before finish was asked. */
void upload_fail(struct upload *u, const struct sg_error *e);
/* Tells the owner, once. */
void upload_tell(struct upload *u, const struct fs_answer *a, const struct sg_error *e);
void upload_over(struct upload *u);
bool upload_session_is_over(const struct sg_error *e);

/* ---- upload_body.c ---- */

void upload_fill(struct upload *u);
/* No more of the body is taken; what is held stays. */
void upload_cut(struct upload *u, const struct sg_error *why);

/* ---- upload_part.c ---- */

/* The part that may be sent now, if there is one. */
void upload_part_next(struct upload *u);
/* Of a part that is on its way only what is held goes on. */
void upload_part_shorten(struct upload *u);
void upload_part_stop(struct upload *u);
/* More of its bytes are there. */
void upload_part_more(struct upload *u);
void upload_part_clock(struct upload *u);
bool upload_new_nonce(struct upload *u);
/* It may be another time, before long. */
bool upload_may_pass(const struct sg_error *e);
/* How long to wait after so many tries. */
uint64_t upload_backoff_ms(const struct upload *u, int tries, const struct sg_error *e);

/* ---- upload_join.c ---- */

/* Parts of the open batch are joined from here on, not together with later ones. */
void upload_close_batch(struct upload *u);
void upload_join_next(struct upload *u);
void upload_finish(struct upload *u);
/* Removes what it left behind, then it is over; as soon as nothing more of it can come. */
void upload_clear(struct upload *u);

#endif
