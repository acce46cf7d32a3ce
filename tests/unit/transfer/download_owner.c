#include "tests/unit/transfer/download_play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct owner owner;

void leave(void)
{
    owner.gone = true;
    download_cancel(owner.d);
}

static void on_open(void *arg, const struct sg_wire_file *file)
{
    assert_ptr_equal(arg, &owner);
    assert_false(owner.gone || owner.heads || owner.dones);
    owner.opens++;
    owner.file = *file;
    if (owner.leaves_at_open)
        leave();
}

static void on_head(void *arg, const struct sg_wire_file *file, bool same)
{
    assert_ptr_equal(arg, &owner);
    assert_false(owner.gone || owner.heads || owner.dones);
    owner.heads++;
    owner.same = same;
    assert_memory_equal(&owner.file, file, sizeof *file);
    if (owner.leaves_at_head)
        leave();
}

static bool on_data(void *arg, const char *data, size_t len)
{
    assert_ptr_equal(arg, &owner);
    assert_true(owner.heads == 1 && !owner.gone && !owner.dones && !owner.same && len > 0);
    if (owner.slow && chance(3) == 0) {
        owner.paused = true;
        return false;
    }
    owner.paused = false;
    assert_true(owner.len + len <= SIZE + 8192);
    memcpy(owner.got + owner.len, data, len);
    owner.len += len;
    if (owner.len >= owner.leaves_at)
        leave();
    return true;
}

static void on_done(void *arg, const struct sg_error *e)
{
    assert_ptr_equal(arg, &owner);
    assert_false(owner.gone || owner.dones);
    owner.dones++;
    owner.ok = !e;
    if (e)
        owner.e = *e;
    else
        assert_int_equal(owner.heads, 1);
}

void owner_reset(void)
{
    fs_request_free(&owner.request);
    memset((char *)&owner + offsetof(struct owner, len), 0, sizeof owner - offsetof(struct owner, len));
    owner.request = (struct fs_request){.n = 0};
    owner.d = NULL;
    owner.leaves_at = UINT64_MAX;
    fs_request_begin(&owner.request, "fetch");
    fs_request_bytes(&owner.request, "--path", "f", 1);
}

bool begin(void)
{
    static const struct download_events ev = {
        .on_open = on_open, .on_head = on_head, .on_data = on_data, .on_done = on_done};
    const struct download_spec s = {
        .target = {.session_id = "sess-1"}, .request = &owner.request, .part_bytes = PART};
    owner.d = download_start(the_link, &s, &ev, &owner, &owner.e);
    assert_int_equal(owner.opens + owner.heads + owner.dones, 0);
    return owner.d != NULL;
}

/* ---- the play ---- */

bool step(void)
{
    if (play_upstream())
        return true;
    if (!owner.paused || owner.gone || owner.dones)
        return play_time();
    download_resume(owner.d);
    return true;
}

void run(void)
{
    for (int i = 0; step(); i++)
        assert_true(i < 1000000);
    play_is_over();
}

void check_bytes(uint64_t from, uint64_t len)
{
    assert_true(owner.ok);
    assert_int_equal(owner.dones, 1);
    assert_int_equal(owner.len, len);
    if (len)
        assert_memory_equal(owner.got, box.data + from, len);
    assert_int_equal(lying(), 0);
}

void check_fails(enum sg_code code)
{
    assert_int_equal(owner.dones, 1);
    assert_false(owner.ok);
    assert_int_equal(owner.e.code, code);
    assert_memory_equal(owner.len ? owner.got : box.data, box.data, owner.len);
    assert_int_equal(lying(), 0);
}

void world_reset(uint64_t size)
{
    owner_reset();
    play_reset(size);
}

int setup(void **state)
{
    (void)state;
    play_begin();
    world_reset(SIZE);
    return 0;
}

int teardown(void **state)
{
    (void)state;
    owner_reset();
    fs_request_free(&owner.request);
    play_end();
    return 0;
}
