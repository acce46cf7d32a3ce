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
    CREATE_NAME_TEXT = CREATE_NAME_MAX + 1,
    CREATE_TIMEOUT_MS = 3600000,       /* where the caller states none … */
    CREATE_TIMEOUT_SMALL_MS = 2700000, /* … and where the plan takes no more */
};

struct create_spec {
    json_t *
        upstream; /* the body to send, owned; without the gateway's tags and, of a template or checkpoint, without source */
    json_t *asked;    /* the caller's body with what provider_options held, owned; what follows lies inside */
    const char *name; /* inside upstream */
    bool made_name;
    bool get_if_exists;  /* if_exists: "get" */
    bool resume;         /* an existing one is started */
    bool timeout_stated; /* else a smaller one will do */
    bool shared;         /* it starts from a snapshot that others may start from */
    const char *template_name;
    bool checkpoint; /* asked for; its name NULL: the default one */
    const char *checkpoint_name;
    bool or_base; /* on_missing: "base" */
    const char *working_directory;
    int64_t web_port;                      /* 0: none */
    int64_t lease_ms;                      /* 0: none */
    int64_t keep_alive, keep_alive_max_ms; /* enum keepalive_mode, and its ceiling */
    const json_t *init, *on_start;         /* arrays; NULL: none */
};

/* Fills *out, freed by create_spec_clear.  A missing name is made up: from `nonce`, so that it is the same whenever this request is
 * made again, or at random where that is NULL.  Errors carry the pointer of the field.
 */
SG_MUST_CHECK enum sg_code create_spec_parse(const json_t *body, const char *nonce, struct create_spec *out,
                                             struct sg_error *e);
void create_spec_clear(struct create_spec *s);
/* Names of the fields that have no effect on a sandbox that exists already: a new array, NULL: no memory. */
json_t *create_spec_ignored(const struct create_spec *s);
/* Whether only the gateway knows something of what is asked: then the store has to keep it. */
bool create_spec_needs_store(const struct create_spec *s);

/* image, runtime, source, template, checkpoint (create_origin.c): at most one of them, and the architecture. */
SG_MUST_CHECK enum sg_code create_origin_parse(const json_t *body, struct create_spec *out,
                                               struct sg_error *e);
/* The same for the members image, runtime and source{git,tarball,snapshot} alone, of any object: puts their upstream form into
 * `out`; *snapshot: whether it starts from a snapshot.  `base` is the object's pointer. */
SG_MUST_CHECK enum sg_code create_source_parse(const json_t *obj, const char *base, json_t *out,
                                               bool *snapshot, struct sg_error *e);

#endif
