/* One child process of `sandgate dev`: spawned, read line-wise until its first line, signalled, buried.  Main
 * thread, which is the loop's. */
#ifndef SG_SERVER_DEV_CHILD_H
#define SG_SERVER_DEV_CHILD_H

#include "base/loop.h"

struct dev_child_events {
    /* The first line on its standard output, without the LF; at most once.  NULL: standard output goes to our
     * standard error instead. */
    void (*on_line)(void *arg, const char *line);
    /* It has ended; last callback.  signal 0: by itself, with `status`. */
    void (*on_exit)(void *arg, int status, int signal);
    /* Its standard input is a pipe on which it understands T (as SIGTERM) and K (as SIGKILL), and whose end is a T.
     * Otherwise it has none. */
    bool control;
};

struct dev_child;
/* Spawns argv[0] in a session of its own, so that a Ctrl-C in the terminal reaches only us.  NULL with -errno
 * in *err. */
struct dev_child *dev_child_start(struct sg_loop *loop, char *const *argv, const struct dev_child_events *ev,
                                  void *arg, int *err);
/* SIGTERM or SIGKILL, by the pipe where there is one: it works also when we are not allowed to signal it any more. */
void dev_child_signal(struct dev_child *c, int number);
/* Forgets it; what still runs goes on.  NULL is fine; may be called inside its callbacks. */
void dev_child_free(struct dev_child *c);

/* Where the emulator's program is: beside this program, in the build tree, or in PATH.  False: nowhere. */
bool dev_find_emulator(char *out, size_t cap);

#endif
