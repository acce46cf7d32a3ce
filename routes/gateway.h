/* What route handlers work with: handed down by main; but for `draining` and `lasting`
 * never changed while the server runs. */
#ifndef SG_ROUTES_GATEWAY_H
#define SG_ROUTES_GATEWAY_H

#include "control/sandboxes.h"
#include "guestlink/guestlink.h"
#include "relay/relay.h"
#include "relay/tails.h"
#include "transfer/upload.h"

#include <stdatomic.h>

struct gateway {
    struct sg_loop *loop;
    const char *upstream; /* under which everything of this team and project is stored */
    struct vercel_client *vercel;
    struct guestlink *guestlink;
    struct relay *relay;
    struct control *control;
    struct store *store;
    struct tails *tails;
    struct lates *lates; /* routes/late.h */
    struct keys *keys;   /* routes/idempotency.h */
    struct uploads *uploads;
    _Atomic bool draining;
    unsigned lasting; /* acts that go on though their requests were answered (routes/late.h); loop thread */
    const char *version; /* "0.1.0 (commit …)" */
    size_t max_json_body;
    int64_t run_max_output;       /* bytes of each stream in the answer of run, unless asked; 0: 1 MiB */
    uint64_t download_part_bytes; /* what is downloaded comes in parts of so many; 0: DOWNLOAD_PART */
    int64_t unpack_free_bytes;    /* what an archive may grow to in any case */
    int64_t retain_bytes;   /* output kept per stream of a process, unless asked; 0: the guest's default */
    int64_t watch_grace_ms; /* a watch of files without readers ends after it */
    int64_t watch_retain_bytes; /* and keeps so much of what happened */
};

#endif
