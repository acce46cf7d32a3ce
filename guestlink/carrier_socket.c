#include "guestlink/carrier_impl.h"

bool carrier_socket_may(const struct carrier *c)
{
    (void)c;
    return false;
}

enum sg_code carrier_socket_begin(struct carrier *c, struct sg_error *e)
{
    (void)c;
    return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "No interactive socket.");
}

void carrier_socket_push(struct carrier *c)
{
    (void)c;
}

void carrier_socket_drop(struct carrier *c)
{
    (void)c;
}

bool carrier_socket_late(struct carrier *c)
{
    (void)c;
    return false;
}
