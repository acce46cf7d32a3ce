/* The gateway's JSON for a process.  Pure. */
#ifndef SG_ROUTES_PROCESS_JSON_H
#define SG_ROUTES_PROCESS_JSON_H

#include "relay/relay.h"

/* A process record; NULL when out of memory. */
json_t *process_json(const struct sg_wire_process *p, const char *session_id);
/* The answer of a run: the record and what was printed, as text when both streams are UTF-8, else base64. */
json_t *run_json(const struct run_result *r, const char *session_id);
/* The same without stdout and stderr. */
json_t *run_head_json(const struct run_result *r, const char *session_id, const char *encoding);

#endif
