#include "emulator/source.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "emulator/box_msg.h"
#include "emulator/layers_drives.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, ENV_MAX = 64, TEXT_MAX = 2048, TURN_MS = 250, DEPTH_MAX = 64 };

/* ---- the place ---- */

static const char *temporary(void)
{
    const char *t = getenv("TMPDIR");
    return t && *t == '/' && strlen(t) < 200 ? t : "/tmp";
}

/* Not in the state directory, whose parents an unprivileged git may not be able to pass. */
static void prefix_of(const struct emulator *emu, char out[40])
{
    unsigned char hash[32];
    char hex[65], *real = realpath(emu->state_dir, NULL);
    const char *dir = real ? real : emu->state_dir;
    sg_sha256(dir, strlen(dir), hash);
    sg_hex(hex, hash, sizeof hash);
    free(real);
    snprintf(out, 40, "sandgate-source-%.12s-", hex);
}

void source_git_recover(struct emulator *emu)
{
    char prefix[40], path[512];
    struct stat sb;
    prefix_of(emu, prefix);
    DIR *d = opendir(temporary());
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", temporary(), entry->d_name);
        bool ours =
            !lstat(path, &sb) && S_ISDIR(sb.st_mode) && (sb.st_uid == geteuid() || sb.st_uid == NOBODY);
        if (ours && layers_wipe(emu->layers, path))
            sg_log(SG_LOG_WARN, "source_left_behind", "path", "s", path, NULL);
    }
    if (d)
        closedir(d);
}

/* Of all configuration, only this one reaches the process that reads a local repository. */
static bool trust_directories(const char *home)
{
    static const char text[] = "[safe]\n\tdirectory = *\n";
    char path[340];
    snprintf(path, sizeof path, "%s/config", home);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool make_place(struct emulator *emu, char dir[300])
{
    char prefix[40], home[320];
    prefix_of(emu, prefix);
    snprintf(dir, 300, "%s/%sXXXXXX", temporary(), prefix);
    if (!mkdtemp(dir))
        return false;
    snprintf(home, sizeof home, "%s/home", dir);
    if (!mkdir(home, 0700) && (!emu->allow_file_sources || trust_directories(home)) &&
        (geteuid() != 0 || (!chown(home, NOBODY, NOBODY) && !chown(dir, NOBODY, NOBODY))))
        return true;
    layers_wipe(emu->layers, dir);
    return false;
}

/* ---- environment and configuration ---- */

struct child_env {
    char *list[ENV_MAX + 1];
    size_t n;
    unsigned configs;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void env_add(struct child_env *env, const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0 || env->n == ENV_MAX) {
        if (n >= 0)
            free(s);
        env->failed = true;
        return;
    }
    env->list[env->n++] = s;
}

static void env_free(struct child_env *env)
{
    for (size_t i = 0; i < env->n; i++) {
        explicit_bzero(env->list[i], strlen(env->list[i]));
        free(env->list[i]);
    }
}

static void config(struct child_env *env, const char *key, const char *value)
{
    env_add(env, "GIT_CONFIG_KEY_%u=%s", env->configs, key);
    env_add(env, "GIT_CONFIG_VALUE_%u=%s", env->configs++, value);
}

/* The password reaches git through a helper that reads the environment, for this origin alone. */
static void add_credentials(struct child_env *env, const struct source_request *rq)
{
    char key[320];
    if (!rq->username)
        return;
    size_t origin = (size_t)(strstr(rq->url, "://") - rq->url) + 3;
    origin += strcspn(rq->url + origin, "/?#");
    snprintf(key, sizeof key, "credential.%.*s.helper", (int)(origin < 256 ? origin : 256), rq->url);
    config(env, key,
           "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' \"$SOURCE_USERNAME\" "
           "\"$SOURCE_PASSWORD\"; }; f");
    env_add(env, "SOURCE_USERNAME=%s", rq->username);
    env_add(env, "SOURCE_PASSWORD=%s", rq->password);
}

static void fill_env(struct emulator *emu, struct child_env *env, const struct source_request *rq,
                     const char *dir, const char *pinned)
{
    env_add(env, "PATH=/usr/local/bin:/usr/bin:/bin");
    env_add(env, "HOME=%s/home", dir);
    env_add(env, "TMPDIR=%s/home", dir);
    env_add(env, "LC_ALL=C");
    env_add(env, "GIT_CONFIG_NOSYSTEM=1");
    env_add(env, "GIT_CONFIG_GLOBAL=%s/home/config", dir);
    env_add(env, "GIT_TERMINAL_PROMPT=0");
    env_add(env, "GIT_ASKPASS=");
    env_add(env, "GIT_LFS_SKIP_SMUDGE=1");
    env_add(env, "GIT_ALLOW_PROTOCOL=http:https%s", emu->allow_file_sources ? ":file" : "");
    config(env, "core.hooksPath", "/dev/null");
    config(env, "core.fsmonitor", "false");
    config(env, "gc.auto", "0"); /* nothing may go on when it has ended */
    config(env, "maintenance.auto", "false");
    config(env, "advice.detachedHead", "false");
    config(env, "http.followRedirects", "false"); /* neither to other addresses nor to alternates there */
    config(env, "http.lowSpeedLimit", "10");
    config(env, "http.lowSpeedTime", "60");
    if (*pinned) /* the address that was looked at is the one that is dialled */
        config(env, "http.curloptResolve", pinned);
    add_credentials(env, rq);
    env_add(env, "GIT_CONFIG_COUNT=%u", env->configs);
}

/* ---- the child ---- */

struct child {
    struct emulator *emu;
    const char *dir;
    char *const *env;
    int64_t deadline;
    char text[TEXT_MAX]; /* the end of what it said */
    size_t len;
};

/* Between fork and exec: nothing but system calls. */
_Noreturn static void become(const struct child *c, const char *const argv[], int out, int err)
{
    struct rlimit size = {.rlim_cur = SOURCE_BYTES_MAX, .rlim_max = SOURCE_BYTES_MAX}, none = {0};
    sigset_t set;
    sigemptyset(&set);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &set, NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (setsid() < 0 || null < 0 || dup2(null, 0) < 0 || dup2(out >= 0 ? out : null, 1) < 0 ||
        dup2(err, 2) < 0)
        _exit(126);
    if (syscall(SYS_close_range, 3U, ~0U, 0U) || setrlimit(RLIMIT_FSIZE, &size) ||
        setrlimit(RLIMIT_CORE, &none))
        _exit(126);
    umask(022);
    /* raw: the C library's would stop every thread of a process this is only a copy of */
    if (geteuid() == 0 &&
        (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) ||
         syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY)))
        _exit(126);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || chdir(c->dir))
        _exit(126);
    execvpe(argv[0], (char *const *)(uintptr_t)argv, c->env);
    _exit(127);
}

/* What lies in a tree, in bytes on the disk. */
static uint64_t measure(int parent, const char *name, int depth)
{
    uint64_t sum = 0;
    struct stat sb;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (const struct dirent *entry; (entry = readdir(d));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            fstatat(dirfd(d), entry->d_name, &sb, AT_SYMLINK_NOFOLLOW))
            continue;
        sum += (uint64_t)sb.st_blocks * 512;
        if (S_ISDIR(sb.st_mode) && depth < DEPTH_MAX)
            sum += measure(dirfd(d), entry->d_name, depth + 1);
    }
    closedir(d);
    return sum;
}

/* Keeps the last of what it says; true at its end. */
static bool listen_to(struct child *c, int fd)
{
    char buf[512];
    ssize_t n = read(fd, buf, sizeof buf);
    if (n < 0)
        return errno != EINTR && errno != EAGAIN;
    size_t k = (size_t)n;
    if (k > TEXT_MAX - 1 - c->len) {
        size_t drop = k - (TEXT_MAX - 1 - c->len);
        memmove(c->text, c->text + drop, c->len - drop);
        c->len -= drop;
    }
    memcpy(c->text + c->len, buf, k);
    c->len += k;
    c->text[c->len] = '\0';
    return n == 0;
}

/* NULL: it ended; else why it had to be ended. */
static const char *watch(struct child *c, int pidfd, int err)
{
    int64_t look = sg_mono_ms() + 1000;
    bool said_all = false;
    for (;;) {
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = said_all ? -1 : err, .events = POLLIN}};
        (void)poll(p, 2, TURN_MS);
        if (!said_all && p[1].revents)
            said_all = listen_to(c, err);
        else if (p[0].revents)
            return NULL;
        int64_t now = sg_mono_ms();
        if (atomic_load(&c->emu->closing))
            return "the emulator is shutting down";
        if (now > c->deadline)
            return "it takes too long";
        if (now < look)
            continue;
        look = now + 1000;
        if (measure(AT_FDCWD, c->dir, 0) > SOURCE_BYTES_MAX)
            return "it is larger than this emulator takes";
    }
}

/* A process of its own, where possible the first of a PID namespace: then everything it started ends with it, and
 * it ends with us.  As fork. */
static pid_t begin(int *pidfd)
{
    struct clone_args args = {.flags = CLONE_PIDFD | CLONE_NEWPID | (geteuid() != 0 ? CLONE_NEWUSER : 0),
                              .pidfd = (uint64_t)(uintptr_t)pidfd,
                              .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid >= 0)
        return pid;
    pid = fork();
    *pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    return pid;
}

/* Runs it to its end.  True when it said it succeeded; else c->text says something. */
static bool run(struct child *c, const char *const argv[], int out)
{
    int p[2];
    c->len = 0;
    c->text[0] = '\0';
    if (pipe2(p, O_CLOEXEC | O_NONBLOCK)) {
        snprintf(c->text, sizeof c->text, "no descriptors: %s", strerror(errno));
        return false;
    }
    int pidfd = -1;
    pid_t pid = begin(&pidfd);
    if (pid == 0)
        become(c, argv, out, p[1]);
    close(p[1]);
    const char *why = pid < 0 ? "no process" : pidfd < 0 ? "no descriptors" : watch(c, pidfd, p[0]);
    int status = -1;
    if (pid > 0) {
        (void)kill(-pid, SIGKILL); /* and whatever it left running */
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    if (pidfd >= 0)
        close(pidfd);
    close(p[0]);
    if (why)
        snprintf(c->text, sizeof c->text, "%s", why);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        snprintf(c->text, sizeof c->text, "%s is not installed beside the emulator", argv[0]);
    return !why && status == 0;
}

/* ---- cloning ---- */

/* Looks up the host, so that what is dialled can be judged; "" in pinned: nothing to pin. */
static int check_host(struct emulator *emu, const char *url, char pinned[400], struct api_error *e)
{
    char host[256], port[8], address[INET6_ADDRSTRLEN + 2] = "";
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    pinned[0] = '\0';
    if (!strncmp(url, "file://", 7) && emu->allow_file_sources)
        return 0;
    if (!source_url_host(url, host, port))
        return api_fail(e, 400, "bad_request",
                        "The repository could not be cloned: only http and https URLs "
                        "can be.");
    if (emu->allow_private_sources)
        return 0;
    int g = getaddrinfo(host, port, &hints, &list);
    if (g)
        return api_fail(e, 400, "bad_request", "The repository could not be cloned: %.100s: %s", host,
                        gai_strerror(g));
    for (const struct addrinfo *a = list; a && !*address; a = a->ai_next)
        if (source_address_public(a->ai_addr))
            getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(list);
    if (!*address)
        return api_fail(e, 400, "bad_request",
                        "The repository could not be cloned: its address is private; --allow-private-sources "
                        "permits that");
    bool v6 = strchr(address, ':') != NULL;
    snprintf(pinned, 400, "%s:%s:%s%s%s", host, port, v6 ? "[" : "", address, v6 ? "]" : "");
    return 0;
}

static bool clone_simply(struct child *c, const struct source_request *rq)
{
    char depth[32], branch[300];
    const char *argv[12] = {"git", "clone", "-q", "--template="};
    size_t n = 4;
    if (rq->depth) {
        snprintf(depth, sizeof depth, "--depth=%lld", (long long)rq->depth);
        argv[n++] = depth;
    }
    if (rq->revision) {
        snprintf(branch, sizeof branch, "--branch=%s", rq->revision);
        argv[n++] = branch;
    }
    argv[n++] = "--";
    argv[n++] = rq->url;
    argv[n++] = "repo";
    argv[n] = NULL;
    return run(c, argv, -1);
}

/* A commit, which no clone takes by name: everything, then that. */
static bool clone_commit(struct child *c, const struct source_request *rq)
{
    const char *clone[] = {"git", "clone", "-q", "--no-checkout", "--template=", "--", rq->url, "repo", NULL};
    const char *checkout[] = {"git", "-C", "repo", "checkout", "-q", "--detach", rq->revision, "--", NULL};
    return run(c, clone, -1) && run(c, checkout, -1);
}

/* One line of what git said, without what a terminal could take for more. */
static int report(const struct child *c, struct api_error *e)
{
    char raw[200], line[200];
    const char *said = strstr(c->text, "fatal: ");
    said = said ? said + 7 : c->text;
    snprintf(raw, sizeof raw, "%.*s", (int)strcspn(said, "\n"), said);
    box_text_copy(line, sizeof line, raw);
    return api_fail(e, 400, "bad_request", "The repository could not be cloned: %s",
                    *line ? line : "git failed without a word");
}

int source_clone(struct emulator *emu, const struct source_request *rq, int fd, struct api_error *e)
{
    char dir[300], pinned[400];
    struct child_env env = {0};
    if (check_host(emu, rq->url, pinned, e))
        return -1;
    if (!make_place(emu, dir))
        return api_fail(e, 500, "internal_server_error", "cannot make a directory for the clone: %s",
                        strerror(errno));
    fill_env(emu, &env, rq, dir, pinned);
    struct child c = {.emu = emu, .dir = dir, .env = env.list, .deadline = sg_mono_ms() + SOURCE_TIMEOUT_MS};
    const char *tar[] = {"tar", "-C", "repo", "-cf", "-", ".", NULL};
    int rc = 0;
    if (env.failed)
        rc = api_fail(e, 500, "internal_server_error", "no memory");
    else if ((!clone_simply(&c, rq) && (!rq->revision || !clone_commit(&c, rq))) || !run(&c, tar, fd))
        rc = report(&c, e);
    env_free(&env);
    if (layers_wipe(emu->layers, dir))
        sg_log(SG_LOG_WARN, "source_left_behind", "path", "s", dir, NULL);
    return rc;
}
