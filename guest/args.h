/* The helper's command line.  Pure. */
#ifndef SG_GUEST_ARGS_H
#define SG_GUEST_ARGS_H

#include "guest/guest.h"

enum guest_command {
    CMD_RUN,
    CMD_START,
    CMD_FOLLOW,
    CMD_STATUS,
    CMD_LIST,
    CMD_SIGNAL,
    CMD_SETTLE,
    CMD_REMOVE,
    CMD_COMMIT,
    CMD_UNLINK_UPLOAD,
    CMD_VERSION,
};

struct guest_args {
    enum guest_command command;
    const char *install; /* hash, or NULL */
    const char *session, *id, *spec, *cwd, *from, *to;
    uint64_t timeout_ms, retain, max_output, offset[2], limit, wait_ms, size, signal;
    int mode; /* -1: not given */
    unsigned only;
    bool has_limit, has_wait, has_size, clear_env, only_program, parents, exclusive;
    const char **keep_env; /* names of --replace-env, argc of them at most; freed by args_free */
    size_t keep_env_count;
    char *const *argv; /* after "--" */
};

/* Strict: unknown, repeated, missing or foreign options are refused with *f.  a points into argv. */
bool args_parse(int argc, char *const *argv, struct guest_args *a, struct guest_fail *f);
void args_free(struct guest_args *a);

#endif
