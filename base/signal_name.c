#include "base/signal_name.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { RT_MIN = 34 }; /* what programs see: the C library keeps two for itself */

const char *sg_signal_name(uint32_t number, char buf[SG_SIGNAL_TEXT])
{
    const char *abbrev = number && number < RT_MIN ? sigabbrev_np((int)number) : NULL;
    if (abbrev)
        (void)snprintf(buf, SG_SIGNAL_TEXT, "SIG%s", abbrev);
    else if (number >= RT_MIN && number <= SG_SIGNAL_MAX)
        (void)snprintf(buf, SG_SIGNAL_TEXT, "SIGRTMIN+%u", number - RT_MIN);
    else
        (void)snprintf(buf, SG_SIGNAL_TEXT, "SIG%u", number);
    return buf;
}

int sg_signal_number(const json_t *value)
{
    char buf[SG_SIGNAL_TEXT];
    if (json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        return n >= 1 && n <= SG_SIGNAL_MAX ? (int)n : 0;
    }
    const char *want = json_string_value(value);
    if (!want)
        return 0;
    if (!strncasecmp(want, "SIG", 3))
        want += 3;
    for (uint32_t n = 1; n <= SG_SIGNAL_MAX; n++) {
        bool named = n <= SIGSYS || n >= RT_MIN;
        if (named && !strcasecmp(sg_signal_name(n, buf) + 3, want))
            return (int)n;
    }
    return 0;
}
