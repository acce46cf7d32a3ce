/* Names of downloads in a header: P36. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "routes/disposition.h"

#include <string.h>

static void expect(const char *path, const char *ending, const char *want)
{
    struct sg_buf out;
    sg_buf_init(&out, 65536);
    disposition_format(path, strlen(path), ending, "download", &out);
    assert_false(out.failed);
    assert_string_equal(out.data, want);
    sg_buf_free(&out);
}

static void test_names(void **state)
{
    (void)state;
    expect("a.txt", "", "attachment; filename=\"a.txt\"");
    expect("/x/with space", ".tar", "attachment; filename=\"with space.tar\"");
    expect("dir//", ".tar.gz", "attachment; filename=\"dir.tar.gz\"");
    expect("/", ".tar", "attachment; filename=\"download.tar\"");
    expect(".", ".tar", "attachment; filename=\"download.tar\"");
    expect("a/..", "", "attachment; filename=\"download\"");
    expect("...", "", "attachment; filename=\"...\"");
    expect("\xc3\xbc", ".tar", "attachment; filename=\"__.tar\"; filename*=UTF-8''%C3%BC.tar");
    expect("a\r\nX: y", "", "attachment; filename=\"a__X: y\"; filename*=UTF-8''a%0D%0AX%3A%20y");
    expect("q\"; x=\"\\", "", "attachment; filename=\"q_; x=__\"; filename*=UTF-8''q%22%3B%20x%3D%22%5C");
    expect("100%41", "", "attachment; filename=\"100_41\"; filename*=UTF-8''100%2541");
    expect("\xff\xfe raw", "", "attachment; filename=\"__ raw\""); /* no charset says it */
    expect("it's (1)*", "", "attachment; filename=\"it's (1)*\"");
    expect("\x7f'(*", "", "attachment; filename=\"_'(*\"; filename*=UTF-8''%7F%27%28%2A");
}

/* Any byte in any place: one line of ASCII, two quotes, and no more parameters than there are. */
static void test_any_byte(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        char name[8] = {'a', (char)c, ';', (char)c, 'b', 0};
        struct sg_buf out;
        int quotes = 0;
        sg_buf_init(&out, 4096);
        disposition_format(name, 5, "", "x", &out);
        for (size_t i = 0; i < out.len; i++) {
            assert_in_range((unsigned char)out.data[i], 0x20, 0x7e);
            quotes += out.data[i] == '"';
        }
        assert_int_equal(quotes, 2);
        sg_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_any_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
