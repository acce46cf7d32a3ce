/* What the files of the edge share.  Everything here belongs to the loop's thread, except a job between
 * edge_submit and its return. */
#ifndef SG_EMULATOR_EDGE_INTERNAL_H
#define SG_EMULATOR_EDGE_INTERNAL_H

#include "base/buf.h"
#include "emulator/edge.h"
#include "emulator/edge_head.h"
#include "emulator/edge_target.h"
#include "emulator/faults.h"

#include <openssl/ssl.h>
#include <pthread.h>

enum {
    EDGE_CONNECTIONS_MAX = 4096,
    EDGE_SCRATCH = 64 << 10, /* bytes moved at a time; also what may wait for one slow reader */
    EDGE_HELPERS = 4,
    EDGE_TURNS = 16, /* moves of one connection before others get their turn */

    EDGE_HEAD_MS = 10000,   /* for a whole request head, also a TLS handshake */
    EDGE_IDLE_MS = 75000,   /* between requests */
    EDGE_CONNECT_MS = 5000, /* inside a box */
    EDGE_LINGER_MS = 5000,  /* for the client to read the end */
};

/* ---- sockets ---- */

enum edge_source { EDGE_LISTENER, EDGE_WAKE, EDGE_END };

/* What epoll points at. */
struct edge_watch {
    enum edge_source source;
    int fd;
};

struct edge_end {
    struct edge_watch watch;
    struct edge_conn *conn;
    SSL *ssl;                /* NULL: plain */
    bool readable, writable; /* until the next try says otherwise; an event sets both */
    bool eof;                /* nothing more comes */
    bool shut;               /* our own end has been said */
};

enum { EDGE_AGAIN = -2, EDGE_BROKEN = -1 };
/* > 0 bytes, 0 for the end (eof is set), or EDGE_*. */
ptrdiff_t edge_read(struct edge_end *e, char *buf, size_t max);
/* > 0 bytes or EDGE_*. */
ptrdiff_t edge_write(struct edge_end *e, const char *p, size_t n);
/* Says that nothing more will be sent. */
void edge_shut(struct edge_end *e);
/* Closes; `reset`: so that the peer knows that something is missing. */
void edge_close(struct edge_end *e, bool reset);

struct edge_tls;
struct edge_tls *edge_tls_new(const struct edge_config *config);
void edge_tls_free(struct edge_tls *t);
/* A server side on fd; NULL when out of memory. */
SSL *edge_tls_accept(struct edge_tls *t, int fd);
/* 1 done, 0 goes on, -1 refused. */
int edge_tls_handshake(struct edge_end *e);

/* ---- connections ---- */

enum edge_state {
    EDGE_S_HANDSHAKE,
    EDGE_S_HEAD,    /* waits for a request head */
    EDGE_S_LOOKUP,  /* a helper has the job */
    EDGE_S_DELAY,   /* a fault wants it later */
    EDGE_S_CONNECT, /* to the process inside */
    EDGE_S_RELAY,
    EDGE_S_LINGER, /* sends what is left, then waits for the client to close */
    EDGE_S_DEAD,   /* freed at the end of the turn, or when its job is back */
};

struct edge_job {
    struct edge_job *next;
    struct edge_conn *conn;
    bool out; /* a helper has it */
    char label[EDGE_LABEL_TEXT];
    enum edge_verdict verdict;
    struct edge_target target;
    int fd;
};

struct edge_conn {
    struct edge *edge;
    struct edge_conn *prev, *next; /* all of them */
    struct edge_conn *again_next, *dead_next;
    bool again;
    struct edge_end client, upstream;
    enum edge_state state;
    int64_t deadline; /* monotonic ms; 0: none */
    struct edge_job job;

    struct sg_buf in;       /* from the client, not carried yet */
    struct sg_buf response; /* a response head that is not complete */
    struct sg_buf up, down; /* what the other side could not take yet */

    struct edge_target target; /* where upstream leads; label "": nowhere */
    struct edge_request request;
    size_t head_len;
    struct edge_body request_body, response_body;
    bool in_body; /* the response's head has passed */
    bool tunnel;  /* upgraded: bytes only */
    bool answered, reused, up_broken;
    bool second;      /* 127.0.0.1 inside has refused, ::1 is asked */
    int64_t cut_left; /* of a fault: response bytes until the cut; -1: none */
};

struct edge {
    struct emulator *emu;
    struct edge_config config;
    struct edge_tls *tls;
    int epoll;
    struct edge_watch wake, plain, secure;
    bool accepting;
    int64_t accept_at; /* after a lack of descriptors; 0: now */
    pthread_t loop, helper[EDGE_HELPERS];
    unsigned nhelpers;
    bool loop_runs;
    atomic_bool stopping, recheck;

    struct edge_conn *all, *again, *dead;
    size_t count;
    int64_t next_scan; /* no deadline is earlier; INT64_MAX: there is none */
    char scratch[EDGE_SCRATCH];

    pthread_mutex_t lock; /* the two queues */
    pthread_cond_t work;
    struct edge_job *todo, **todo_tail, *back;
};

/* edge.c */
void edge_submit(struct edge_conn *c);
void edge_set_deadline(struct edge_conn *c, int64_t ms); /* from now; 0: none */
bool edge_watch_end(struct edge_conn *c, struct edge_end *e, int fd);
void edge_again(struct edge_conn *c);
void edge_bury(struct edge_conn *c);

/* edge_conn.c */
struct edge_conn *edge_conn_new(struct edge *e, int fd, bool secure);
void edge_conn_free(struct edge_conn *c);
void edge_conn_run(struct edge_conn *c);
void edge_conn_expired(struct edge_conn *c);
void edge_conn_found(struct edge_conn *c);
void edge_conn_cut(struct edge_conn *c); /* ends it, so that the client notices */

/* edge_page.c: a whole answer of the edge itself. */
void edge_page(struct sg_buf *out, int status, const char *code, const char *text, bool head);
void edge_page_verdict(struct sg_buf *out, enum edge_verdict v, bool head);
void edge_page_refusal(struct sg_buf *out, int status);
/* What a rule says: its own body, or the page of that status. */
void edge_page_fault(struct sg_buf *out, const struct fault_action *a, bool head);

/* edge_relay.c */
/* A request whose head stands complete in c->in is carried to upstream; EDGE_S_RELAY. */
void edge_relay_begin(struct edge_conn *c);
/* Moves what can be moved; true when something was, and it should be called again. */
bool edge_relay_step(struct edge_conn *c);
/* edge_conn.c, for the relay */
void edge_conn_answer(struct edge_conn *c); /* a page stands in c->down: send it and close */
void edge_conn_next(struct edge_conn *c);   /* one exchange is over */
void edge_conn_finish(struct edge_conn *c); /* nothing more comes from inside */

#endif
