/* What the parts of the in-sandbox helper share: its limits and the way a failure travels.
 *
 * The helper is one short-lived, single-threaded process per call (plus one monitor per recorded program).
 * Everything below its root directory may have been tampered with by the sandboxed program, so files are
 * opened without following links, read strictly, and never trusted for anything outside the root.
 */
#ifndef SG_GUEST_H
#define SG_GUEST_H

#include "base/core/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_VERSION      "0.1.0"
#define GUEST_DEFAULT_ROOT "/var/tmp/.sandgate"

enum {
    GUEST_HASH_CHARS = 16,
    GUEST_SPEC_MAX = 64,                   /* characters of --spec */
    GUEST_SEGMENT_MIN = 64 * 1024,         /* bytes of one output file, at least */
    GUEST_SEGMENT_MAX = 16 * 1024 * 1024,  /* and at most */
    GUEST_FOLLOW_BYTES = 16 * 1024 * 1024, /* output bytes one follow prints before it says "more" */
    GUEST_FOLLOW_MS = 4 * 60 * 1000,       /* and how long it, an `input` or a `watch` lives */
    GUEST_POLL_MS = 1000,                  /* a lost file notification costs at most this */
    GUEST_WAIT_MAX_MS = 4 * 60 * 1000,     /* cap of --wait-ms */
    GUEST_SEGMENTS_MAX = 2048,             /* output files of one stream that a reader looks at */
    GUEST_LIST_MAX = 10000,                /* processes of one `list` */
    GUEST_STALE_UPLOAD_S = 600,
};
#define GUEST_RETAIN_DEFAULT ((uint64_t)256 * 1024 * 1024)
#define GUEST_RETAIN_MAX     ((uint64_t)16 * 1024 * 1024 * 1024)

struct guest_fail {
    enum sg_wire_fail code;
    char errno_name[16]; /* "" for none */
    char text[128];
};

/* Fills *f and returns false.  err: an errno, 0 for none. */
bool guest_failed(struct guest_fail *f, enum sg_wire_fail code, int err, const char *text);

uint64_t guest_now_ms(void);  /* monotonic */
uint64_t guest_life_ms(void); /* GUEST_FOLLOW_MS, but for tests */

/* Reads at most cap bytes of a regular file below dir without following a link or waiting for a FIFO.
 * Returns its length, -1 with errno. */
long guest_read_file(int dir, const char *name, char *buf, size_t cap);
/* Opens a regular file for reading, likewise. */
int guest_open_file(int dir, const char *name);
/* The first GUEST_HASH_CHARS hexadecimal digits of the SHA-256 of what fd holds; false with errno. */
bool guest_hash_fd(int fd, char hex[GUEST_HASH_CHARS + 1]);

#endif
