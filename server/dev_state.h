/* Directories and files that `sandgate dev` needs on disk. */
#ifndef SG_SERVER_DEV_STATE_H
#define SG_SERVER_DEV_STATE_H

#include <stdbool.h>
#include <stddef.h>

/* $XDG_STATE_HOME/sandgate or ~/.local/state/sandgate; false when neither can be known. */
bool dev_default_state(char *out, size_t cap);
/* Makes the directory and what is missing above it (the last one 0700) and checks that it can be written.  0
 * or an errno. */
int dev_make_state(const char *dir);
/* True when a base file system has been imported. */
bool dev_has_base(const char *state);
/* A base that `make run` leaves in a cache; false when there is none. */
bool dev_default_base(char *out, size_t cap);

#endif
