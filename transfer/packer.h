/* gzip of a stream on its way, in the loop's thread pool: what comes is collected while the slice before it is packed,
 * and what is packed is given on the loop.  Memory is bounded: two slices in, one out.  Loop thread; callbacks never come
 * from inside a call.
 */
#ifndef SG_TRANSFER_PACKER_H
#define SG_TRANSFER_PACKER_H

#include "base/loop.h"

#include <stddef.h>

enum { PACKER_SLICE = 64 * 1024 };

struct packer_events {
    void (*on_packed)(void *arg, const char *data, size_t len);
    void (*on_room)(void *arg); /* after packer_write took less than it was given */
    void (*on_end)(void *arg);  /* after packer_finish: all was given */
};

struct packer;
/* NULL: no memory. */
struct packer *packer_new(struct sg_loop *loop, const struct packer_events *ev, void *arg);
/* How many bytes were taken.  Fewer than len: there is no room for the rest now. */
size_t packer_write(struct packer *p, const char *data, size_t len);
void packer_finish(struct packer *p);
/* Packs nothing more while it is held; what is being packed is still given. */
void packer_hold(struct packer *p, bool held);
/* At any time, also in its callbacks; no callback follows.  NULL is fine. */
void packer_free(struct packer *p);

#endif
