/* A program that a caller asks to run, as it stands in a JSON body: {argv | shell, cwd?, env?, env_mode?, user?, sudo?,
 * timeout_ms?} among other members.  Pure; any thread.
 */
#ifndef SG_CONTROL_PROGRAM_H
#define SG_CONTROL_PROGRAM_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    PROGRAM_ARGS_MAX = 4000,  /* with the helper's own they stay below its 4096 */
    PROGRAM_ARG_MAX = 131071, /* what Linux takes for one argument, without its NUL */
    PROGRAM_PATH_MAX = 4096,
    PROGRAM_USER_MAX = 64,
};
#define PROGRAM_TIMEOUT_MAX_MS INT64_C(86400000)

struct program {
    const char **argv; /* NULL-terminated array, owned; the strings are the body's */
    const char *cwd;   /* NULL: the session's */
    json_t *env;       /* the body's, or NULL */
    bool env_replace, sudo;
    const char
        *user; /* the default user's name, which the sandbox has to agree to; NULL: not said, or root */
    int64_t timeout_ms; /* 0: none */
};

/* `base` is the pointer of obj ("" for the body).  Members that are not of a program are not looked at.  obj must stay as
 * long as *out, which is freed by program_clear, also after a failure. */
SG_MUST_CHECK enum sg_code program_parse(const json_t *obj, const char *base, struct program *out,
                                         struct sg_error *e);
void program_clear(struct program *p);

#endif
