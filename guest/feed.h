/* The standard input of a program on the monitor's side: what was accepted lies in a spool until the program reads
 * it.  Positions count from the first byte.  Never blocks. */
#ifndef SG_GUEST_FEED_H
#define SG_GUEST_FEED_H

#include "guest/spool.h"

struct feed {
    int fd; /* a pipe's write end (owned), or the terminal's master (borrowed); -1: nothing can be given */
    bool terminal; /* its end of file is a character */
    bool takes;    /* the program was started with an input that is open */
    bool closed;   /* all of its input was accepted */
    bool unwanted; /* it closed its end */
    bool partial;  /* terminal: the line that was given last has no end yet */
    unsigned eofs; /* terminal: characters for end of file still to be written, when closed */
    uint64_t accepted;
    uint64_t look_ms; /* terminal: when to look again whether it reads lines; 0: not */
    unsigned look_pause_ms;
    struct spool spool;
};

enum feed_result {
    FEED_OK,
    FEED_BEYOND, /* the offset lies beyond what was accepted, or is no end of it */
    FEED_OVER,   /* the program takes no (more) input */
    FEED_FULL,   /* more than the room */
};

void feed_init(struct feed *f, int fd, bool terminal, bool takes);
/* What the program reads first; its end of file follows unless it takes more. */
void feed_begin(struct feed *f, const unsigned char *data, size_t n);
/* Accepts bytes from offset on; what was accepted before is passed over.  whole: all of them or none, otherwise as
 * many as there is room for. */
enum feed_result feed_data(struct feed *f, uint64_t offset, const unsigned char *data, size_t n, bool whole);
enum feed_result feed_close(struct feed *f, uint64_t offset);
/* What may be accepted now. */
size_t feed_room(const struct feed *f);
/* True while there is something to write, now that the descriptor can take it. */
bool feed_wants_write(const struct feed *f);
/* Writes what the descriptor takes, and the end of file when it is due. */
void feed_pump(struct feed *f, uint64_t now_ms);
/* Nobody reads the pipe any more. */
void feed_unwanted(struct feed *f);
/* The program has ended: what it left behind may read the rest and the end of file. */
void feed_finish(struct feed *f);

#endif
