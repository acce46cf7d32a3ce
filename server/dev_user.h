/* Who the gateway of `sandgate dev` is.  The emulator may want root; the gateway, which talks to the network, never
 * does. */
#ifndef SG_SERVER_DEV_USER_H
#define SG_SERVER_DEV_USER_H

#include <stdbool.h>

enum { DEV_USER_ERR = 256 };

/* As root: turns this process for good into whoever called sudo (SUDO_UID, SUDO_GID), or nobody, without further
 * groups or capabilities.  Does nothing for anybody else, and where a user namespace knows no second user; the latter
 * is said.  False with a sentence in err: the process must not go on.  Main thread. */
bool dev_user_drop(char err[DEV_USER_ERR]);

#endif
