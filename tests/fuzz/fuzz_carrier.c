/* Whatever comes over a carrier: the decoder stays inside it, says the same however the bytes are cut, and a frame
 * that it accepts is the encoder's own. */
#include "base/core/carrier.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* With the bytes in a block of just their length, so that reading on would be seen. */
static int decode(const uint8_t *data, size_t n, struct sg_carrier_frame *f)
{
    unsigned char *exact = malloc(n ? n : 1);
    check(exact != NULL);
    memcpy(exact, data, n);
    int got = sg_carrier_decode(exact, n, f);
    free(exact);
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct sg_carrier_frame f, again;
        int n = decode(data + at, size - at, &f);
        check(n >= -1 && n <= SG_CARRIER_HEAD_MAX);
        if (n <= 0) {
            check(n < 0 || size - at < SG_CARRIER_HEAD_MAX);
            return 0;
        }
        for (int cut = 0; cut < n; cut++)
            check(decode(data + at, (size_t)cut, &again) == 0);
        check(decode(data + at, (size_t)n, &again) == n);
        unsigned char out[SG_CARRIER_HEAD_MAX];
        check(sg_carrier_encode(out, &f) == (size_t)n && memcmp(out, data + at, (size_t)n) == 0);
        check(f.kind == again.kind && f.offset == again.offset && f.len == again.len &&
              f.cols == again.cols && f.rows == again.rows && f.signal == again.signal &&
              f.whole == again.whole && f.received[0] == again.received[0] &&
              f.received[1] == again.received[1]);
        at += (size_t)n;
        if (f.kind == SG_CARRIER_DATA) {
            check(f.len >= 1 && f.len <= SG_CARRIER_DATA_MAX);
            at += f.len;
        }
    }
    return 0;
}
