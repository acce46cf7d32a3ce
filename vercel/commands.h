/* Commands and files of a session: asynchronous, on the loop.
 * Source: Vercel's Sandbox REST API v2, …/sessions/{id}/cmd and …/sessions/{id}/fs.
 */
#ifndef SG_VERCEL_COMMANDS_H
#define SG_VERCEL_COMMANDS_H

#include "vercel/client.h"

struct vercel_command {
    const char *session_id;
    const char *command;
    const char *const *args; /* NULL-terminated, may be NULL */
    const char *cwd;         /* NULL: the session's */
    json_t *env;             /* object of strings, borrowed; NULL: {} */
    bool sudo;
    bool attach_stdin;  /* its input stays open for vercel_stdin_write */
    int64_t timeout_ms; /* upstream's own limit; 0: none */
};

struct vercel_command_events {
    /* The command was started; id is its upstream id. */
    void (*on_started)(void *arg, const char *command_id);
    /* Text of stdout (1) or stderr (2), cut anywhere; valid UTF-8 by the protocol, may be not.  False pauses
     * the stream until vercel_command_resume, and the same bytes come again. */
    bool (*on_text)(void *arg, int stream, const char *data, size_t len);
    /* The end, exactly once unless cancelled.  e NULL: the command finished; exit_code is upstream's, -1 when
     * it gave none.  Otherwise what went wrong: the stream was cut (UPSTREAM_UNREACHABLE, outcome started or
     * unknown), or the command was refused (EXECUTABLE_NOT_FOUND, STALE_SESSION, SANDBOX_TRANSITION … outcome
     * not_started). */
    void (*on_end)(void *arg, int exit_code, const struct sg_error *e);
};

struct vercel_command_call;
/* POST cmd with wait and logs; never sent twice.  No callback before it returns; NULL with *e otherwise. */
struct vercel_command_call *vercel_command_start(struct vercel_client *c, const struct vercel_command *cmd,
                                                 const struct vercel_command_events *ev, void *arg,
                                                 struct sg_error *e);
void vercel_command_resume(struct vercel_command_call *call);
/* Stops listening; the command goes on upstream. */
void vercel_command_cancel(struct vercel_command_call *call);

/* GET cmd/{id}/logs: what a command has said from its beginning, and what it says until its end.  The events as
 * above, without on_started.  on_end with e NULL: the stream ended, and exit_code is -1; that is the command's end
 * unless something on the way has closed the stream. */
struct vercel_command_call *vercel_logs_start(struct vercel_client *c, const char *session_id,
                                              const char *command_id, const struct vercel_command_events *ev,
                                              void *arg, struct sg_error *e);

/* GET cmd/{id}?wait=true: answered when the command has finished, for which it takes up to ten minutes; `finished` is
 * false where the upstream answered earlier.  exit_code is upstream's, -1 when it gave none. */
typedef void vercel_command_fn(void *arg, bool finished, int exit_code, const struct sg_error *e);
struct vercel_call *vercel_command_wait(struct vercel_client *c, const char *session_id,
                                        const char *command_id, vercel_command_fn *done, void *arg,
                                        struct sg_error *e);

/* POST cmd/{id}/kill.  done once; a command that is unknown or has ended is an error as any. */
typedef void vercel_done_fn(void *arg, const struct sg_error *e);
struct vercel_call *vercel_command_kill(struct vercel_client *c, const char *session_id,
                                        const char *command_id, int signal_number, vercel_done_fn *done,
                                        void *arg, struct sg_error *e);

/* fs/read as a stream: events as in client.h.  FILE_NOT_FOUND for 404, IS_DIRECTORY and other 400 as
 * FILE_ERROR; on_head comes only for an octet-stream answer. */
struct vercel_call *vercel_file_read(struct vercel_client *c, const char *session_id, const char *path,
                                     const char *cwd, const struct vercel_events *ev, void *arg,
                                     struct sg_error *e);

/* fs/write of one regular file: the archive around it (ustar, pax for long names, gzip) is made here, while
 * the bytes stream.  `path` is absolute; `size` is exact: a source that ends early or late fails the call. */
struct vercel_file_write {
    const char *session_id;
    const char *path;
    unsigned mode;
    uint64_t size;
    const void *data;     /* whole body, borrowed until the end; or */
    vercel_read_fn *read; /* its source */
};
/* done once; outcome in e.  `arg` is given to read and done. */
struct vercel_call *vercel_file_write_start(struct vercel_client *c, const struct vercel_file_write *w,
                                            vercel_done_fn *done, void *arg, struct sg_error *e);
/* For both: vercel_call_resume and vercel_call_cancel. */

/* fs/mkdir. */
struct vercel_call *vercel_mkdir_start(struct vercel_client *c, const char *session_id, const char *path,
                                       const char *cwd, bool recursive, vercel_done_fn *done, void *arg,
                                       struct sg_error *e);

#endif
