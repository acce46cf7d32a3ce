/* Content-Disposition of what is downloaded (RFC 6266): the name in ASCII, and where that is not all of it also as RFC 8187
 * says.  Whatever is in a name, it adds no header and no parameter.  Pure; any thread. */
#ifndef SG_ROUTES_DISPOSITION_H
#define SG_ROUTES_DISPOSITION_H

#include "base/buf.h"

/* "inline" or "attachment", and the name: the last part of the path, and `ending` (ASCII) behind it; of a path that has none `otherwise`. */
void disposition_add(const char *kind, const char *path, size_t len, const char *ending,
                     const char *otherwise, struct sg_buf *out);
/* As an attachment. */
void disposition_format(const char *path, size_t len, const char *ending, const char *otherwise,
                        struct sg_buf *out);

#endif
