/* What is known of a resumable upload: text in a file that a program of the sandbox may have written to.  Pure but for
 * its memory. */
#ifndef SG_GUEST_FS_META_H
#define SG_GUEST_FS_META_H

#include "base/core/wire.h"
#include "guest/fs_args.h"

enum { FS_META_MAX = 32 * 1024 };

enum fs_meta_state {
    FS_META_OPEN,
    FS_META_ENDS, /* file, which is what was uploaded, is about to take its place, or did */
    FS_META_DONE, /* it did */
};

struct fs_meta {
    enum fs_meta_state state;
    struct fs_args a;           /* of the upload-open */
    struct sg_wire_file file;   /* not of an open one */
    bool replaced;              /* likewise */
    char text[FS_META_MAX + 1]; /* what a's texts point into */
};

/* Returns its length, 0 when it does not fit.  a: of an upload-open; file: NULL while it is open. */
size_t fs_meta_format(char out[FS_META_MAX], enum fs_meta_state state, const struct fs_args *a,
                      const struct sg_wire_file *file, bool replaced);
/* Of m->text, so many bytes, which are taken apart.  Takes what fs_meta_format makes.  fs_meta_free in any case. */
bool fs_meta_parse(struct fs_meta *m, size_t len);
void fs_meta_free(struct fs_meta *m);

#endif
