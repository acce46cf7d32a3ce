/* Private to terminals: what a connection's thread knows, and the parts it is made of. */
#ifndef SG_EMULATOR_TERMINAL_INTERNAL_H
#define SG_EMULATOR_TERMINAL_INTERNAL_H

#include "base/buf.h"
#include "base/ws_codec.h"
#include "emulator/terminal.h"

enum {
    READ_SIZE = 64 << 10,  /* of the socket at once */
    INPUT_MAX = 256 << 10, /* accepted from the client, not yet taken by the terminal */
    OUTPUT_MAX = 64 << 10, /* framed for the client, not yet sent */
    OUTPUT_KEPT = 1024,    /* of that, for control frames and the end */
    PIECE = 16 << 10,      /* read from the terminal into one frame */
    TEXT_MAX = 1 << 20,    /* a start message with its environment */
    MESSAGE_MAX = 100 << 20,
    START_MS = 30000,     /* until the start message */
    CLOSE_MS = 2000,      /* until the client has answered our close frame */
    STOP_MS = 5000,       /* until a client of a stopped session has read everything */
    LOOK_MS = 250,        /* a terminal that nobody has open is looked at again */
    DRAIN_MS = 500,       /* output that comes out of the kernel after the end of the program */
    PING_MS = 20000,      /* notices a client that vanished without a word */
    STALL_PING_MS = 1000, /* the same while nothing is read from it: its end lies behind what is not read */
    STACK_SIZE = 256 << 10,
    CODE_GOING_AWAY = 1001,
    CODE_POLICY = 1008,
};

enum phase {
    PHASE_START,   /* waiting for the start message */
    PHASE_RUN,     /* the program runs, or its last output is on its way */
    PHASE_CLOSING, /* our close frame is queued or sent, the client's is awaited */
    PHASE_FLUSH,   /* both sides have said close */
    PHASE_OVER,
};

struct queue {
    unsigned char *data;
    size_t cap, off, len;
};

struct terminal {
    atomic_int refs;
    struct emulator *emu;
    struct session *session; /* counted */
    /* sandbox->lock */
    struct terminal *next; /* session->terminals */
    bool listed, connected;
    pid_t pid; /* 0: not started */
    bool exited, stopping;
    int wait_status;
    int wake; /* eventfd; written with the lock held, closed with the last reference */
    /* the connection's thread */
    enum phase phase;
    int master; /* -1: not started, or hung up */
    struct terminal_socket socket;
    bool peer_gone;   /* seen on socket.peer */
    int64_t deadline; /* monotonic, of the phase; 0: none */
    int64_t stop_at;  /* the same, of the session; 0: it runs */
    int64_t gone_at;  /* the same, of a client that has closed its side; 0: it has not */
    int64_t idle_until;
    int64_t pinged;
    bool master_idle, saw_exit, saw_stop;
    struct ws_codec codec;
    struct sg_buf text;
    struct queue in, out;
    unsigned char *read_buf;
    uint64_t sent;
    struct terminal_fault fault;
    int64_t cut_at; /* monotonic; 0: never */
    void *early;    /* a copy of the socket's */
};

/* --- terminal.c --- */
/* The session has news.  With sandbox->lock. */
void terminal_wake(struct terminal *t);

/* --- terminal_frames.c: what the two sides say to each other.  The connection's thread. --- */
size_t terminal_room(const struct queue *q);
void terminal_consume(struct queue *q, size_t n);
/* Queues a frame; false when it does not fit. */
bool terminal_send(struct terminal *t, enum ws_opcode op, const void *data, size_t n);
/* The program has ended: its code, and the close frame. */
void terminal_send_exit(struct terminal *t, int code, int close_code, const char *reason);
/* Hangs up and says why. */
void terminal_refuse(struct terminal *t, int code, const char *reason);
/* Hangs up: the program's session gets SIGHUP from the kernel. */
void terminal_hang_up(struct terminal *t);
/* Bytes from the client; `in` has room for all of them. */
void terminal_take(struct terminal *t, unsigned char *p, size_t n);

#endif
