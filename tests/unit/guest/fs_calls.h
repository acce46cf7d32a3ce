/* One call of `fs`, and all lines of its answer. */
#ifndef GUEST_FS_CALLS_H
#define GUEST_FS_CALLS_H

#include "harness.h"

struct fs_reply {
    int rc;
    size_t n;                   /* of the lines before the last one */
    struct sg_wire_line *lines; /* with bytes of their own, and a NUL behind name and data */
    struct sg_wire_line last;
    unsigned char *out; /* the D bytes */
    size_t len;
    uint64_t from; /* where they begin */
};

/* fs("stat", "--path", path, NULL): what the paths' and patterns' options say is put into base64.  The answer stays
 * until the next call but three. */
__attribute__((sentinel)) const struct fs_reply *fs(const char *op, ...);
void fs_fails(const struct fs_reply *r, const char *errno_name);
/* E of another kind. */
void fs_says(const struct fs_reply *r, enum sg_wire_fail fail);
void fs_is_outside(const struct fs_reply *r);
/* It ended with K and this word ("" for none). */
void fs_is_done(const struct fs_reply *r, const char *word);
/* The names of its S and N lines, each followed by a space. */
const char *fs_names_of(const struct fs_reply *r);
/* "line:text|" of its R lines: with '=' for ':' in context, and '+' for '|' where the line goes on, '!' where it was
 * cut; "path/" in front where there is one. */
const char *fs_text_of(const struct fs_reply *r);
void fs_calls_free(void);

#endif
