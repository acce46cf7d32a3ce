/* Private to transfer/download*.c.  Loop thread.
 *
 * download.c        its life: begun, driven on, ended, cleared up after
 * download_call.c   the guest's calls: what they are asked, what they say
 * download_part.c   what was put aside, read through the upstream's file endpoint
 *
 * Bytes are counted from the first one that the owner gets.  At most one call of the guest and one read are under way:
 * the part that is read, and behind it the one that is being put aside, or was.  What is asked for again comes from the
 * place where it began, and what the owner has of it is passed over.
 */
#ifndef SG_TRANSFER_DOWNLOAD_IMPL_H
#define SG_TRANSFER_DOWNLOAD_IMPL_H

#include "transfer/download.h"

#include "base/loop.h"

enum {
    DOWNLOAD_CHANGES = 3, /* so often it is begun anew because the file was changed */
    DOWNLOAD_IDLE = 3,    /* so many calls in a row may give nothing and yet promise more */
    DOWNLOAD_ID = 16,
    DOWNLOAD_NAME = 48,
    DOWNLOAD_LEFT = 16, /* names to be removed; what does not fit is found by the sandbox's own sweep */
};

/* Bytes put aside. */
struct download_part {
    uint32_t n; /* their name; 0: there is no such part */
    uint64_t from, bytes;
    char *cursor; /* owned; where the call that put them aside began, NULL: at the beginning */
};

struct download_call {
    struct guest_call *call; /* NULL: none is under way */
    uint32_t n;              /* what it puts aside gets this name */
    uint32_t drops;          /* this is removed first; 0: nothing */
    uint64_t at;             /* bytes of D lines taken */
    uint64_t offset;         /* of the next one */
    bool opened, data, staged, changed, bad;
    bool waits;     /* a line was not taken */
    uint64_t bytes; /* put aside */
    char *cursor;   /* owned; behind what it gives */
};

struct download {
    struct guestlink *guestlink;
    char *session_id, *arch, *cwd;
    const struct fs_request *request; /* not looked at any more when it is gone */
    bool exact;                       /* what is asked for twice is the same, or refused */
    uint64_t part_bytes;
    struct download_events ev;
    void *arg;
    char id[DOWNLOAD_ID + 1];
    uint32_t names; /* given out */

    bool gone; /* nobody listens any more: only what was put aside is removed */
    bool told; /* on_head was called */
    struct sg_wire_file file;
    uint64_t delivered;
    int changes;

    struct download_call call;
    char *cursor;  /* owned; of the call under way, or the next; NULL: from the beginning */
    uint64_t from; /* where that is */
    bool ended;    /* there is nothing from there on */
    bool rewind;   /* when the call has ended: back to the beginning of the part that is read */
    int idle;

    struct download_part part, next; /* that is read, and the one behind it */
    struct vercel_call *read;
    uint64_t read_at; /* where in the part */
    bool read_waits;  /* bytes were not taken */

    int call_tries, read_tries; /* in vain, in a row */
    bool call_later, read_later;
    struct sg_timer *timer; /* of what is tried again; when it is gone, of the call that nobody hears */
    struct sg_timer *first; /* until the first byte */

    struct download_left {
        uint32_t n;
        bool lost;         /* whoever puts it aside may do so only now */
    } left[DOWNLOAD_LEFT]; /* to be removed */
    size_t nleft;
    bool dropping; /* the call is `drop` */
    int drop_tries;
    struct sg_grave grave;
};

/* ---- download.c ---- */

/* Starts what can be started; the last thing that a callback does. */
void download_step(struct download *d);
/* The one way to an end that is told; e NULL: everything came. */
void download_end(struct download *d, const struct sg_error *e);
/* Gives the bytes that belong at `pos`.  False when they were not taken, or nobody listens any more. */
bool download_deliver(struct download *d, uint64_t pos, const void *data, size_t len);
/* Tells what file it is, once.  False when nobody listens any more. */
bool download_tell(struct download *d, bool same);
/* Whether it may be tried again after this failure; *later is set until the timer rings. */
bool download_later(struct download *d, const struct sg_error *e, int *tries, int most, bool *later);
/* Whether what began at `from` may be asked for once more. */
bool download_repeats(const struct download *d, uint64_t from);
/* Back to the very beginning: nothing was told yet. */
void download_begin_anew(struct download *d);
/* Back to the beginning of the part that is read. */
void download_rewind(struct download *d);
void download_part_drop(struct download *d, struct download_part *p);
void download_leave(struct download *d, uint32_t n, bool lost);
void download_dropped(struct download *d, uint32_t n);
void download_name(const struct download *d, uint32_t n, char out[DOWNLOAD_NAME]);
/* Nobody listens any more: removes what is left, then goes. */
void download_clear(struct download *d);

/* ---- download_call.c ---- */

SG_MUST_CHECK enum sg_code download_call_start(struct download *d, struct sg_error *e);
SG_MUST_CHECK enum sg_code download_drop_start(struct download *d, struct sg_error *e);
/* The call, or its start, failed. */
void download_call_failed(struct download *d, const struct sg_error *e);
/* Ends a call that puts nothing aside. */
void download_call_abandon(struct download *d);

/* ---- download_part.c ---- */

SG_MUST_CHECK enum sg_code download_read_start(struct download *d, struct sg_error *e);
void download_read_failed(struct download *d, const struct sg_error *e);

#endif
