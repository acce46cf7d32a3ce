#include "base/core/carrier.h"

enum { D_HEAD = 13, C_LEN = 9, R_LEN = 5, S_LEN = 3, K_LEN = 17, SIGNAL_MAX = 64 };
#define OFFSET_MAX (UINT64_MAX / 4)

static void put(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, v >>= 8)
        p[i] = (unsigned char)(v & 0xff);
}

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

static bool in_range(const struct sg_carrier_frame *f)
{
    switch (f->kind) {
    case SG_CARRIER_DATA:
        return f->len >= 1 && f->len <= SG_CARRIER_DATA_MAX && f->offset <= OFFSET_MAX;
    case SG_CARRIER_CLOSE:
        return f->offset <= OFFSET_MAX;
    case SG_CARRIER_RESIZE:
        return f->cols > 0 && f->rows > 0;
    case SG_CARRIER_SIGNAL:
        return f->signal >= 1 && f->signal <= SIGNAL_MAX;
    case SG_CARRIER_ACK:
        return f->received[0] <= OFFSET_MAX && f->received[1] <= OFFSET_MAX;
    }
    return false;
}

size_t sg_carrier_encode(unsigned char out[SG_CARRIER_HEAD_MAX], const struct sg_carrier_frame *f)
{
    if (!in_range(f))
        return 0;
    out[0] = (unsigned char)f->kind;
    switch (f->kind) {
    case SG_CARRIER_DATA:
        put(out + 1, f->offset, 8);
        put(out + 9, f->len, 4);
        return D_HEAD;
    case SG_CARRIER_CLOSE:
        put(out + 1, f->offset, 8);
        return C_LEN;
    case SG_CARRIER_RESIZE:
        put(out + 1, f->cols, 2);
        put(out + 3, f->rows, 2);
        return R_LEN;
    case SG_CARRIER_SIGNAL:
        out[1] = f->signal;
        out[2] = f->whole;
        return S_LEN;
    case SG_CARRIER_ACK:
        put(out + 1, f->received[0], 8);
        put(out + 9, f->received[1], 8);
        return K_LEN;
    }
    return 0;
}

int sg_carrier_decode(const unsigned char *p, size_t n, struct sg_carrier_frame *out)
{
    if (n == 0)
        return 0;
    struct sg_carrier_frame f = {.kind = (enum sg_carrier_kind)p[0]};
    int len = -1;
    switch (f.kind) {
    case SG_CARRIER_DATA:
        len = D_HEAD;
        break;
    case SG_CARRIER_CLOSE:
        len = C_LEN;
        break;
    case SG_CARRIER_RESIZE:
        len = R_LEN;
        break;
    case SG_CARRIER_SIGNAL:
        len = S_LEN;
        break;
    case SG_CARRIER_ACK:
        len = K_LEN;
        break;
    }
    if (len < 0 || n < (size_t)len)
        return len < 0 ? -1 : 0;
    f.offset = len == D_HEAD || len == C_LEN ? get(p + 1, 8) : 0;
    f.len = len == D_HEAD ? (uint32_t)get(p + 9, 4) : 0;
    f.cols = len == R_LEN ? (uint16_t)get(p + 1, 2) : 0;
    f.rows = len == R_LEN ? (uint16_t)get(p + 3, 2) : 0;
    f.signal = len == S_LEN ? p[1] : 0;
    f.whole = len == S_LEN && p[2] == 1;
    if (len == S_LEN && p[2] > 1)
        return -1;
    f.received[0] = len == K_LEN ? get(p + 1, 8) : 0;
    f.received[1] = len == K_LEN ? get(p + 9, 8) : 0;
    if (!in_range(&f))
        return -1;
    *out = f;
    return len;
}
