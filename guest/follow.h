/* Printing a process's output from given offsets, and waiting for changes of its record. */
#ifndef SG_GUEST_FOLLOW_H
#define SG_GUEST_FOLLOW_H

#include "guest/record.h"

struct follow_spec {
    uint64_t offset[2];
    bool from_tail; /* instead: `tail` bytes before the end of each stream, or its oldest */
    uint64_t tail;
    bool read;           /* deliver what is there and end, instead of following to the end */
    unsigned only;       /* 1 or 2: that stream alone (1 also of a terminal); 0: both */
    uint64_t limit;      /* read: bytes at most */
    uint64_t wait_ms;    /* read: wait this long for a first byte or the end */
    uint64_t max_output; /* bytes printed per stream at most; the rest is passed over */
    bool attend;         /* somebody watches: the process's monitor is to know for as long as this takes */
    int bell;            /* read end of the monitor's bell, -1: watch the record instead; not closed */
};

/* Bytes of the bell: output was appended to files that were there; output files came or went too; anything may have
 * changed (every other byte). */
#define BELL_OUTPUT 'o'
#define BELL_FILES  'f'
#define BELL_ALL    '.'

/* Prints hello, data, gaps and the end.  False with *f when there is nothing to follow (then nothing was
 * printed) or the record became unreadable. */
bool follow_run(int dir, const char *id, const struct follow_spec *spec, struct guest_fail *f);

/* Waits until the process has begun (states but STARTING), or with `end` until it ended, or the deadline
 * (guest_now_ms) passed; rec is the newest state. */
bool record_wait(int dir, const char *id, bool end, uint64_t deadline_ms, struct record *rec,
                 struct guest_fail *f);

/* Waits for some change of the record, a second or until the deadline at most. */
void record_pause(int dir, uint64_t deadline_ms);

#endif
