#include "guest/fs.h"

#include <time.h>

/* Twice as long as the clock of file times stands still, and longer than one write of some megabytes takes. */
enum { REST_NS = 20000000, REST_TRIES = 10 };
static const int64_t second_ns = 1000000000;

static int64_t age_ns(const struct stat *st)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return REST_NS;
    int64_t s = now.tv_sec - st->st_mtim.tv_sec;
    if (s < 0 || s > 1)
        return REST_NS; /* long ago, or a time that somebody has set */
    int64_t ns = s * second_ns + now.tv_nsec - st->st_mtim.tv_nsec;
    return ns < 0 ? REST_NS : ns;
}

bool fs_rest(int fd, struct stat *st)
{
    for (int i = 0; i < REST_TRIES; i++) {
        int64_t age = age_ns(st);
        off_t size = st->st_size;
        if (age >= REST_NS)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = REST_NS - age}, NULL);
        if (fstat(fd, st))
            return true; /* reading will say why */
        if (st->st_size > size)
            return true;
    }
    return false;
}
