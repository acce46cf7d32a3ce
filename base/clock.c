#include "base/clock.h"

#include <stdio.h>
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

/* Exactly `width` digits of n and the character behind them. */
static char *digits(char *out, int n, int width, char then)
{
    for (int i = width - 1; i >= 0; i--, n /= 10)
        out[i] = (char)('0' + n % 10);
    out[width] = then;
    return out + width + 1;
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
    if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
        (void)snprintf(out, SG_TIME_TEXT, "1970-01-01T00:00:00.000Z");
        return;
    }
    /* every record has four of these, and the printf family takes longer than all the rest of it */
    out = digits(out, tm.tm_year + 1900, 4, '-');
    out = digits(out, tm.tm_mon + 1, 2, '-');
    out = digits(out, tm.tm_mday, 2, 'T');
    out = digits(out, tm.tm_hour, 2, ':');
    out = digits(out, tm.tm_min, 2, ':');
    out = digits(out, tm.tm_sec, 2, '.');
    out = digits(out, (int)ms, 3, 'Z');
    *out = '\0';
}
