#include "guest/install.h"

#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_self(void)
{
    return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

/* Our own name below the root; false when we were not started from there. */
static bool own_name(const struct guest_root *root, int self, char name[NAME_MAX + 1])
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return false;
    path[n] = '\0';
    const char *slash = strrchr(path, '/');
    struct stat a, b;
    if (!slash || strlen(slash + 1) > NAME_MAX || fstat(self, &a) ||
        fstatat(root->fd, slash + 1, &b, AT_SYMLINK_NOFOLLOW) || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return false;
    snprintf(name, NAME_MAX + 1, "%s", slash + 1);
    return true;
}

static bool same_hash(const struct guest_root *root, const char *name, const char *hash)
{
    char hex[GUEST_HASH_CHARS + 1];
    int fd = guest_open_file(root->fd, name);
    bool same = fd >= 0 && guest_hash_fd(fd, hex) && strcmp(hex, hash) == 0;
    if (fd >= 0)
        close(fd);
    return same;
}

static bool take_place(const struct guest_root *root, int self, const char *hash, struct guest_fail *f)
{
    char mine[NAME_MAX + 1], place[16 + GUEST_HASH_CHARS];
    char hex[GUEST_HASH_CHARS + 1];
    snprintf(place, sizeof place, "guest-%s", hash);
    if (!own_name(root, self, mine))
        return guest_failed(f, SG_WF_INTERNAL, EXDEV, "not started from the root directory");
    if (strcmp(mine, place) == 0)
        return true;
    if (strncmp(mine, ".up-", 4) != 0)
        return guest_failed(f, SG_WF_INTERNAL, EINVAL, "not started from an upload");
    if (!guest_hash_fd(self, hex))
        return guest_failed(f, SG_WF_INTERNAL, errno, "reading the upload");
    if (strcmp(hex, hash) != 0) {
        unlinkat(root->fd, mine, 0);
        return guest_failed(f, SG_WF_INTERNAL, EBADMSG, "the upload has another hash");
    }
    if (!root_own(root, self) || fchmod(self, 0755))
        return guest_failed(f, SG_WF_INTERNAL, errno, "installing");
    if (same_hash(root, place, hash)) {
        unlinkat(root->fd, mine, 0);
    } else if (renameat(root->fd, mine, root->fd, place)) {
        return guest_failed(f, SG_WF_INTERNAL, errno, "installing");
    }
    sweep_stale(root);
    return true;
}

bool install_self(const struct guest_root *root, const char *hash, struct guest_fail *f)
{
    int self = open_self();
    if (self < 0)
        return guest_failed(f, SG_WF_INTERNAL, errno, "opening the upload");
    bool ok = take_place(root, self, hash, f);
    close(self);
    return ok;
}

bool install_version(struct guest_fail *f)
{
    char hex[GUEST_HASH_CHARS + 1], text[128];
    int self = open_self();
    bool ok = self >= 0 && guest_hash_fd(self, hex);
    int err = errno;
    if (self >= 0)
        close(self);
    if (!ok)
        return guest_failed(f, SG_WF_INTERNAL, err, "reading the helper");
    snprintf(text, sizeof text, "# sandgate-guest " GUEST_VERSION " %s\n", hex);
    out_raw(text);
    out_kind(SG_WIRE_OK, NULL);
    return true;
}
