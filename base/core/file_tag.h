/* The entity tag of a file's content: the same on both sides, so that the guest can compare while it holds the file.
 * It changes with every write, replacement or change of attributes.  Pure, libc only; any thread.
 */
#ifndef SG_CORE_FILE_TAG_H
#define SG_CORE_FILE_TAG_H

#include "base/core/wire.h"

enum {
    SG_FILE_TAG_LEN = 22,
    SG_FILE_TAGS_MAX = 64, /* in one list */
};

/* [A-Za-z0-9_-]{22}: made of device, inode, size and both times, which it does not reveal. */
void sg_file_tag(const struct sg_wire_file *f, char out[SG_FILE_TAG_LEN + 1]);
/* Whether `list` ("TAG" or "TAG,TAG…") holds tag. */
bool sg_file_tag_among(const char *tag, const char *list);
/* Whether it is such a list, of SG_FILE_TAGS_MAX at most. */
bool sg_file_tags_valid(const char *list);

#endif
