/* Bytes on their way to the gateway, of `fetch` and `tar`: held back while they are few, so that they come with the
 * answer; else put aside in a file below the helper's root, which the upstream's file endpoint reads and --drop or
 * `drop` removes.  Where there is no room for it (ENOSPC, EDQUOT, EROFS) they come with the answer after all.
 *
 * What --inline, --stage, --part and --drop say is taken from fs->a.  Private to guest/fs*.c.
 */
#ifndef SG_GUEST_FS_STAGE_H
#define SG_GUEST_FS_STAGE_H

#include "guest/fs.h"

enum fs_stage_how { FS_STAGE_HELD, FS_STAGE_FILE, FS_STAGE_LINES };

struct fs_stage {
    struct fs *fs;
    uint64_t offset; /* of this call's first byte; D lines count from there */
    uint64_t taken;  /* bytes of this call */
    uint64_t most;   /* may come at most, by all calls; UINT64_MAX: unknown */
    /* private */
    enum fs_stage_how how;
    struct guest_root store;
    int fd;
    size_t held;            /* bytes in the buffer: all of them, or those that are not in the file yet */
    uint64_t stored;        /* in the file */
    uint64_t sum, sum_from; /* fs_hash of what was printed since the last fs_stage_copy began */
};

/* Removes what --drop names.  One at a time: the buffer is static.  S lines have to be printed before the first write
 * that may exceed --inline, or before the end. */
void fs_stage_begin(struct fs_stage *s, struct fs *fs, uint64_t offset, uint64_t most);
/* As many bytes more this call takes; 0: end it with a cursor.  A disk that turns out to be full makes it less. */
uint64_t fs_stage_room(const struct fs_stage *s);
/* n: at most as much as there is room for.  False with fs->f: the call has failed. */
bool fs_stage_write(struct fs_stage *s, const void *data, size_t n);
/* At most n bytes of fd from `at` on, without going through us where the kernel can.  *copied is less at the end of
 * the file, or when the room has become less (fs_stage_room says 0 then). */
bool fs_stage_copy(struct fs_stage *s, int fd, uint64_t at, uint64_t n, uint64_t *copied);
/* Whether the n bytes that the last fs_stage_copy gave are still those of fd at `at`. */
bool fs_stage_holds(const struct fs_stage *s, int fd, uint64_t at, uint64_t n);
/* Prints the bytes, or "N s<count>" for those put aside; then "N c<cursor>" and M, or K with word (may be NULL) when
 * cursor is NULL.  cursor: printable ASCII, FS_PATH_MAX bytes at most. */
bool fs_stage_end(struct fs_stage *s, const char *cursor, const char *word);
/* In any case; removes what was put aside unless it was ended. */
void fs_stage_close(struct fs_stage *s);

#endif
