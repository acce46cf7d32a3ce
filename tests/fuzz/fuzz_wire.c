/* Whatever text comes from a sandbox: the parser stays inside it, and what it accepts survives a round trip. */
#include "base/core/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char bytes[2][SG_WIRE_DATA_MAX];
    static char text[2][SG_WIRE_LINE_MAX];
    struct sg_wire_line a, b;
    if (!sg_wire_parse((const char *)data, size, bytes[0], &a))
        return 0;
    size_t n = sg_wire_format(text[0], &a);
    check(n > 1 && n <= SG_WIRE_LINE_MAX && memchr(text[0], '\n', n) == text[0] + n - 1);
    check(sg_wire_parse(text[0], n - 1, bytes[1], &b));
    check(a.kind == b.kind && a.channel == b.channel && a.offset == b.offset && a.to == b.to &&
          a.len == b.len && a.fail == b.fail);
    check(a.epoch == b.epoch && a.accepted == b.accepted && a.room == b.room && a.closed == b.closed &&
          a.unwanted == b.unwanted);
    check(memcmp(&a.process, &b.process, sizeof a.process) == 0);
    check(a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
    check(a.name_len == b.name_len && (a.name_len == 0 || memcmp(a.name, b.name, a.name_len) == 0));
    check(a.line == b.line && a.cut == b.cut && a.context == b.context && a.goes_on == b.goes_on);
    check(memcmp(&a.file, &b.file, sizeof a.file) == 0);
    check(a.change == b.change && a.entry == b.entry);
    check(strcmp(a.errno_name, b.errno_name) == 0 && strcmp(a.text, b.text) == 0);
    check(sg_wire_format(text[1], &b) == n && memcmp(text[0], text[1], n) == 0);
    return 0;
}
