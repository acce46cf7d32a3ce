#include "guest/files.h"

#include "guest/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *upload_name(const char *from)
{
    const char *root = guest_root_path();
    size_t n = strlen(root);
    if (strncmp(from, root, n) == 0 && from[n] == '/')
        from += n + 1;
    bool plain = *from && !strchr(from, '/') && strcmp(from, ".") != 0 && strcmp(from, "..") != 0;
    return plain && strncmp(from, "guest-", 6) != 0 ? from : NULL;
}

static bool file_failed(struct guest_fail *f, int err, const char *text)
{
    return guest_failed(f, err == ENOSPC || err == EDQUOT ? SG_WF_NO_SPACE : SG_WF_FILE, err, text);
}

int upload_open(const struct guest_root *root, const char *from, struct guest_fail *f)
{
    const char *name = upload_name(from);
    if (!name) {
        guest_failed(f, SG_WF_USAGE, 0, "bad value of --from");
        return -1;
    }
    int fd = guest_open_file(root->fd, name);
    if (fd < 0)
        file_failed(f, errno, "the upload");
    return fd;
}

void upload_unlink(const struct guest_root *root, const char *from)
{
    const char *name = upload_name(from);
    if (name)
        (void)unlinkat(root->fd, name, 0);
}

bool upload_read(const struct guest_root *root, const char *name, size_t max, unsigned char **data,
                 size_t *len, struct guest_fail *f)
{
    struct stat st;
    int fd = guest_open_file(root->fd, name);
    *data = NULL;
    *len = 0;
    if (fd < 0)
        return file_failed(f, errno, "the upload");
    bool ok = fstat(fd, &st) == 0 || file_failed(f, errno, "the upload");
    if (ok && (st.st_size < 0 || (uint64_t)st.st_size > max))
        ok = file_failed(f, EFBIG, "the upload");
    size_t size = ok ? (size_t)st.st_size : 0;
    if (size && !(*data = malloc(size)))
        ok = guest_failed(f, SG_WF_INTERNAL, ENOMEM, "no memory");
    while (ok && *len < size) {
        ssize_t n = pread(fd, *data + *len, size - *len, (off_t)*len);
        if (n > 0)
            *len += (size_t)n;
        else if (n == 0)
            ok = file_failed(f, EIO, "the upload became shorter");
        else if (errno != EINTR)
            ok = file_failed(f, errno, "the upload");
    }
    close(fd);
    if (!ok) {
        free(*data);
        *data = NULL;
    }
    return ok;
}
