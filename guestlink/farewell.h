/* Ends commands upstream that nobody listens to any more, when their mere running means something: a helper that
 * stands for somebody's presence.  Tried once each and after a while, so that who takes over is there before; a command
 * that could not be ended ends itself within minutes.  Loop thread.
 */
#ifndef SG_GUESTLINK_FAREWELL_H
#define SG_GUESTLINK_FAREWELL_H

#include "vercel/commands.h"

#include <sys/queue.h>

enum {
    FAREWELL_MS = 2000,
    FAREWELL_MAX = 1024, /* at a time; beyond, commands end themselves */
};

struct farewell;
struct farewells {
    struct sg_loop *loop;
    struct vercel_client *client;
    LIST_HEAD(, farewell) all;
    size_t count;
};

void farewells_init(struct farewells *f, struct sg_loop *loop, struct vercel_client *client);
/* Those that were not said are not. */
void farewells_end(struct farewells *f);
void farewell_say(struct farewells *f, const char *session_id, const char *command_id);

#endif
