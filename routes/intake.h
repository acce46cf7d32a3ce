/* A request's body on its way to who reads it: a small buffer, and a client who is paused while it is full.  A body that
 * fits the buffer stays in it, so that it can be read again when what was to be done with it has to be done again.
 * Loop thread.
 */
#ifndef SG_ROUTES_INTAKE_H
#define SG_ROUTES_INTAKE_H

#include "routes/exchange.h"

enum { INTAKE_BUFFER = 64 * 1024 };

struct intake {
    struct exchange *ex; /* NULL: not begun yet */
    void (*more)(void *arg);
    void *arg;
    bool gone;         /* the client left */
    bool in_data;      /* inside on_data: the body must not be resumed from there */
    bool body_waits;   /* the client's side is paused */
    bool reader_waits; /* was told to pause */
    bool ended;        /* the whole body is here, or was read */
    bool kept;         /* the buffer holds the body from its start */
    const char *now;   /* inside on_data: what is in no buffer yet, behind what is in ours */
    size_t now_len;
    size_t start, end; /* unread part of buf */
    char buf[INTAKE_BUFFER];
};

/* more(arg): intake_read, which paused, has something to say; must not free the intake. */
void intake_init(struct intake *in, const struct exchange *ex, void (*more)(void *arg), void *arg);
/* Begins to receive; once. */
void intake_begin(struct intake *in, struct exchange *ex);
/* As vercel_read_fn: 0 at the end, VERCEL_READ_PAUSE, after intake_gone VERCEL_READ_ABORT behind what came. */
size_t intake_read(struct intake *in, char *out, size_t cap);
/* From the first byte again; false: it is gone. */
bool intake_rewind(struct intake *in);
/* The client left: ex is not used any more. */
void intake_gone(struct intake *in);

#endif
