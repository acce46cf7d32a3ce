/* Carriers of input over the guestlink made of memory: the guest's side of base/core/carrier.h with epochs and
 * credit, and an upstream that cuts, loses, delays and is late.  Part of fake_guestlink.
 */
#ifndef FAKE_CARRIER_H
#define FAKE_CARRIER_H

#include "base/core/carrier.h"
#include "guestlink/carrier.h"
#include "tests/support/fake_guestlink.h"

enum { FAKE_INPUTS = 4, FAKE_SIGNALS = 64 };

struct fake_input {
    char id[SG_WIRE_ID_MAX + 1];
    /* the program */
    bool no_input, finished, root;
    size_t spool;       /* bytes that it may leave unread; SG_CARRIER_SPOOL */
    int reads;          /* 0: it reads nothing; else up to so many bytes per step */
    bool stops_reading; /* takes no more: flag x */
    /* what came */
    unsigned char *content;
    size_t len, cap, read;
    bool closed;
    uint64_t epoch;
    unsigned cols, rows, sizes[FAKE_SIGNALS][2];
    int nsizes;
    int signals[FAKE_SIGNALS]; /* negative: to the program alone */
    int nsignals;
    uint64_t acked[2];
    int nacks;
    /* the carriers: chances in 1/1000 per step */
    int cut, cut_opening, late, more, refuse;
    enum sg_code refuse_code; /* refusals; 0: UPSTREAM_UNREACHABLE, not sent */
    int hang;                 /* so many carriers never say a word */
    bool mute;                /* no A lines come */
    bool no_socket;           /* only the command endpoint is to be had */
    size_t takes;             /* bytes that carrier_send takes at most; 0: all */
    int opened, live, cancelled, finished_carriers;
    bool interactive; /* the last one asked for it */
    bool sudo;
    bool wrong; /* the gateway broke the protocol; why: */
    char why[80];
    int pending_late;
    struct fake_carrier *current; /* the one with the highest epoch */
    struct fake_carrier *all;
};

/* The input of a process; made when there is none. */
struct fake_input *fake_input(struct fake *f, const char *id);
/* Another gateway opens a carrier: the highest epoch is its own now. */
void fake_input_fence(struct fake_input *in);
/* Input that did not come over a carrier of this gateway. */
void fake_input_write(struct fake_input *in, const void *data, size_t len);
/* Carriers look again (after reads, finished or mute changed). */
void fake_input_wake(struct fake_input *in);
void fake_inputs_free(void);

#endif
