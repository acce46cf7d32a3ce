/* The event loop of one shard: libuv plus what the house adds to it: tasks posted from other threads, timers
 * that may be freed inside their own callback, a hook at the end of each turn, and the grave list (objects
 * die there, never inside their own callbacks).
 *
 * Everything is called on the loop's thread, except sg_loop_post and sg_loop_stop, which any thread may call.
 */
#ifndef SG_BASE_LOOP_H
#define SG_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct sg_loop;

/* Work to run on the loop.  Embed it in your object; it must live until fn was called.  No allocation, so
 * posting cannot fail. */
struct sg_task {
    struct sg_task *next;
    void (*fn)(struct sg_task *task);
};

/* Something to free at the end of this turn.  Embed it; fn may free the memory around it. */
struct sg_grave {
    struct sg_grave *next;
    void (*fn)(struct sg_grave *grave);
};

/* NULL when out of memory or descriptors. */
struct sg_loop *sg_loop_new(void);
/* Runs what was posted, closes every handle, frees.  Must not be running. */
void sg_loop_free(struct sg_loop *loop);
/* Runs until sg_loop_stop. */
void sg_loop_run(struct sg_loop *loop);
/* Any thread. */
void sg_loop_stop(struct sg_loop *loop);
uv_loop_t *sg_loop_uv(struct sg_loop *loop);
/* True on the thread that runs (or, before it runs, created) the loop. */
bool sg_loop_is_current(const struct sg_loop *loop);

/* Any thread.  Tasks of one thread run in order. */
void sg_loop_post(struct sg_loop *loop, struct sg_task *task);
void sg_loop_bury(struct sg_loop *loop, struct sg_grave *grave);

/* fn runs at the end of every turn, before the loop may sleep, and before the dead are buried; at most 8
 * hooks. It returns true to be called once more in this turn (it made work for another hook).  -1 when full.
 */
int sg_loop_on_turn(struct sg_loop *loop, bool (*fn)(void *arg), void *arg);
void sg_loop_off_turn(struct sg_loop *loop, bool (*fn)(void *arg), void *arg);

/* One-shot timer; NULL when out of memory. */
struct sg_timer;
struct sg_timer *sg_timer_new(struct sg_loop *loop, void (*fn)(void *arg), void *arg);
/* (Re)starts it: fn once after `ms` milliseconds. */
void sg_timer_start(struct sg_timer *t, uint64_t ms);
void sg_timer_stop(struct sg_timer *t);
bool sg_timer_active(const struct sg_timer *t);
/* NULL is fine; may be called inside fn. */
void sg_timer_free(struct sg_timer *t);

#endif
