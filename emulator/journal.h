/* What was asked, in order: the last 10,000 requests.  Thread-safe; memory only. */
#ifndef SG_EMULATOR_JOURNAL_H
#define SG_EMULATOR_JOURNAL_H

#include "base/buf.h"

#include <stdint.h>

struct journal;
struct journal *journal_new(void);
void journal_free(struct journal *j);
/* Enters a request when its head has arrived; returns its number.  query may be "". */
uint64_t journal_begin(struct journal *j, const char *method, const char *path, const char *query);
void journal_body(struct journal *j, uint64_t seq, const char sha256_hex[65], uint64_t bytes);
/* status 0: closed without an answer */
void journal_status(struct journal *j, uint64_t seq, int status);
void journal_clear(struct journal *j);
/* {"entries":[…],"dropped":n}, entries with seq > after */
void journal_render(struct journal *j, uint64_t after, struct sg_buf *out);

#endif
