/* From a subdomain to a process port inside a box. */
#ifndef SG_EMULATOR_EDGE_TARGET_H
#define SG_EMULATOR_EDGE_TARGET_H

#include "emulator/edge_head.h"
#include "emulator/emulator.h"
#include "emulator/state.h"

enum edge_verdict {
    EDGE_ROUTED,
    EDGE_NOT_FOUND,
    EDGE_STOPPED,
    EDGE_STOPPING,
    EDGE_SNAPSHOTTING,
    EDGE_NOT_LISTENING,
    EDGE_NO_MEANS, /* the emulator lacks descriptors or memory */
};

struct edge_target {
    struct session *session; /* counted; NULL: the emulator's own API */
    int port;
    char label[EDGE_LABEL_TEXT];
};

/* Who has this subdomain and whether it takes requests.  `late_routes`: ports that were added while the
 * session runs are reachable at once.  EDGE_ROUTED: *out is filled and to be dropped.  Microseconds; any
 * thread. */
enum edge_verdict edge_target_find(struct emulator *emu, bool late_routes, const char *label,
                                   struct edge_target *out);
void edge_target_drop(struct edge_target *t);
/* Whether the subdomain still leads to this port of this session.  Microseconds; any thread. */
bool edge_target_holds(const struct edge_target *t);
/* A non-blocking socket that is to be connected to the port on 127.0.0.1 or ::1.  Asks the box, so it may block for a
 * moment: not for the loop's thread. */
enum edge_verdict edge_target_socket(const struct edge_target *t, bool v6, int *fd);
/* Bytes that came through, for the usage numbers of the session. */
void edge_target_count(const struct edge_target *t, size_t into_box, size_t out_of_box);

#endif
