/* Time: monotonic for waiting, wall clock for showing.  Any thread. */
#ifndef SG_BASE_CLOCK_H
#define SG_BASE_CLOCK_H

#include <stdint.h>

enum { SG_TIME_TEXT = 32 };

/* Milliseconds and nanoseconds of CLOCK_MONOTONIC. */
int64_t sg_mono_ms(void);
int64_t sg_mono_ns(void);
/* Milliseconds since the epoch. */
int64_t sg_wall_ms(void);
/* RFC 3339 UTC with milliseconds, e.g. 2026-11-30T12:00:00.123Z; the epoch for years beyond 0–9999. */
void sg_time_format(int64_t wall_ms, char out[SG_TIME_TEXT]);

#endif
