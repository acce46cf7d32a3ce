#include "emulator/jsonfile.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool jsonfile_store(const char *path, json_t *obj)
{
    char tmp[700];
    bool ok = false;
    char *text = obj ? json_dumps(obj, JSON_COMPACT) : NULL;
    json_decref(obj);
    if (!text) {
        errno = ENOMEM;
        goto out;
    }
    /* two threads may store one object at once: each its own temporary file */
    static atomic_uint serial;
    snprintf(tmp, sizeof tmp, "%s.%u.tmp", path, atomic_fetch_add(&serial, 1));
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        goto out;
    ok = write_all(fd, text, strlen(text));
    ok = !close(fd) && ok;
    ok = ok && !rename(tmp, path);
    if (!ok) {
        int err = errno;
        unlink(tmp);
        errno = err;
    }
out:
    if (!ok)
        sg_log(SG_LOG_ERROR, "state_write_failed", "path", "s", path, "error", "s", strerror(errno), NULL);
    free(text);
    return ok;
}
