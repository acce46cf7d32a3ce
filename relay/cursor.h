/* Where a reader stands in a process's two streams, and what a line of the guest means for it: nothing is
 * taken twice, nothing is left out silently.  Pure.
 */
#ifndef SG_RELAY_CURSOR_H
#define SG_RELAY_CURSOR_H

#include "base/core/wire.h"

struct cursor {
    uint64_t pos[2]; /* next byte wanted of stdout (or the terminal) and stderr */
    int only;        /* -1: both; else the other stream's lines are ignored */
};

enum cursor_verdict {
    CURSOR_OLD,  /* known already, or not asked for */
    CURSOR_DATA, /* new bytes: stream, offset, data, len */
    CURSOR_GAP,  /* offset..to are gone */
    CURSOR_HOLE, /* bytes are missing and nobody said so: the stream is not to be trusted */
};

struct cursor_step {
    int stream;
    uint64_t offset, to;
    const unsigned char *data;
    size_t len;
};

/* For D and G lines.  Advances the cursor over DATA and GAP. */
enum cursor_verdict cursor_take(struct cursor *c, const struct sg_wire_line *line, struct cursor_step *step);
/* All bytes up to end were taken, of the streams that were asked for. */
bool cursor_at(const struct cursor *c, const uint64_t end[2]);

#endif
