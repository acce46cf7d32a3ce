/* From a forked child of the agent to the program that was asked for. */
#include "emulator/agent.h"

#include "base/core/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct words {
    const char *cwd;
    char **argv, **env;
};

/* The strings are cwd, then `count` arguments, then the environment. */
static int read_words(int fd, uint64_t count, struct words *w)
{
    struct stat sb;
    if (fstat(fd, &sb) != 0)
        return box_errno();
    if (sb.st_size <= 0 || sb.st_size > (off_t)64 << 20)
        return E2BIG;
    size_t len = (size_t)sb.st_size;
    char *s = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (s == MAP_FAILED)
        return box_errno();
    if (s[len - 1] != '\0')
        return EBADMSG;
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += s[i] == '\0';
    if (count == 0 || count >= n)
        return EINVAL;
    size_t argc = (size_t)count;
    char **v = calloc(n + 2, sizeof *v);
    if (v == NULL)
        return ENOMEM;
    w->cwd = s;
    w->argv = v;
    w->env = v + argc + 1;
    char *p = s + strlen(s) + 1;
    for (size_t i = 0; i < argc; i++, p += strlen(p) + 1)
        w->argv[i] = p;
    for (size_t i = 0; p < s + len; i++, p += strlen(p) + 1)
        w->env[i] = p;
    return 0;
}

static const char *value_of(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env != NULL; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

/* As execvpe, except that the PATH of the new environment counts and a script without "#!" is ENOEXEC. */
static int run(const struct agent_identity *id, const struct words *w)
{
    const char *file = w->argv[0];
    if (file[0] == '\0')
        return ENOENT;
    if (strchr(file, '/') != NULL) {
        /* In the plain tier a program may be one of the session's own; others are the host's. */
        int fd = id->plain_root >= 0 && file[0] == '/' ? agent_plain_open(id->plain_root, file, O_PATH) : -1;
        char own[64];
        char real[PATH_MAX];
        snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
        ssize_t n = fd < 0 ? -1 : readlink(own, real, sizeof real - 1);
        if (n > 0) {
            real[n] = '\0';
            execve(real, w->argv, w->env);
            return errno;
        }
        execve(file, w->argv, w->env);
        return errno;
    }
    const char *path = value_of(w->env, "PATH");
    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    bool denied = false;
    char full[4096];
    for (const char *p = path;;) {
        const char *end = strchrnul(p, ':');
        int n = snprintf(full, sizeof full, "%.*s%s%s", (int)(end - p), p, end == p ? "" : "/", file);
        if (n > 0 && (size_t)n < sizeof full) {
            execve(full, w->argv, w->env);
            if (errno == EACCES)
                denied = true;
            else if (errno != ENOENT && errno != ENOTDIR)
                return errno;
        }
        if (*end == '\0')
            return denied ? EACCES : ENOENT;
        p = end + 1;
    }
}

/* HOME lies below the session's root. */
static int plain_home(int root, struct words *w)
{
    for (char **env = w->env; *env != NULL; env++) {
        if (strncmp(*env, "HOME=/", 6) != 0)
            continue;
        char link[64];
        char dir[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", root);
        ssize_t n = readlink(link, dir, sizeof dir - 1);
        if (n < 0)
            return errno;
        dir[n] = '\0';
        if (asprintf(env, "HOME=%s%s", dir, *env + 5) < 0)
            return ENOMEM;
    }
    return 0;
}

static int take_stdio(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0) /* fds are all above 2: the agent keeps 0, 1, 2 open */
            return box_errno();
    return 0;
}

static int become_program(const struct agent_identity *id, uint32_t uid, const int fds[3], int master,
                          struct words *w)
{
    int e;
    if (setsid() < 0)
        return errno;
    if ((e = master >= 0 ? agent_pty_take(id, master, uid) : take_stdio(fds)) != 0)
        return e;
    sg_signals_default(); /* nohup, or a background job of a script, says nothing to programs */
    if (setrlimit(RLIMIT_NOFILE, &id->nofile) != 0)
        return errno;
    if ((e = agent_become(id, uid)) != 0)
        return e;
    umask(022);
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) != 0)
        return errno;
    if (id->plain_root >= 0) {
        if ((e = plain_home(id->plain_root, w)) != 0 || (e = agent_plain_chdir(id->plain_root, w->cwd)) != 0)
            return e;
    } else if (chdir(w->cwd) != 0) {
        return errno;
    }
    return run(id, w);
}

int agent_exec(const struct agent_identity *id, const struct box_msg *m, int strings, const int fds[3],
               int master)
{
    struct words w = {0};
    int e = read_words(strings, m->count, &w);
    if (e == 0)
        e = become_program(id, m->uid, fds, master, &w);
    free(w.argv);
    return e;
}
