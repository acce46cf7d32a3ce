/* Headers of archives, one by one: what is read, what is refused, what is written.  P34. */
#include "harness.h"
#include "tarball.h"

#include "guest/fs_tar_cursor.h"
#include "guest/tar_read.h"
#include "guest/tar_write.h"
#include "guest/untar_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tar_reader reader;
static struct tarball ball;

/* Reads until there is an entry (the n-th), an end or a fault. */
static enum tar_step step_to(unsigned n)
{
    enum tar_step step = TAR_MORE;
    tar_read_start(&reader);
    for (size_t at = 0; at + TAR_BLOCK <= ball.len;) {
        step = tar_read_block(&reader, ball.bytes + at);
        at += TAR_BLOCK;
        if (step == TAR_ENTRY && n-- == 0)
            break;
        if (step == TAR_ENTRY)
            at += (size_t)tar_padded(reader.entry.size);
        if (step == TAR_WRONG)
            break;
    }
    return step;
}

static void clear(void)
{
    tarball_free(&ball);
}

static const struct tar_entry *entry(unsigned n)
{
    enum tar_step step = step_to(n);
    if (step == TAR_WRONG)
        fail_msg("%s: %s", reader.name, reader.wrong);
    assert_int_equal(step, TAR_ENTRY);
    return &reader.entry;
}

static void is_wrong(const char *why)
{
    assert_int_equal(step_to(1000), TAR_WRONG);
    assert_string_equal(reader.wrong, why);
    const unsigned char zero[TAR_BLOCK] = {0};
    assert_int_equal(tar_read_block(&reader, zero), TAR_WRONG); /* for ever */
    clear();
}

#define WRONG(why, ...)                                                                                      \
    do {                                                                                                     \
        MEMBER(&ball, __VA_ARGS__);                                                                          \
        is_wrong(why);                                                                                       \
    } while (0)

static void reads_headers(void **state)
{
    (void)state;
    MEMBER(&ball, .name = "./a//b/./c", .data = "hello", .mode = "0104755", .mtime = "00000000144");
    MEMBER(&ball, .name = "name", .prefix = "some/where", .mode = "  644 ", .size = "          0 ");
    MEMBER(&ball, .name = "old", .format = TARBALL_V7, .data = "x");
    MEMBER(&ball, .name = "olddir/", .format = TARBALL_V7);
    MEMBER(&ball, .name = "gnu", .prefix = "no prefix", .format = TARBALL_GNU);
    MEMBER(&ball, .name = "./", .type = '5', .mode = "0000755");
    MEMBER(&ball, .name = "dir", .type = '5', .mode = "0001777");
    MEMBER(&ball, .name = "link", .type = '2', .target = "../../any where");
    MEMBER(&ball, .name = "hard", .type = '1', .target = "./a/b//c");
    MEMBER(&ball, .name = "contiguous", .type = '7', .data = "y");
    MEMBER(&ball, .name = "early", .mtime = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe");
    MEMBER(&ball, .name = "none", .size = "", .mtime = "");
    tarball_end(&ball);
    const struct tar_entry *e = entry(0);
    assert_string_equal(e->path, "a/b/c");
    assert_string_equal(reader.name, "./a//b/./c");
    assert_true(e->kind == TAR_FILE && e->size == 5 && e->mode == 04755 && e->mtime_s == 100);
    e = entry(1);
    assert_string_equal(e->path, "some/where/name");
    assert_int_equal(e->mode, 0644);
    assert_int_equal(entry(2)->kind, TAR_FILE);
    e = entry(3);
    assert_true(e->kind == TAR_DIRECTORY && strcmp(e->path, "olddir") == 0);
    assert_string_equal(entry(4)->path, "gnu");
    e = entry(5);
    assert_true(e->kind == TAR_DIRECTORY && !e->path[0]);
    assert_int_equal(entry(6)->mode, 01777);
    e = entry(7);
    assert_true(e->kind == TAR_SYMLINK && strcmp(e->target, "../../any where") == 0);
    e = entry(8);
    assert_true(e->kind == TAR_HARDLINK && strcmp(e->target, "a/b/c") == 0 && e->size == 0);
    assert_int_equal(entry(9)->kind, TAR_FILE);
    assert_true(entry(10)->mtime_s == -2);
    assert_true(entry(11)->size == 0 && entry(11)->mtime_s == 0);
    assert_int_equal(step_to(12), TAR_END);
    assert_null(tar_read_finish(&reader));
    clear();
}

static void reads_extensions(void **state)
{
    (void)state;
    char name[1200], deep[1200];
    memset(name, 'n', sizeof name);
    for (size_t i = 100; i < sizeof name; i += 100)
        name[i] = '/';
    name[1150] = '\0';
    snprintf(deep, sizeof deep, "../%.1100s", name);
    static const char global[] = "16 comment=none\n20 mtime=1000000.25\n";
    tarball_pax(&ball, 'g', global, sizeof global - 1);
    tarball_record(&ball, "path", name);
    MEMBER(&ball, .name = "cut", .data = "1");
    static const char records[] = "29 mtime=-1.5000000000000000\n11 size=12\n22 SCHILY.xattr.a=\0\n\xff\n"
                                  "20 linkpath=ignored\n21 hdrcharset=BINARY\n";
    tarball_pax(&ball, 'x', records, sizeof records - 1);
    MEMBER(&ball, .name = "sized", .size = "77777777777", .mtime = "00000000007");
    tarball_raw(&ball, "twelve bytes", 12);
    tarball_pad(&ball);
    tarball_long(&ball, 'K', deep);
    tarball_long(&ball, 'L', name);
    MEMBER(&ball, .name = "cut", .type = '2', .target = "cut", .format = TARBALL_GNU);
    MEMBER(&ball, .name = "next", .size = "\x80\0\0\0\0\0\0\0\0\0\0\0");
    tarball_pax(&ball, 'x', "", 0);
    MEMBER(&ball, .name = "empty pax");
    tarball_end(&ball);
    const struct tar_entry *e = entry(0);
    assert_string_equal(e->path, name);
    assert_true(e->mtime_s == 1000000 && e->mtime_ns == 250000000 && e->size == 1);
    e = entry(1);
    assert_string_equal(e->path, "sized");
    assert_true(e->size == 12 && e->mtime_s == -2 && e->mtime_ns == 500000000);
    e = entry(2);
    assert_string_equal(e->path, name);
    assert_string_equal(e->target, deep);
    e = entry(3);
    assert_string_equal(e->path, "next");
    assert_true(e->size == 0 && e->target[0] == '\0' && e->mtime_s == 1000000);
    assert_string_equal(entry(4)->path, "empty pax");
    assert_int_equal(step_to(5), TAR_END);
    clear();
}

static void refuses_names(void **state)
{
    (void)state;
    static const char up[] = "a name with .. in it", absolute[] = "an absolute name",
                      nul[] = "a name with NUL in it", empty[] = "an empty name",
                      lengthy[] = "a name that is too long";
    char name[TAR_PATH_MAX + 2];
    WRONG(up, .name = "../x");
    WRONG(up, .name = "..");
    WRONG(up, .name = "a/../../x");
    WRONG(up, .name = "a/..");
    WRONG(up, .name = "a/./..//b");
    WRONG(up, .name = "x", .prefix = "..");
    WRONG(up, .name = "x", .prefix = "a/..");
    WRONG(up, .name = "../x", .prefix = "a");
    WRONG(up, .name = "x", .type = '1', .target = "a/../../x");
    WRONG(absolute, .name = "/x");
    WRONG(absolute, .name = "//x");
    WRONG(absolute, .name = "x", .prefix = "/etc");
    WRONG(absolute, .name = "/x", .prefix = "a");
    WRONG(absolute, .name = "x", .type = '1', .target = "/etc/passwd");
    WRONG(nul, .name = "a\0b", .name_len = 3);
    WRONG("a target with NUL in it", .name = "a", .type = '2', .target = "b\0c", .target_len = 3);
    WRONG(empty, .name = "");
    WRONG(empty, .name = "", .prefix = "a");
    WRONG(empty, .name = ".");
    WRONG(empty, .name = "./.", .type = '2', .target = "x");
    WRONG("a link without a target", .name = "a", .type = '2');
    WRONG("a link without a target", .name = "a", .type = '1', .target = "./");
    WRONG("a link whose name ends in a slash", .name = "a/", .type = '2', .target = "b");
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    tarball_record(&ball, "path", name);
    WRONG(lengthy, .name = "x");
    memset(name, 'n', sizeof name);
    for (size_t i = 100; i < sizeof name; i += 100)
        name[i] = '/';
    name[TAR_PATH_MAX + 1] = '\0';
    tarball_record(&ball, "path", name);
    WRONG(lengthy, .name = "x");
    tarball_long(&ball, 'L', name);
    WRONG(lengthy, .name = "x");
    tarball_record(&ball, "path", "");
    WRONG(empty, .name = "x");
    tarball_record(&ball, "path", "a/../b");
    WRONG(up, .name = "x");
    tarball_long(&ball, 'L', "/a");
    WRONG(absolute, .name = "x");
    static const char hidden[] = "13 path=a\0/b\n";
    tarball_pax(&ball, 'x', hidden, sizeof hidden - 1);
    WRONG(nul, .name = "x");
    for (size_t i = 0; i < 2000; i++)
        name[i] = i % 2 ? '/' : 'd';
    name[1999] = '\0'; /* 1,000 deep */
    tarball_record(&ball, "path", name);
    WRONG("a name that leads too deep", .name = "x");
}

static void refuses_kinds_and_numbers(void **state)
{
    (void)state;
    static const char several[] = "several headers before one entry", bad[] = "malformed pax records";
    WRONG("a device", .name = "a", .type = '3');
    WRONG("a device", .name = "a", .type = '4');
    WRONG("a FIFO", .name = "a", .type = '6');
    WRONG("a sparse file", .name = "a", .type = 'S', .format = TARBALL_GNU);
    WRONG("an entry of a kind that is not known", .name = "a", .type = 'V', .format = TARBALL_GNU);
    WRONG("an entry of a kind that is not known", .name = "a", .type = 'M', .format = TARBALL_GNU);
    WRONG("an entry of a kind that is not known", .name = "a", .type = 'D', .format = TARBALL_GNU);
    WRONG("an entry of a kind that is not known", .name = "a", .type = 'A');
    WRONG("a header with a wrong checksum", .name = "a", .sum_off = 1);
    WRONG("a header with a wrong checksum", .name = "a", .sum_off = -256);
    WRONG("this is no tar archive", .name = "a", .magic = "USTAR  ");
    WRONG("this is no tar archive", .name = "a", .magic = "ustar \0 ");
    WRONG("a bad size", .name = "a", .size = "0000000008");
    WRONG("a bad size", .name = "a", .size = "12 34");
    WRONG("a bad size", .name = "a", .size = "-1");
    WRONG("a bad size", .name = "a", .size = "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    WRONG("a bad size", .name = "a", .size = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    WRONG("a malformed number", .name = "a", .mode = "rw");
    WRONG("a malformed number", .name = "a", .mtime = "\xc0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    WRONG("an entry with contents that is no file", .name = "a", .type = '5', .data = "x");
    WRONG("an entry with contents that is no file", .name = "a", .type = '1', .target = "b", .data = "x");
    WRONG("an entry with contents that is no file", .name = "a/", .data = "x");
    static const struct {
        const char *records, *why;
    } pax[] = {
        {"7 path=a\n", bad},
        {"8 path=a\n", bad},
        {"11 path=a\n", bad},
        {"010 path=a\n", bad},
        {"10 path=ab", bad},
        {"9999999999 path=a\n", bad},
        {" 10 path=a\n", bad},
        {"6 =ab\n", bad},
        {"7 abcd\n", bad},
        {"8 a\nb=c\n", bad},
        {"10 path=a\n1", bad},
        {"18446744073709551626 path=a\n", bad},
        {"10 path=a\n10 path=b\n", "a name that is given twice"},
        {"14 linkpath=a\n14 linkpath=b\n", "a name that is given twice"},
        {"10 size=1\n10 size=1\n", "a size that is given twice"},
        {"28 size=9223372036854775808\n", "a bad size in pax records"},
        {"29 size=18446744073709551617\n", "a bad size in pax records"},
        {"11 size=-1\n", "a bad size in pax records"},
        {"8 size=\n", "a bad size in pax records"},
        {"11 mtime=x\n", "a bad time in pax records"},
        {"13 mtime=1.x\n", "a bad time in pax records"},
        {"11 mtime=1\n11 mtime=2\n", "a time that is given twice"},
        {"22 GNU.sparse.major=1\n", "a sparse file"},
        {"26 GNU.sparse.name=a/../b\n", "a sparse file"},
    };
    for (size_t i = 0; i < sizeof pax / sizeof *pax; i++) {
        tarball_pax(&ball, 'x', pax[i].records, strlen(pax[i].records));
        if (step_to(1000) != TAR_WRONG || strcmp(reader.wrong, pax[i].why) != 0)
            fail_msg("%s: %s", pax[i].records, reader.wrong);
        clear();
    }
    tarball_pax(&ball, 'g', "10 path=a\n", 10);
    is_wrong("a name or size for all entries");
    tarball_pax(&ball, 'g', "10 size=5\n", 10);
    is_wrong("a name or size for all entries");
    tarball_record(&ball, "path", "a");
    tarball_record(&ball, "path", "b");
    is_wrong(several);
    tarball_record(&ball, "path", "a");
    tarball_pax(&ball, 'g', "6 a=b\n", 6);
    is_wrong(several);
    tarball_record(&ball, "path", "a");
    tarball_long(&ball, 'L', "b");
    is_wrong(several);
    tarball_long(&ball, 'L', "b");
    tarball_record(&ball, "path", "a");
    is_wrong(several);
    tarball_long(&ball, 'L', "b");
    tarball_long(&ball, 'L', "c");
    is_wrong("a name that is given twice");
    MEMBER(&ball, .name = "pax", .type = 'x', .size = "00004000001");
    is_wrong("pax records that are too long");
    MEMBER(&ball, .name = "a");
    tarball_record(&ball, "path", "a");
    tarball_end(&ball);
    is_wrong("the archive ends in a header");
    tarball_end(&ball);
    MEMBER(&ball, .name = "a");
    is_wrong("something follows the end of the archive");
}

static void knows_its_end(void **state)
{
    (void)state;
    const unsigned char zero[TAR_BLOCK] = {0};
    tar_read_start(&reader);
    assert_string_equal(tar_read_finish(&reader), "the end of the archive is missing");
    assert_int_equal(tar_read_block(&reader, zero), TAR_MORE);
    assert_string_equal(tar_read_finish(&reader), "the end of the archive is missing");
    assert_int_equal(tar_read_block(&reader, zero), TAR_END);
    assert_null(tar_read_finish(&reader));
    assert_int_equal(tar_read_block(&reader, zero), TAR_END);
    tarball_record(&ball, "path", "a");
    (void)step_to(1);
    assert_non_null(tar_read_finish(&reader));
    clear();
}

/* What is written is read as it was, at every length of names. */
static void writes_what_it_reads(void **state)
{
    (void)state;
    static unsigned char out[TAR_HEAD_MAX];
    static char path[TAR_PATH_MAX + 1], target[TAR_PATH_MAX + 1];
    static const char *const patterns[] = {"abcdefghi/", "\xc3\xa4/b", "\xff\xfe/", "a", "/\n=\\"};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        size_t k = strlen(patterns[p]);
        for (size_t n = 1; n < TAR_PATH_MAX; n += n < 400 ? 1 : 97) {
            for (size_t i = 0; i < n; i++)
                path[i] = patterns[p][i % k];
            path[n] = '\0';
            size_t depth = 1;
            for (const char *s = path; *s; s++)
                depth += *s == '/';
            if (depth > TAR_DEPTH_MAX)
                break;
            if (path[0] == '/' || path[n - 1] == '/' || (k == 1 && n > TAR_NAME_MAX))
                continue;
            snprintf(target, sizeof target, "../%.*s", (int)(n < 4000 ? n : 4000), path);
            const struct tar_head h = {.kind = n % 3 == 0   ? TAR_FILE
                                               : n % 3 == 1 ? TAR_DIRECTORY
                                                            : TAR_SYMLINK,
                                       .path = path,
                                       .target = n % 3 == 2 ? target : NULL,
                                       .size = n % 3 == 0 ? (UINT64_C(1) << n % 63) + n : 0,
                                       .mode = 07777 & (unsigned)n,
                                       .uid = n % 5 ? 1000 : UINT32_MAX - 1,
                                       .gid = n % 7 ? 0 : 3000000,
                                       .mtime_s = n % 4 ? (int64_t)n << n % 40 : -(int64_t)n};
            size_t len = tar_write_head(out, &h);
            assert_true(len <= sizeof out && len % TAR_BLOCK == 0);
            tarball_raw(&ball, out, len);
            const struct tar_entry *e = entry(0);
            assert_string_equal(e->path, path);
            assert_true(e->kind == h.kind && e->size == h.size && e->mode == h.mode &&
                        e->mtime_s == h.mtime_s);
            assert_string_equal(e->target, h.target ? h.target : "");
            clear();
        }
    }
}

static void cursors_are_read_as_written(void **state)
{
    (void)state;
    static struct fs_tar_cursor c, d;
    char text[FS_TAR_CURSOR_MAX], other[FS_TAR_CURSOR_MAX];
    c = (struct fs_tar_cursor){.offset = INT64_MAX,
                               .skipped = 3,
                               .dev = UINT64_MAX,
                               .ino = 7,
                               .phase = FS_TAR_CONTENTS,
                               .at = 12,
                               .entry = {1, UINT64_MAX, INT64_MAX, -5, INT64_MAX}};
    static const char *const paths[] = {"a", "with space:and=colon", "\xff\n", "~"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(c.path, sizeof c.path, "%s", paths[i]);
        assert_true(fs_tar_cursor_format(text, &c));
        for (const char *p = text; *p; p++)
            assert_true(*p >= ' ' && *p <= '~');
        assert_true(fs_tar_cursor_parse(text, &d));
        assert_true(fs_tar_cursor_format(other, &d));
        assert_string_equal(text, other);
        assert_string_equal(d.path, paths[i]);
        assert_true(d.entry.mtime_ns == -5 && d.offset == INT64_MAX && d.phase == FS_TAR_CONTENTS);
    }
    memset(c.path, 'x', TAR_PATH_MAX);
    assert_false(fs_tar_cursor_format(text, &c));
    memset(c.path, '\xff', 3500);
    c.path[3500] = '\0';
    assert_false(fs_tar_cursor_format(text, &c));
    memset(c.path, 'x', 3600);
    c.path[3600] = '\0';
    assert_true(fs_tar_cursor_format(text, &c) && fs_tar_cursor_parse(text, &d));
    static const char *const wrong[] = {"",
                                        "t1:",
                                        "t2:0:0:1:1:a:0:0:0:0:0:0:=",
                                        "t1:0:0:1:1:a:0:0:0:0:0:0:0:",
                                        "t1:0:0:1:1:a:0:0:0:0:0:0",
                                        "t1:00:0:1:1:a:0:0:0:0:0:0:0:=",
                                        "t1:0:0:1:1:x:0:0:0:0:0:0:0:=",
                                        "t1:0:0:1:1:a:1:0:0:0:0:0:0:=",
                                        "t1:0:0:1:1:e:1024:0:0:0:0:0:0:=",
                                        "t1:0:0:1:1:h:0:0:0:0:0:0:0:=",
                                        "t1:0:0:1:1:a:0:0:0:0:0:0:0:~YQ==",
                                        "t1:0:0:1:1:a:0:0:0:0:-0:0:0:=",
                                        "t1:0:0:1:1:a:0:0:0:0:0:0:0:=\xff",
                                        "t1:0:0:1:1::0:0:0:0:0:0:0:=",
                                        "t1:-1:0:1:1:a:0:0:0:0:0:0:0:=",
                                        "t1:18446744073709551616:0:1:1:a:0:0:0:0:0:0:0:="};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (fs_tar_cursor_parse(wrong[i], &d))
            fail_msg("%s", wrong[i]);
    assert_true(fs_tar_cursor_parse("t1:0:0:1:1:a:0:0:0:0:0:0:0:=", &d));
}

static void names_are_bounded(void **state)
{
    (void)state;
    struct untar_names t;
    char name[32], path[64];
    assert_true(untar_names_start(&t, 5));
    uint32_t dir = untar_names_add(&t, UNTAR_TOP, "dir", 3, UNTAR_DIRECTORY);
    for (unsigned i = 0; i < UNTAR_NAMES_MAX - 2; i++) {
        int n = snprintf(name, sizeof name, "%u", i);
        uint32_t node = untar_names_add(&t, dir, name, (size_t)n, UNTAR_FILE);
        assert_true(node > dir);
    }
    assert_int_equal(untar_names_add(&t, dir, "x", 1, UNTAR_FILE), 0);
    assert_int_equal(untar_names_find(&t, UNTAR_TOP, "77", 2), 0);
    uint32_t found = untar_names_find(&t, dir, "99999", 5);
    assert_true(found && untar_names_path(&t, found, path, sizeof path));
    assert_string_equal(path, "dir/99999");
    assert_false(untar_names_path(&t, found, path, 9));
    untar_names_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_headers),     cmocka_unit_test(reads_extensions),
        cmocka_unit_test(refuses_names),     cmocka_unit_test(refuses_kinds_and_numbers),
        cmocka_unit_test(knows_its_end),     cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(names_are_bounded), cmocka_unit_test(cursors_are_read_as_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
