#include "upload_owner.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sg_loop *loop;
struct uploads *all;

char byte_at(uint64_t i)
{
    return (char)((i * 131 + (i >> 8) * 17 + (i >> 16)) & 0xff);
}

size_t read_body(void *arg, char *buf, size_t cap)
{
    struct owner *o = arg;
    uint64_t n = (o->ready < o->size ? o->ready : o->size) - o->at;
    assert_false(o->done);
    if (n == 0 && o->at == o->size)
        return o->abort_at_end ? VERCEL_READ_ABORT : 0;
    o->waits = n == 0;
    if (n == 0)
        return VERCEL_READ_PAUSE;
    n = n < cap ? n : cap;
    n = o->chunk && n > o->chunk ? o->chunk : n;
    for (uint64_t i = 0; i < n; i++)
        buf[i] = byte_at(o->at + i);
    o->at += n;
    return (size_t)n;
}

void on_done(void *arg, const struct fs_answer *a, uint64_t offset, const struct sg_error *e)
{
    struct owner *o = arg;
    o->done = true;
    o->times++;
    o->ok = !e;
    o->offset = offset;
    o->upload = NULL;
    if (e)
        o->e = *e;
    if (a && a->n)
        o->file_size = a->items[0].file.size;
    if (a)
        (void)snprintf(o->word, sizeof o->word, "%s", a->word);
}

void begin(struct owner *o, uint64_t size, int64_t announced)
{
    o->size = size;
    fs_request_begin(&o->finish, "put");
    fs_request_text(&o->finish, "--path", "dGFyZ2V0");
    const struct upload_spec s = {.target = {.session_id = "sess-1", .cwd = "/vercel/sandbox"},
                                  .size = announced,
                                  .read = read_body,
                                  .finish = &o->finish};
    o->upload = upload_start(all, &s, on_done, o, &o->e);
    assert_non_null(o->upload);
    assert_false(o->done);
}

void run(struct owner *o, uint64_t size, int64_t announced)
{
    *o = (struct owner){.ready = size};
    begin(o, size, announced);
    assert_true(played_until(&o->done));
    assert_true(played_rest());
    fs_request_free(&o->finish);
    assert_int_equal(o->times, 1);
}

void give(struct owner *o, uint64_t n)
{
    o->ready += n;
    if (o->upload && o->waits) {
        o->waits = false;
        upload_resume(o->upload);
    }
}

void assert_there(uint64_t size)
{
    const struct played_file *f = played_find("target");
    assert_non_null(f);
    assert_int_equal(f->len, size);
    for (uint64_t i = 0; i < size; i++)
        if (f->data[i] != (unsigned char)byte_at(i))
            fail_msg("byte %" PRIu64 " differs", i);
    assert_int_equal(played_left(), 1);
}

void assert_nothing(void)
{
    assert_null(played_find("target"));
    assert_int_equal(played_left(), 0);
}

void start_over(uint64_t part, uint64_t pool)
{
    uploads_free(all);
    if (loop) {
        played_turns(5);
        sg_loop_free(loop);
        (void)played_end();
    }
    loop = sg_loop_new();
    assert_non_null(loop);
    played_begin(loop);
    const struct upload_limits l = {.part_bytes = part, .pool_bytes = pool};
    all = uploads_new(loop, played_link(), &l);
    assert_non_null(all);
    all->backoff_ms = 4;
    all->linger_ms = 0;
}

int setup(void **state)
{
    (void)state;
    loop = NULL;
    all = NULL;
    start_over(PART, 64 * MIB);
    return 0;
}

int teardown(void **state)
{
    (void)state;
    played_turns(5);
    bool quiet = TAILQ_EMPTY(&all->list) && blocks_in_use(all->blocks) == 0;
    uploads_free(all);
    sg_loop_free(loop);
    int left = played_end();
    return left || !quiet;
}

uint64_t offset_of(const struct played_write *w)
{
    const char *dot = strrchr(w->name, '.');
    return dot ? strtoull(dot + 1, NULL, 10) : UINT64_MAX;
}

void leave(struct owner *o)
{
    if (o->upload)
        upload_cancel(o->upload);
    fs_request_free(&o->finish);
    o->done = true; /* read and done must not be called any more: read_body looks */
}
