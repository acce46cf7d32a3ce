/* What a caller asks to run, checked whole before anything is sent.  Pure; any thread. */
#ifndef SG_ROUTES_SPEC_H
#define SG_ROUTES_SPEC_H

#include "base/core/wire.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    SPEC_ARGS_MAX = 4000,  /* with the helper's own they stay below its 4096 */
    SPEC_ARG_MAX = 131071, /* what Linux takes for one argument, without its NUL */
    SPEC_PATH_MAX = 4096,
    SPEC_WAIT_MAX_MS = 25000,
    SPEC_OUTPUT_DEFAULT = 1024 * 1024,
    SPEC_OUTPUT_MAX = 64 * 1024 * 1024,
    SPEC_RETAIN_MIN = 64 * 1024,
    SPEC_RETAIN_MAX = 1024 * 1024 * 1024,
};
#define SPEC_TIMEOUT_MAX_MS INT64_C(86400000)

enum spec_form { SPEC_RUN, SPEC_PROCESS };

struct spec {
    char id[SG_WIRE_ID_MAX + 1]; /* the caller's, or made up */
    const char **argv;           /* NULL-terminated array, owned; the strings are the body's */
    const char *cwd;             /* NULL: the session's */
    json_t *env;                 /* borrowed or NULL */
    bool env_replace, sudo;
    int64_t timeout_ms;   /* 0: none */
    int64_t retain_bytes; /* 0: the default */
    int64_t wait_ms;      /* run */
    int64_t max_output;   /* run: bytes of each stream */
};

/* `body` must stay as long as *out, which is freed by spec_clear. */
SG_MUST_CHECK enum sg_code spec_parse(const json_t *body, enum spec_form form, struct spec *out,
                                      struct sg_error *e);
void spec_clear(struct spec *s);

/* "TERM", "SIGTERM" or 15 as JSON → 1..64; INVALID_FIELD at `pointer`. */
SG_MUST_CHECK enum sg_code spec_signal(const json_t *value, const char *pointer, int *out,
                                       struct sg_error *e);
/* "SIGTERM"; "SIGRTMIN+n" for the real-time ones; buf is used where no constant exists. */
enum { SPEC_SIGNAL_TEXT = 24 };
const char *spec_signal_name(uint32_t number, char buf[SPEC_SIGNAL_TEXT]);

/* A path from a query: non-empty, at most SPEC_PATH_MAX bytes, no NUL (`len` counts them); else INVALID_PATH.
 */
SG_MUST_CHECK enum sg_code spec_path(const char *path, size_t len, struct sg_error *e);
/* "644", "0755": octal up to 07777. */
SG_MUST_CHECK enum sg_code spec_mode(const char *text, int *out, struct sg_error *e);

#endif
