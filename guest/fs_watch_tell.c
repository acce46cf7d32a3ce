#include "guest/fs_watch.h"

#include "guest/out.h"

#include <stdlib.h>
#include <string.h>

static void print(struct watch_tell *t, enum sg_wire_change change, char entry, const char *path,
                  const char *to)
{
    out_line(&(struct sg_wire_line){.kind = SG_WIRE_CHANGE,
                                    .change = change,
                                    .entry = entry,
                                    .name = (const unsigned char *)path,
                                    .name_len = strlen(path),
                                    .data = (const unsigned char *)to,
                                    .len = strlen(to)});
    t->lost = change == SG_CH_OVERFLOW;
}

void watch_tell_flush(struct watch_tell *t)
{
    for (size_t i = 0; i < t->n; i++) {
        print(t, t->held[i].change, t->held[i].entry, t->held[i].path, "");
        free(t->held[i].path);
    }
    t->n = 0;
    t->due_ms = 0;
}

/* False: it cannot be held. */
static bool hold(struct watch_tell *t, enum sg_wire_change change, char entry, const char *path)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->held[i].change == change && strcmp(t->held[i].path, path) == 0)
            return true;
    if (t->n == WATCH_HELD)
        watch_tell_flush(t);
    char *copy = strdup(path);
    if (!copy)
        return false;
    t->held[t->n].change = change;
    t->held[t->n].entry = entry;
    t->held[t->n].path = copy;
    if (t->n++ == 0)
        t->due_ms = guest_now_ms() + WATCH_HOLD_MS;
    return true;
}

void watch_tell(struct watch_tell *t, enum sg_wire_change change, char entry, const char *path)
{
    bool repeats = change == SG_CH_MODIFY || change == SG_CH_ATTRIB;
    if (repeats && hold(t, change, entry, path))
        return;
    watch_tell_flush(t);
    print(t, change, entry, path, "");
}

void watch_tell_move(struct watch_tell *t, char entry, const char *from, const char *to)
{
    watch_tell_flush(t);
    if (strlen(from) + strlen(to) <= SG_WIRE_DATA_MAX) {
        print(t, SG_CH_MOVE, entry, from, to);
        return;
    }
    print(t, SG_CH_DELETE, entry, from, ""); /* the two do not fit one line */
    print(t, SG_CH_CREATE, entry, to, "");
}

void watch_tell_lost(struct watch_tell *t)
{
    watch_tell_flush(t);
    if (!t->lost)
        print(t, SG_CH_OVERFLOW, '\0', "", "");
}
