#include "emulator/layers_drives.h"
#include "emulator/layers_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A directory that root of a box owns and that the emulator can walk through. */
static int make_open_dir(struct layers *l, const char *path)
{
    if (mkdirat(l->fd, path, 0755) != 0 || fchmodat(l->fd, path, 0755, 0) != 0)
        return errno;
    return layers_give(l, l->fd, path);
}

static int make_drive_dir(struct layers *l, const char *id, char path[LAYERS_PATH])
{
    if (!layers_name_valid(id))
        return EINVAL;
    if (mkdirat(l->fd, "drives", 0700) != 0 && errno != EEXIST)
        return errno;
    snprintf(path, LAYERS_PATH, "drives/%s", id);
    return make_open_dir(l, path);
}

int layers_drive_make(struct layers *l, const char *id)
{
    char path[LAYERS_PATH], data[LAYERS_PATH];
    int e = make_drive_dir(l, id, path);
    if (e != 0)
        return e;
    snprintf(data, sizeof data, "drives/%s/data", id);
    e = make_open_dir(l, data);
    if (e != 0)
        (void)layers_trash(l, path);
    return e;
}

static int copy(struct layers *l, const char *from, const char *to, char err[BOX_TEXT])
{
    int in = openat(l->fd, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int out = in < 0 ? -1 : openat(l->fd, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int e = out < 0 ? errno : 0;
    struct box_msg *m = e == 0 ? calloc(1, sizeof *m) : NULL;
    if (e == 0)
        e = m == NULL ? ENOMEM : box_host_helper(l->host, BOX_HELPER_COPY, out, in, NULL, NULL, m, err);
    free(m);
    box_fd_close(&in);
    box_fd_close(&out);
    return e;
}

int layers_drive_fork(struct layers *l, const char *from, const char *id, char err[BOX_TEXT])
{
    char source[LAYERS_PATH], path[LAYERS_PATH];
    err[0] = '\0';
    if (!layers_name_valid(from))
        return EINVAL;
    int e = make_drive_dir(l, id, path);
    if (e == 0) {
        snprintf(source, sizeof source, "drives/%s", from);
        e = copy(l, source, path, err);
        if (e != 0)
            (void)layers_trash(l, path);
    }
    if (e != 0 && err[0] == '\0')
        snprintf(err, BOX_TEXT, "cannot copy the drive: %s", strerror(e));
    return e;
}

int layers_drive_freeze(struct layers *l, const char *from, const char *session_id, unsigned n,
                        char path[LAYERS_DRIVE_PATH], char err[BOX_TEXT])
{
    char source[LAYERS_PATH], to[LAYERS_PATH];
    err[0] = '\0';
    if (!layers_name_valid(from) || !layers_name_valid(session_id))
        return EINVAL;
    snprintf(source, sizeof source, "drives/%s", from);
    snprintf(to, sizeof to, "sessions/%s/mounts", session_id);
    int e = mkdirat(l->fd, to, 0755) != 0 && errno != EEXIST ? errno : 0;
    snprintf(to, sizeof to, "sessions/%s/mounts/%u", session_id, n);
    if (e == 0)
        e = make_open_dir(l, to);
    if (e == 0)
        e = copy(l, source, to, err);
    if (e != 0 && err[0] == '\0')
        snprintf(err, BOX_TEXT, "cannot copy the drive: %s", strerror(e));
    snprintf(path, LAYERS_DRIVE_PATH, "%s/sessions/%s/mounts/%u/data", l->dir, session_id, n);
    return e;
}

void layers_drive_path(const struct layers *l, const char *id, char path[LAYERS_DRIVE_PATH])
{
    snprintf(path, LAYERS_DRIVE_PATH, "%s/drives/%s/data", l->dir, id);
}

int layers_drive_used(struct layers *l, const char *id, bool *used)
{
    char path[LAYERS_PATH], err[BOX_TEXT];
    if (!layers_name_valid(id))
        return EINVAL;
    snprintf(path, sizeof path, "drives/%s", id);
    int fd = openat(l->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    struct box_msg *m = calloc(1, sizeof *m);
    int e = m == NULL ? ENOMEM : box_host_helper(l->host, BOX_HELPER_SIZE, fd, -1, NULL, NULL, m, err);
    if (e == 0)
        *used = m->count > 1; /* "data" is one */
    free(m);
    close(fd);
    return e;
}

int layers_drive_remove(struct layers *l, const char *id)
{
    char path[LAYERS_PATH];
    if (!layers_name_valid(id))
        return EINVAL;
    snprintf(path, sizeof path, "drives/%s", id);
    return layers_trash(l, path);
}

int layers_drives_sweep(struct layers *l, bool (*known)(void *arg, const char *id), void *arg)
{
    int fd = openat(l->fd, "drives", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        int e = errno;
        close(fd);
        return e;
    }
    int e = 0;
    for (const struct dirent *entry; e == 0 && (entry = readdir(d)) != NULL;)
        if (layers_name_valid(entry->d_name) && !known(arg, entry->d_name))
            e = layers_drive_remove(l, entry->d_name);
    closedir(d);
    return e;
}

int layers_wipe(struct layers *l, const char *path)
{
    char err[BOX_TEXT];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    struct box_msg *m = calloc(1, sizeof *m);
    int e = m == NULL ? ENOMEM : box_host_helper(l->host, BOX_HELPER_REMOVE, fd, -1, NULL, NULL, m, err);
    free(m);
    close(fd);
    return e == 0 && rmdir(path) != 0 ? errno : e;
}
