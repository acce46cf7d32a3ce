/* The headers of a tar archive: ustar, with pax records before it for what ustar cannot say.  The same entry always gives
 * the same bytes.  Pure, libc only, no allocation; any thread.
 */
#ifndef SG_GUEST_TAR_WRITE_H
#define SG_GUEST_TAR_WRITE_H

#include "guest/tar_read.h"

enum {
    TAR_HEAD_MAX =
        2 * TAR_BLOCK + 2 * (TAR_PATH_MAX + 1) + TAR_BLOCK, /* a pax header, its records, a header */
    TAR_TRAILER = 2 * TAR_BLOCK,                            /* zeros that end an archive */
};

struct tar_head {
    enum tar_kind kind;
    const char *path;   /* relative, without a slash at its end; 1..TAR_PATH_MAX - 1 bytes, any but NUL */
    const char *target; /* of links; 1..TAR_PATH_MAX bytes */
    uint64_t size;      /* of files; INT64_MAX at most */
    unsigned mode;
    uint32_t uid, gid;
    int64_t mtime_s;
};

/* Returns how many bytes it takes, in whole blocks. */
size_t tar_write_head(unsigned char out[TAR_HEAD_MAX], const struct tar_head *e);

#endif
