/* What uploads and downloads leave behind when their gateway is gone: files right below the helper's root.
 *
 *   .down-*           put aside by fetch and tar: an hour
 *   .up-p*            of plain uploads: an hour
 *   .up-r* .um-*      resumable uploads and what is known of them: a day
 *   .up-*             everything else that is uploaded (the helper itself, input): GUEST_STALE_UPLOAD_S
 *
 * since anything was last done to them. */
#ifndef SG_GUEST_SWEEP_H
#define SG_GUEST_SWEEP_H

#include "guest/record.h"

/* Removes what is old, of so many entries that it takes no time to speak of; failures are passed over. */
void sweep_stale(const struct guest_root *root);

#endif
