/* What a template declares, checked whole before anything is kept or sent, and the fingerprint of what counts of it.  Pure;
 * any thread.
 */
#ifndef SG_CONTROL_TEMPLATE_SPEC_H
#define SG_CONTROL_TEMPLATE_SPEC_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TEMPLATE_FILES_MAX = 64,
    TEMPLATE_INPUTS_MAX = 64,
    TEMPLATE_TIMEOUT_MIN_MS = 60 * 1000,
    TEMPLATE_TIMEOUT_MS = 30 * 60 * 1000, /* where none is stated: what every plan allows */
    TEMPLATE_TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000,
};

struct template_spec {
    json_t *asked;               /* as it was declared, owned; what follows lies inside */
    json_t *from;                /* {image | runtime | source}; NULL: the upstream's default */
    const json_t *steps, *files; /* arrays or NULL */
    json_t *create; /* members of the body that creates its builder, owned; without name, tags and timeout */
    int64_t timeout_ms; /* for the whole preparation */
    bool builds;        /* there is something to prepare: steps, files, or a source */
    char fingerprint[65];
};

/* Fills *out, freed by template_spec_clear.  body: {from{image | runtime | source}, steps[], files[{path, content |
 * content_base64, mode, sudo}], vcpus, env, region, architecture, timeout_ms, inputs{}}; a reference is taken.  Credentials
 * of a source are refused: what is kept can be read. */
SG_MUST_CHECK enum sg_code template_spec_parse(json_t *body, struct template_spec *out, struct sg_error *e);
void template_spec_clear(struct template_spec *s);

/* The bytes of a file; *data is freed by the caller. */
SG_MUST_CHECK enum sg_code template_file(const json_t *file, const char *base, char **data, size_t *len,
                                         struct sg_error *e);
/* What a caller is told of it: content is not repeated, its size and hash are.  NULL: no memory. */
json_t *template_files_told(const json_t *files);

#endif
