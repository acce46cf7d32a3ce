/* Where the archive of a directory goes on: printable text that the gateway hands back, and that may have been forged.
 * Pure, any thread. */
#ifndef SG_GUEST_FS_TAR_CURSOR_H
#define SG_GUEST_FS_TAR_CURSOR_H

#include "guest/tar_read.h"

enum {
    FS_TAR_CURSOR_MAX = 4096, /* NUL included */
    FS_TAR_CURSOR_NUMBERS = 13 * 21 + 16,
};

enum fs_tar_phase {
    FS_TAR_AFTER,    /* behind the entry of this path; "": at the beginning */
    FS_TAR_HEAD,     /* in its header, so many bytes in */
    FS_TAR_CONTENTS, /* in its contents or what fills their last block */
    FS_TAR_END,      /* in the zeros that end the archive */
};

struct fs_tar_cursor {
    uint64_t offset;   /* in the archive */
    uint64_t skipped;  /* entries so far that are none of an archive */
    uint64_t dev, ino; /* of the directory */
    enum fs_tar_phase phase;
    uint64_t at;
    struct { /* the entry, while we are in it */
        uint64_t dev, ino, size;
        int64_t mtime_ns, ctime_ns;
        uint64_t mark; /* of its contents before `at`: fs_mark */
    } entry;
    char path[TAR_PATH_MAX + 1];
};

/* False when the path is too long for it. */
bool fs_tar_cursor_format(char out[FS_TAR_CURSOR_MAX], const struct fs_tar_cursor *c);
/* Takes what fs_tar_cursor_format wrote and nothing else. */
bool fs_tar_cursor_parse(const char *text, struct fs_tar_cursor *c);

#endif
