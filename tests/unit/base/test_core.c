/* base/core: base64, numbers, the guest's lines, SHA-256. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/b64.h"
#include "base/core/num.h"
#include "base/core/sha256.h"
#include "base/core/wire.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

static unsigned char noise[70000];

static int make_noise(void **state)
{
    (void)state;
    uint32_t x = 2463534242u;
    for (size_t i = 0; i < sizeof noise; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        noise[i] = (unsigned char)(x >> 11);
    }
    return 0;
}

static void sha256_equals_openssl(void **state)
{
    (void)state;
    size_t lens[] = {0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 121, 127, 128, 1000, 65536, sizeof noise};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        for (size_t piece = 1; piece <= 4097; piece = piece * 8 + 1) {
            unsigned char want[32], got[32];
            assert_int_equal(EVP_Digest(noise, lens[i], want, NULL, EVP_sha256(), NULL), 1);
            struct sg_sha256 s;
            sg_sha256_init(&s);
            for (size_t at = 0; at < lens[i]; at += piece)
                sg_sha256_update(&s, noise + at, lens[i] - at < piece ? lens[i] - at : piece);
            sg_sha256_final(&s, got);
            assert_memory_equal(got, want, 32);
        }
    }
}

static void base64_equals_openssl(void **state)
{
    (void)state;
    for (size_t n = 0; n < 300; n++) {
        char text[SG_B64_LEN(300)];
        unsigned char want[SG_B64_LEN(300) + 1], back[300];
        size_t len = sg_b64_encode(text, noise + n, n);
        assert_int_equal(len, SG_B64_LEN(n));
        assert_int_equal(EVP_EncodeBlock(want, noise + n, (int)n), len);
        assert_memory_equal(text, want, len);
        assert_int_equal(sg_b64_decode(back, text, len), n);
        assert_memory_equal(back, noise + n, n);
        assert_int_equal(sg_b64_decode(text, text, len), n); /* in place */
        assert_memory_equal(text, noise + n, n);
    }
}

static void base64_refuses(void **state)
{
    (void)state;
    const char *const bad[] = {"A",    "AA",   "AAA",     "AAAAA",    "====",    "A===",
                               "AA=A", "=AAA", "AB==",    "AAB=",     "AA\n=",   "AA A",
                               "AA-_", "AAA.", "AAA\x80", "AA==AAAA", "AAA=AAA="};
    unsigned char out[16];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sg_b64_decode(out, bad[i], strlen(bad[i])), -1);
    assert_int_equal(sg_b64_decode(out, "AA\0A", 4), -1);
    assert_int_equal(sg_b64_decode(out, "", 0), 0);
}

static void numbers(void **state)
{
    (void)state;
    uint64_t v = 7;
    const char *const bad[] = {
        "", "+1", "-1", " 1", "1 ", "0x1", "1.", "18446744073709551616", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sg_parse_u64(bad[i], strlen(bad[i]), UINT64_MAX, &v));
    assert_false(sg_parse_u64("1\0002", 3, UINT64_MAX, &v));
    assert_false(sg_parse_u64("101", 3, 100, &v));
    assert_int_equal(v, 7);
    assert_true(sg_parse_u64("100", 3, 100, &v) && v == 100);
    assert_true(sg_parse_u64("0012", 4, 100, &v) && v == 12);
    assert_true(sg_parse_u64("18446744073709551615", 20, UINT64_MAX, &v) && v == UINT64_MAX);
}

/* Formats, parses, formats again: the text is the same, and so is what the line means. */
static void round_trip(const struct sg_wire_line *l, struct sg_wire_line *got)
{
    char text[SG_WIRE_LINE_MAX], again[SG_WIRE_LINE_MAX];
    static unsigned char data[SG_WIRE_DATA_MAX];
    size_t n = sg_wire_format(text, l);
    assert_true(n > 1 && n <= SG_WIRE_LINE_MAX && text[n - 1] == '\n');
    assert_true(sg_wire_parse(text, n - 1, data, got));
    assert_int_equal(got->kind, l->kind);
    assert_int_equal(sg_wire_format(again, got), n);
    assert_memory_equal(again, text, n);
    for (size_t cut = 0; cut + 1 < n; cut++) { /* no shorter text may read outside itself */
        struct sg_wire_line part;
        char *exact = malloc(cut + 1);
        assert_non_null(exact);
        memcpy(exact, text, cut);
        if (n < 400)
            (void)sg_wire_parse(exact, cut, data, &part);
        free(exact);
    }
    assert_true(sg_wire_parse(text, n - 1, data, got));
}

static struct sg_wire_process a_process(void)
{
    struct sg_wire_process p = {
        .state = SG_PS_FINISHED,
        .how = SG_HOW_SIGNAL,
        .value = 9,
        .descendants_hold_output = true,
        .output_incomplete = true,
        .terminal = true,
        .takes_input = true,
        .lossless = true,
        .paused = true,
        .ends_unattended = true,
        .input = 1234567890123,
        .oldest = {1, 0},
        .end = {INT64_MAX, 5},
        .started_ms = 1700000000000,
        .duration_ms = 12,
        .pid = 4711,
    };
    memcpy(p.id, "proc_1.a-b", 11);
    return p;
}

static void every_kind_round_trips(void **state)
{
    (void)state;
    struct sg_wire_line got, l = {.kind = SG_WIRE_PROCESS, .process = a_process()};
    round_trip(&l, &got);
    assert_memory_equal(&got.process, &l.process, sizeof got.process);
    l.kind = SG_WIRE_HELLO;
    round_trip(&l, &got);
    assert_int_equal(got.process.end[0], INT64_MAX);
    assert_string_equal(got.process.id, "proc_1.a-b");
    assert_int_equal(got.process.input, 1234567890123);
    assert_true(got.process.terminal && got.process.takes_input && got.process.lossless &&
                got.process.paused && got.process.ends_unattended);
    l.kind = SG_WIRE_EXIT;
    round_trip(&l, &got);
    assert_int_equal(got.process.how, SG_HOW_SIGNAL);
    assert_true(got.process.descendants_hold_output && got.process.output_incomplete);
    l = (struct sg_wire_line){.kind = SG_WIRE_GAP, .channel = 2, .offset = 5, .to = 6};
    round_trip(&l, &got);
    assert_true(got.channel == 2 && got.offset == 5 && got.to == 6);
    l = (struct sg_wire_line){.kind = SG_WIRE_MORE};
    round_trip(&l, &got);
    l = (struct sg_wire_line){.kind = SG_WIRE_OK};
    round_trip(&l, &got);
    l = (struct sg_wire_line){.kind = SG_WIRE_OK, .text = "created"};
    round_trip(&l, &got);
    assert_string_equal(got.text, "created");
    l = (struct sg_wire_line){
        .kind = SG_WIRE_ERROR, .fail = SG_WF_EXEC, .errno_name = "ENOENT", .text = "no such  program"};
    round_trip(&l, &got);
    assert_int_equal(got.fail, SG_WF_EXEC);
    assert_string_equal(got.errno_name, "ENOENT");
    assert_string_equal(got.text, "no such  program");
}

/* Each flag is its own: no letter stands for another. */
static void every_flag_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) {
        struct sg_wire_process p = {.state = SG_PS_RUNNING, .id = "a"};
        bool *const flags[] = {&p.descendants_hold_output,
                               &p.output_incomplete,
                               &p.terminal,
                               &p.takes_input,
                               &p.lossless,
                               &p.paused,
                               &p.ends_unattended};
        *flags[i] = true;
        struct sg_wire_line got, l = {.kind = SG_WIRE_PROCESS, .process = p};
        char text[SG_WIRE_LINE_MAX];
        size_t n = sg_wire_format(text, &l);
        text[n - 1] = '\0';
        char want[4] = {' ', "ditolpu"[i], ' ', '\0'};
        assert_non_null(strstr(text, want));
        round_trip(&l, &got);
        assert_memory_equal(&got.process, &p, sizeof p);
    }
    struct sg_wire_line got, l = {.kind = SG_WIRE_PROCESS, .process = {.state = SG_PS_FINISHED, .id = "a"}};
    for (enum sg_wire_how how = SG_HOW_NONE; how <= SG_HOW_SCOPE; how++) {
        l.process.how = how;
        round_trip(&l, &got);
        assert_int_equal(got.process.how, how);
    }
    for (enum sg_wire_fail f = SG_WF_USAGE; f <= SG_WF_WATCH_LIMIT; f++) {
        l = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = f, .text = "accepted 7"};
        round_trip(&l, &got);
        assert_int_equal(got.fail, f);
    }
}

static void carriers_speak(void **state)
{
    (void)state;
    struct sg_wire_line got,
        l = {.kind = SG_WIRE_CARRIER, .epoch = 3, .accepted = INT64_MAX, .room = 1048576};
    round_trip(&l, &got);
    assert_true(got.epoch == 3 && got.accepted == INT64_MAX && got.room == 1048576);
    for (int i = 0; i < 4; i++) {
        l = (struct sg_wire_line){
            .kind = SG_WIRE_ACCEPTED, .accepted = 5, .room = 0, .closed = i & 1, .unwanted = i >> 1};
        round_trip(&l, &got);
        assert_true(got.accepted == 5 && got.room == 0);
        assert_true(got.closed == l.closed && got.unwanted == l.unwanted);
    }
    unsigned char data[SG_WIRE_DATA_MAX];
    assert_true(sg_wire_parse("A 1 2 xc", 8, data, &got) && got.closed && got.unwanted);
    assert_true(sg_wire_parse("A 1 2 -", 7, data, &got) && !got.closed && !got.unwanted);
}

static void data_round_trips(void **state)
{
    (void)state;
    size_t lens[] = {1, 2, 3, 4094, 4095, SG_WIRE_DATA_MAX};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        struct sg_wire_line got, l = {.kind = SG_WIRE_DATA,
                                      .channel = 1 + (unsigned)i % 3,
                                      .offset = i ? INT64_MAX - SG_WIRE_DATA_MAX : 0,
                                      .data = noise + i,
                                      .len = lens[i]};
        round_trip(&l, &got);
        assert_int_equal(got.len, lens[i]);
        assert_memory_equal(got.data, noise + i, lens[i]);
        assert_true(got.channel == l.channel && got.offset == l.offset);
    }
}

static void files_round_trip(void **state)
{
    (void)state;
    static const unsigned char name[] = {0xff, '\n', ' ', '-', 1};
    struct sg_wire_line got, l = {.kind = SG_WIRE_FILE,
                                  .name = name,
                                  .name_len = sizeof name,
                                  .data = noise,
                                  .len = SG_WIRE_DATA_MAX - sizeof name,
                                  .file = {.type = 'l',
                                           .mode = 07777,
                                           .uid = UINT32_MAX,
                                           .gid = 5,
                                           .size = INT64_MAX,
                                           .mtime_ns = -INT64_MAX,
                                           .ctime_ns = INT64_MAX,
                                           .ino = UINT64_MAX,
                                           .dev = 7,
                                           .nlink = 8}};
    round_trip(&l, &got);
    assert_memory_equal(&got.file, &l.file, sizeof l.file);
    assert_int_equal(got.name_len, sizeof name);
    assert_memory_equal(got.name, name, sizeof name);
    assert_int_equal(got.len, l.len);
    assert_memory_equal(got.data, noise, l.len);
    l.len = SG_WIRE_DATA_MAX; /* more than a line takes: cut, and still a line */
    size_t n = sg_wire_format((char[SG_WIRE_LINE_MAX]){0}, &l);
    assert_true(n <= SG_WIRE_LINE_MAX);
    for (const char *type = SG_WIRE_TYPES; *type; type++) {
        l = (struct sg_wire_line){.kind = SG_WIRE_FILE, .file = {.type = *type}};
        round_trip(&l, &got);
        assert_memory_equal(&got.file, &l.file, sizeof l.file);
        assert_true(got.name_len == 0 && got.len == 0);
    }
    l = (struct sg_wire_line){.kind = SG_WIRE_NAME, .name = noise, .name_len = SG_WIRE_DATA_MAX};
    round_trip(&l, &got);
    assert_int_equal(got.name_len, SG_WIRE_DATA_MAX);
    assert_memory_equal(got.name, noise, SG_WIRE_DATA_MAX);
}

static void text_lines_round_trip(void **state)
{
    (void)state;
    struct sg_wire_line got;
    for (unsigned i = 0; i < 8; i++) {
        struct sg_wire_line l = {.kind = SG_WIRE_TEXT,
                                 .line = INT64_MAX,
                                 .offset = INT64_MAX - SG_WIRE_DATA_MAX,
                                 .cut = i & 1,
                                 .context = i & 2,
                                 .goes_on = i & 4,
                                 .name = noise,
                                 .name_len = i * 100,
                                 .data = noise + 1,
                                 .len = i * 299};
        round_trip(&l, &got);
        assert_true(got.cut == l.cut && got.context == l.context && got.goes_on == l.goes_on);
        assert_true(got.line == l.line && got.offset == l.offset);
        assert_true(got.name_len == l.name_len && got.len == l.len);
        assert_true(i == 0 || memcmp(got.name, noise, l.name_len) == 0);
        assert_true(i == 0 || memcmp(got.data, noise + 1, l.len) == 0);
    }
}

static void changes_round_trip(void **state)
{
    (void)state;
    struct sg_wire_line got;
    for (enum sg_wire_change c = SG_CH_CREATE; c <= SG_CH_OVERFLOW; c++) {
        struct sg_wire_line l = {.kind = SG_WIRE_CHANGE, .change = c};
        if (c != SG_CH_OVERFLOW) {
            l.name = (const unsigned char *)"a b\n\xff";
            l.name_len = 5;
            l.entry = c == SG_CH_ATTRIB ? '\0' : c == SG_CH_DELETE ? 'd' : 'f';
        }
        if (c == SG_CH_MOVE) {
            l.data = (const unsigned char *)"x/y";
            l.len = 3;
        }
        round_trip(&l, &got);
        assert_int_equal(got.change, c);
        assert_int_equal(got.entry, l.entry);
        assert_int_equal(got.name_len, l.name_len);
        assert_true(!l.name_len || memcmp(got.name, l.name, l.name_len) == 0);
        assert_true(got.len == l.len && (!l.len || memcmp(got.data, l.data, l.len) == 0));
    }
    /* A line that lost its beginning never looks like one. */
    char text[SG_WIRE_LINE_MAX];
    unsigned char data[SG_WIRE_DATA_MAX];
    struct sg_wire_line l = {.kind = SG_WIRE_CHANGE,
                             .change = SG_CH_MOVE,
                             .entry = 'd',
                             .name = (const unsigned char *)"UUUUUUUU",
                             .name_len = 8,
                             .data = (const unsigned char *)"\x55\x55\x55\x55\x55",
                             .len = 5};
    size_t n = sg_wire_format(text, &l);
    for (size_t i = 1; i < n; i++)
        assert_false(sg_wire_parse(text + i, n - 1 - i, data, &got) && got.kind == SG_WIRE_CHANGE);
}

static void own_ids(void **state)
{
    (void)state;
    assert_true(sg_wire_id_own("sgw-1") && sg_wire_id_valid("sgw-1", 5));
    assert_false(sg_wire_id_own("sgw") || sg_wire_id_own("xsgw-1") || sg_wire_id_own(""));
}

static void lines_that_are_none(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",
        "Z",
        "HH running 0 0 0 0 1 2 - 0 a",
        "H running 0 0 0 0 1 2 - 0",
        "H running 0 0 0 0 1 2 - 0 a b",
        "H running  0 0 0 0 1 2 - 0 a",
        "H running 2 1 0 0 1 2 - 0 a",
        "H flying 0 0 0 0 1 2 - 0 a",
        "H running 0 0 0 0 1 2 - 0 .a",
        "H running 0 0 0 0 1 99999999999 - 0 a",
        "D 0 0 QUJD",
        "D 4 0 QUJD",
        "D 1 0 ",
        "D 1 0 QUJ",
        "D 1 -1 QUJD",
        "D 1 9223372036854775807 QUJD",
        "D 1 0 QUJD extra",
        "G 1 5 5",
        "X exit 0 - 1 2",
        "X exit 0 z 1 2 3",
        "X exit 4294967296 - 1 2 3",
        "X exit 0 - 1 2 3 ",
        "M more",
        "H running 0 0 0 0 1 2 oo 0 a",
        "H running 0 0 0 0 1 2 c 0 a",
        "H running 0 0 0 0 1 2 o- 0 a",
        "H running 0 0 0 0 1 2 - -1 a",
        "H running 0 0 0 0 1 2 - 9223372036854775808 a",
        "H running 0 0 0 0 1 2 - a",
        "P running 1 2 none 0 - 0 0 0 0 0 a",
        "P running 1 2 scoped 0 - 0 0 0 0 0 0 a",
        "X scope 0 -t 1 2 3",
        "C 1 2",
        "C 1 2 3 4",
        "C 1 2 -",
        "C  1 2 3",
        "C 9223372036854775808 2 3",
        "A 1 2",
        "A 1 2 cc",
        "A 1 2 o",
        "A 1 2 - 3",
        "A 1 -2 -",
        "A 1 2 ",
        "S f 644 1 2 3 4 5 6 7 8 QUJD",
        "S f 644 1 2 3 4 5 6 7 8 QUJD - -",
        "S x 644 1 2 3 4 5 6 7 8 QUJD -",
        "S ff 644 1 2 3 4 5 6 7 8 QUJD -",
        "S f 648 1 2 3 4 5 6 7 8 QUJD -",
        "S f 17777 1 2 3 4 5 6 7 8 QUJD -",
        "S f 644 4294967296 2 3 4 5 6 7 8 QUJD -",
        "S f 644 1 2 -3 4 5 6 7 8 QUJD -",
        "S f 644 1 2 3 - 5 6 7 8 QUJD -",
        "S f 644 1 2 3 4 --5 6 7 8 QUJD -",
        "S f 644 1 2 3 4 5 6 7 8 na.e -",
        "N",
        "N -",
        "N ",
        "N QUJD QUJD",
        "R 1 2 - QUJD",
        "R 1 2 x - -",
        "R 1 2 tt - -",
        "R -1 2 - - -",
        "R 1 2 - - - -",
        "V",
        "V create f QUJD",
        "V create d - -",
        "V create x QUJD -",
        "V create df QUJD -",
        "V create f QUJD QUJD",
        "V move f QUJD -",
        "V overflow - QUJD -",
        "V overflow d - -",
        "V overflow - -",
        "V rename f QUJD -",
        "V delete f QUJD - -",
        "V delete f AA== -",
        "V move f QUJD AA==",
        "E nonsense - x",
        "E exec AVERYLONGERRNONAME x",
        "K a b",
        " K",
        "K\r",
        "K\t",
    };
    unsigned char data[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sg_wire_parse(bad[i], strlen(bad[i]), data, &l))
            fail_msg("accepted: %s", bad[i]);
    static char longest[SG_WIRE_LINE_MAX + 1];
    memset(longest, 'A', sizeof longest);
    static const char head[6] = {'D', ' ', '1', ' ', '0', ' '};
    memcpy(longest, head, sizeof head);
    assert_false(sg_wire_parse(longest, sizeof longest - 1, data, &l));
    static char both[SG_WIRE_LINE_MAX]; /* two fields that are too long together */
    memset(both, 'A', sizeof both);
    memcpy(both, "R 1 2 - ", 8);
    both[8 + 2800] = ' ';
    assert_false(sg_wire_parse(both, 8 + 2800 + 1 + 2800, data, &l));
    assert_true(sg_wire_parse(both, 8 + 2800 + 1 + 2600, data, &l));
    assert_false(sg_wire_parse(longest, 6 + 5468, data, &l)); /* 4101 bytes: one group too many */
}

static void foreign_text_cannot_break_a_line(void **state)
{
    (void)state;
    char out[SG_WIRE_LINE_MAX];
    struct sg_wire_line got, l = {.kind = SG_WIRE_ERROR, .fail = SG_WF_FILE, .text = "a\nK\x80"};
    size_t n = sg_wire_format(out, &l);
    assert_ptr_equal(memchr(out, '\n', n), out + n - 1);
    unsigned char data[SG_WIRE_DATA_MAX];
    assert_true(sg_wire_parse(out, n - 1, data, &got));
    assert_string_equal(got.text, "a?K?");
    l = (struct sg_wire_line){.kind = SG_WIRE_HELLO, .process = {.id = "a b"}};
    n = sg_wire_format(out, &l);
    assert_true(sg_wire_parse(out, n - 1, data, &got));
    assert_string_equal(got.process.id, "invalid");
}

static void ids(void **state)
{
    (void)state;
    char longest[66];
    memset(longest, 'a', sizeof longest);
    assert_true(sg_wire_id_valid("a", 1) && sg_wire_id_valid("0._-Z", 5) && sg_wire_id_valid(longest, 64));
    const char *const bad[] = {"", ".", "..", "-a", "_a", "a/b", "a b", "a\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sg_wire_id_valid(bad[i], strlen(bad[i])));
    assert_false(sg_wire_id_valid(longest, 65));
    assert_false(sg_wire_id_valid("a\0b", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_equals_openssl),
        cmocka_unit_test(base64_equals_openssl),
        cmocka_unit_test(base64_refuses),
        cmocka_unit_test(numbers),
        cmocka_unit_test(every_kind_round_trips),
        cmocka_unit_test(every_flag_alone),
        cmocka_unit_test(carriers_speak),
        cmocka_unit_test(files_round_trip),
        cmocka_unit_test(text_lines_round_trip),
        cmocka_unit_test(changes_round_trip),
        cmocka_unit_test(own_ids),
        cmocka_unit_test(data_round_trips),
        cmocka_unit_test(lines_that_are_none),
        cmocka_unit_test(foreign_text_cannot_break_a_line),
        cmocka_unit_test(ids),
    };
    return cmocka_run_group_tests(tests, make_noise, NULL);
}
