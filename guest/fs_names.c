#include "guest/fs_names.h"

#include "guest/guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLOCK_EACH = 1024 }; /* entries between two looks at the clock */

void fs_names_free(struct fs_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->v[i]);
    free(names->v);
    *names = (struct fs_names){0};
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts, and keeps as many of the smallest as are wanted. */
static void keep_smallest(struct fs_names *names)
{
    size_t kept = 0, bytes = 0;
    bool full = false; /* once one has no room, no greater one may have it */
    if (names->n)
        qsort(names->v, names->n, sizeof *names->v, compare);
    for (size_t i = 0; i < names->n; i++) {
        size_t len = strlen(names->v[i]) + 1;
        bool again = kept && strcmp(names->v[kept - 1], names->v[i]) == 0;
        if (!again && (kept == names->limit || (kept && bytes + len > names->max_bytes)))
            full = true;
        if (again || full) {
            free(names->v[i]);
            continue;
        }
        names->v[kept++] = names->v[i];
        bytes += len;
    }
    names->more = names->more || full;
    names->n = kept;
    names->bytes = bytes;
}

static bool add(struct fs_names *names, const char *name, bool slash)
{
    size_t len = strlen(name);
    if (names->n >= 2 * names->limit || names->bytes > 2 * names->max_bytes)
        keep_smallest(names);
    if (names->n == names->cap) {
        size_t cap = names->cap ? names->cap * 2 : 64;
        char **grown = realloc(names->v, cap * sizeof *grown);
        if (!grown)
            return false;
        names->v = grown;
        names->cap = cap;
    }
    char *copy = malloc(len + 2);
    if (!copy)
        return false;
    memcpy(copy, name, len);
    copy[len] = '/';
    copy[len + slash] = '\0';
    names->v[names->n++] = copy;
    names->bytes += len + slash + 1;
    return true;
}

static bool is_directory(int fd, const struct dirent *e)
{
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool add_entry(struct fs_names *names, const char *after, int fd, const struct dirent *e,
                      bool descents)
{
    const char *name = e->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (!after || strcmp(name, after) > 0)
        if (!add(names, name, false))
            return false;
    if (!descents || !is_directory(fd, e))
        return true;
    char key[sizeof e->d_name + 1];
    size_t n = strlen(name);
    memcpy(key, name, n);
    key[n] = '/';
    key[n + 1] = '\0';
    return (after && strcmp(key, after) <= 0) || add(names, name, true);
}

bool fs_names_read(int fd, const char *after, size_t limit, size_t max_bytes, bool with_descents,
                   struct fs_names *out)
{
    return fs_names_read_until(fd, after, limit, max_bytes, with_descents, UINT64_MAX, out);
}

bool fs_names_read_until(int fd, const char *after, size_t limit, size_t max_bytes, bool with_descents,
                         uint64_t deadline_ms, struct fs_names *out)
{
    *out = (struct fs_names){.limit = limit, .max_bytes = max_bytes};
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d) {
        int err = errno;
        if (copy >= 0)
            close(copy);
        errno = err;
        return false;
    }
    rewinddir(d);
    struct dirent *e;
    int err = 0;
    for (size_t i = 1; !err; i++) {
        errno = 0;
        e = readdir(d);
        if (!e) {
            err = errno;
            break;
        }
        if (!add_entry(out, after, fd, e, with_descents))
            err = ENOMEM;
        else if (i % CLOCK_EACH == 0 && guest_now_ms() > deadline_ms)
            err = ETIMEDOUT;
    }
    closedir(d);
    keep_smallest(out);
    errno = err;
    return err == 0;
}
