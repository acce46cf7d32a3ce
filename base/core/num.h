/* Strict numbers from foreign text.  Pure, libc only. */
#ifndef SG_CORE_NUM_H
#define SG_CORE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only (no sign, space, or empty text), at most `max`.  False leaves *out alone. */
bool sg_parse_u64(const char *s, size_t len, uint64_t max, uint64_t *out);

#endif
