#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t sg_mono_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t sg_mono_ms(void)
{
    return sg_mono_ns() / 1000000;
}

int64_t sg_wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void sg_time_format(int64_t wall_ms, char out[SG_TIME_TEXT])
{
    int64_t ms = wall_ms % 1000;
    int64_t s = wall_ms / 1000;
    if (ms < 0) {
        ms += 1000;
        s--;
    }
    time_t t = (time_t)s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, SG_TIME_TEXT, "%Y-%m-%dT%H:%M:%S", &tm)) {
        (void)snprintf(out, SG_TIME_TEXT, "1970-01-01T00:00:00.000Z");
        return;
    }
    size_t n = strlen(out);
    (void)snprintf(out + n, SG_TIME_TEXT - n, ".%03dZ", (int)ms);
}
