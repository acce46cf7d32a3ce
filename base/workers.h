/* Threads for what may block.  The pool grows with the work up to a cap, its queue is bounded, idle threads
 * end after a while.
 */
#ifndef SG_BASE_WORKERS_H
#define SG_BASE_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

struct work {
    struct work *next;
    void (*fn)(struct work *w); /* on a worker thread */
};

struct workers;
/* NULL when out of memory.  `queue` is how many may wait once `threads` are busy; `stack` in bytes. */
struct workers *workers_new(size_t threads, size_t queue, size_t stack);
/* Any thread; the work must live until fn ran.  False when the pool and its queue are full, or no thread could
 * be made and none is there. */
bool workers_submit(struct workers *p, struct work *w);
/* Waits until everything submitted has run and all threads have ended.  NULL is fine. */
void workers_free(struct workers *p);
/* How many pieces of work wait or run. */
size_t workers_load(struct workers *p);

#endif
