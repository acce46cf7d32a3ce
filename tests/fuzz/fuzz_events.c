/* Accept headers and event ids from foreign clients: no fault, and an id that is accepted is one we write. */
#include "relay/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bool ok)
{
    if (!ok)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *text = malloc(size + 1);
    enum events_format format = EVENTS_SSE;
    struct events_at at, again;
    struct sg_buf b;
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    (void)events_accept(text, &format);
    sg_buf_init(&b, 4096);
    if (events_parse_id(text, &at) && events_record(&b, EVENTS_SSE, &at, "end", "{}")) {
        char *id = strstr(b.data, "id: ") + 4;
        *strchr(id, '\n') = '\0';
        check(events_parse_id(id, &again));
        check(at.offset[0] == again.offset[0] && at.offset[1] == again.offset[1] && at.over == again.over &&
              at.terminal == again.terminal);
    }
    sg_buf_free(&b);
    free(text);
    return 0;
}
