/* What was uploaded lies below the helper's root. */
#ifndef SG_GUEST_FILES_H
#define SG_GUEST_FILES_H

#include "guest/args.h"
#include "guest/record.h"

#include <sys/types.h>

/* The whole upload of this name, at most max bytes; *data is the caller's to free, NULL when it is empty. */
bool upload_read(const struct guest_root *root, const char *name, size_t max, unsigned char **data,
                 size_t *len, struct guest_fail *f);
/* An upload is a regular file right below the root: ROOT/<name>, or the name alone.  NULL for anything else. */
const char *upload_name(const char *from);
/* The upload that --from names, open for reading; -1 with *f. */
int upload_open(const struct guest_root *root, const char *from, struct guest_fail *f);
void upload_unlink(const struct guest_root *root, const char *from);

#endif
