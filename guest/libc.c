#include "guest/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NOREPLACE = 1, SCRIPT_ARGS_MAX = 4096, PATH_MAX_BYTES = 4096, SPAWN_STACK = 256 * 1024 };

int libc_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, NOREPLACE);
}

void libc_close_from(unsigned first)
{
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, first, ~0u, 0);
#else
    (void)syscall(436, first, ~0u, 0); /* the same number everywhere; older headers do not name it */
#endif
}

int libc_exists(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

const char *libc_errno_name(int err)
{
#define NAME(e)                                                                                              \
    {                                                                                                        \
        e, #e                                                                                                \
    }
    static const struct {
        int err;
        const char *name;
    } names[] = {
        NAME(E2BIG),      NAME(EACCES),    NAME(EAGAIN),    NAME(EBADF),        NAME(EBADMSG),
        NAME(EBUSY),      NAME(ECHILD),    NAME(EDQUOT),    NAME(EEXIST),       NAME(EFAULT),
        NAME(EFBIG),      NAME(EINTR),     NAME(EINVAL),    NAME(EIO),          NAME(EISDIR),
        NAME(ELIBBAD),    NAME(ELOOP),     NAME(EMFILE),    NAME(EMLINK),       NAME(ENFILE),
        NAME(ENODEV),     NAME(ENOENT),    NAME(ENOEXEC),   NAME(ENAMETOOLONG), NAME(ENOMEM),
        NAME(ENOSPC),     NAME(ENOSYS),    NAME(ENOTDIR),   NAME(ENXIO),        NAME(ENOTEMPTY),
        NAME(EOPNOTSUPP), NAME(EPERM),     NAME(EPIPE),     NAME(EOVERFLOW),    NAME(ERANGE),
        NAME(EROFS),      NAME(ESPIPE),    NAME(ESRCH),     NAME(ESTALE),       NAME(ETXTBSY),
        NAME(EXDEV),      NAME(ETIMEDOUT), NAME(ENOLCK),    NAME(EDEADLK),      NAME(EPROTO),
        NAME(ENOTSOCK),   NAME(ENOTTY),    NAME(EREMOTEIO), NAME(EILSEQ),       NAME(EDOM),
        NAME(ECANCELED),  NAME(ENOKEY),    NAME(ENOTCONN),  NAME(ECONNRESET),   NAME(ECONNREFUSED),
        NAME(ENETDOWN),   NAME(ENOTBLK),   NAME(EUSERS),    NAME(ELIBACC),      NAME(EMEDIUMTYPE),
        NAME(ENOMEDIUM),
    };
#undef NAME
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].err == err)
            return names[i].name;
    return NULL;
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
/* What they note of stacks does not bear a second one, nor a child that never returns to it. */
pid_t libc_spawn(int (*f)(void *), void *arg)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(f(arg));
    return pid;
}
#else
pid_t libc_spawn(int (*f)(void *), void *arg)
{
    /* A child that forks leaves a process behind that lives on the first stack, and may spawn in turn.  Stacks grow
     * downwards on every machine that we are built for. */
    static _Alignas(64) char stack[2][SPAWN_STACK];
    static unsigned depth;
    if (depth >= 2) {
        errno = EAGAIN;
        return -1;
    }
    char *top = stack[depth] + SPAWN_STACK;
    depth++;
    pid_t pid = clone(f, top, CLONE_VM | CLONE_VFORK | SIGCHLD, arg);
    depth--;
    return pid;
}
#endif

/* `path` was found, but is no binary. */
static void exec_script(const char *path, char *const *argv, char *const *env)
{
    static char *script[SCRIPT_ARGS_MAX];
    static char shell[] = "/bin/sh";
    size_t n = 0;
    script[n++] = shell;
    script[n++] = (char *)(uintptr_t)path; /* exec does not write to it */
    for (char *const *a = argv + 1; *a; a++) {
        if (n == SCRIPT_ARGS_MAX - 1) {
            errno = E2BIG;
            return;
        }
        script[n++] = *a;
    }
    script[n] = NULL;
    execve(shell, script, env);
}

/* True when the search goes on. */
static int exec_one(const char *path, char *const *argv, char *const *env)
{
    execve(path, argv, env);
    if (errno == ENOEXEC)
        exec_script(path, argv, env);
    return errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ESTALE || errno == ENODEV ||
           errno == ETIMEDOUT;
}

void libc_exec(char *const *argv, char *const *env)
{
    const char *name = argv[0], *path = "/bin:/usr/bin";
    char full[PATH_MAX_BYTES];
    size_t len = strlen(name);
    int denied = 0;
    if (len == 0) {
        errno = ENOENT;
        return;
    }
    if (strchr(name, '/')) {
        (void)exec_one(name, argv, env);
        return;
    }
    for (char *const *e = env; *e; e++)
        if (strncmp(*e, "PATH=", 5) == 0) {
            path = *e + 5;
            break;
        }
    for (const char *dir = path;; dir++) {
        size_t n = strcspn(dir, ":");
        if (n + 1 + len + 1 <= sizeof full) { /* an empty part means the working directory */
            memcpy(full, dir, n);
            if (n)
                full[n++] = '/';
            memcpy(full + n, name, len + 1);
            if (!exec_one(full, argv, env))
                return;
            denied |= errno == EACCES;
        }
        dir += strcspn(dir, ":");
        if (!*dir)
            break;
    }
    errno = denied ? EACCES : ENOENT;
}
