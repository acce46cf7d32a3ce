/* Private to the box module: what runs inside a box.  All of it executes in processes forked from the spawner
 * (single-threaded, no secrets, never exec'd), so it may use the heap after fork, and it never touches the
 * emulator's memory. Functions return 0 or an errno.
 */
#ifndef SG_EMULATOR_AGENT_H
#define SG_EMULATOR_AGENT_H

#include "emulator/box.h"
#include "emulator/box_msg.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

struct sock_fprog;

/* What every process inside needs to know to become the sandbox user. */
struct agent_identity {
    int plain_root;                  /* plain tier: the session's root directory; -1 otherwise */
    bool single_id;                  /* one id is mapped: user and sudo are the same */
    const struct sock_fprog *filter; /* seccomp program, built once */
    struct rlimit nofile;            /* as the emulator had it; restored for programs */
};

enum { AGENT_LAYERS_MAX = 500 }; /* the kernel's own limit */

/* The directories of an overlay.  They are opened by whoever mounts: the kernel only takes directories of the
 * mounter's own mount namespace. */
struct agent_layers {
    const char *lower[AGENT_LAYERS_MAX]; /* topmost first */
    size_t n_lower;
    const char *upper, *work;
};

struct agent_layer_fds {
    int lower[AGENT_LAYERS_MAX];
    size_t n_lower;
    int upper, work;
};

/* Directories bound into the box: first by path, later as detached mounts. */
struct agent_mounts {
    struct box_mount list[BOX_MOUNTS_MAX];
    size_t n;
};

struct agent_boot {
    int ctl;    /* the agent's end of the control socket */
    int go;     /* one byte arrives once ids are mapped */
    bool probe; /* on an empty tmpfs, and no agent afterwards */
    int tree;   /* detached overlay mount, or -1: mount `layers` here with userxattr */
    const struct agent_layers *layers;
    const struct agent_mounts *mounts; /* NULL: none */
    const char *hostname;
    unsigned vcpus;
    unsigned seq; /* spreads affinity over CPUs */
    struct agent_identity identity;
};

/* The life of PID 1.  Never returns to the caller's code. */
_Noreturn void agent_run(const struct agent_boot *boot);

/* --- agent_root.c: mounts and network --- */
/* Opens the directories; *failed names the one that could not be opened. */
int agent_layers_open(const struct agent_layers *l, struct agent_layer_fds *fds, const char **failed);
void agent_layers_close(struct agent_layer_fds *fds);
/* Mounts an overlay at target (absolute).  Names stay short because the layers are named by descriptor, so
 * that hundreds fit into the option page. */
int agent_overlay(const struct agent_layer_fds *fds, const char *target, bool userxattr);
/* A detached copy of the mount at path, which is then unmounted; *fd is the caller's. */
int agent_detach_mount(const char *path, int *fd);
/* Builds the root of the box, enters it, drops the old one.  *what names the step that failed.  fds are the
 * layers where the overlay is mounted here. */
int agent_root(const struct agent_boot *boot, const struct agent_layer_fds *fds, const char **what);

/* --- agent_mounts.c: directories bound into a box --- */
/* Opens the sources, with the id that may walk to them.  *failed names the step. */
int agent_mounts_open(const struct agent_mounts *m, int fds[BOX_MOUNTS_MAX], const char **failed);
/* As root of the box, before the old root is left: turns the descriptors into detached mounts. */
int agent_mounts_clone(const struct agent_mounts *m, int fds[BOX_MOUNTS_MAX]);
/* In the root of the box: puts them into their places.  Consumes the descriptors. */
int agent_mounts_place(const struct agent_mounts *m, int fds[BOX_MOUNTS_MAX], bool single_id,
                       const char **failed);

/* --- agent_user.c: the sandbox user --- */
/* In the current root: the user, sudo rules and directories every box has.  Idempotent; follows no symlink in
 * the last component. */
int agent_prepare_root(bool single_id, const char **what);
/* Changes all ids, with the group as the only supplementary one or none.  By raw system calls: the C library's own
 * wait for threads that it believes in, and a process made by clone3 from a threaded one (as under a sanitizer)
 * does not have them. */
int agent_set_ids(uint32_t uid, uint32_t gid, bool with_group);
/* Turns this process into uid 0 or the sandbox user with the capabilities and filter of a program. */
int agent_become(const struct agent_identity *id, uint32_t uid);
/* Builds the seccomp program; the caller keeps it for ever. */
int agent_filter_build(struct sock_fprog *out);

/* --- agent_exec.c --- */
/* In a fresh child: becomes the program.  Returns only on failure, with the errno.  master: of the terminal that
 * the program gets instead of fds, or -1. */
int agent_exec(const struct agent_identity *id, const struct box_msg *m, int strings, const int fds[3],
               int master);

/* --- agent_pty.c: terminals --- */
/* A new terminal of rows << 16 | columns; *master is the caller's (CLOEXEC, non-blocking). */
int agent_pty_open(const struct agent_identity *id, uint64_t size, int *master);
/* In a fresh session leader: the other end becomes 0, 1, 2 and the controlling terminal, and belongs to uid. */
int agent_pty_take(const struct agent_identity *id, int master, uint32_t uid);

/* --- agent_plain.c: the tier without isolation --- */
/* open(2) with path resolved below root; -1 and errno. */
int agent_plain_open(int root, const char *path, int flags);
int agent_plain_chdir(int root, const char *path);
int agent_plain_join(const char *cwd, const char *path, char out[PATH_MAX]);
/* path is absolute (below root). */
int agent_plain_mkdir(int root, const char *path, bool recursive);
int agent_plain_setup(const struct agent_boot *boot, const char **what);
/* Kills every descendant and ends. */
_Noreturn void agent_plain_end(void);

/* --- agent_files.c: short-lived children that answer on their own --- */
/* In a fresh child: does OPEN, MKDIR or UNTAR and answers on reply. */
void agent_file_op(const struct agent_identity *id, const struct box_msg *m, int reply, int archive);

/* --- agent_tar.c --- */
struct agent_tar {
    bool as_root; /* base import: devices are skipped, not refused, and FIFOs and owners kept */
    bool no_owners;
    uint64_t files, bytes, skipped;
    void (*progress)(struct agent_tar *t); /* may be NULL; at most every 500 ms */
    void *arg;
    char err[256];
};
/* Unpacks fd into the current directory. */
int agent_untar(struct agent_tar *t, int fd);

/* --- spawner_helper.c --- */
/* The life of a helper process: works on `dir` (and reads `source`), answers on reply. */
void helper_run(enum box_helper_kind kind, bool user_ns, bool single_id, int reply, int dir, int source);

/* --- spawner_copy.c --- */
/* Copies what is in `source` into `target`, both directories; what happened is in m. */
void helper_copy(struct box_msg *m, bool owners, int target, int source);

#endif
