/* What a caller asks to run, checked whole before anything is sent.  Pure; any thread. */
#ifndef SG_ROUTES_SPEC_H
#define SG_ROUTES_SPEC_H

#include "control/program.h"
#include "relay/relay.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    SPEC_ARGS_MAX = PROGRAM_ARGS_MAX,
    SPEC_ARG_MAX = PROGRAM_ARG_MAX,
    SPEC_PATH_MAX = PROGRAM_PATH_MAX,
    SPEC_WAIT_MAX_MS = 25000,
    SPEC_OUTPUT_DEFAULT = 1024 * 1024,
    SPEC_OUTPUT_MAX = 64 * 1024 * 1024,
    SPEC_RETAIN_MIN = 64 * 1024,
    SPEC_RETAIN_MAX = 1024 * 1024 * 1024,
    SPEC_LEASE_MIN_MS = 1000,
    SPEC_LEFT_MIN_MS = 2000, /* a stream of ours that takes another's place does not count as having left */
    SPEC_GRACE_DEFAULT_MS = 5000,
    SPEC_GRACE_MAX_MS = 600000,
};
#define SPEC_TIMEOUT_MAX_MS PROGRAM_TIMEOUT_MAX_MS
#define SPEC_OFFSET_MAX     (INT64_MAX / 4)   /* the relay's */
#define SPEC_LEASE_MAX_MS   INT64_C(86400000) /* and of kill_after_ms */

enum spec_form { SPEC_RUN, SPEC_PROCESS };

struct spec {
    char id[SG_WIRE_ID_MAX + 1]; /* the caller's, or made up */
    const char **argv;           /* NULL-terminated array, owned; the strings are the body's */
    const char *cwd;             /* NULL: the session's */
    json_t *env;                 /* the body's, own_env, or NULL */
    json_t *own_env;             /* owned: the body's with what a terminal needs */
    bool env_replace, sudo;
    const char
        *user;   /* the default user's name, which the sandbox has to agree to; NULL: not said, or root */
    bool resume; /* wakes a stopped sandbox first */
    int64_t timeout_ms;   /* 0: none */
    int64_t retain_bytes; /* 0: not said */
    int64_t wait_ms;      /* run */
    int64_t max_output;   /* run: bytes of each stream; -1: not said */
    const void *input;    /* run: its whole input, the body's or `decoded`; NULL: none */
    size_t input_len;
    void *decoded;         /* owned */
    bool input_open;       /* process */
    unsigned cols, rows;   /* process; 0: no terminal */
    bool lossless;         /* process */
    int64_t lease_ms;      /* process; 0: none */
    int64_t unattended_ms; /* process; 0: kept when nobody is attached */
};

/* `body` must stay as long as *out, which is freed by spec_clear. */
SG_MUST_CHECK enum sg_code spec_parse(const json_t *body, enum spec_form form, struct spec *out,
                                      struct sg_error *e);
void spec_clear(struct spec *s);
/* What the operator configured (0: nothing), where the caller did not say.  A run keeps what it may have to answer
 * with. */
void spec_set_defaults(struct spec *s, enum spec_form form, int64_t retain_bytes, int64_t run_max_output);
/* As the relay wants it; borrows from s. */
struct process_spec spec_for_relay(const struct spec *s, struct relay_session session);

/* {"ttl_ms":…} of a lease → milliseconds. */
SG_MUST_CHECK enum sg_code spec_lease(const json_t *value, const char *pointer, int64_t *ttl_ms,
                                      struct sg_error *e);
/* "keep" → 0, {"kill_after_ms":…} → at least SPEC_LEFT_MIN_MS. */
SG_MUST_CHECK enum sg_code spec_on_disconnect(const json_t *value, const char *pointer, int64_t *ms,
                                              struct sg_error *e);
/* {cols, rows}, both 1..PROCESS_SIDE_MAX; `base` is the pointer of obj. */
SG_MUST_CHECK enum sg_code spec_size(const json_t *obj, const char *base, unsigned *cols, unsigned *rows,
                                     struct sg_error *e);

/* "TERM", "SIGTERM" or 15 as JSON → 1..64; INVALID_FIELD at `pointer`. */
SG_MUST_CHECK enum sg_code spec_signal(const json_t *value, const char *pointer, int *out,
                                       struct sg_error *e);
/* A path from a query: non-empty, at most SPEC_PATH_MAX bytes, no NUL (`len` counts them); else INVALID_PATH.
 */
SG_MUST_CHECK enum sg_code spec_path(const char *path, size_t len, struct sg_error *e);
/* "644", "0755": octal up to 07777. */
SG_MUST_CHECK enum sg_code spec_mode(const char *text, int *out, struct sg_error *e);

#endif
