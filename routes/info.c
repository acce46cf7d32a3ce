#include "routes/handlers.h"

#include "control/create_spec.h"
#include "control/fields.h"
#include "control/keepalive.h"
#include "control/leases.h"
#include "control/prune.h"
#include "control/steps.h"
#include "control/tags.h"
#include "control/template_spec.h"
#include "routes/gateway.h"
#include "routes/idempotency.h"
#include "routes/spec.h"
#include "store/processes.h"
#include "store/templates.h"

static void answer(struct exchange *ex, int status, json_t *json)
{
    if (json) {
        ex_answer_json(ex, status, json);
        return;
    }
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the answer");
    ex_fail(ex, &e);
}

void route_healthz(struct exchange *ex)
{
    answer(ex, 200, json_pack("{ss}", "status", "ok"));
}

void route_readyz(struct exchange *ex)
{
    if (!ex->gw->draining) {
        answer(ex, 200, json_pack("{ss}", "status", "ready"));
        return;
    }
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
    ex_fail(ex, &e);
}

void route_version(struct exchange *ex)
{
    answer(ex, 200, json_pack("{ssssss}", "name", "sandgate", "version", ex->gw->version, "api", "v1"));
}

void route_limits(struct exchange *ex)
{
    json_t *create =
        json_pack("{sisisisisisIsIsisi}", "name_length", CREATE_NAME_MAX, "ports", FIELD_PORTS_MAX, "tags",
                  CONTROL_TAGS_MAX, "tag_value_characters", CONTROL_TAG_VALUE_MAX, "vcpus", FIELD_VCPUS_MAX,
                  "timeout_ms_min", (json_int_t)FIELD_TIMEOUT_MIN_MS, "timeout_ms_max",
                  (json_int_t)FIELD_TIMEOUT_MAX_MS, "mounts", FIELD_MOUNTS_MAX, "init_steps", STEPS_MAX);
    json_t *process =
        json_pack("{sisisisIsIsIsisisI}", "id_length", SG_WIRE_ID_MAX, "arguments", SPEC_ARGS_MAX,
                  "argument_bytes", SPEC_ARG_MAX, "timeout_ms_max", (json_int_t)SPEC_TIMEOUT_MAX_MS,
                  "max_output_default", (json_int_t)SPEC_OUTPUT_DEFAULT, "max_output",
                  (json_int_t)SPEC_OUTPUT_MAX, "retention_bytes_max", SPEC_RETAIN_MAX, "saved_output_bytes",
                  STORE_TAIL_MAX, "saved_output_keep_ms", (json_int_t)tails_keep_ms(ex->gw->tails));
    json_t *input =
        json_pack("{sisisisisIsisI}", "run_stdin_bytes", PROCESS_INPUT_MAX, "terminal_columns",
                  PROCESS_SIDE_MAX, "terminal_rows", PROCESS_SIDE_MAX, "lease_ms_min", SPEC_LEASE_MIN_MS,
                  "lease_ms_max", (json_int_t)SPEC_LEASE_MAX_MS, "kill_after_ms_min", SPEC_LEFT_MIN_MS,
                  "cancel_grace_ms_max", (json_int_t)SPEC_GRACE_MAX_MS);
    if (json_object_update(process, input)) {
        json_decref(process);
        process = NULL;
    }
    json_decref(input);
    json_t *template = json_pack("{sisisisisIsIsi}", "steps", STEPS_MAX, "files", TEMPLATE_FILES_MAX,
                                 "inputs", TEMPLATE_INPUTS_MAX, "step_timeout_ms_max", STEP_TIMEOUT_MAX_MS,
                                 "timeout_ms_min", (json_int_t)TEMPLATE_TIMEOUT_MIN_MS, "timeout_ms_max",
                                 (json_int_t)TEMPLATE_TIMEOUT_MAX_MS, "log_bytes", TEMPLATE_LOG_MAX);
    json_t *keys = json_pack("{sisIsi}", "key_length", KEY_CHARS_MAX, "keep_ms",
                             (json_int_t)keys_keep_ms(ex->gw->keys), "answer_bytes", STORE_KEY_BODY_MAX);
    json_t *lifecycle = json_pack("{sisIsIsi}", "lease_ttl_ms_min", LEASE_TTL_MIN_MS, "lease_ttl_ms_max",
                                  (json_int_t)LEASE_TTL_MAX_MS, "keep_alive_max_ms_max",
                                  (json_int_t)KEEPALIVE_MAX_MAX_MS, "prune_items", PRUNE_LIST_MAX);
    /* json_pack takes over what it is given, also when it fails */
    answer(ex, 200,
           json_pack("{sIsisisososososo}", "json_body_bytes", (json_int_t)ex->gw->max_json_body,
                     "wait_ms_max", SPEC_WAIT_MAX_MS, "path_bytes", SPEC_PATH_MAX, "sandbox", create,
                     "process", process, "template", template, "idempotency", keys, "lifecycle", lifecycle));
}
