/* The input of one process: what its one writer sends, over carriers (guestlink/carrier.h), in order, none lost,
 * none twice, whatever happens to the carriers.
 *
 * One writer at a time and gateway; between gateways the last to open a carrier wins, by the guest's epochs.
 * Bytes are kept until the guest has accepted them (INPUT_BUFFER at most).  A carrier is opened at the first thing
 * to send and given up when nothing was sent for INPUT_IDLE_MS.  Loop thread.
 */
#ifndef SG_RELAY_INPUT_H
#define SG_RELAY_INPUT_H

#include "relay/relay.h"

enum {
    INPUT_BUFFER = 1024 * 1024,
    INPUT_IDLE_MS = 60 * 1000,
};

struct writer_spec {
    struct relay_session session;
    const char *id;
    bool takeover; /* else WRITER_EXISTS when this gateway has a writer for the process */
    bool terminal; /* keystrokes: the interactive socket is tried */
    bool sudo;
};

struct writer_events {
    /* What was accepted grew, there is room again, or the input was closed: `closed` by us, `unwanted` by the
     * program.  The first call tells where the input stands before anything was written. */
    void (*on_accepted)(void *arg, uint64_t accepted, size_t room, bool closed, bool unwanted);
    /* The end, once: the writer is of no more use (WRITER_REPLACED by another one here or at another gateway,
     * PROCESS_FINISHED, STDIN_CLOSED, STALE_SESSION, UPSTREAM_…); `outcome` says whether all that was written
     * before was accepted. */
    void (*on_end)(void *arg, const struct sg_error *e);
};

struct writer;
struct writer *writer_open(struct relay *r, const struct writer_spec *s, const struct writer_events *ev,
                           void *arg, struct sg_error *e);
/* Input at `offset`: what lies below the known position is passed over, what lies above is refused with
 * STDIN_OFFSET (before the position is known, everything waits).  *taken: how many bytes were dealt with; fewer
 * than len when there is no room: wait for on_accepted. */
SG_MUST_CHECK enum sg_code writer_data(struct writer *w, uint64_t offset, const void *data, size_t len,
                                       size_t *taken, struct sg_error *e);
/* End of input after `offset` bytes; UINT64_MAX: after what was written. */
SG_MUST_CHECK enum sg_code writer_close_input(struct writer *w, uint64_t offset, struct sg_error *e);
SG_MUST_CHECK enum sg_code writer_resize(struct writer *w, unsigned cols, unsigned rows, struct sg_error *e);
SG_MUST_CHECK enum sg_code writer_signal(struct writer *w, int signal_number, bool whole, struct sg_error *e);
/* Output before these offsets was received (lossless retention). */
SG_MUST_CHECK enum sg_code writer_ack(struct writer *w, const uint64_t received[2], struct sg_error *e);
/* Gives the place up; what was taken is still sent.  No further callbacks. */
void writer_release(struct writer *w);

#endif
