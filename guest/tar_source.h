/* The entries of a tar archive in a file.  A signal does not disturb it; nothing else may write to the file. */
#ifndef SG_GUEST_TAR_SOURCE_H
#define SG_GUEST_TAR_SOURCE_H

#include "guest/tar_read.h"

struct tar_source {
    struct tar_reader reader; /* its entry is the current one */
    uint64_t head;            /* where the current entry begins, pax records and long names included */
    uint64_t data;            /* where its contents begin */
    uint64_t next;            /* where the next one begins */
    const char *wrong;        /* after TAR_WRONG: why; NULL: reading failed, errno says why */
    /* private */
    int fd;
    uint64_t size, window;
    size_t have;
    unsigned char bytes[64 * 1024];
};

/* fd stays the caller's. */
void tar_source_open(struct tar_source *s, int fd, uint64_t size);
/* Goes on at `next` with what the reader knew there. */
void tar_source_go_on(struct tar_source *s, const struct tar_reader *reader, uint64_t next);
/* TAR_ENTRY: its contents lie within the file.  TAR_END: nothing but zeros follows.  TAR_WRONG: reader.name names the
 * entry, "" when that is not known. */
enum tar_step tar_source_next(struct tar_source *s);

#endif
