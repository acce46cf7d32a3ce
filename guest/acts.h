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

#endif
