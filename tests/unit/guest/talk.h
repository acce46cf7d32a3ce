/* A helper that is talked with while it runs: something on its standard input, its lines one by one. */
#ifndef GUEST_TALK_H
#define GUEST_TALK_H

#include "harness.h"

struct talk {
    pid_t pid;
    int in, out; /* our ends; the same for a terminal; -1: closed */
    size_t have;
    char buf[64 * 1024];
    unsigned char data[SG_WIRE_DATA_MAX]; /* of the line that was read last */
};

/* Over pipes, or (terminal) over the two ends of a pseudo-terminal, which is left as it comes: with echo. */
__attribute__((sentinel)) void talk_open(struct talk *t, const char *first, ...);
__attribute__((sentinel)) void talk_open_terminal(struct talk *t, const char *first, ...);
void talk_send(struct talk *t, const void *data, size_t n); /* waits until all is taken */
void talk_close_input(struct talk *t);
/* The next line's text without LF (valid until the next call), NULL at the end.  Fails the test after ten seconds. */
const char *talk_text(struct talk *t, size_t *len);
/* The next line that does not begin with '#', which has to parse. */
struct sg_wire_line talk_line(struct talk *t);
/* Nothing may come any more; closes and waits; returns the exit status, -N when killed by signal N. */
int talk_end(struct talk *t);

/* Waits (at most ten seconds) until fd can do `events`. */
void wait_fd(int fd, short events);

#endif
