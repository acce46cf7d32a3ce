/* What a caller asks for when creating a sandbox: checked whole before anything is sent.  Pure; any thread.
 * Source of the limits: Vercel's Sandbox REST API, create.
 */
#ifndef SG_CONTROL_CREATE_SPEC_H
#define SG_CONTROL_CREATE_SPEC_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    CREATE_NAME_MAX = 63,
    CREATE_PORTS_MAX = 15,
    CREATE_PORT_MIN = 1024,
    CREATE_PORT_RESERVED = 23456,
    CREATE_VCPUS_MAX = 32,
    CREATE_TIMEOUT_MIN_MS = 1000,
    CREATE_TIMEOUT_MAX_MS = 86400000,
    CREATE_TIMEOUT_MS = 3600000,
    CREATE_KEEP_MAX = 10,
};

struct create_spec {
    json_t *upstream;    /* the body to send, owned */
    const char *name;    /* inside upstream */
    bool get_if_exists;  /* if_exists: "get" */
    const json_t *asked; /* the caller's body, borrowed */
};

/* Fills *out, freed by create_spec_clear; a missing name is made up.  Errors carry the pointer of the field.
 */
SG_MUST_CHECK enum sg_code create_spec_parse(const json_t *body, struct create_spec *out, struct sg_error *e);
void create_spec_clear(struct create_spec *s);
/* Names of the fields that have no effect on a sandbox that exists already: a new array, NULL: no memory. */
json_t *create_spec_ignored(const struct create_spec *s);

#endif
