/* The splitter must give the same lines however the input is cut, and the hand-written decoder must agree with
 * jansson wherever both have an opinion. */
#include "vercel/ndjson.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where the decoder may accept what jansson refuses: bytes that are not ASCII, and \u escapes. */
static bool lenient(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80 || (s[i] == '\\' && i + 1 < n && s[i + 1] == 'u'))
            return true;
    return false;
}

static void compare(const char *line, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy)
        return;
    memcpy(copy, line, len);
    copy[len] = '\0';
    struct ndjson_value fast, slow;
    bool took = ndjson_decode_fast(copy, len, &fast);
    if (!took && memcmp(copy, line, len) != 0)
        abort(); /* a line that was not taken must be untouched */
    ndjson_decode_slow(line, len, &slow);
    if (took && slow.kind == NDJSON_BAD && !lenient(line, len))
        abort();
    if (took && slow.kind != NDJSON_BAD &&
        (slow.kind != fast.kind || slow.len != fast.len || memcmp(slow.text, fast.text, fast.len) != 0))
        abort();
    ndjson_value_clear(&slow);
    free(copy);
}

static uint64_t split(const char *data, size_t size, size_t step, bool check)
{
    struct ndjson n;
    uint64_t sum = 14695981039346656037u;
    char *line;
    size_t len;
    ndjson_init(&n);
    for (size_t at = 0; at < size;) {
        size_t take = size - at < step ? size - at : step;
        const char *p = data + at;
        at += take;
        while (ndjson_next(&n, &p, &take, &line, &len) == NDJSON_LINE) {
            for (size_t i = 0; i < len; i++)
                sum = (sum ^ (unsigned char)line[i]) * 1099511628211u;
            sum = (sum ^ 0x100) * 1099511628211u;
            if (check)
                compare(line, len);
        }
    }
    if (ndjson_rest(&n, &line, &len)) {
        sum = (sum ^ len) * 1099511628211u;
        if (check)
            compare(line, len);
    }
    ndjson_free(&n);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    uint64_t whole = split(text, size, size ? size : 1, true);
    if (split(text, size, 1, false) != whole || split(text, size, 7, false) != whole)
        abort();
    return 0;
}
