/* Preparations that this gateway wants: one for all who want the same, on threads of their own. */
#ifndef SG_CONTROL_FLIGHTS_H
#define SG_CONTROL_FLIGHTS_H

#include "control/template_spec.h"
#include "store/templates.h"

enum { FLIGHTS_THREADS = 16, FLIGHTS_WAITING = 256, FLIGHTS_STACK = 512 * 1024 };

struct control;
struct templates;

struct flight_wish {
    struct template_spec *spec; /* what is inside is taken over, also on failure */
    const char *owner;
    const char *gone; /* a snapshot of it that is known to be gone; NULL: none */
    bool refresh;     /* its image is resolved anew */
    bool verify;      /* ask the upstream whether its snapshot is usable */
};
struct flight_end {
    enum sg_code code;
    struct store_prep prep; /* SG_OK */
    struct sg_error error;  /* else */
};
/* Joins or begins; waits for the end.  OVERLOADED.  Any thread but the loop's and those of flights. */
SG_MUST_CHECK enum sg_code flight_wait(struct templates *all, struct flight_wish *w, struct store_prep *out,
                                       struct sg_error *e);
/* The same without waiting: done(arg) later, once, on a thread of flights, or before this returns, on this thread. */
typedef void flight_done_fn(void *arg, const struct flight_end *end);
void flight_join(struct templates *all, struct flight_wish *w, flight_done_fn *done, void *arg);

#endif
