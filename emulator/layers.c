#include "emulator/layers.h"
#include "emulator/layers_dir.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { ORPHANS_MAX = 65536 };

bool layers_name_valid(const char *name)
{
    static const char OK[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t n = strlen(name);
    return n > 0 && n <= LAYERS_NAME_MAX && name[0] != '.' && strspn(name, OK) == n;
}

int layers_give(const struct layers *l, int dirfd, const char *path)
{
    uid_t root = l->host->root_uid;
    if (root == geteuid())
        return 0;
    return fchownat(dirfd, path, root, root, AT_SYMLINK_NOFOLLOW) != 0 ? errno : 0;
}

int layers_sync_dir(const struct layers *l, const char *path)
{
    int fd = openat(l->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int e = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return e;
}

/* --- trash --- */

static int empty_trash(struct layers *l, const char *name)
{
    char path[NAME_MAX + 8];
    char err[BOX_TEXT];
    snprintf(path, sizeof path, "trash/%.*s", NAME_MAX, name);
    if (unlinkat(l->fd, path, AT_REMOVEDIR) == 0 || unlinkat(l->fd, path, 0) == 0)
        return 0;
    int fd = openat(l->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    struct box_msg *m = calloc(1, sizeof *m);
    int e = m == NULL ? ENOMEM : box_host_helper(l->host, BOX_HELPER_REMOVE, fd, -1, NULL, NULL, m, err);
    free(m);
    close(fd);
    if (e == 0 && unlinkat(l->fd, path, AT_REMOVEDIR) != 0)
        e = errno;
    return e;
}

int layers_trash(struct layers *l, const char *path)
{
    char name[48];
    char to[LAYERS_PATH];
    unsigned n = atomic_fetch_add(&l->serial, 1);
    snprintf(name, sizeof name, "%ld.%u", (long)getpid(), n);
    snprintf(to, sizeof to, "trash/%s", name);
    if (renameat2(l->fd, path, l->fd, to, RENAME_NOREPLACE) != 0)
        return errno == ENOENT ? 0 : errno;
    return empty_trash(l, name);
}

/* Collects the names in a directory; the caller frees each and the array. */
static int list_names(int dirfd, const char *path, char ***names, size_t *count)
{
    *names = NULL;
    *count = 0;
    int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        int e = errno;
        close(fd);
        return e;
    }
    int e = 0;
    size_t cap = 0;
    for (const struct dirent *entry; e == 0 && *count < ORPHANS_MAX && (entry = readdir(d)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (*count == cap) {
            cap = cap == 0 ? 16 : cap * 2;
            char **more = reallocarray(*names, cap, sizeof *more);
            if (more == NULL) {
                e = ENOMEM;
                break;
            }
            *names = more;
        }
        (*names)[*count] = strdup(entry->d_name);
        if ((*names)[*count] == NULL)
            e = ENOMEM;
        else
            ++*count;
    }
    closedir(d);
    return e;
}

static void free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* What a former emulator left behind half done.  Trouble here is not fatal: it only costs space. */
static void clean_up(struct layers *l)
{
    char **names;
    size_t n;
    char path[LAYERS_PATH];
    int e = list_names(l->fd, "base", &names, &n);
    for (size_t i = 0; e == 0 && i < n; i++) {
        snprintf(path, sizeof path, "base/%s", names[i]);
        if (names[i][0] == '.')
            e = layers_trash(l, path);
    }
    free_names(names, n);
    if (e == 0)
        e = list_names(l->fd, "trash", &names, &n);
    else
        n = 0, names = NULL;
    for (size_t i = 0; e == 0 && i < n; i++)
        e = empty_trash(l, names[i]);
    free_names(names, n);
    if (e != 0)
        sg_log(SG_LOG_WARN, "cannot empty the trash of the state directory", "path", "s", l->dir, "error",
               "s", strerror(e), NULL);
}

/* --- opening --- */

static int make_parents(const char *path)
{
    char p[LAYERS_PATH];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof p)
        return ENAMETOOLONG;
    memcpy(p, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (p[i] != '/' && p[i] != '\0')
            continue;
        char c = p[i];
        p[i] = '\0';
        if (mkdir(p, c == '\0' ? 0700 : 0755) != 0 && errno != EEXIST && errno != EISDIR)
            return errno;
        p[i] = c;
    }
    return 0;
}

static int take_lock(struct layers *l, char err[BOX_TEXT])
{
    l->lock = openat(l->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->lock < 0) {
        int e = errno;
        snprintf(err, BOX_TEXT, "cannot write to the state directory %.150s: %s", l->dir, strerror(e));
        return e;
    }
    if (flock(l->lock, LOCK_EX | LOCK_NB) != 0) {
        int e = errno;
        snprintf(err, BOX_TEXT, "another emulator uses the state directory %.150s", l->dir);
        return e == EWOULDBLOCK ? EBUSY : e;
    }
    return 0;
}

static int read_flavour(int dirfd, char *out, size_t cap)
{
    int fd = openat(dirfd, "tier", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno;
    ssize_t n = read(fd, out, cap - 1);
    int e = n < 0 ? errno : 0;
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return e;
}

static int check_flavour(int dirfd, const char *dir, const char *flavour, char err[BOX_TEXT])
{
    char have[160];
    int e = read_flavour(dirfd, have, sizeof have);
    if (e != 0)
        return e;
    if (strcmp(have, flavour) == 0)
        return 0;
    snprintf(err, BOX_TEXT,
             "the state directory %.90s was made under another isolation (%.40s, now %.40s): use another "
             "directory",
             dir, have, flavour);
    return EINVAL;
}

static int write_flavour(struct layers *l, char err[BOX_TEXT])
{
    int e = check_flavour(l->fd, l->dir, l->host->flavour, err);
    if (e != ENOENT)
        return e;
    e = 0;
    int fd = openat(l->fd, "tier.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0 || dprintf(fd, "%s\n", l->host->flavour) < 0 || fsync(fd) != 0 ||
        renameat(l->fd, "tier.new", l->fd, "tier") != 0)
        e = errno;
    box_fd_close(&fd);
    if (e != 0)
        snprintf(err, BOX_TEXT, "cannot write to the state directory %.150s: %s", l->dir, strerror(e));
    return e;
}

static int make_places(struct layers *l, char err[BOX_TEXT])
{
    static const char *const PLACES[] = {"base", "sessions", "layers", "trash"};
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        if (mkdirat(l->fd, PLACES[i], 0755) != 0 && errno != EEXIST) {
            int e = errno;
            snprintf(err, BOX_TEXT, "cannot write to the state directory %.150s: %s", l->dir, strerror(e));
            return e;
        }
    }
    return 0;
}

/* Overlays keep their marks in extended attributes. */
static int check_attributes(struct layers *l, char err[BOX_TEXT])
{
    if (l->host->tier == BOX_TIER_PLAIN)
        return 0;
    struct statfs fs;
    if (fstatfs(l->fd, &fs) == 0 && (unsigned long)fs.f_type == OVERLAYFS_SUPER_MAGIC) {
        snprintf(err, BOX_TEXT,
                 "the state directory %.100s is on an overlay file system, where overlays cannot be "
                 "stacked: use a volume",
                 l->dir);
        return EINVAL;
    }
    const char *name = l->host->tier == BOX_TIER_FULL ? "trusted.sandgate" : "user.sandgate";
    int fd = openat(l->fd, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int e = fd < 0 || fsetxattr(fd, name, "y", 1, 0) != 0 ? errno : 0;
    if (fd >= 0)
        (void)fremovexattr(fd, name);
    box_fd_close(&fd);
    if (e != 0)
        snprintf(err, BOX_TEXT,
                 "the file system of %.120s does not keep extended attributes (%s): use a volume on "
                 "ext4, xfs or btrfs",
                 l->dir, strerror(e));
    return e;
}

int layers_open(const char *state_dir, struct box_host *host, struct layers **out, char err[BOX_TEXT])
{
    err[0] = '\0';
    struct layers *l = calloc(1, sizeof *l);
    if (l == NULL) {
        snprintf(err, BOX_TEXT, "out of memory");
        return ENOMEM;
    }
    l->host = host;
    l->fd = l->lock = -1;
    char *real = NULL;
    int e = make_parents(state_dir);
    if (e == 0 && (real = realpath(state_dir, NULL)) == NULL)
        e = box_errno();
    if (e == 0 && strlen(real) > LAYERS_STATE_MAX)
        e = ENAMETOOLONG;
    if (e == 0) {
        snprintf(l->dir, sizeof l->dir, "%s", real);
        l->fd = open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (l->fd < 0)
            e = errno;
    }
    free(real);
    if (e != 0) {
        snprintf(err, BOX_TEXT, "cannot use the state directory %.150s: %s", state_dir, strerror(e));
        goto fail;
    }
    if ((e = take_lock(l, err)) != 0 || (e = write_flavour(l, err)) != 0 || (e = make_places(l, err)) != 0 ||
        (e = check_attributes(l, err)) != 0)
        goto fail;
    /* No mount can be left over: they live in mount namespaces that ended with the former emulator. */
    clean_up(l);
    *out = l;
    return 0;
fail:
    if (err[0] == '\0')
        snprintf(err, BOX_TEXT, "cannot use the state directory %.150s: %s", state_dir, strerror(e));
    layers_close(l);
    return e;
}

void layers_close(struct layers *l)
{
    if (l == NULL)
        return;
    box_fd_close(&l->lock);
    box_fd_close(&l->fd);
    free(l);
}

/* --- bases --- */

static bool dir_exists(const char *dir, const char *kind, const char *name, const char *part,
                       char out[LAYERS_PATH])
{
    struct stat sb;
    int n = snprintf(out, LAYERS_PATH, "%s/%s/%s%s", dir, kind, name, part);
    return n > 0 && n < LAYERS_PATH && stat(out, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static bool find_base(const struct layers *l, const char *name, char out[LAYERS_PATH])
{
    if (!layers_name_valid(name))
        return false;
    if (l->host->tier == BOX_TIER_PLAIN) { /* the host is every base */
        snprintf(out, LAYERS_PATH, "/");
        return true;
    }
    if (dir_exists(l->dir, "base", name, "", out))
        return true;
    for (size_t i = 0; i < l->n_shared; i++)
        if (dir_exists(l->shared[i], "base", name, "", out))
            return true;
    return false;
}

bool layers_has_base(const struct layers *l, const char *name)
{
    char path[LAYERS_PATH];
    return find_base(l, name, path);
}

int layers_share_bases(struct layers *l, const char *other_state_dir, char err[BOX_TEXT])
{
    err[0] = '\0';
    char *real = realpath(other_state_dir, NULL);
    int e = real == NULL ? box_errno() : 0;
    int fd = -1;
    if (e == 0 && (strlen(real) > LAYERS_STATE_MAX || l->n_shared == LAYERS_SHARED_MAX))
        e = E2BIG;
    if (e == 0 && (fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        e = errno;
    if (e == 0)
        e = check_flavour(fd, real, l->host->flavour, err);
    if (e == 0) {
        snprintf(l->shared[l->n_shared], sizeof l->shared[0], "%s", real);
        l->n_shared++;
    } else if (err[0] == '\0') {
        snprintf(err, BOX_TEXT, "cannot share the bases of %.150s: %s", other_state_dir, strerror(e));
    }
    box_fd_close(&fd);
    free(real);
    return e;
}

/* --- sessions and snapshots --- */

static int make_dir(struct layers *l, const char *session_id, const char *name, bool give)
{
    char path[LAYERS_PATH];
    snprintf(path, sizeof path, "sessions/%s/%s", session_id, name);
    if (mkdirat(l->fd, path, 0755) != 0)
        return errno == EEXIST ? 0 : errno;
    if (fchmodat(l->fd, path, 0755, 0) != 0)
        return errno;
    return give ? layers_give(l, l->fd, path) : 0;
}

int layers_session_make(struct layers *l, const char *session_id, struct layers_session *out)
{
    if (!layers_name_valid(session_id))
        return EINVAL;
    char path[LAYERS_PATH];
    snprintf(path, sizeof path, "sessions/%s", session_id);
    bool fresh = mkdirat(l->fd, path, 0700) == 0;
    if (!fresh && errno != EEXIST)
        return errno;
    int e = make_dir(l, session_id, "layer", false);
    if (e == 0)
        e = make_dir(l, session_id, "layer/upper", true);
    if (e == 0)
        e = make_dir(l, session_id, "work", true);
    if (e == 0)
        e = make_dir(l, session_id, "mnt", false);
    if (e != 0) {
        if (fresh)
            (void)layers_session_drop(l, session_id);
        return e;
    }
    snprintf(out->upper, sizeof out->upper, "%s/sessions/%s/layer/upper", l->dir, session_id);
    snprintf(out->work, sizeof out->work, "%s/sessions/%s/work", l->dir, session_id);
    if (l->host->tier == BOX_TIER_PLAIN) /* nothing is mounted: programs work in the layer itself */
        snprintf(out->mount, sizeof out->mount, "%s", out->upper);
    else
        snprintf(out->mount, sizeof out->mount, "%s/sessions/%s/mnt", l->dir, session_id);
    return 0;
}

int layers_lower(struct layers *l, const char *base, const char *const *snapshots, size_t n,
                 const char *const **out)
{
    if (n > 500)
        return E2BIG;
    size_t table = (n + 2) * sizeof(char *);
    char *block = calloc(1, table + (n + 1) * LAYERS_PATH);
    if (block == NULL)
        return ENOMEM;
    const char **list = (const char **)(void *)block;
    char *text = block + table;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++, text += LAYERS_PATH) {
        ok = layers_name_valid(snapshots[i]) && dir_exists(l->dir, "layers", snapshots[i], "/upper", text);
        list[i] = text;
    }
    ok = ok && find_base(l, base, text);
    if (!ok) {
        free(block);
        return ENOENT;
    }
    list[n] = text;
    *out = list;
    return 0;
}

static int measure(struct layers *l, const char *path, uint64_t *bytes)
{
    char err[BOX_TEXT];
    int fd = openat(l->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    struct box_msg *m = calloc(1, sizeof *m);
    int e = m == NULL ? ENOMEM : box_host_helper(l->host, BOX_HELPER_SIZE, fd, -1, NULL, NULL, m, err);
    if (e == 0)
        *bytes = m->bytes;
    free(m);
    close(fd);
    return e;
}

int layers_seal(struct layers *l, const char *session_id, const char *snapshot_id, uint64_t *size_bytes)
{
    if (!layers_name_valid(session_id) || !layers_name_valid(snapshot_id))
        return EINVAL;
    char from[LAYERS_PATH];
    char to[LAYERS_PATH];
    snprintf(from, sizeof from, "sessions/%s/layer", session_id);
    snprintf(to, sizeof to, "layers/%s", snapshot_id);
    int e = measure(l, from, size_bytes);
    if (e == 0 && renameat2(l->fd, from, l->fd, to, RENAME_NOREPLACE) != 0)
        e = errno;
    if (e == 0)
        e = layers_sync_dir(l, "layers");
    if (e != 0)
        return e;
    snprintf(from, sizeof from, "sessions/%s", session_id);
    e = layers_sync_dir(l, from);
    if (e == 0)
        e = layers_session_drop(l, session_id);
    if (e != 0) /* the layer is whole; what is left is only space */
        sg_log(SG_LOG_WARN, "cannot remove the rest of a session", "session", "s", session_id, "error", "s",
               strerror(e), NULL);
    return 0;
}

int layers_session_drop(struct layers *l, const char *session_id)
{
    if (!layers_name_valid(session_id))
        return EINVAL;
    char path[LAYERS_PATH];
    snprintf(path, sizeof path, "sessions/%s", session_id);
    return layers_trash(l, path);
}

int layers_remove(struct layers *l, const char *snapshot_id)
{
    if (!layers_name_valid(snapshot_id))
        return EINVAL;
    char path[LAYERS_PATH];
    snprintf(path, sizeof path, "layers/%s", snapshot_id);
    return layers_trash(l, path);
}

int layers_each_orphan(struct layers *l, void (*fn)(void *arg, const char *session_id), void *arg)
{
    char **names;
    size_t n;
    int e = list_names(l->fd, "sessions", &names, &n);
    for (size_t i = 0; e == 0 && i < n; i++)
        if (layers_name_valid(names[i]))
            fn(arg, names[i]);
    free_names(names, n);
    return e;
}
