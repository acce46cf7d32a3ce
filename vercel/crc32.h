/* The checksum of gzip, as zlib's crc32 and several times as fast where the processor can multiply without carries.
 * Pure; any thread. */
#ifndef SG_VERCEL_CRC32_H
#define SG_VERCEL_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from crc, 0 at the beginning. */
uint32_t vercel_crc32(uint32_t crc, const void *data, size_t len);

#endif
