/* A gzip-compressed tar archive of one regular file, made while its bytes stream.  Pure; any thread.
 *
 * The bytes are stored, not deflated: the size is known before the first byte (so Content-Length can be sent), a
 * few hundred bytes of memory do, and making it costs a CRC.  POSIX ustar; a pax header carries names that are
 * longer than 100 bytes or not ASCII, and sizes beyond 8 GiB.
 */
#ifndef SG_VERCEL_TARGZ_H
#define SG_VERCEL_TARGZ_H

#include "base/error.h"
#include "vercel/client.h"

struct targz {
    char *head; /* everything before the file's bytes: tar header blocks */
    size_t head_len;
    uint64_t size;     /* of the file */
    uint64_t tar_size; /* of the archive before compression */
    uint64_t tar_pos;
    uint64_t block_left; /* of the stored block being written */
    uint32_t crc;
    char frame[16]; /* gzip header, block header, or trailer waiting to be written */
    size_t frame_len, frame_pos;
    bool trailer;
    bool source_ended;
    vercel_read_fn *read;
    void *arg;
};

/* `path` is absolute; its bytes may be anything.  INVALID_PATH, OUT_OF_MEMORY. */
SG_MUST_CHECK enum sg_code targz_init(struct targz *t, const char *path, unsigned mode, uint64_t size,
                                      int64_t mtime_s, vercel_read_fn *read, void *arg, struct sg_error *e);
void targz_free(struct targz *t);
/* The exact number of bytes targz_read will give. */
uint64_t targz_size(const struct targz *t);
/* As vercel_read_fn.  VERCEL_READ_ABORT when the source does not give exactly `size` bytes. */
size_t targz_read(struct targz *t, char *buf, size_t cap);
/* Starts over; the source must do so, too. */
void targz_rewind(struct targz *t);

#endif
