/* `watch`: one quiet call that tells which of many processes have something new. */
#ifndef SG_GUEST_WATCH_H
#define SG_GUEST_WATCH_H

#include "guest/args.h"
#include "guest/record.h"

enum { WATCH_MAX = 256 };

/* A P line for each of `ID OUT ERR …` once it has output beyond OUT or ERR, has ended, or is not there; each once.
 * M when all were told, or after GUEST_FOLLOW_MS.  A process that cannot be read is told of as unknown.  With --attend
 * each counts as attended until it is told of. */
bool act_watch(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);

#endif
