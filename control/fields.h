/* Fields of a sandbox that a caller states: each function reads what it is named after from `body`, checks it, and puts its
 * upstream form into `out`; what is absent puts nothing.  Errors carry the pointer of the field; nothing was sent.  Shared by create,
 * fork and PATCH.  Pure; any thread.
 *
 * Source of the limits: Vercel's Sandbox REST API.
 */
#ifndef SG_CONTROL_FIELDS_H
#define SG_CONTROL_FIELDS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    FIELD_PORTS_MAX = 15,
    FIELD_PORT_MIN = 1024,
    FIELD_PORT_RESERVED = 23456,
    FIELD_VCPUS_MAX = 32,
    FIELD_TIMEOUT_MIN_MS = 1000,
    FIELD_TIMEOUT_MAX_MS = 86400000,
    FIELD_KEEP_MAX = 10,
    FIELD_MOUNTS_MAX = 4,
    FIELD_DRIVE_NAME_MAX = 64,
    FIELD_PATH_MAX = 4096,
    FIELD_NETWORK_ID_MAX = 255,
};
#define FIELD_EXPIRE_MIN_MS INT64_C(86400000)     /* one day */
#define FIELD_EXPIRE_MAX_MS INT64_C(315360000000) /* ten years */

/* ---- how large, how long (fields_size.c) ---- */
SG_MUST_CHECK enum sg_code field_vcpus(const json_t *body, json_t *out, struct sg_error *e);
SG_MUST_CHECK enum sg_code field_timeout(const json_t *body, json_t *out, struct sg_error *e);
SG_MUST_CHECK enum sg_code field_persistent(const json_t *body, json_t *out, struct sg_error *e);
/* snapshots{keep,expire_ms,delete_evicted}; only what is stated. */
struct field_retention {
    int64_t keep, expire_ms; /* in: what counts where it is not stated */
    bool delete_evicted;
};
SG_MUST_CHECK enum sg_code field_retention(const json_t *body, struct field_retention *r, struct sg_error *e);
SG_MUST_CHECK enum sg_code field_retention_put(const struct field_retention *r, json_t *out,
                                               struct sg_error *e);

/* ---- where (fields_place.c) ---- */
SG_MUST_CHECK enum sg_code field_region(const json_t *body, json_t *out, struct sg_error *e);
/* `region`: the one that counts, NULL where that is not known: it must not be among them. */
SG_MUST_CHECK enum sg_code field_failover_regions(const json_t *body, const char *region, json_t *out,
                                                  struct sg_error *e);
SG_MUST_CHECK enum sg_code field_network_id(const json_t *body, json_t *out, struct sg_error *e);
/* The words "allow-all" and "deny-all". */
SG_MUST_CHECK enum sg_code field_network_policy(const json_t *body, json_t *out, struct sg_error *e);

/* ---- what is inside (fields_inside.c) ---- */
SG_MUST_CHECK enum sg_code field_ports(const json_t *body, json_t *out, struct sg_error *e);
SG_MUST_CHECK enum sg_code field_env(const json_t *body, json_t *out, struct sg_error *e);
/* {"/path": "drive" | {drive, mode?: "read-write"|"snapshot"}} */
SG_MUST_CHECK enum sg_code field_mounts(const json_t *body, json_t *out, struct sg_error *e);
/* The caller's tags as they are; the gateway's are to be added (control/tags.h). */
SG_MUST_CHECK enum sg_code field_tags(const json_t *body, json_t *out, struct sg_error *e);
/* Kept by the gateway: absolute, clean (no "." or "..", no slash at its end); *out is inside body, or as it was. */
SG_MUST_CHECK enum sg_code field_working_directory(const json_t *body, const char **out, struct sg_error *e);

/* ---- helpers ---- */
/* Stores a new reference; value NULL is no memory. */
SG_MUST_CHECK enum sg_code field_put(json_t *out, const char *key, json_t *value, struct sg_error *e);
/* 1 to max of [A-Za-z0-9_-]. */
bool field_is_name(const char *s, size_t max);
bool field_has_nul(const json_t *string);
bool field_listed(const char *const list[], const char *s);

#endif
