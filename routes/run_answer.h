/* The answer of a run with much output, encoded piece by piece as the client reads: no answer holds the loop, and
 * none is kept twice in memory.  Loop thread.
 */
#ifndef SG_ROUTES_RUN_ANSWER_H
#define SG_ROUTES_RUN_ANSWER_H

#include "relay/relay.h"
#include "routes/exchange.h"

/* From this many bytes of output on; below, run_json is the simpler way. */
enum { RUN_ANSWER_LARGE = 256 * 1024 };

bool run_answer_large(const struct run_result *r);
/* Takes the output over from r->own and answers the exchange, which must not be watched any more. */
void run_answer(struct exchange *ex, int status, const struct run_result *r, const char *session_id);

#endif
