/* Process events over plain HTTP: server-sent events and NDJSON, the records of both and what a client asks with.
 * Pure.
 *
 * The records are the text frames of sandgate.v1.json ({"type":…}).  As NDJSON one a line; as server-sent events the
 * type is the event's name and the id says where its client is after it: `stdout:N;stderr:M`, of a process with a
 * terminal `pty:N`, and `;end` behind it once there is nothing more to come.
 */
#ifndef SG_RELAY_EVENTS_H
#define SG_RELAY_EVENTS_H

#include "base/buf.h"

#include <stdint.h>

enum events_format { EVENTS_SSE, EVENTS_NDJSON };

enum { EVENTS_ID_MAX = 80 };

/* Where a client is. */
struct events_at {
    uint64_t offset[2]; /* of stdout, or the terminal, and stderr */
    bool terminal;
    bool over;
};

/* Which form an Accept header (NULL: none) likes best; server-sent events when it likes both as much.  False:
 * neither. */
bool events_accept(const char *accept, enum events_format *out);
const char *events_type(enum events_format format);

/* An id as written here.  False: it is none. */
bool events_parse_id(const char *id, struct events_at *out);

/* Appends a record: its type, and its text (a JSON object on one line).  False: out of memory, or too long for `b`.
 */
bool events_record(struct sg_buf *b, enum events_format format, const struct events_at *after,
                   const char *type, const char *json);
/* The same with an id of another kind (text without LF). */
bool events_record_id(struct sg_buf *b, enum events_format format, const char *id, const char *type,
                      const char *json);
/* Output at `offset` of a stream; at most 64 KiB. */
bool events_data(struct sg_buf *b, enum events_format format, const struct events_at *after, int stream,
                 uint64_t offset, const void *data, size_t len);
/* What keeps the connection from looking idle: a comment, or a record that says nothing. */
bool events_keepalive(struct sg_buf *b, enum events_format format);

#endif
