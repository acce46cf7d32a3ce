/* Frames of input on their way to a process in a sandbox: the gateway encodes them, the guest's `input` hands
 * them to the process's monitor, which decodes them.
 *
 * A carrier is a byte stream (the upstream's stdin endpoint or its interactive socket).  Frames, numbers
 * big-endian:
 *
 *   'D' u64 offset, u32 length, bytes   input of the program from that offset on; length 1..SG_CARRIER_DATA_MAX
 *   'C' u64 offset                      end of input after that many bytes
 *   'R' u16 columns, u16 rows           the terminal's new size
 *   'S' u8 signal, u8 whole             a signal; whole 1: to the tree, 0: to the program alone
 *   'K' u64 stdout, u64 stderr          output before these offsets was received: lossless retention may drop it
 *
 * Bytes below what was accepted are passed over, so a frame may be sent again on the next carrier; a frame that
 * begins above it is a fault.  Pure, libc only; any thread.
 */
#ifndef SG_CORE_CARRIER_H
#define SG_CORE_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SG_CARRIER_DATA_MAX = 64 * 1024, /* payload of one D frame */
    SG_CARRIER_HEAD_MAX = 17,        /* longest head, and longest frame but D */
    SG_CARRIER_SPOOL = 1024 * 1024,  /* input that a monitor holds for a program that does not read */
};

/* What `input` prints, LF included, once what carries it is in raw mode: what came before on an interactive
 * socket (echo, a shell's greeting) is no answer. */
#define SG_CARRIER_MAGIC "#sandgate-carrier-1"

enum sg_carrier_kind {
    SG_CARRIER_DATA = 'D',
    SG_CARRIER_CLOSE = 'C',
    SG_CARRIER_RESIZE = 'R',
    SG_CARRIER_SIGNAL = 'S',
    SG_CARRIER_ACK = 'K',
};

struct sg_carrier_frame {
    enum sg_carrier_kind kind;
    uint64_t offset;      /* D, C */
    uint32_t len;         /* D: bytes of payload that follow the head */
    uint16_t cols, rows;  /* R; both at least 1 */
    uint8_t signal;       /* S; 1..64 */
    bool whole;           /* S */
    uint64_t received[2]; /* K */
};

/* Writes the head (of D) or the whole frame; returns its length, 0 when a field is out of range. */
size_t sg_carrier_encode(unsigned char out[SG_CARRIER_HEAD_MAX], const struct sg_carrier_frame *f);

/* Reads the head at the beginning of n bytes: its length, 0 when more bytes are needed, -1 when it is malformed
 * (the carrier is then of no more use). */
int sg_carrier_decode(const unsigned char *p, size_t n, struct sg_carrier_frame *out);

#endif
