/* Where a download of a file goes on: printable text that the gateway hands back, and that may have been forged.  Pure,
 * any thread. */
#ifndef SG_GUEST_FS_CURSOR_H
#define SG_GUEST_FS_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FS_CURSOR_MAX = 208 };

/* at < end <= size <= INT64_MAX: the next byte, the end of the range; and the file as it was seen last. */
struct fs_cursor {
    uint64_t at, end;
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
    uint64_t mark; /* of what is before `at`: fs_mark */
};

/* Returns its length. */
size_t fs_cursor_format(char out[FS_CURSOR_MAX], const struct fs_cursor *c);
/* Takes what fs_cursor_format wrote and nothing else. */
bool fs_cursor_parse(const char *text, struct fs_cursor *c);

#endif
