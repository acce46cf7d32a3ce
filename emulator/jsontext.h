/* Bytes to JSON text, by hand because command output passes through here at hundreds of megabytes a second.
 * Pure; any thread, one encoder on one thread at a time.
 */
#ifndef SG_EMULATOR_JSONTEXT_H
#define SG_EMULATOR_JSONTEXT_H

#include "base/buf.h"

/* Appends s as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void jsontext_add(struct sg_buf *out, const char *s, size_t len);
/* The same for a NUL-terminated string. */
void jsontext_adds(struct sg_buf *out, const char *s);

/* Output of a process as text, one per stream: holds back an incomplete UTF-8 character until its rest comes,
 * so that no character is ever divided between two lines. */
struct jsontext_stream {
    unsigned char tail[4];
    unsigned tail_len;
};

/* Appends one line {"stream":"<name>","data":"…"}\n for n bytes of output (none when nothing is complete
 * yet). eof: nothing follows, so a held back tail becomes U+FFFD.  At most 6 * (n + 4) + 48 bytes. */
void jsontext_line(struct jsontext_stream *st, const char *name, const void *data, size_t n, bool eof,
                   struct sg_buf *out);

#endif
