/* Request bodies that say what to create and what to run: any bytes in, an error or a checked spec out. */
#include "base/json.h"
#include "control/create_spec.h"
#include "control/sandboxes.h"
#include "control/template_spec.h"
#include "routes/spec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What was accepted must keep its promises. */
static void check_spec(const struct spec *s, enum spec_form form)
{
    if (!sg_wire_id_valid(s->id, strlen(s->id)) || !s->argv || !s->argv[0] || !*s->argv[0])
        abort();
    size_t n = 0;
    while (s->argv[n])
        if (strlen(s->argv[n++]) > SPEC_ARG_MAX)
            abort();
    if (n > SPEC_ARGS_MAX || s->timeout_ms < 0 || s->timeout_ms > SPEC_TIMEOUT_MAX_MS)
        abort();
    if (form == SPEC_RUN && (s->wait_ms < 0 || s->wait_ms > SPEC_WAIT_MAX_MS || s->max_output < -1))
        abort();
    if (s->input_len > PROCESS_INPUT_MAX || (s->input_len && !s->input) || (s->input && form != SPEC_RUN))
        abort();
    if (!s->cols != !s->rows || s->cols > PROCESS_SIDE_MAX || s->rows > PROCESS_SIDE_MAX ||
        (s->cols && !s->input_open))
        abort();
    if (s->cols && !json_is_string(json_object_get(s->env, "TERM")))
        abort();
    if (s->lease_ms < 0 || s->lease_ms > SPEC_LEASE_MAX_MS || s->unattended_ms < 0 ||
        s->unattended_ms > SPEC_LEASE_MAX_MS || (s->lease_ms && s->lease_ms < SPEC_LEASE_MIN_MS))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct sg_error e;
    json_t *body;
    if (sg_json_parse_object((const char *)data, len, &body, &e))
        return 0;
    for (int form = 0; form < 2; form++) {
        struct spec s;
        if (!spec_parse(body, form ? SPEC_PROCESS : SPEC_RUN, &s, &e)) {
            check_spec(&s, form ? SPEC_PROCESS : SPEC_RUN);
            spec_clear(&s);
        } else if (e.outcome != SG_NOT_SENT) {
            abort();
        }
    }
    struct template_spec t;
    if (!template_spec_parse(body, &t, &e)) {
        if (strlen(t.fingerprint) != 64 || !json_is_object(t.create) ||
            json_array_size(t.files) > TEMPLATE_FILES_MAX || t.timeout_ms < TEMPLATE_TIMEOUT_MIN_MS ||
            t.timeout_ms > TEMPLATE_TIMEOUT_MAX_MS)
            abort();
        json_t *told = template_files_told(t.files);
        if (json_array_size(told) != json_array_size(t.files))
            abort();
        json_decref(told);
        template_spec_clear(&t);
    } else if (e.outcome != SG_NOT_SENT) {
        abort();
    }
    struct create_spec c;
    if (!create_spec_parse(body, NULL, &c, &e)) {
        if (control_name_for_create(c.name, &e) || !json_object_get(c.upstream, "keepLastSnapshots"))
            abort();
        json_decref(create_spec_ignored(&c));
        create_spec_clear(&c);
    } else if (e.outcome != SG_NOT_SENT) {
        abort();
    }
    int64_t ms;
    unsigned side[2];
    (void)!spec_lease(json_object_get(body, "lease"), "/lease", &ms, &e);
    (void)!spec_on_disconnect(json_object_get(body, "on_disconnect"), "/on_disconnect", &ms, &e);
    if (!spec_size(body, "", &side[0], &side[1], &e) && (side[0] < 1 || side[1] < 1))
        abort();
    int number;
    (void)!spec_signal(json_object_get(body, "signal"), "/signal", &number, &e);
    json_decref(body);
    return 0;
}
