/* Any bytes as gzip: the same comes out however they are cut and whatever room there is, what claims to be whole has its
 * sums right, and nothing grows beyond the policy.  What we pack comes back.  (B11) */
#include "transfer/gzip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 20, FREE = 1 << 16 };

static void check(bool ok)
{
    if (!ok)
        abort();
}

struct result {
    enum gunzip_state state;
    bool whole;
    size_t n;
    uint64_t in;
};

static struct result unpack(const char *in, size_t len, size_t in_piece, size_t out_piece, char *out)
{
    struct gunzip g;
    struct result r = {0};
    check(gunzip_open(&g, FREE));
    while (len && !r.state && r.n < OUT_MAX) {
        size_t some = len < in_piece ? len : in_piece, made = 0, room = 0, all = some;
        char *exact = malloc(some);
        check(exact != NULL);
        memcpy(exact, in, some);
        const char *at = exact;
        do {
            room = OUT_MAX - r.n < out_piece ? OUT_MAX - r.n : out_piece;
            r.state = gunzip_step(&g, &at, &some, out + r.n, room, &made);
            check(made <= room && some <= all);
            r.n += made;
        } while (!r.state && (some || made == room) && r.n < OUT_MAX);
        in += all - some;
        len -= all - some;
        free(exact);
    }
    r.whole = !r.state && gunzip_whole(&g);
    r.in = g.in;
    check(g.out == r.n);
    check(r.state || r.n <= FREE || r.n / GUNZIP_RATIO_MAX <= g.in);
    gunzip_close(&g);
    return r;
}

static void round_trip(const char *data, size_t len, size_t piece, char *out)
{
    struct gzip g;
    size_t n = 0, made, left = len;
    char *packed = malloc(len + len / 8 + 1024);
    check(packed && gzip_open(&g, GZIP_LEVEL));
    const char *at = data;
    while (!g.done) {
        size_t some = left < piece ? left : piece, before = some;
        (void)gzip_step(&g, &at, &some, some == left, packed + n, piece, &made);
        n += made;
        left -= before - some;
        check(n + piece <= len + len / 8 + 1024);
    }
    gzip_close(&g);
    struct result r = unpack(packed, n, piece, 4096, out);
    check(r.state == GUNZIP_TOO_MUCH || (r.whole && r.n == len && memcmp(out, data, len) == 0));
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char one[OUT_MAX], other[OUT_MAX];
    if (size < 2 || size > OUT_MAX / 2)
        return 0;
    size_t in_piece = data[0] + 1U, out_piece = data[1] + 1U;
    const char *body = (const char *)data + 2;
    struct result a = unpack(body, size - 2, size, OUT_MAX, one);
    struct result b = unpack(body, size - 2, in_piece, out_piece, other);
    size_t common = a.n < b.n ? a.n : b.n;
    check(memcmp(one, other, common) == 0);
    if (a.n < OUT_MAX && b.n < OUT_MAX && a.state != GUNZIP_TOO_MUCH && b.state != GUNZIP_TOO_MUCH)
        check(a.state == b.state && a.whole == b.whole && a.n == b.n);
    round_trip(body, size - 2, in_piece > 64 ? 64 : in_piece, other);
    return 0;
}
