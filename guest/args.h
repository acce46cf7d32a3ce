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
    CMD_VERSION,
    CMD_INPUT,
    CMD_WRITE,
    CMD_CLOSE,
    CMD_RESIZE,
    CMD_CANCEL,
    CMD_ACK,
    CMD_LEASE,
    CMD_UNATTENDED,
    CMD_WATCH,
    CMD_FS,
};

struct guest_args {
    enum guest_command command;
    const char *install; /* hash, or NULL */
    const char *session, *id, *spec, *cwd, *user;
    uint64_t timeout_ms, retain, max_output, offset[2], limit, wait_ms, signal, only, tail;
    bool has_limit, has_wait, has_tail, clear_env, only_program, attend;
    bool own;                  /* of run: the program is the helper itself, its record goes with it */
    uint64_t cols, rows;       /* of --pty and of resize; 0: no terminal */
    bool input_open, lossless; /* of a start */
    const char *data; /* base64 of GUEST_WRITE_MAX bytes at most, or NULL: of --input-data, or of write */
    const char *input_file; /* name of an upload, or NULL */
    uint64_t lease_ms;      /* of a start, and of lease; 0: none */
    uint64_t unattended_ms; /* likewise */
    uint64_t at, grace_ms;  /* write and close: the offset; cancel */
    const char **keep_env;  /* names of --replace-env, argc of them at most; freed by args_free */
    size_t keep_env_count;
    char *const *argv; /* after "--": the program, or what to watch; of fs what follows it */
};

/* Strict: unknown, repeated, missing or foreign options are refused with *f.  a points into argv. */
bool args_parse(int argc, char *const *argv, struct guest_args *a, struct guest_fail *f);
void args_free(struct guest_args *a);

#endif
