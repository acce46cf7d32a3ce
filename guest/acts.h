/* The commands on recorded processes.  Each prints its answer; false with *f leaves the error to the caller. */
#ifndef SG_GUEST_ACTS_H
#define SG_GUEST_ACTS_H

#include "guest/args.h"
#include "guest/record.h"

bool act_start(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f); /* run too */
bool act_follow(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
bool act_status(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
bool act_list(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
bool act_signal(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
bool act_settle(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
bool act_remove(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
/* write, close, resize, cancel, ack, lease and unattended: see ctl.h. */
bool act_control(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);

/* Opens the record of a process that has begun (waits for a start to be decided); -1 with *f. */
int act_record(const struct guest_root *root, const struct guest_args *a, struct record *rec,
               struct guest_fail *f);
/* A control did not come through: FINISHED instead of what *f says when there is nothing left to control. */
void act_why(int dir, const char *id, struct guest_fail *f);

#endif
