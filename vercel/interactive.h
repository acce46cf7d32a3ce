/* A program on a terminal of its own in a session, over the upstream's interactive socket.  Loop thread.
 * Source: Vercel's Sandbox REST API v2, POST …/sessions/{id}/interactive, and the WebSocket that it names.
 *
 * The upstream's answer holds a token, good for this session: it is asked for anew for each connection, is kept out of
 * every log, and is wiped once the connection stands.
 */
#ifndef SG_VERCEL_INTERACTIVE_H
#define SG_VERCEL_INTERACTIVE_H

#include "vercel/client.h"

enum { VERCEL_TERMINAL_QUEUE = 64 * 1024 }; /* bytes taken and not yet given to the connection */

struct vercel_terminal {
    const char *session_id;
    const char *command;
    const char *const *args; /* NULL-terminated */
    const char *cwd;
    int cols, rows; /* 0: not said */
};

struct vercel_terminal_events {
    /* The connection stands and the program is being started. */
    void (*on_open)(void *arg);
    /* What it prints. */
    void (*on_data)(void *arg, const void *data, size_t len);
    /* vercel_interactive_send took less than it was given, and now there is room again. */
    void (*on_room)(void *arg);
    /* The program ended with this code, as far as the upstream tells; on_end follows. */
    void (*on_exit)(void *arg, int code);
    /* The end, once, unless cancelled.  e NULL: after vercel_interactive_finish or on_exit.  Outcome not_sent or
     * not_started: there was no terminal. */
    void (*on_end)(void *arg, const struct sg_error *e);
};

struct vercel_interactive;
/* No callback before it returns; NULL with *e when it could not begin. */
struct vercel_interactive *vercel_interactive_start(struct vercel_client *c, const struct vercel_terminal *t,
                                                    const struct vercel_terminal_events *ev, void *arg,
                                                    struct sg_error *e);
/* Types; returns how many bytes were taken, none before on_open. */
size_t vercel_interactive_send(struct vercel_interactive *t, const void *data, size_t len);
size_t vercel_interactive_queued(const struct vercel_interactive *t);
/* Stops and continues reading; after a stop one piece may still come. */
void vercel_interactive_pause(struct vercel_interactive *t, bool paused);
/* Closes the connection after what is queued. */
void vercel_interactive_finish(struct vercel_interactive *t);
/* Drops it without a further callback. */
void vercel_interactive_cancel(struct vercel_interactive *t);

#endif
