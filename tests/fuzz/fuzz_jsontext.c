/* Any bytes in any pieces become JSON lines that say the same as in one piece. */
#include "emulator/jsontext.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void collect(const struct sg_buf *lines, struct sg_buf *text)
{
    for (const char *p = lines->data; p && *p;) {
        const char *nl = strchr(p, '\n');
        json_t *o = nl ? json_loadb(p, (size_t)(nl - p), JSON_ALLOW_NUL, NULL) : NULL;
        if (!o)
            __builtin_trap();
        json_t *d = json_object_get(o, "data");
        sg_buf_add(text, json_string_value(d), json_string_length(d));
        json_decref(o);
        p = nl + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsontext_stream whole = {0}, pieces = {0};
    struct sg_buf a, b, ta, tb;
    if (size < 1)
        return 0;
    size_t step = data[0] % 17 + 1u;
    data++;
    size--;
    sg_buf_init(&a, 1 << 24);
    sg_buf_init(&b, 1 << 24);
    sg_buf_init(&ta, 1 << 24);
    sg_buf_init(&tb, 1 << 24);
    jsontext_line(&whole, "stdout", data, size, true, &a);
    for (size_t i = 0; i < size; i += step)
        jsontext_line(&pieces, "stdout", data + i, size - i < step ? size - i : step, false, &b);
    jsontext_line(&pieces, "stdout", "", 0, true, &b);
    collect(&a, &ta);
    collect(&b, &tb);
    if (ta.len != tb.len || (ta.len && memcmp(ta.data, tb.data, ta.len) != 0))
        __builtin_trap();
    sg_buf_free(&a);
    sg_buf_free(&b);
    sg_buf_free(&ta);
    sg_buf_free(&tb);
    return 0;
}
