/* Names of signals as callers write and read them.  Pure; any thread. */
#ifndef SG_BASE_SIGNAL_NAME_H
#define SG_BASE_SIGNAL_NAME_H

#include <jansson.h>
#include <stdint.h>

enum { SG_SIGNAL_MAX = 64, SG_SIGNAL_TEXT = 24 };

/* "SIGTERM"; "SIGRTMIN+n" for the real-time ones; "SIG<n>" where there is no name.  Into buf, which it returns. */
const char *sg_signal_name(uint32_t number, char buf[SG_SIGNAL_TEXT]);
/* "TERM", "SIGTERM", "rtmin+1" or 15, as JSON: 1..SG_SIGNAL_MAX; 0 when it is none of these. */
int sg_signal_number(const json_t *value);

#endif
