/* The helper's standard output: whole lines of base/core/wire.h, written in large pieces. */
#ifndef SG_GUEST_OUT_H
#define SG_GUEST_OUT_H

#include "guest/guest.h"

/* Queues one line; writes when the buffer is full (blocks then). */
void out_line(const struct sg_wire_line *l);
void out_kind(enum sg_wire_kind kind, const char *word); /* M; K with an optional word */
void out_hello(const struct sg_wire_process *p);
void out_exit(const struct sg_wire_process *p);
void out_process(const struct sg_wire_process *p);
void out_data(unsigned channel, uint64_t offset, const unsigned char *data, size_t len);
void out_gap(unsigned channel, uint64_t from, uint64_t to);
void out_error(const struct guest_fail *f);
void out_raw(const char *text);
/* False once the reader is gone (every later line is dropped). */
bool out_flush(void);
/* Where standard output does not block: writes what can be written now; returns the bytes that are left. */
size_t out_push(void);
bool out_is_broken(void);

#endif
