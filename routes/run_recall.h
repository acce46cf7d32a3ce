/* A start under an Idempotency-Key whose session is over: what was saved of its process.  Loop thread. */
#ifndef SG_ROUTES_RUN_RECALL_H
#define SG_ROUTES_RUN_RECALL_H

#include "relay/relay.h"
#include "routes/gateway.h"
#include "store/processes.h"

/* Once, possibly before the call returns.  p, with its last bytes, is valid during the call; e: PROCESS_NOT_FOUND, or the
 * store is away. */
typedef void run_recalled_fn(void *arg, const struct stored_process *p, const struct sg_error *e);
void run_recall(struct gateway *gw, const char *sandbox, const char *session_id, const char *process_id,
                run_recalled_fn *done, void *arg);

/* As run answers it; the beginning of its output where that was kept. */
json_t *run_recalled_json(const struct stored_process *p, size_t max_output);

#endif
