#include "guest/fs.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

/* Longer than the clock of file times stands still, and than one write of some megabytes takes. */
enum { REST_NS = 20000000, TICK_NS = 1000000, REST_TRIES = 10, TICKS_MAX = 12 };
static const int64_t second_ns = 1000000000;

static int64_t age_ns(const struct stat *st)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return REST_NS;
    int64_t s = now.tv_sec - st->st_mtim.tv_sec;
    if (s < 0 || s > 1 || st->st_mtim.tv_nsec == 0)
        return REST_NS; /* long ago, or a time that somebody has set: uploads have those of their archive */
    int64_t ns = s * second_ns + now.tv_nsec - st->st_mtim.tv_nsec;
    return ns < 0 ? REST_NS : ns;
}

/* Nobody has the file open for writing: the kernel gives a lease on it then, to its owner.  It is given back at once; who
 * opens the file just then waits for that, and is what the signal would tell of. */
static bool nobody_writes(int fd)
{
    (void)signal(SIGIO, SIG_IGN);
    if (fcntl(fd, F_SETLEASE, F_RDLCK))
        return false;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return true;
}

/* Whether a write from now on would give the file another time than it has. */
static bool clock_went_on(const struct stat *st)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now))
        return false;
    return now.tv_sec > st->st_mtim.tv_sec ||
           (now.tv_sec == st->st_mtim.tv_sec && now.tv_nsec > st->st_mtim.tv_nsec);
}

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* *st was taken before: what began to be written until then has ended when nobody has the file open. */
static bool is_at_rest(int fd, const struct stat *st)
{
    if (age_ns(st) >= REST_NS)
        return true;
    if (!nobody_writes(fd))
        return false;
    for (int i = 0; i < TICKS_MAX && !clock_went_on(st); i++)
        sleep_ns(TICK_NS);
    return clock_went_on(st);
}

bool fs_rest(int fd, struct stat *st)
{
    for (int i = 0; i < REST_TRIES; i++) {
        off_t size = st->st_size;
        if (is_at_rest(fd, st))
            return true;
        int64_t age = age_ns(st);
        if (age < REST_NS)
            sleep_ns(REST_NS - age);
        if (fstat(fd, st))
            return true; /* reading will say why */
        if (st->st_size > size)
            return true;
    }
    return false;
}
