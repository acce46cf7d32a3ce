/* How the helper's calls talk to the monitor of a running program: a stream socket in its record.
 *
 * The socket is `ctl` in the record's directory (reached through /proc/self/fd, because the path of a socket may
 * have 107 characters only).  The first byte says what the connection is for:
 *
 *   'I'  a carrier of input: the monitor takes the next epoch, closes the carrier it had (E fenced), answers a C
 *        line, then frames of base/core/carrier.h come in and an A line goes out whenever what is accepted, the
 *        room, or the flags changed.  Frames are always read: what the program does not take lies in the spool
 *        (SG_CARRIER_SPOOL), and data beyond the room is a fault (E usage).  When the peer has ended its side,
 *        what came before is worked off, an A line says so if it changed anything, then K, and it is closed; half
 *        a frame at the end is nothing.  A fault, a higher epoch or the program's end: an E line, and closed.
 *   'A'  one act without a carrier, no epoch: a line of text (below) comes in, one answer line goes out, both
 *        closed.  Data and close are safe to repeat, being at offsets.
 *          W <offset> <base64>       input; at most the room is taken; answer A
 *          C <offset>                end of input; answer A
 *          R <cols> <rows>           the terminal's size; the same size again makes it redraw; answer K
 *          T <signal> <grace_ms>     the signal to the tree now, KILL to what is left after the grace (of several
 *                                    the earliest holds); answer K
 *          K <stdout> <stderr>       lossless: received up to there; answer K
 *          L <ttl_ms>                lease: ends the tree unless asked again within; 0: no lease any more; answer K
 *          U <ms>                    unattended: ends the tree so long after the last 'W' connection has closed
 *                                    (for the first to come there are at least 30 s); 0: never; answer K
 *   'W'  somebody is attached: nothing is said, the connection counts while it is open.
 *   'B'  a bell: a byte comes once the connection is taken and whenever the record changes; what a byte says is in
 *        follow.h.  Where the peer does not read, enough bytes wait already.
 *   'V'  both.
 *
 * Answers are lines of base/core/wire.h; E offset, and E finished to a carrier, have the text "accepted N".  The monitor never waits for a peer:
 * what does not read is cut.  A connection that is closed without a word was one too many, or its monitor was
 * killed: the caller looks at the record, and may try again, as every act may be repeated.
 */
#ifndef SG_GUEST_CTL_H
#define SG_GUEST_CTL_H

#include "guest/guest.h"

enum {
    CTL_ACT_MAX = 96 * 1024 + 64, /* longest act, LF included: base64 of GUEST_WRITE_MAX */
    CTL_CONNECTIONS = 32,         /* at a time; more are refused by closing them */
    CTL_ANSWER_MS = 10000,        /* patience of a caller with a monitor */
    GUEST_WRITE_MAX = 72 * 1024,  /* bytes of input in one `write` */
};

/* Connects to the monitor of the record in dir and says what for.  The descriptor (CLOEXEC, does not block), or -1
 * with *f: NO_INPUT when the record has no socket, FINISHED when its monitor is gone. */
int ctl_connect(int dir, char what, struct guest_fail *f);
/* One act (text of printf, without LF), and its answer: an A or a K line.  False with *f, also for an E line, and
 * when the monitor says nothing for CTL_ANSWER_MS. */
__attribute__((format(printf, 4, 5))) bool ctl_act(int dir, struct sg_wire_line *answer, struct guest_fail *f,
                                                   const char *format, ...);
/* What an E line says. */
void ctl_fail(struct guest_fail *f, const struct sg_wire_line *l);

#endif
