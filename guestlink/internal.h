/* Private to guestlink/ and its tests. */
#ifndef SG_GUESTLINK_INTERNAL_H
#define SG_GUESTLINK_INTERNAL_H

#include "guest/guest_blob.h"
#include "guestlink/guestlink.h"

/* Takes the helper from elsewhere than this build, for tests. */
void guestlink_set_blobs(struct guestlink *g, const struct guest_blob *(*find)(const char *arch));

#endif
