/* What the tests of boxes share: a host, a state directory, a base, and running a command to its end.  They
 * need root and the base tar that emulator/base/make-base builds; without them they fail and say so. */
#ifndef SG_TESTS_BOX_FIXTURE_H
#define SG_TESTS_BOX_FIXTURE_H

#include "emulator/box.h"
#include "emulator/layers.h"

#include <pthread.h>

struct fixture {
    struct box_host *host;
    struct layers *layers;
    char state[256];
};

/* The end of a program, as on_exit told it. */
struct ended {
    pid_t pid;
    int status;
    uint64_t cpu_us;
};

struct session {
    struct fixture *f;
    char id[64];
    struct box *box;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ended ended[256];
    size_t n_ended;
};

struct result {
    int error; /* of box_exec */
    int status;
    char out[8192]; /* stdout and stderr */
};

/* Before anything else: makes this process what the variant needs, and names the tier that must be reached.
 *   full (or NULL)  root
 *   rootless        a plain user with subordinate ids, provisioned in a private mount namespace
 *   single-id       the same user without them
 *   no-sysadmin     root without CAP_SYS_ADMIN, as in a container
 * False with a message on stderr. */
bool fixture_become(const char *variant);

/* False with a message on stderr, also when another tier than the expected one was reached. */
bool fixture_open(struct fixture *f, bool plain);
void fixture_close(struct fixture *f);

/* A box over the given snapshots (NULL-terminated, newest first; may be NULL) and the base.  0 or errno. */
int session_start(struct fixture *f, struct session *s, const char *id, const char *const *snapshots);
/* The same with directories bound into it. */
int session_start_mounted(struct fixture *f, struct session *s, const char *id, const char *const *snapshots,
                          const struct box_mount *mounts, size_t n_mounts);
void session_stop(struct session *s);

/* Runs argv to its end with an input (may be NULL). */
void session_run(struct session *s, uid_t uid, const char *const *argv, const char *input, struct result *r);
/* The same for a shell line as the sandbox user in /vercel/sandbox. */
void session_sh(struct session *s, const char *line, struct result *r);
/* Starts it on /dev/null.  0 or errno. */
int session_spawn(struct session *s, uid_t uid, const char *const *argv, const char *cwd, pid_t *pid);
/* Waits up to 20 s for the end; false when it did not come. */
bool session_wait(struct session *s, pid_t pid, struct ended *out);

size_t count_fds(const char *pid);    /* entries of /proc/<pid>/fd */
size_t count_mounts(const char *pid); /* lines of /proc/<pid>/mountinfo */
/* Calls check until it is true, up to 20 s. */
bool eventually(bool (*check)(void *arg), void *arg);

#endif
