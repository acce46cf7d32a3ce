#include "guest/guest.h"

#include "base/core/num.h"
#include "base/core/sha256.h"
#include "guest/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool guest_failed(struct guest_fail *f, enum sg_wire_fail code, int err, const char *text)
{
    const char *name = err ? libc_errno_name(err) : NULL;
    f->code = code;
    snprintf(f->errno_name, sizeof f->errno_name, "%s", name ? name : "");
    snprintf(f->text, sizeof f->text, "%s", text);
    return false;
}

uint64_t guest_now_ms(void)
{
#ifdef SG_GUEST_TEST
    static uint64_t
        looks; /* a clock that goes on when it is looked at: what ends in time then always ends there */
    if (getenv("SANDGATE_GUEST_TICKS"))
        return ++looks;
#endif
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t guest_life_ms(void)
{
#ifdef SG_GUEST_TEST
    const char *env = getenv("SANDGATE_GUEST_LIFE_MS");
    uint64_t ms;
    if (env && sg_parse_u64(env, strlen(env), GUEST_FOLLOW_MS, &ms))
        return ms;
#endif
    return GUEST_FOLLOW_MS;
}

int guest_open_file(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

long guest_read_file(int dir, const char *name, char *buf, size_t cap)
{
    int fd = guest_open_file(dir, name);
    if (fd < 0)
        return -1;
    ssize_t n = pread(fd, buf, cap, 0);
    int err = errno;
    close(fd);
    errno = err;
    return n;
}

bool guest_hash_fd(int fd, char hex[GUEST_HASH_CHARS + 1])
{
    static unsigned char buf[65536];
    struct sg_sha256 s;
    sg_sha256_init(&s);
    off_t at = 0;
    for (;;) {
        ssize_t n = pread(fd, buf, sizeof buf, at);
        if (n < 0)
            return false;
        if (n == 0)
            break;
        sg_sha256_update(&s, buf, (size_t)n);
        at += n;
    }
    unsigned char sum[32];
    sg_sha256_final(&s, sum);
    for (size_t i = 0; i < GUEST_HASH_CHARS / 2; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    return true;
}
