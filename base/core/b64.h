/* Standard padded base64 (RFC 4648 section 4).  Pure, libc only, any thread. */
#ifndef SG_CORE_B64_H
#define SG_CORE_B64_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SG_B64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes SG_B64_LEN(n) characters, no NUL; returns that count. */
size_t sg_b64_encode(char *out, const void *data, size_t n);
/* Decodes exactly n characters (a multiple of 4, padding only at the end, unused bits zero) into out, which
 * holds n / 4 * 3 bytes; may be in place.  Returns the bytes written, -1 when malformed. */
ssize_t sg_b64_decode(void *out, const char *in, size_t n);

#endif
