/* Text cut anywhere to lines of bounded length, of which one may be given back.  Pure.  Private to guestlink/. */
#ifndef SG_GUESTLINK_LINES_H
#define SG_GUESTLINK_LINES_H

#include "base/core/wire.h"

#include <stddef.h>

struct lines {
    char buf[SG_WIRE_LINE_MAX]; /* the beginning of a line, or one that was given back whole */
    size_t len;
    bool whole;
};

enum lines_step { LINES_LINE, LINES_MORE, LINES_TOO_LONG };

/* Takes text from *data (advancing both) until a line is complete; the line has no LF and stays until the next
 * call. */
enum lines_step lines_next(struct lines *l, const char **data, size_t *len, const char **line, size_t *n);
/* The line just got was not wanted yet: lines_next gives it again. */
void lines_give_back(struct lines *l, const char *line, size_t n);

#endif
