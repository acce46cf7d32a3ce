/* Commands: one program each, started in a session's box, its output captured into a log.
 *
 * A session has one pump thread that reads the pipes of all its commands, so that sandboxes never wait for
 * each other.  A command is finished when its program ended and what was in the pipes at that moment is read;
 * descendants that still hold the pipes keep running and their later output is dropped.
 */
#ifndef SG_EMULATOR_COMMAND_H
#define SG_EMULATOR_COMMAND_H

#include "emulator/cmdlog.h"
#include "emulator/emulator.h"
#include "emulator/jsontext.h"
#include "emulator/state.h"

#include <sys/resource.h>

enum { COMMANDS_MAX = 1024 }; /* finished ones that a session remembers */

struct command_source {
    struct command *command;
    const char *name;
    int fd;
    bool eof;
    struct jsontext_stream text;
};

struct command {
    atomic_int refs;
    char id[ID_TEXT];
    char *head; /* {"id":…,"sessionId":…  without the changing members */
    int64_t started_ms, started_mono;
    int64_t deadline_mono; /* 0: none; then SIGKILL */
    pid_t pid;             /* sandbox->lock */
    atomic_bool exited;    /* wait_status is valid */
    int wait_status;
    /* log.lock */
    bool finished;
    bool cut; /* the session was stopped before it finished */
    int exit_code;
    int64_t duration_ms;
    struct cmdlog log;
    struct command_source source[2];
    pthread_mutex_t stdin_lock; /* one writer at a time, held while the pipe is full */
    int stdin_fd;               /* -1: not attached, or closed */
    bool stdin_attached;
    uint64_t stdin_total;
    struct command *next;      /* session->commands, sandbox->lock */
    struct command *pump_next; /* the pump's list */
    bool pump_finished;        /* the pump's thread */
};

/* What is executed for a request. */
struct command_plan {
    const char **argv, **env;
    char *cwd;
};

struct command_request {
    const char *program;
    const json_t *args; /* array of strings or NULL */
    const char *cwd;    /* NULL: the default */
    const json_t *env;  /* object of strings or NULL */
    const char *id;     /* NULL: random */
    int64_t timeout_ms; /* 0: none */
    bool sudo, attach_stdin;
};

/* Starts the program; *out is a counted reference.  0 or -1 with the error. */
int command_start(struct emulator *emu, struct session *s, const struct command_request *rq,
                  struct command **out, struct api_error *e);
/* For those that start programs themselves: the plan of a request, and the words for a failing box_exec.  0 or
 * -1 with the error. */
int command_plan(struct emulator *emu, struct session *s, const struct command_request *rq,
                 struct command_plan *out, struct api_error *e);
void command_plan_free(struct command_plan *plan);
int command_exec_error(struct box *box, int err, const char *program, const char *cwd, struct api_error *e);
/* With sandbox->lock: the end of a program that was told before its pid was known here. */
bool command_take_early(struct session *s, pid_t pid, int *wait_status);
struct command *command_find(struct session *s, const char *id);
struct command *command_ref(struct command *c);
void command_unref(struct command *c);
/* Forgets all of an ended session. */
void command_drop_all(struct session *s);
/* The documented Command object. */
void command_render(struct sg_buf *out, struct command *c);
bool command_finished(struct command *c);
/* The session is being stopped: what has not finished yet is cut. */
void command_mark_cut(struct command *c);
bool command_was_cut(struct command *c);
/* Signals the command's process group. */
int command_kill(struct session *s, struct command *c, int signal_number, struct api_error *e);
/* Stdin as section "stdin" of the API says: offset -1 appends.  Blocks up to 30 s. */
int command_stdin(struct command *c, const void *data, size_t len, int64_t offset, bool close_after,
                  uint64_t *written, struct api_error *e);

/* The pump. */
struct pump *pump_start(struct session *s);
/* Takes what is left, finishes every command, joins the thread, frees.  After box_stop. */
void pump_finish(struct pump *p);
/* box_exit_fn of every box; arg is the session. */
void command_on_exit(void *arg, pid_t pid, int wait_status, const struct rusage *usage);

#endif
