/* The listening socket. */
#ifndef SG_SERVER_LISTEN_H
#define SG_SERVER_LISTEN_H

#include <stddef.h>

enum { LISTEN_ERR = 256 };

/* Opens a non-blocking, close-on-exec socket on "HOST:PORT" or "[v6]:PORT" (port 0: any) and stores the port.
 * -1 with a sentence in err.  May block on a name that is not in the hosts file; called once at start. */
int listen_open(const char *address, int *port, char err[LISTEN_ERR]);

#endif
