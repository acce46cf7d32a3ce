#include "relay/cursor.h"

enum cursor_verdict cursor_take(struct cursor *c, const struct sg_wire_line *line, struct cursor_step *step)
{
    if (line->channel < 1 || line->channel > 3)
        return CURSOR_HOLE;
    int s = line->channel == 2 ? 1 : 0; /* a terminal's bytes take the place of stdout */
    if (c->only >= 0 && c->only != s)
        return CURSOR_OLD;
    uint64_t end = line->kind == SG_WIRE_GAP ? line->to : line->offset + line->len;
    if (end <= c->pos[s])
        return CURSOR_OLD;
    if (line->offset > c->pos[s])
        return CURSOR_HOLE;
    *step = (struct cursor_step){.stream = s, .offset = c->pos[s], .to = end};
    if (line->kind != SG_WIRE_GAP) {
        uint64_t known = c->pos[s] - line->offset;
        step->data = line->data + known;
        step->len = line->len - (size_t)known;
    }
    c->pos[s] = end;
    return line->kind == SG_WIRE_GAP ? CURSOR_GAP : CURSOR_DATA;
}

bool cursor_at(const struct cursor *c, const uint64_t end[2])
{
    for (int s = 0; s < 2; s++)
        if ((c->only < 0 || c->only == s) && c->pos[s] < end[s])
            return false;
    return true;
}
