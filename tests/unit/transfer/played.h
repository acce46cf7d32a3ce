/* An upstream and a sandbox made of memory, for the tests of uploads: fs/write keeps files, the guest joins and puts
 * them, and whatever is asked for goes wrong.  What is not played by it is real (transfer/, guestlink/guest_error.c).  One
 * at a time; everything happens on its loop, a little each turn.
 */
#ifndef PLAYED_H
#define PLAYED_H

#include "guestlink/guestlink.h"

#include "base/loop.h"

enum { PLAYED_FILES = 256, PLAYED_WRITES = 4096, PLAYED_CALLS = 1024 };

struct played_file {
    char name[128];
    unsigned char *data;
    size_t len;
};

/* What happens to a write. */
enum played_fate {
    FATE_FINE,
    FATE_CUT,  /* after `after` bytes of it; half of the file is there */
    FATE_LOST, /* it is done, and its answer is lost */
    FATE_LATE, /* cut, and what had come makes a new file some turns later */
    FATE_500,  /* after it has been read */
    FATE_429,
    FATE_TOO_LARGE, /* at once */
    FATE_NO_SPACE,
    FATE_STALE,
    FATE_UNREACHED, /* nothing was sent */
    FATE_HANGS,     /* it never ends; its bytes are taken */
};

struct played_write {
    char name[128]; /* without the root */
    uint64_t size, got;
    bool active, cancelled, done_well;
    enum played_fate fate;
};

struct played {
    struct sg_loop *loop;
    struct played_file files[PLAYED_FILES];
    size_t chunk; /* bytes that a write takes in a turn; 0: 64 KiB */

    /* faults */
    struct {
        int nth; /* counted from 1; 0: none */
        enum played_fate fate;
        uint64_t after;
    } faults[16];
    enum played_fate all; /* of every write that no fault is for */
    uint64_t most;        /* bytes; more are refused as too large; 0: any */
    int lose_join, refuse_join,
        lose_finish;                  /* so many answers are lost, after it was done; or nothing was sent */
    bool cut_finish;                  /* and not done either */
    int more_finish;                  /* so many of its answers say that it goes on */
    struct sg_wire_line finish_error; /* kind set: what the guest says */
    bool join_no_space;
    bool hold_joins; /* they are not answered until this is false */

    /* what was seen */
    struct played_write writes[PLAYED_WRITES];
    size_t nwrites;
    char calls[PLAYED_CALLS][512]; /* arguments, joined by spaces, without "fs --op" */
    size_t ncalls;
    int live;            /* writes and calls not ended */
    size_t most_at_once; /* writes */
};
extern struct played played;

void played_begin(struct sg_loop *loop);
/* After the loop was freed.  Forgets everything; how many writes and calls were left. */
int played_end(void);
struct guestlink *played_link(void);
struct played_file *played_find(const char *name);
void played_keep(const char *name, const void *data, size_t len);
/* How many calls begin with this word. */
int played_count(const char *op);
/* How many files there are. */
int played_left(void);
/* Turns the loop until *flag, or 20 s have passed; false then. */
bool played_until(const bool *flag);
/* Until nothing is under way any more. */
bool played_rest(void);
void played_turns(int n);

#endif
