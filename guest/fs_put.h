/* A file takes its place: `put`, and the end of a resumable upload.  Private to guest/fs*.c. */
#ifndef SG_GUEST_FS_PUT_H
#define SG_GUEST_FS_PUT_H

#include "guest/fs.h"

struct fs_put {
    struct fs *fs; /* path, conditions and options are in fs->a */
    const struct guest_root *store;
    const char *name; /* of the upload below it */
    /* Told right before st, which has its final inode, owner and mode, takes its place; false with fs->f ends it there.
     * May be NULL. */
    bool (*before)(void *arg, const struct stat *st, bool replaces);
    void *arg;

    /* private */
    int upload, fd; /* the upload, locked; what takes its place: it, or a copy beside the target */
    char temp[64];  /* the copy's name beside the target */
    bool nameless;  /* it does not have it yet */
    struct fs_place to;
    int lock; /* the target's directory, while what is there counts */
    bool exists;
    struct stat old; /* what is there, or a link that leads nowhere */
    struct stat now; /* afterwards: what is there */
};

/* Whole or not at all: after a failure the target is as it was, with no directory more than before.  The upload is gone
 * only when it succeeded. */
bool fs_put_take(struct fs_put *p);
/* In any case. */
void fs_put_close(struct fs_put *p);
/* Prints S and K. */
void fs_put_tell(const struct sg_wire_file *f, bool replaced);
/* What can be said before there is an upload: that the target can be one, and the conditions hold. */
bool fs_put_look(struct fs *fs);

/* Whether what is there (NULL: nothing) meets --if-match and --unless; false with fs->f. */
bool fs_meets_conditions(struct fs *fs, const struct stat *there);
/* Opens an upload below the store and waits for its lock, so that nobody adds to it any more; -1 with fs->f.  err of
 * nothing there: ENOENT. */
int fs_upload_lock(struct fs *fs, const struct guest_root *store, const char *name);
/* --size and --digest. */
bool fs_upload_check(struct fs *fs, int fd);
/* What is known of a plain upload's parts goes with it. */
void fs_upload_forget(const struct guest_root *store, const char *name);

#endif
