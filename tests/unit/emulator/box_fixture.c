#include "box_fixture.h"
#include "emulator/box_host.h"
#include "emulator/layers_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BASE_TAR   "/var/cache/sandgate/base.tar"
#define BASE_CACHE "/var/cache/sandgate/test-base"

enum { SCRATCH_UID = 54321, SCRATCH_SUBIDS = 700000000 };

static enum box_tier expected = BOX_TIER_FULL;
static char cache_dir[128] = BASE_CACHE;

/* --- becoming a variant --- */

/* In this mount namespace, path reads as its old text plus one line. */
static bool overlay_file(const char *path, const char *text, bool keep_old)
{
    char tmp[] = "/tmp/sandgate-test-XXXXXX";
    char old[65536];
    ssize_t n = 0;
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (in >= 0 && keep_old)
        n = read(in, old, sizeof old);
    if (in >= 0)
        close(in);
    int out = mkostemp(tmp, O_CLOEXEC);
    bool ok = out >= 0 && n >= 0 && write(out, old, (size_t)n) == n &&
              write(out, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(out, 0644) == 0 &&
              mount(tmp, path, NULL, MS_BIND, NULL) == 0;
    if (!ok)
        perror(path);
    if (out >= 0)
        close(out);
    unlink(tmp);
    return ok;
}

static bool become_scratch(bool subids)
{
    char line[96] = "";
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        perror("private mounts");
        return false;
    }
    if (subids)
        snprintf(line, sizeof line, "sgscratch:%d:65536\n", SCRATCH_SUBIDS);
    if (!overlay_file("/etc/subuid", line, false) || !overlay_file("/etc/subgid", line, false))
        return false;
    snprintf(line, sizeof line, "sgscratch:x:%d:%d::/nonexistent:/bin/false\n", SCRATCH_UID, SCRATCH_UID);
    if (!overlay_file("/etc/passwd", line, true))
        return false;
    snprintf(cache_dir, sizeof cache_dir, "%s-of-%d", BASE_CACHE, SCRATCH_UID);
    if ((mkdir(cache_dir, 0755) != 0 && errno != EEXIST) || chown(cache_dir, SCRATCH_UID, SCRATCH_UID) != 0 ||
        setgroups(0, NULL) != 0 || setresgid(SCRATCH_UID, SCRATCH_UID, SCRATCH_UID) != 0 ||
        setresuid(SCRATCH_UID, SCRATCH_UID, SCRATCH_UID) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) {
        perror("scratch user");
        return false;
    }
    snprintf(cache_dir, sizeof cache_dir, "%s-of-%d/base", BASE_CACHE, SCRATCH_UID);
    return true;
}

static bool drop_sysadmin(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2];
    if (prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) != 0 || syscall(SYS_capget, &h, d) != 0)
        return false;
    d[0].effective &= ~(1U << CAP_SYS_ADMIN);
    d[0].permitted &= ~(1U << CAP_SYS_ADMIN);
    d[0].inheritable &= ~(1U << CAP_SYS_ADMIN);
    return syscall(SYS_capset, &h, d) == 0;
}

bool fixture_become(const char *variant)
{
    if (geteuid() != 0) {
        fprintf(stderr, "the tests of boxes must run as root\n");
        return false;
    }
    if (access(BASE_TAR, R_OK) != 0 && getenv("SANDGATE_TEST_BASE") == NULL) {
        fprintf(stderr, "%s is missing: run emulator/base/make-base as root\n", BASE_TAR);
        return false;
    }
    if (variant == NULL || strcmp(variant, "full") == 0)
        return true;
    expected = strcmp(variant, "single-id") == 0 ? BOX_TIER_SINGLE_ID : BOX_TIER_ROOTLESS;
    if (strcmp(variant, "no-sysadmin") == 0)
        return drop_sysadmin();
    return become_scratch(strcmp(variant, "rootless") == 0);
}

/* --- the fixture --- */

static void nap(void)
{
    struct timespec ts = {.tv_nsec = 5000000};
    nanosleep(&ts, NULL);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

bool eventually(bool (*check)(void *arg), void *arg)
{
    for (double end = now() + 20; now() < end; nap())
        if (check(arg))
            return true;
    return check(arg);
}

/* A directory with the imported base, shared by all tests of this flavour; other test programs may be making
 * it at this moment. */
static bool base_cache(struct fixture *f, char out[256])
{
    char err[BOX_TEXT] = "";
    const char *given = getenv("SANDGATE_TEST_BASE");
    if (given != NULL && given[0] != '\0') {
        snprintf(out, 256, "%s", given);
        return true;
    }
    char name[128];
    snprintf(name, sizeof name, "%s", f->host->flavour);
    for (char *p = name; *p != '\0'; p++)
        if (*p == '/' || *p == ' ')
            *p = '_';
    snprintf(out, 256, "%s-%s", cache_dir, name);
    struct layers *l = NULL;
    int e = EBUSY;
    for (double end = now() + 120; e == EBUSY && now() < end; nap())
        e = layers_open(out, f->host, &l, err);
    if (e == 0)
        e = layers_import_base(l, "base", BASE_TAR, false, NULL, NULL, err);
    layers_close(l);
    if (e != 0)
        fprintf(stderr,
                "no base for the tests: %s; run emulator/base/make-base as root, or set SANDGATE_TEST_BASE\n",
                err);
    return e == 0;
}

bool fixture_open(struct fixture *f, bool plain)
{
    char err[BOX_TEXT];
    char cache[256];
    memset(f, 0, sizeof *f);
    snprintf(f->state, sizeof f->state, "/var/tmp/sandgate-test-XXXXXX");
    if (box_host_start(plain, &f->host, err) != 0) {
        fprintf(stderr, "cannot start boxes: %s\n", err);
        return false;
    }
    if (!plain && box_host_tier(f->host) != expected) {
        fprintf(stderr, "tier %s reached, %s expected\n", box_tier_name(box_host_tier(f->host)),
                box_tier_name(expected));
        return false;
    }
    if (mkdtemp(f->state) == NULL) {
        perror(f->state);
        return false;
    }
    if (!plain && !base_cache(f, cache))
        return false;
    if (layers_open(f->state, f->host, &f->layers, err) != 0 ||
        (!plain && layers_share_bases(f->layers, cache, err) != 0)) {
        fprintf(stderr, "cannot use %s: %s\n", f->state, err);
        return false;
    }
    return true;
}

static void drop(void *arg, const char *session_id)
{
    const struct fixture *f = arg;
    (void)layers_session_drop(f->layers, session_id);
}

/* Their files belong to other ids: rm alone would not do. */
static void drop_bases(struct fixture *f)
{
    char path[300];
    snprintf(path, sizeof path, "%s/base", f->state);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "base/%.200s", e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)layers_trash(f->layers, path);
    }
    if (d != NULL)
        closedir(d);
}

void fixture_close(struct fixture *f)
{
    if (f->layers != NULL) {
        (void)layers_each_orphan(f->layers, drop, f);
        drop_bases(f);
    }
    layers_close(f->layers);
    box_host_stop(f->host);
    char *argv[] = {(char[]){"rm"}, (char[]){"-rf"}, (char[]){"--"}, f->state, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execv("/bin/rm", argv);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

static void on_exit_of(void *arg, pid_t pid, int status, const struct rusage *usage)
{
    struct session *s = arg;
    pthread_mutex_lock(&s->lock);
    size_t slot = 0;
    while (slot < s->n_ended && s->ended[slot].pid > 0)
        slot++; /* places whose end was taken are used again */
    if (slot == sizeof s->ended / sizeof s->ended[0]) {
        fprintf(stderr, "more ends than a test has room for\n");
        abort();
    }
    if (slot == s->n_ended)
        s->n_ended++;
    struct ended *e = &s->ended[slot];
    e->pid = pid;
    e->status = status;
    e->cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
                (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int session_start(struct fixture *f, struct session *s, const char *id, const char *const *snapshots)
{
    return session_start_mounted(f, s, id, snapshots, NULL, 0);
}

int session_start_mounted(struct fixture *f, struct session *s, const char *id, const char *const *snapshots,
                          const struct box_mount *mounts, size_t n_mounts)
{
    char err[BOX_TEXT] = "";
    struct layers_session dirs;
    const char *const *lower = NULL;
    size_t n = 0;
    memset(s, 0, sizeof *s);
    s->f = f;
    snprintf(s->id, sizeof s->id, "%s", id);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    while (snapshots != NULL && snapshots[n] != NULL)
        n++;
    int e = layers_session_make(f->layers, id, &dirs);
    if (e == 0)
        e = layers_lower(f->layers, "base", snapshots, n, &lower);
    if (e != 0)
        return e;
    struct box_spec spec = {.lower = lower,
                            .upper = dirs.upper,
                            .work = dirs.work,
                            .mount = dirs.mount,
                            .hostname = "testbox",
                            .vcpus = 1,
                            .mounts = mounts,
                            .n_mounts = n_mounts,
                            .on_exit = on_exit_of,
                            .on_exit_arg = s};
    e = box_create(f->host, &spec, &s->box, err);
    free((void *)(uintptr_t)lower);
    if (e != 0)
        fprintf(stderr, "box_create: %s\n", err);
    return e;
}

void session_stop(struct session *s)
{
    box_stop(s->box);
    s->box = NULL;
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
}

static const char *const ENV[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                  "HOME=/home/vercel-sandbox", "LANG=C.UTF-8", NULL};

bool session_wait(struct session *s, pid_t pid, struct ended *out)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (int e = 0; !found && e == 0;) {
        for (size_t i = 0; i < s->n_ended && !found; i++) {
            if (s->ended[i].pid == pid) {
                *out = s->ended[i];
                s->ended[i].pid = -1;
                found = true;
            }
        }
        if (!found)
            e = pthread_cond_timedwait(&s->changed, &s->lock, &end);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

int session_spawn(struct session *s, uid_t uid, const char *const *argv, const char *cwd, pid_t *pid)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct box_exec x = {.argv = argv, .env = ENV, .cwd = cwd, .uid = uid, .fds = {null, null, null}};
    int e = box_exec(s->box, &x, pid);
    close(null);
    return e;
}

void session_run(struct session *s, uid_t uid, const char *const *argv, const char *input, struct result *r)
{
    int in[2];
    int out[2];
    memset(r, 0, sizeof *r);
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        r->error = errno;
        return;
    }
    struct box_exec x = {
        .argv = argv, .env = ENV, .cwd = "/vercel/sandbox", .uid = uid, .fds = {in[0], out[1], out[1]}};
    pid_t pid = 0;
    r->error = box_exec(s->box, &x, &pid);
    close(in[0]);
    close(out[1]);
    if (input != NULL && r->error == 0)
        (void)!write(in[1], input, strlen(input));
    close(in[1]);
    size_t n = 0;
    for (ssize_t k; r->error == 0 && n + 1 < sizeof r->out; n += (size_t)k)
        if ((k = read(out[0], r->out + n, sizeof r->out - 1 - n)) <= 0)
            break;
    close(out[0]);
    struct ended ended = {.status = -1};
    if (r->error == 0 && !session_wait(s, pid, &ended))
        fprintf(stderr, "on_exit of %ld did not come\n", (long)pid);
    r->status = ended.status;
}

void session_sh(struct session *s, const char *line, struct result *r)
{
    const char *argv[] = {"sh", "-c", line, NULL};
    session_run(s, BOX_USER_UID, argv, NULL, r);
}

size_t count_fds(const char *pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *d = opendir(path);
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

size_t count_mounts(const char *pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%s/mountinfo", pid);
    FILE *f = fopen(path, "re");
    for (int c; f != NULL && (c = fgetc(f)) != EOF;)
        n += c == '\n';
    if (f != NULL)
        fclose(f);
    return n;
}
