/* The smallest names of a directory in byte order, however many it has, in bounded memory. */
#ifndef SG_GUEST_FS_NAMES_H
#define SG_GUEST_FS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs_names {
    char **v;
    size_t n;
    bool more; /* there are greater ones */
    /* private */
    size_t cap, bytes, limit, max_bytes;
};

/* Reads the names that come after `after` (NULL: all): at most limit of them (at least 1), and of max_bytes together
 * (but always one).  with_descents: a directory is there twice, and the second time with a slash at its end, so that
 * the whole is in the byte order of paths when what is below is looked at there.  The position of fd moves; it stays
 * open.  False with errno; the names are to be freed in any case. */
bool fs_names_read(int fd, const char *after, size_t limit, size_t max_bytes, bool with_descents,
                   struct fs_names *out);
/* The same, but ETIMEDOUT when it is not through by then (guest_now_ms). */
bool fs_names_read_until(int fd, const char *after, size_t limit, size_t max_bytes, bool with_descents,
                         uint64_t deadline_ms, struct fs_names *out);
void fs_names_free(struct fs_names *names);

#endif
