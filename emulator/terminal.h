/* Interactive terminals: a WebSocket on one side, a program on a terminal of its own in a session's box on the
 * other.  Every connection has a thread.
 *
 * A token names its session, may be used once and soon; then the socket belongs to a terminal.  When the client
 * leaves, the terminal is hung up as a real one would be: the program hears of it by SIGHUP and may live on.
 *
 * Locks: `terminals` has one of its own for tokens and the number of connections; a session's list and the fate
 * of a terminal's program are guarded by sandbox->lock.
 */
#ifndef SG_EMULATOR_TERMINAL_H
#define SG_EMULATOR_TERMINAL_H

#include "emulator/emulator.h"
#include "emulator/state.h"

#include <sys/types.h>

enum {
    TERMINAL_TOKEN = 48,
    TERMINAL_TOKEN_MS = 60000, /* from being asked for to being used */
    TERMINALS_MAX = 1024,      /* connections, and tokens not used yet */
};

/* --- terminals.c: tokens, and what is connected --- */
struct terminals;
struct terminals *terminals_new(void);
/* After terminals_stop. */
void terminals_free(struct terminals *ts);
/* Nothing connects any more; returns when the last connection is over.  Call when every session has stopped. */
void terminals_stop(struct terminals *ts);
/* A fresh token of the session; the oldest is forgotten when there are too many. */
bool terminals_token(struct terminals *ts, const char *session_id, char out[TERMINAL_TOKEN]);
/* Uses a token up; false when it is unknown, used or old. */
bool terminals_redeem(struct terminals *ts, const char *token, char session_id[ID_TEXT]);
/* Counts a connection in or out; false when there are too many or no more are wanted. */
bool terminals_enter(struct terminals *ts);
void terminals_leave(struct terminals *ts);

/* --- terminal.c: one of them --- */
struct terminal;
/* How a fault rule shapes the connection. */
struct terminal_fault {
    int64_t cut_after_bytes, cut_after_ms; /* -1: not */
};
/* For a running session, which is from here on told to; NULL with the refusal. */
struct terminal *terminal_new(struct emulator *emu, struct session *s, const struct terminal_fault *fault,
                              struct api_error *e);
/* The client is gone, or never came.  With a program that lives on, the session keeps the terminal to hear of its
 * end. */
void terminal_drop(struct terminal *t);
struct terminal_socket {
    int fd;
    int peer;          /* of the client itself, should fd only lead to it; else -1 */
    const void *early; /* n_early bytes that were read already */
    size_t n_early;
    void (*done)(void *arg); /* closes both */
    void *done_arg;
};
/* Serves the socket on a thread of its own until the end, then calls done.  Takes t. */
void terminal_start(struct terminal *t, const struct terminal_socket *socket);
void terminal_unref(struct terminal *t);

/* With sandbox->lock held: */
/* Whether the program was a terminal's; *left is to be given to terminal_unref after unlocking. */
bool terminal_exited(struct session *s, pid_t pid, int wait_status, struct terminal **left);
/* The session is being stopped: the programs are about to be killed. */
void terminal_session_stopping(struct session *s);
/* Whether a client is connected. */
bool terminal_connected(const struct session *s);

#endif
