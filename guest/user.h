/* Who programs run as. */
#ifndef SG_GUEST_USER_H
#define SG_GUEST_USER_H

#include <stdbool.h>

/* Is this name, by /etc/passwd, that of the user we are?  Not by the C library's lookup, which in a static program
 * loads what the sandbox holds. */
bool user_is(const char *name);

#endif
