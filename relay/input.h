/* The input of one process: what its one writer sends, over carriers (guestlink/carrier.h), in order, none lost,
 * none twice, whatever happens to the carriers.
 *
 * One writer at a time and gateway; between gateways the last to open a carrier wins, by the guest's epochs.
 * Bytes are kept until the guest has accepted them (INPUT_BUFFER at most).  A carrier is opened at the first thing
 * to send and given up when nothing was sent for relay_limits.input_idle_ms.  Loop thread.
 */
#ifndef SG_RELAY_INPUT_H
#define SG_RELAY_INPUT_H

#include "relay/relay.h"

enum { INPUT_BUFFER = 1024 * 1024 };
#define INPUT_APPEND UINT64_MAX /* as an offset: after what was written */

struct writer_spec {
    struct relay_session session;
    const char *id;
    bool takeover; /* else WRITER_EXISTS when this gateway has a writer for the process */
    bool terminal; /* keystrokes: the interactive socket is tried */
    bool sudo;     /* of root; tried without being told where the guest refuses the sandbox's user */
};

struct writer_events {
    /* What was accepted grew, there is room again, or the input was closed: `closed` by us, `unwanted` by the
     * program.  The first call tells where the input stands before anything of this writer was accepted, and comes
     * as soon as that is certain.  room: bytes that writer_data would take now. */
    void (*on_accepted)(void *arg, uint64_t accepted, size_t room, bool closed, bool unwanted);
    /* What was written before the position was known began beyond it (STDIN_OFFSET, e->accepted): all of it was
     * dropped, and the writer goes on.  NULL: the writer ends with it. */
    void (*on_refused)(void *arg, const struct sg_error *e);
    /* The end, once: the writer is of no more use (WRITER_REPLACED by another one here or at another gateway,
     * PROCESS_FINISHED, PROCESS_NOT_FOUND, STDIN_CLOSED, STALE_SESSION, DRAINING, UPSTREAM_…).  Its outcome says
     * what became of what was written: FINISHED all was accepted, NOT_STARTED the rest (from e->accepted on)
     * was not, UNKNOWN the rest may have been.  writer_release must still be called. */
    void (*on_end)(void *arg, const struct sg_error *e);
};

struct writer;
/* No callback of this writer before it returns.  One that is taken over hears of it later. */
struct writer *writer_open(struct relay *r, const struct writer_spec *s, const struct writer_events *ev,
                           void *arg, struct sg_error *e);
/* Has this gateway a writer for the process? */
bool writer_present(struct relay *r, const char *session_id, const char *id);
/* Input was accepted beside the writers, by a single act: what is known of the position without one is void. */
void writer_passed_by(struct relay *r, const char *session_id, const char *id);
/* Input at `offset`, or INPUT_APPEND.  What lies below the known position is passed over, what
 * lies above is refused with STDIN_OFFSET (before the position is known, everything waits).  *taken: how many bytes
 * were dealt with; fewer than len when there is no room: wait for on_accepted. */
SG_MUST_CHECK enum sg_code writer_data(struct writer *w, uint64_t offset, const void *data, size_t len,
                                       size_t *taken, struct sg_error *e);
/* End of input after `offset` bytes, or INPUT_APPEND. */
SG_MUST_CHECK enum sg_code writer_close_input(struct writer *w, uint64_t offset, struct sg_error *e);
/* The terminal's size: the newest counts, and is told again on a new carrier.  redraw: the size changes for a
 * moment even when it was this one, so that the program paints its screen. */
SG_MUST_CHECK enum sg_code writer_resize(struct writer *w, unsigned cols, unsigned rows, bool redraw,
                                         struct sg_error *e);
/* Sent at most once. */
SG_MUST_CHECK enum sg_code writer_signal(struct writer *w, int signal_number, bool whole, struct sg_error *e);
/* Output before these offsets was received (lossless retention); the newest counts, and is told again. */
SG_MUST_CHECK enum sg_code writer_ack(struct writer *w, const uint64_t received[2], struct sg_error *e);
/* Opens a carrier although there is nothing to send: on_accepted tells the position, other gateways' writers end. */
void writer_claim(struct writer *w);
/* Accepted so far as known here; false: not known. */
bool writer_position(const struct writer *w, uint64_t *accepted);
/* Is everything that was written, its end too, known to be accepted? */
bool writer_settled(const struct writer *w);
enum writer_carrier { WRITER_NO_CARRIER, WRITER_COMMAND, WRITER_INTERACTIVE };
enum writer_carrier writer_carrier(const struct writer *w);
/* Gives the place up; what was taken is still sent.  No further callbacks.  To be called once, after on_end too;
 * may be called inside any callback. */
void writer_release(struct writer *w);

#endif
