/* Private to guestlink/ and its tests. */
#ifndef SG_GUESTLINK_INTERNAL_H
#define SG_GUESTLINK_INTERNAL_H

#include "guest/guest_blob.h"
#include "guestlink/guestlink.h"
#include "guestlink/farewell.h"
#include "guestlink/hosts.h"

struct carrier;

struct guestlink {
    struct sg_loop *loop;
    struct vercel_client *client;
    const struct guest_blob *(*find_blob)(const char *arch);
    struct hosts hosts;
    struct farewells farewells;
    struct guest_call_list ready; /* waited for an upload that is over; started by `pump` */
    struct sg_timer *pump;
    LIST_HEAD(, guest_call) all;
    LIST_HEAD(, carrier) carriers;
    bool closing;
};

/* Where the helper lies in a session that has it. */
enum { GUEST_PATH_MAX = 128 };
void guest_path(char out[GUEST_PATH_MAX], const struct guest_blob *blob);

/* Takes the helper from elsewhere than this build, for tests. */
void guestlink_set_blobs(struct guestlink *g, const struct guest_blob *(*find)(const char *arch));

/* Every carrier ends with e. */
void carriers_end(struct guestlink *g, const struct sg_error *e);

/* The helper to use for this architecture (NULL: amd64).  NULL with *e when there is none, or the guestlink is
 * being freed. */
const struct guest_blob *guestlink_helper(const struct guestlink *g, const char *arch, struct sg_error *e);

#endif
