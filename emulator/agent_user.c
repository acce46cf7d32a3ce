/* The sandbox user: its entry in the image, and turning a process into it. */
#include "emulator/agent.h"
#include "emulator/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USER "vercel-sandbox"

enum { ACCOUNTS_MAX = 1 << 20 }; /* bytes of an /etc/passwd we are willing to read */

static int ensure_dir(const char *path, mode_t mode, bool own)
{
    struct stat sb;
    if (lstat(path, &sb) == 0)
        return S_ISDIR(sb.st_mode) ? 0 : ENOTDIR;
    if (mkdir(path, mode) != 0)
        return errno == EEXIST ? 0 : errno;
    if (chmod(path, mode) != 0) /* the umask may have cut it */
        return errno;
    if (own && lchown(path, BOX_USER_UID, BOX_USER_GID) != 0)
        return errno;
    return 0;
}

static int write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, data, n);
        if (w < 0) {
            if (errno == EINTR)
                continue;
            return errno;
        }
        data += w;
        n -= (size_t)w;
    }
    return 0;
}

/* Writes a new file beside path and renames it over. */
static int replace_file(const char *path, mode_t mode, const char *const parts[3], const size_t lens[3])
{
    char tmp[80];
    snprintf(tmp, sizeof tmp, "%s.sandbox-new", path);
    if (unlink(tmp) != 0 && errno != ENOENT)
        return errno;
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return errno;
    int e = fchmod(fd, mode) != 0 ? errno : 0;
    for (size_t i = 0; i < 3 && e == 0; i++)
        e = write_all(fd, parts[i], lens[i]);
    if (close(fd) != 0 && e == 0)
        e = errno;
    if (e == 0 && rename(tmp, path) != 0)
        e = errno;
    if (e != 0)
        unlink(tmp);
    return e;
}

static int read_small(const char *path, char *buf, size_t cap, size_t *n, mode_t *mode)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno;
    int e = 0;
    struct stat sb;
    *n = 0;
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode))
        e = EINVAL;
    *mode = sb.st_mode & 07777;
    while (e == 0) {
        ssize_t r = read(fd, buf + *n, cap - *n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            e = errno;
        if (r <= 0)
            break;
        *n += (size_t)r;
        if (*n == cap)
            e = EFBIG;
    }
    close(fd);
    return e;
}

static bool has_user(const char *text)
{
    static const char KEY[] = USER ":";
    for (const char *p = text; (p = strstr(p, KEY)) != NULL; p++)
        if (p == text || p[-1] == '\n')
            return true;
    return false;
}

/* Adds a line for the user to an account file.  It becomes the second line, so that an image's own uid 1000
 * does not come first when a uid is turned into a name. */
static int ensure_account(const char *path, const char *line, mode_t mode, bool optional)
{
    char *text = malloc(ACCOUNTS_MAX + 1);
    if (text == NULL)
        return ENOMEM;
    size_t n = 0;
    int e = read_small(path, text, ACCOUNTS_MAX, &n, &mode);
    if (e == ENOENT)
        e = optional ? e : 0;
    if (e == ENOENT) {
        free(text);
        return 0;
    }
    text[e == 0 ? n : 0] = '\0';
    if (e == 0 && !has_user(text)) {
        const char *nl = memchr(text, '\n', n);
        size_t head = nl != NULL ? (size_t)(nl - text) + 1 : 0;
        const char *parts[3] = {text, line, text + head};
        size_t lens[3] = {head, strlen(line), n - head};
        e = replace_file(path, mode, parts, lens);
    }
    free(text);
    return e;
}

static int ensure_sudo(void)
{
    static const char PATH[] = "/etc/sudoers.d/" USER;
    static const char RULES[] =
        "Defaults:" USER " !secure_path, always_set_home\n" USER " ALL=(ALL:ALL) NOPASSWD: ALL\n";
    struct stat sb;
    if (lstat(PATH, &sb) == 0)
        return 0;
    int e = ensure_dir("/etc/sudoers.d", 0750, false);
    if (e != 0)
        return e;
    const char *parts[3] = {RULES, "", ""};
    size_t lens[3] = {strlen(RULES), 0, 0};
    return replace_file(PATH, 0440, parts, lens);
}

int agent_prepare_root(bool single_id, const char **what)
{
    int e;
    umask(022);
    *what = "create /etc";
    if ((e = ensure_dir("/etc", 0755, false)) != 0)
        return e;
    *what = "add the user to /etc/passwd";
    if ((e = ensure_account("/etc/passwd", USER ":x:1000:1000:Vercel Sandbox:/home/" USER ":/bin/bash\n",
                            0644, false)) != 0)
        return e;
    *what = "add the user to /etc/group";
    if ((e = ensure_account("/etc/group", USER ":x:1000:\n", 0644, false)) != 0)
        return e;
    *what = "add the user to /etc/shadow";
    if ((e = ensure_account("/etc/shadow", USER ":*:19000:0:99999:7:::\n", 0640, true)) != 0)
        return e;
    *what = "add the sudo rule";
    if ((e = ensure_sudo()) != 0)
        return e;
    *what = "create the directories of the user";
    if ((e = ensure_dir("/tmp", 01777, false)) != 0 || (e = ensure_dir("/home", 0755, false)) != 0 ||
        (e = ensure_dir("/home/" USER, 0755, !single_id)) != 0 ||
        (e = ensure_dir("/vercel", 0755, false)) != 0 ||
        (e = ensure_dir("/vercel/sandbox", 0755, !single_id)) != 0)
        return e;
    return 0;
}

/* What a container usually leaves to its root. */
static const int KEPT[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FSETID,           CAP_FOWNER,
                           CAP_MKNOD,   CAP_NET_RAW,      CAP_SETGID,           CAP_SETUID,
                           CAP_SETFCAP, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
                           CAP_KILL,    CAP_AUDIT_WRITE};

static int drop_bounding(void)
{
    for (int c = 0; c <= 63; c++) {
        bool keep = false;
        for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++)
            keep = keep || KEPT[i] == c;
        if (keep)
            continue;
        if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) != 0) {
            if (errno == EINVAL) /* beyond the last capability of this kernel */
                return 0;
            return errno;
        }
    }
    return 0;
}

int agent_set_ids(uint32_t uid, uint32_t gid, bool with_group)
{
    gid_t group = gid;
    if (syscall(SYS_setgroups, with_group ? 1 : 0, &group) != 0 ||
        syscall(SYS_setresgid, gid, gid, gid) != 0 || syscall(SYS_setresuid, uid, uid, uid) != 0)
        return box_errno();
    return 0;
}

int agent_become(const struct agent_identity *id, uint32_t uid)
{
    if (id->plain_root >= 0)
        return uid == 0 && geteuid() != 0 ? EPERM : 0;
    /* The filter first: without no_new_privs (which would break sudo) loading it takes CAP_SYS_ADMIN. */
    if (id->filter != NULL && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, id->filter, 0, 0) != 0)
        return errno;
    int e = drop_bounding();
    if (e != 0)
        return e;
    if (id->single_id)
        return 0; /* nobody else to become */
    return agent_set_ids(uid, uid == 0 ? 0 : BOX_USER_GID, true);
}

/* Only closes what namespaces leave open: socket families that are host-wide, and large kernel interfaces. */
static int filter_rules(scmp_filter_ctx f)
{
    static const unsigned FAMILIES[] = {AF_VSOCK, AF_ALG};
    static const int REFUSED[] = {
        SCMP_SYS(bpf),         SCMP_SYS(perf_event_open),   SCMP_SYS(userfaultfd),
        SCMP_SYS(keyctl),      SCMP_SYS(add_key),           SCMP_SYS(request_key),
        SCMP_SYS(kexec_load),  SCMP_SYS(open_by_handle_at), SCMP_SYS(kexec_file_load),
        SCMP_SYS(init_module), SCMP_SYS(finit_module)};
    if (seccomp_attr_set(f, SCMP_FLTATR_CTL_NNP, 0) != 0 ||
        seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)) != 0)
        return EINVAL;
    for (size_t i = 0; i < sizeof FAMILIES / sizeof FAMILIES[0]; i++)
        if (seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, FAMILIES[i], 0)) != 0)
            return EINVAL;
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++)
        if (seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), REFUSED[i], 0) != 0)
            return EINVAL;
    if (seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(io_uring_setup), 0) != 0)
        return EINVAL;
    return 0;
}

int agent_filter_build(struct sock_fprog *out)
{
    int e = 0;
    int fd = -1;
    struct sock_filter *code = NULL;
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    if (f == NULL)
        return ENOMEM;
    if ((e = filter_rules(f)) != 0)
        goto out;
    if ((fd = memfd_create("filter", MFD_CLOEXEC)) < 0) {
        e = errno;
        goto out;
    }
    int r = seccomp_export_bpf(f, fd);
    struct stat sb;
    if (r != 0 || fstat(fd, &sb) != 0) {
        e = r != 0 ? -r : errno;
        goto out;
    }
    size_t n = (size_t)sb.st_size / sizeof *code;
    if (n == 0 || n > BPF_MAXINSNS || (code = calloc(n, sizeof *code)) == NULL) {
        e = ENOMEM;
        goto out;
    }
    if (pread(fd, code, n * sizeof *code, 0) != (ssize_t)(n * sizeof *code)) {
        e = EIO;
        goto out;
    }
    out->len = (unsigned short)n;
    out->filter = code;
    code = NULL;
out:
    free(code);
    box_fd_close(&fd);
    seccomp_release(f);
    return e;
}
