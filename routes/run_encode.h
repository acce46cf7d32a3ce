/* Output as the inside of a JSON string, piece by piece: text with escapes, or base64.  Pure; any thread. */
#ifndef SG_ROUTES_RUN_ENCODE_H
#define SG_ROUTES_RUN_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the whole as a JSON string without its quotes. */
uint64_t run_text_length(const char *s, size_t len);
enum { RUN_PIECE = 12 * 1024, RUN_PIECE_MAX = 6 * RUN_PIECE };
/* Encodes at most RUN_PIECE bytes (a multiple of three, so that pieces of base64 join) and returns how many
 * characters were written; *used tells how many bytes. */
size_t run_encode(bool base64, const char *s, size_t len, char out[RUN_PIECE_MAX], size_t *used);

#endif
