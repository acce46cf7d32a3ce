#include "vercel/crc32.h"

#include <zlib.h>

static uint32_t plain(uint32_t crc, const unsigned char *p, size_t len)
{
    return (uint32_t)crc32_z(crc, p, len);
}

#if defined(__x86_64__)

#include <immintrin.h>

enum { STEP = 64, SMALL = 16 };

#define CLMUL __attribute__((target("pclmul,sse4.1")))

static CLMUL __m128i load(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* x moved on by what k stands for, and then the next bytes. */
static CLMUL __m128i fold(__m128i x, __m128i k, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, k, 0x00);
    __m128i high = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* 128 bits to 32: twice by folding, and the rest by Barrett's reduction. */
static CLMUL uint32_t reduce(__m128i x)
{
    const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, k4, 0x10));
    __m128i high = _mm_srli_si128(x, 4);
    x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, mask), k5, 0x00), high);
    __m128i q = _mm_clmulepi64_si128(_mm_and_si128(x, mask), poly, 0x10);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, mask), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, q), 1);
}

/* V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009; the
 * constants are those of the reflected polynomial 0xedb88320.  len: a multiple of 16, and at least 64. */
static CLMUL uint32_t by_folding(uint32_t crc, const unsigned char *p, size_t len)
{
    const __m128i k1 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4); /* 512 bits further */
    const __m128i k3 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0); /* 128 bits further */
    __m128i x[4] = {_mm_xor_si128(load(p), _mm_cvtsi32_si128((int)crc)), load(p + 16), load(p + 32),
                    load(p + 48)};
    for (p += STEP, len -= STEP; len >= STEP; p += STEP, len -= STEP)
        for (int i = 0; i < 4; i++)
            x[i] = fold(x[i], k1, load(p + (size_t)16 * (size_t)i));
    __m128i all = x[0];
    for (int i = 1; i < 4; i++)
        all = fold(all, k3, x[i]);
    for (; len >= SMALL; p += SMALL, len -= SMALL)
        all = fold(all, k3, load(p));
    return reduce(all);
}

uint32_t vercel_crc32(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t whole = len / SMALL * SMALL;
    if (whole >= STEP && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        crc = ~by_folding(~crc, p, whole);
        p += whole;
        len -= whole;
    }
    return plain(crc, p, len);
}

#else

uint32_t vercel_crc32(uint32_t crc, const void *data, size_t len)
{
    return plain(crc, data, len);
}

#endif
