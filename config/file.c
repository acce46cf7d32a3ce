#include "config/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_all(int fd, size_t max, struct sg_buf *b)
{
    sg_buf_init(b, max);
    for (;;) {
        char *p = sg_buf_reserve(b, 4096);
        if (!p) {
            errno = b->len + 4096 > max ? EFBIG : ENOMEM;
            return false;
        }
        ssize_t n = read(fd, p, 4096);
        if (n == 0)
            return true;
        if (n > 0)
            b->len += (size_t)n;
        else if (errno != EINTR)
            return false;
    }
}

bool config_read_file(const char *path, size_t max, struct sg_buf *b, bool *open_to_all)
{
    sg_buf_init(b, max);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    struct stat st;
    bool ok = fstat(fd, &st) == 0;
    if (ok && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        ok = false;
    } else if (ok && !S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
        errno = EINVAL;
        ok = false;
    }
    if (ok) {
        *open_to_all = (st.st_mode & S_IROTH) != 0;
        ok = read_all(fd, max, b);
    }
    int err = errno;
    (void)close(fd);
    errno = err;
    return ok;
}
