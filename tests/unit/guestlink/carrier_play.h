/* Carriers under test: an upstream that plays a session with the guest's `input` in it, and an owner with bytes to bring.
 * The upstream's side runs on threads of its own; the rest on the test's. */
#ifndef SG_TEST_CARRIER_PLAY_H
#define SG_TEST_CARRIER_PLAY_H

#include "fixture.h"

#include "guestlink/carrier.h"
#include "guestlink/internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

/* Of the helper that the test has; its name in the sandbox ends in it. */
#define HASH "0123456789abcdef"

/* What one stdin call runs into. */
enum fault {
    FAULT_NONE,
    FAULT_LOST,      /* done, and no answer */
    FAULT_CUT,       /* not done, and no answer */
    FAULT_HALF_504,  /* half is done, and the answer says how much */
    FAULT_MUTE_504,  /* half is done, and the answer does not say how much */
    FAULT_STUCK_504, /* nothing is done */
    FAULT_429,
    FAULT_503, /* not done */
    FAULT_GONE
};

/* What the interactive socket is worth. */
enum socket {
    SOCKET_NONE, /* the upstream knows no terminals */
    SOCKET_GOOD,
    SOCKET_NOISE,   /* a greeting first, in pieces, the magic among it */
    SOCKET_LOUD,    /* nothing but noise */
    SOCKET_REFUSED, /* no handshake */
    SOCKET_EXITS,   /* the program is not there */
    SOCKET_DIES,    /* ends before the magic */
    SOCKET_DIES_LATER,
    SOCKET_NONSENSE
};

/* A session as the upstream would play it, with the guest's `input` in it. */
struct upstream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool missing;   /* the helper is not there before it was uploaded */
    bool mute;      /* `input` never speaks */
    bool no_counts; /* an old sandbox */
    const char *first;
    enum fault faults[64]; /* of the n-th stdin call */
    enum fault always;     /* of the later ones */
    const char *last;      /* what `input` says at its end; NULL: K, when its input ends */
    bool end;              /* says `last` now */
    bool cut_stream;
    enum socket socket;
    struct raw_server *server;
    /* seen */
    int terminals, starts;
    bool early; /* something was sent before the magic */
    char start[1024];
    int uploads, runs, calls, asks, closes;
    int opens; /* stdin calls being served: never more than one */
    bool overlapped;
    unsigned char *received;
    size_t len;
    bool closed;
    char body[4096]; /* of the last run */
};

struct owner {
    struct carrier *carrier;
    const unsigned char *data; /* what it has to bring */
    size_t len, sent;
    size_t piece; /* bytes of one carrier_send */
    bool finish;  /* once all is sent */
    bool try_socket, root;
    bool cancel_on_line, cancelled;
    char kinds[256];
    uint64_t accepted;
    bool interactive;
    bool done, has_line;
    struct sg_wire_line line;
    struct sg_error error;
};

struct setup {
    struct fixture f;
    struct upstream u;
    struct guestlink *g;
    struct owner o;
    unsigned char *data;
};

/* Gives the carrier what it takes, and finishes it in the end, if that is wanted. */
void bring(struct owner *o);
/* len bytes to bring; what s->u and s->o are to do is set before. */
void open_setup(struct setup *s, size_t len);
void close_setup(struct setup *s);
void begin(struct setup *s);
/* The upstream looks again at what it is to do. */
void wake(struct upstream *u);
int calls_seen(struct upstream *u);
/* A turn that waits for little, for trying things at every moment. */
void short_turn(struct setup *s);
void run_until_kinds(struct setup *s, const char *kinds);
void check_all_there(const struct setup *s);

#endif
