/* Boxes: what the emulator runs a session in.  A box is a set of namespaces over an overlay file system, with
 * an agent as PID 1 that starts processes, opens files and unpacks archives inside, on request.
 *
 *   emulator ── spawner (forked first, single-threaded, empty environment, holds no secret, never execs)
 *                 └── PID 1 agent per box ── one SOCK_SEQPACKET control socket to the emulator
 *
 * A box's network namespace has loopback only: no link leads anywhere.
 *
 * Thread rules: every function may be called from any thread and may block for the time the agent needs (a
 * few milliseconds; box_untar as long as its input).  No function holds a lock while it waits for a single
 * slow request. What an agent answers is foreign input: bounded and checked. Paths inside a box are resolved
 * by a short-lived child that has become the sandbox user inside the box's root, so no link leads out.
 */
#ifndef SG_EMULATOR_BOX_H
#define SG_EMULATOR_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum box_tier {
    BOX_TIER_FULL,      /* root: shifted id map, overlay mounted outside with redirect_dir */
    BOX_TIER_ROOTLESS,  /* user namespace with newuidmap/newgidmap, overlay with userxattr */
    BOX_TIER_SINGLE_ID, /* user namespace, one id: sudo means the same id */
    BOX_TIER_PLAIN      /* no isolation: child processes in a directory; only when asked for */
};

enum { BOX_TEXT = 256, BOX_USER_UID = 1000, BOX_USER_GID = 1000 };

struct box_host;
struct box;

/* Called when a process started by box_exec ended.  On a thread of the box module; must not call box_stop.  It
 * may come before box_exec has returned to its caller (never before its success is certain); the thread is
 * not the one that answers requests, so a caller may hold a lock around box_exec and take it here. */
typedef void box_exit_fn(void *arg, pid_t pid, int wait_status, const struct rusage *usage);

/* Forks the spawner.  Call first thing in main, before any thread or secret exists.  The tier is probed by
 * creating and dropping one namespace set; `plain` asks for BOX_TIER_PLAIN and is the only way to get it.  On
 * failure -1 and one sentence in err that says what to change (no permission for namespaces, missing
 * newuidmap, masked /proc …). */
int box_host_start(bool plain, struct box_host **out, char err[BOX_TEXT]);
enum box_tier box_host_tier(const struct box_host *host);
const char *box_tier_name(enum box_tier tier);
/* One sentence: what differs from the full tier. */
const char *box_tier_note(enum box_tier tier);
/* One sentence about what to change for a better tier where little is missing; "" otherwise. */
const char *box_host_advice(const struct box_host *host);
/* Stops every box and the spawner. */
void box_host_stop(struct box_host *host);

/* A directory of the host that is bound into the box. */
enum { BOX_MOUNTS_MAX = 4 };
struct box_mount {
    const char *source; /* absolute, exists */
    const char *target; /* absolute, inside the box; made when missing */
    bool read_only;
    bool give; /* hand its top to the sandbox user: a new directory */
};

struct box_spec {
    const char *const *lower; /* absolute directories, topmost first, NULL-terminated; at least the base */
    const char *upper;        /* absolute, exists, empty or kept from before */
    const char *work;         /* absolute, exists, same file system as upper */
    const char *mount;        /* absolute, exists: mount point (full tier), root directory (plain tier) */
    const char *hostname;
    unsigned vcpus;                 /* CPU affinity of this many CPUs where the host has them; 0: all */
    const struct box_mount *mounts; /* in this order; none in the plain tier (ENOTSUP) */
    size_t n_mounts;                /* at most BOX_MOUNTS_MAX */
    box_exit_fn *on_exit;
    void *on_exit_arg;
};

/* Creates and starts a box: base directories (/vercel/sandbox, /tmp, the user's home) and the user
 * vercel-sandbox (uid 1000) with passwordless sudo exist when it returns.  0, or an errno with one sentence
 * in err. */
int box_create(struct box_host *host, const struct box_spec *spec, struct box **out, char err[BOX_TEXT]);

/* Kills everything inside, waits, unmounts, frees.  The upper directory is complete and quiet afterwards. */
void box_stop(struct box *box);

/* CPU time of everything that ended or runs in the box, microseconds.  Before box_stop. */
uint64_t box_cpu_us(struct box *box);

struct box_exec {
    const char *const *argv; /* argv[0] is looked up in the PATH of env */
    const char *const *env;  /* the complete environment */
    const char *cwd;         /* absolute */
    uid_t uid;               /* 0 or BOX_USER_UID */
    int fds[3];              /* become 0, 1, 2; remain the caller's */
    bool pty;                /* instead of fds: a new terminal, which becomes the controlling one */
    unsigned short rows, cols;
    int *master; /* of that terminal; the caller's (CLOEXEC, non-blocking).  Closing it hangs up */
};
/* Starts a process in its own session.  *pid is the pid inside the box.  0, or an errno:
 * ENOENT/EACCES/ENOEXEC when the program cannot be executed (nothing runs then), ENOTDIR/ENOENT for cwd,
 * ESRCH when the box is gone. on_exit is called exactly once for every success, also when the box stops. */
int box_exec(struct box *box, const struct box_exec *exec, pid_t *pid);

/* Signals the process group that box_exec started.  0 or errno. */
int box_kill(struct box *box, pid_t pid, int signal_number);

/* Opens a regular file as the sandbox user; *fd is the caller's (CLOEXEC, blocking).  0 or errno (EISDIR for
 * a directory, EINVAL for devices and FIFOs).  Relative paths start at cwd. */
int box_open_read(struct box *box, const char *cwd, const char *path, int *fd);

/* mkdir as the sandbox user, with parents when recursive (then an existing directory is success).  0 or
 * errno. */
int box_mkdir(struct box *box, const char *cwd, const char *path, bool recursive);

/* Unpacks a gzip'd (or plain) tar from fd into cwd as the sandbox user until EOF.  Owners in the archive are
 * ignored, parents are created, entries that are absolute after stripping one leading slash, contain "..",
 * pass through a symlink, or are devices are refused.  fd is consumed and closed.  0 or errno; err says what.
 */
int box_untar(struct box *box, const char *cwd, int fd, char err[BOX_TEXT]);

/* A fresh non-blocking TCP socket that lives in the box's network namespace (for ports, later).  0 or errno.
 */
int box_socket(struct box *box, int *fd);
/* The same for IPv6; EAFNOSUPPORT where the kernel has none. */
int box_socket6(struct box *box, int *fd);

#endif
