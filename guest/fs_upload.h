/* Uploads that come in parts, and may go on after they were cut.  Below the helper's root, for an id:
 *
 *   .up-<id>                   what came so far; its lock is the upload's
 *   .up-<id>.<nonce>.<offset>  parts that are not joined yet
 *   .up-<id>.by                whose parts were joined last: see fs_join.c
 *   .um-<id>                   of a resumable one what it is for, and how it ended: see fs_meta.h
 *
 * Private to guest/fs*.c. */
#ifndef SG_GUEST_FS_UPLOAD_H
#define SG_GUEST_FS_UPLOAD_H

#include "guest/fs.h"

enum { FS_UPLOAD_NAME_MAX = 2 * FS_ID_MAX + 64 };

struct upload_names {
    char joined[FS_UPLOAD_NAME_MAX], by[FS_UPLOAD_NAME_MAX], meta[FS_UPLOAD_NAME_MAX];
};
void upload_names(const char *id, struct upload_names *n);

/* E upload_offset; always false. */
bool upload_offset_failed(struct fs *fs, uint64_t size);
/* A small file in one step; false with errno (EEXIST when exclusive and it is there).  *fd, unless fd is NULL: the open
 * file, whose lock was taken before it had its name. */
bool upload_write(const struct guest_root *store, const char *name, const char *data, size_t len,
                  bool exclusive, int *fd);
/* Of a resumable upload (its id begins with "r"): it is known, belongs to the root that is given, and has not ended.
 * Everything of it counts as new. */
bool upload_may_grow(struct fs *fs, const struct guest_root *store, const struct upload_names *n);

#endif
