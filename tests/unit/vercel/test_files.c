/* The archive around an uploaded file, and file bodies over the wire.  P29 P30 C10 */
#include "fixture.h"

#include "vercel/commands.h"
#include "vercel/targz.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the archive ---- */

struct source {
    const char *data;
    size_t len, at;
    size_t step;  /* at most so many bytes at once */
    bool pausing; /* every other call has nothing */
    bool toggle;
};

static size_t read_source(void *arg, char *buf, size_t cap)
{
    struct source *s = arg;
    if (s->pausing && (s->toggle = !s->toggle))
        return VERCEL_READ_PAUSE;
    size_t n = s->len - s->at;
    n = n < cap ? n : cap;
    n = n < s->step ? n : s->step;
    memcpy(buf, s->data + s->at, n);
    s->at += n;
    return n;
}

static char *noise(size_t n)
{
    char *p = malloc(n + 1);
    uint32_t x = 12345;
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (char)(x >> 24);
    }
    return p;
}

/* Reads an archive with somebody else's reader and compares. */
static void check_archive(const char *gz, size_t gz_len, const char *path, unsigned mode, const char *data,
                          size_t len)
{
    struct archive *a = archive_read_new();
    struct archive_entry *entry;
    archive_read_support_filter_gzip(a);
    archive_read_support_format_tar(a);
    assert_int_equal(archive_read_open_memory(a, gz, gz_len), ARCHIVE_OK);
    int r = archive_read_next_header(a, &entry);
    assert_true(r == ARCHIVE_OK || r == ARCHIVE_WARN); /* a name that is not UTF-8 is warned about */
    assert_string_equal(archive_entry_pathname(entry), path + 1);
    assert_int_equal(archive_entry_filetype(entry), AE_IFREG);
    assert_int_equal(archive_entry_perm(entry), mode);
    assert_int_equal(archive_entry_size(entry), len);
    char *got = malloc(len + 1);
    assert_int_equal(archive_read_data(a, got, len + 1), len);
    assert_memory_equal(got, data, len);
    assert_int_equal(archive_read_next_header(a, &entry), ARCHIVE_EOF);
    archive_read_free(a);
    free(got);
}

static size_t drain(struct targz *t, char *out, size_t cap, size_t step)
{
    size_t at = 0;
    for (;;) {
        size_t n = targz_read(t, out + at, cap - at < step ? cap - at : step);
        if (n == VERCEL_READ_PAUSE)
            continue;
        assert_int_not_equal(n, VERCEL_READ_ABORT);
        at += n;
        if (n == 0 || at == cap)
            return at;
    }
}

static void test_archives_P29(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 511, 512, 513, 14254, 65535 - 512, 65536, 200000};
    static const size_t steps[] = {1 << 20, 4096, 1000};
    char *data = noise(200000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            struct source s = {.data = data, .len = sizes[i], .step = steps[k], .pausing = k == 1};
            struct targz t;
            struct sg_error e;
            assert_int_equal(
                targz_init(&t, "/vercel/a b.bin", 0640, sizes[i], 1700000000, read_source, &s, &e), SG_OK);
            size_t want = (size_t)targz_size(&t);
            char *out = malloc(want + 1);
            for (int again = 0; again < 2; again++) { /* the second time after a rewind */
                assert_int_equal(drain(&t, out, want + 1, steps[k]), want);
                check_archive(out, want, "/vercel/a b.bin", 0640, data, sizes[i]);
                targz_rewind(&t);
                s.at = 0;
            }
            targz_free(&t);
            free(out);
        }
    }
    free(data);
}

static void test_names(void **state)
{
    (void)state;
    char just[102] = "/", more[103] = "/", long_name[4000] = "/";
    memset(just + 1, 'n', 100);
    memset(more + 1, 'n', 101);
    for (size_t i = 1; i < sizeof long_name - 1; i++)
        long_name[i] = i % 200 ? 'd' : '/';
    const char *const names[] = {"/x",           just,           more,         long_name,
                                 "/caf\xc3\xa9", "/bad\xff\xfe", "/line\nend", "/a=b c"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct source s = {.data = "hello", .len = 5, .step = 5};
        struct targz t;
        struct sg_error e;
        assert_int_equal(targz_init(&t, names[i], 0755, 5, 1700000000, read_source, &s, &e), SG_OK);
        char *out = malloc(65536);
        size_t n = drain(&t, out, 65536, 65536);
        assert_int_equal(n, targz_size(&t));
        check_archive(out, n, names[i], 0755, "hello", 5);
        targz_free(&t);
        free(out);
    }
    static const char *const bad[] = {"", "relative", "/dir/", "/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct targz t;
        struct sg_error e;
        assert_int_equal(targz_init(&t, bad[i], 0644, 0, 0, read_source, NULL, &e), SG_E_INVALID_PATH);
    }
}

static void test_source_of_another_size(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct source s = {.data = "hello", .len = 5, .step = 5};
        struct targz t;
        struct sg_error e;
        char out[8192];
        assert_int_equal(targz_init(&t, "/x", 0644, late ? 4 : 6, 0, read_source, &s, &e), SG_OK);
        size_t n = 0;
        do
            n = targz_read(&t, out, 100);
        while (n != 0 && n != VERCEL_READ_ABORT);
        assert_int_equal(n, VERCEL_READ_ABORT);
        targz_free(&t);
    }
}

/* ---- over the wire ---- */

struct outcome {
    struct fixture *f;
    struct vercel_call *call;
    bool done, failed, head;
    struct sg_error error;
    struct source source;
    size_t got;
    char *into;
    size_t cap;
    int refuse;
    bool refused, resume_later;
};

static void on_done(void *arg, const struct sg_error *e)
{
    struct outcome *o = arg;
    assert_false(o->done);
    o->done = true;
    o->failed = e != NULL;
    if (e)
        o->error = *e;
}

static void wait_done(struct fixture *f, struct outcome *o)
{
    while (!o->done) {
        bool resume = o->resume_later;
        o->resume_later = false;
        if (resume)
            vercel_call_resume(o->call);
        uv_run(sg_loop_uv(f->loop), resume ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    }
}

struct upload_seen {
    char head[4096];
    char *body;
    size_t len;
    const char *answer;
    int status;
};

static void play_upload(struct raw_conn *c, int n, void *arg)
{
    struct upload_seen *u = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        snprintf(u->head, sizeof u->head, "%s", r.head);
        free(u->body);
        u->body = malloc(r.body_len + 1);
        memcpy(u->body, r.body, r.body_len);
        u->len = r.body_len;
        raw_answer(c, u->status, "application/json", "", u->answer);
    }
}

static size_t read_outcome(void *arg, char *buf, size_t cap)
{
    struct outcome *o = arg;
    size_t n = read_source(&o->source, buf, cap);
    if (n == VERCEL_READ_PAUSE)
        o->resume_later = true;
    return n;
}

static void test_write_P29(void **state)
{
    (void)state;
    char *data = noise(300000);
    struct upload_seen u = {.answer = "{}", .status = 200};
    struct fixture f;
    fixture_open(&f, play_upload, &u, NULL);
    for (int streamed = 0; streamed < 2; streamed++) {
        struct outcome o = {.f = &f, .source = {.data = data, .len = 300000, .step = 5000, .pausing = true}};
        const struct vercel_file_write w = {
            .session_id = "sbx_1",
            .path = "/vercel/data.bin",
            .mode = 0600,
            .size = 300000,
            .data = streamed ? NULL : data,
            .read = streamed ? read_outcome : NULL,
        };
        struct sg_error e;
        o.call = vercel_file_write_start(f.client, &w, on_done, &o, &e);
        assert_non_null(o.call);
        wait_done(&f, &o);
        assert_false(o.failed);
        assert_non_null(strstr(u.head, "POST /api/v2/sandboxes/sessions/sbx_1/fs/write HTTP/1.1"));
        assert_non_null(strstr(u.head, "Content-Type: application/gzip\r\n"));
        assert_non_null(strstr(u.head, "x-cwd: /\r\n"));
        assert_non_null(strstr(u.head, "Content-Length: "));
        assert_null(strstr(u.head, "chunked"));
        check_archive(u.body, u.len, "/vercel/data.bin", 0600, data, 300000);
    }
    assert_int_equal(raw_connections(f.server), 1);
    fixture_close(&f);
    free(u.body);
    free(data);
}

static void test_write_refused(void **state)
{
    (void)state;
    struct upload_seen u = {
        .answer = "{\"error\":{\"code\":\"bad_request\",\"message\":\"Permission denied\"}}", .status = 400};
    struct fixture f;
    struct outcome o = {.f = &f};
    struct sg_error e;
    fixture_open(&f, play_upload, &u, NULL);
    const struct vercel_file_write w = {.session_id = "s", .path = "/x", .size = 1, .data = "a"};
    o.call = vercel_file_write_start(f.client, &w, on_done, &o, &e);
    wait_done(&f, &o);
    assert_int_equal(o.error.code, SG_E_FILE_ERROR);
    assert_string_equal(o.error.detail, "Permission denied");
    fixture_close(&f);
    free(u.body);
}

/* A source that stops short fails the call instead of leaving it hanging or shortening the file. */
static void test_write_short_source(void **state)
{
    (void)state;
    struct upload_seen u = {.answer = "{}", .status = 200};
    struct fixture f;
    struct outcome o = {.f = &f, .source = {.data = "hello", .len = 5, .step = 5}};
    struct sg_error e;
    fixture_open(&f, play_upload, &u, NULL);
    const struct vercel_file_write w = {.session_id = "s", .path = "/x", .size = 6, .read = read_outcome};
    o.call = vercel_file_write_start(f.client, &w, on_done, &o, &e);
    wait_done(&f, &o);
    assert_true(o.failed);
    assert_int_equal(o.error.code, SG_E_BAD_REQUEST);
    assert_int_equal(raw_requests(f.server), 0);
    fixture_close(&f);
    free(u.body);
}

static void on_head(void *arg, int status, const char *type, int64_t length)
{
    struct outcome *o = arg;
    assert_int_equal(status, 200);
    assert_string_equal(type, "application/octet-stream");
    assert_int_equal(length, o->cap);
    assert_false(o->head);
    o->head = true;
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct outcome *o = arg;
    assert_true(o->head);
    if (o->refuse && !o->refused) {
        o->refused = true;
        o->resume_later = true;
        return false;
    }
    o->refused = false;
    assert_true(o->got + len <= o->cap);
    memcpy(o->into + o->got, data, len);
    o->got += len;
    return true;
}

struct download {
    const char *data;
    size_t len, cut;
};

static void play_download(struct raw_conn *c, int n, void *arg)
{
    const struct download *d = arg;
    struct raw_request r;
    char head[256];
    (void)n;
    if (!raw_read(c, &r))
        return;
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
             d->len);
    raw_sends(c, head);
    raw_send(c, d->data, d->len - d->cut);
}

static void test_read_P29(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    static const struct vercel_events ev = {on_head, on_data, on_done};
    char *data = noise(SIZE);
    for (int i = 0; i < 4; i++) {
        struct download d = {data, SIZE, i >= 2 ? 1 : 0};
        struct fixture f;
        struct outcome o = {.f = &f, .cap = SIZE, .into = malloc(SIZE), .refuse = i % 2};
        struct sg_error e;
        fixture_open(&f, play_download, &d, NULL);
        o.call = vercel_file_read(f.client, "sbx_1", "/x", NULL, &ev, &o, &e);
        assert_non_null(o.call);
        wait_done(&f, &o);
        assert_int_equal(o.failed, i >= 2);
        assert_int_equal(o.got, SIZE - d.cut);
        assert_memory_equal(o.into, data, o.got);
        if (o.failed)
            assert_int_equal(o.error.code, SG_E_UPSTREAM_UNREACHABLE);
        free(o.into);
        fixture_close(&f);
    }
    free(data);
}

/* P30: nothing but an octet stream is ever taken for the file. */
static void test_read_refused_P30(void **state)
{
    (void)state;
    static const struct vercel_events ev = {on_head, on_data, on_done};
    static const struct {
        int status;
        const char *body;
        enum sg_code code;
    } cases[] = {
        {404, "{\"error\":{\"code\":\"not_found\",\"message\":\"x\"}}", SG_E_FILE_NOT_FOUND},
        {400, "{\"error\":{\"code\":\"bad_request\",\"message\":\"/x is a directory\"}}", SG_E_IS_DIRECTORY},
        {400, "{\"error\":{\"code\":\"bad_request\",\"message\":\"other\"}}", SG_E_FILE_ERROR},
        {200, "{\"error\":{\"code\":\"not_found\",\"message\":\"x\"}}", SG_E_UPSTREAM_BAD_RESPONSE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct upload_seen u = {.answer = cases[i].body, .status = cases[i].status};
        struct fixture f;
        struct outcome o = {.f = &f};
        struct sg_error e;
        fixture_open(&f, play_upload, &u, NULL);
        o.call = vercel_file_read(f.client, "sbx_1", "/x", "/", &ev, &o, &e);
        wait_done(&f, &o);
        assert_true(o.failed);
        assert_false(o.head);
        assert_int_equal(o.error.code, cases[i].code);
        assert_non_null(strstr(u.body, "\"cwd\":\"/\""));
        fixture_close(&f);
        free(u.body);
    }
}

/* P31: a full disk is told as what it is, whatever its status, and nobody tries again. */
static void test_write_errors(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *message;
        enum sg_code code;
    } cases[] = {
        {500, "cannot write '/x': No space left on device", SG_E_NO_SPACE},
        {400, "write /x: ENOSPC", SG_E_NO_SPACE},
        {500, "Disk quota exceeded", SG_E_NO_SPACE},
        {500, "other", SG_E_UPSTREAM_UNAVAILABLE},
        {413, "too large", SG_E_UPSTREAM_REJECTED},
        {429, "the quota is exceeded", SG_E_UPSTREAM_RATE_LIMITED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char answer[256];
        struct upload_seen u = {.answer = answer, .status = cases[i].status};
        struct fixture f;
        struct outcome o = {.f = &f, .source = {.data = "x", .len = 1, .step = 1}};
        const struct vercel_file_write w = {
            .session_id = "sbx_1", .path = "/x", .mode = 0600, .size = 1, .read = read_outcome};
        struct sg_error e;
        snprintf(answer, sizeof answer, "{\"error\":{\"code\":\"oops\",\"message\":\"%s\"}}",
                 cases[i].message);
        fixture_open(&f, play_upload, &u, NULL);
        o.call = vercel_file_write_start(f.client, &w, on_done, &o, &e);
        wait_done(&f, &o);
        assert_true(o.failed);
        assert_int_equal(o.error.code, cases[i].code);
        assert_int_equal(o.error.upstream_status, cases[i].status);
        fixture_close(&f);
        free(u.body);
    }
}

static void test_mkdir(void **state)
{
    (void)state;
    struct upload_seen u = {.answer = "", .status = 200}; /* an empty answer is fine */
    struct fixture f;
    struct outcome o = {.f = &f};
    struct sg_error e;
    fixture_open(&f, play_upload, &u, NULL);
    o.call = vercel_mkdir_start(f.client, "sbx_1", "/a", NULL, true, on_done, &o, &e);
    wait_done(&f, &o);
    assert_false(o.failed);
    assert_non_null(strstr(u.body, "\"recursive\":true"));
    assert_null(vercel_mkdir_start(f.client, "sbx_1", "/\xff", NULL, true, on_done, &o, &e));
    assert_int_equal(e.code, SG_E_INVALID_PATH);
    fixture_close(&f);
    free(u.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_archives_P29),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_source_of_another_size),
        cmocka_unit_test(test_write_P29),
        cmocka_unit_test(test_write_refused),
        cmocka_unit_test(test_write_short_source),
        cmocka_unit_test(test_read_P29),
        cmocka_unit_test(test_read_refused_P30),
        cmocka_unit_test(test_mkdir),
        cmocka_unit_test(test_write_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
