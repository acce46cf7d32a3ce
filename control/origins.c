#include "control/origins.h"

void control_origin_clear(struct control_origin *o)
{
    json_decref(o->base);
    *o = (struct control_origin){0};
}
