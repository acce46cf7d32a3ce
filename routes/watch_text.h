/* A watch of files as text: the ids of its helper, the cursors that clients go on with, and its records.  Pure; any
 * thread.
 *
 * The id of the helper says of which request it is, in the first sixteen digits of a digest, so that a cursor is good
 * for what it was given out for and nothing else, at any gateway.  The cursor is the id, a dot, and where the last line
 * that was told ends in the helper's output; ";end" follows when there is nothing more to come.
 */
#ifndef SG_ROUTES_WATCH_TEXT_H
#define SG_ROUTES_WATCH_TEXT_H

#include "base/core/wire.h"
#include "relay/events.h"
#include "transfer/fs_call.h"

enum { WATCH_CURSOR_MAX = SG_WIRE_ID_MAX + 32 };

struct watch_cursor {
    char id[SG_WIRE_ID_MAX + 1];
    uint64_t offset;
    bool over;
};

/* A new id for this request.  False without randomness. */
SG_MUST_CHECK bool watch_id_make(char id[SG_WIRE_ID_MAX + 1], const struct fs_request *r);
/* Is it one of this request? */
bool watch_id_fits(const char *id, const struct fs_request *r);
bool watch_cursor_parse(const char *text, size_t len, struct watch_cursor *out);
void watch_cursor_format(const struct watch_cursor *c, char out[WATCH_CURSOR_MAX]);

/* Append a record; `c` is where its reader is after it.  False: out of memory, or too long for `b`. */
bool watch_put_change(struct sg_buf *b, enum events_format format, const struct watch_cursor *c,
                      const struct sg_wire_line *line);
/* Members after type and cursor: key and value in turn, NULL at the end. */
__attribute__((sentinel)) bool watch_put(struct sg_buf *b, enum events_format format,
                                         const struct watch_cursor *c, const char *type, ...);
/* Why a helper says that it has ended; NULL for what it cannot say. */
const char *watch_end_reason(const char *text);

#endif
