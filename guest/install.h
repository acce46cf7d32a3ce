/* Taking our place in the sandbox after the upload. */
#ifndef SG_GUEST_INSTALL_H
#define SG_GUEST_INSTALL_H

#include "guest/record.h"

/* We run as ROOT/.up-<nonce>: checks that our own hash begins with `hash`, and renames us to ROOT/guest-<hash>.
 * Fine when we are that already. */
bool install_self(const struct guest_root *root, const char *hash, struct guest_fail *f);
/* "# sandgate-guest <version> <hash>" and LF. */
bool install_version(struct guest_fail *f);

#endif
