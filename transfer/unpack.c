#include "transfer/unpack.h"

#include "base/crypto.h"
#include "transfer/gzip.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE = 16 * 1024, DIGEST = 32 };

struct unpack {
    struct unpack_spec s;
    struct sg_hash *hash; /* NULL: none is checked */
    unsigned char want[DIGEST];
    enum unpack_form form; /* LOOK until it is known */
    struct gunzip gunzip;
    bool ended, source_waits, waits;
    bool over; /* the end was told */
    enum sg_code failed;
    const char *why;
    uint64_t made; /* in this turn */
    struct sg_timer *next_turn;
    size_t start, end;
    char in[SLICE];
};

static void on_next_turn(void *arg)
{
    struct unpack *u = arg;
    u->made = 0;
    if (!u->waits)
        return;
    u->waits = false;
    u->s.more(u->s.arg);
}

static bool begin(struct unpack *u)
{
    u->form = u->s.form;
    u->ended = u->source_waits = u->waits = u->over = false;
    u->failed = SG_OK;
    u->made = 0;
    u->start = u->end = 0;
    return (!u->hash || sg_hash_restart(u->hash)) &&
           (u->form == UNPACK_NOT || gunzip_open(&u->gunzip, u->s.free_bytes));
}

struct unpack *unpack_new(const struct unpack_spec *s)
{
    struct unpack *u = calloc(1, sizeof *u);
    if (!u)
        return NULL;
    u->s = *s;
    u->next_turn = sg_timer_new(s->loop, on_next_turn, u);
    if (s->sha256) {
        memcpy(u->want, s->sha256, DIGEST);
        u->hash = sg_hash_new(SG_SHA256);
    }
    if (u->next_turn && (u->hash || !s->sha256) && begin(u))
        return u;
    unpack_free(u);
    return NULL;
}

void unpack_free(struct unpack *u)
{
    if (!u)
        return;
    sg_timer_free(u->next_turn);
    sg_hash_free(u->hash);
    gunzip_close(&u->gunzip);
    free(u);
}

bool unpack_rewind(struct unpack *u)
{
    sg_timer_stop(u->next_turn);
    gunzip_close(&u->gunzip);
    return begin(u);
}

enum sg_code unpack_error(const struct unpack *u, struct sg_error *e)
{
    return u->failed ? sg_fail(e, u->failed, SG_NOT_STARTED, "%s", u->why) : SG_OK;
}

static size_t fail(struct unpack *u, enum sg_code code, const char *why)
{
    u->failed = code;
    u->why = why;
    return VERCEL_READ_ABORT;
}

/* ---- the source ---- */

/* 0, or what the source said instead of giving bytes. */
static size_t take(struct unpack *u)
{
    if (u->ended)
        return 0;
    if (u->start == u->end)
        u->start = u->end = 0;
    size_t n = u->s.read(u->s.arg, u->in + u->end, sizeof u->in - u->end);
    if (n == VERCEL_READ_PAUSE)
        u->source_waits = true;
    if (n == VERCEL_READ_PAUSE || n == VERCEL_READ_ABORT)
        return n;
    u->ended = n == 0;
    if (u->hash)
        sg_hash_add(u->hash, u->in + u->end, n);
    u->end += n;
    return 0;
}

void unpack_more(struct unpack *u)
{
    if (!u->source_waits)
        return;
    u->source_waits = false;
    u->s.more(u->s.arg);
}

static size_t the_end(struct unpack *u)
{
    unsigned char got[SG_HASH_MAX];
    u->over = true;
    if (!u->hash || (sg_hash_end(u->hash, got) == DIGEST && memcmp(got, u->want, DIGEST) == 0))
        return 0;
    return fail(u, SG_E_DIGEST_MISMATCH, "what came is not what Content-Digest names");
}

/* ---- what is in it ---- */

static size_t plain(struct unpack *u, char *buf, size_t cap)
{
    size_t n = u->end - u->start, rc;
    if (!n && (rc = take(u)))
        return rc;
    n = u->end - u->start;
    if (!n)
        return the_end(u);
    n = n < cap ? n : cap;
    memcpy(buf, u->in + u->start, n);
    u->start += n;
    return n;
}

static size_t damaged(struct unpack *u, enum gunzip_state state)
{
    switch (state) {
    case GUNZIP_TOO_MUCH:
        return fail(u, SG_E_ARCHIVE_REFUSED, "it is compressed out of all proportion");
    case GUNZIP_NO_MEMORY:
        return fail(u, SG_E_OUT_OF_MEMORY, "no memory to unpack the archive");
    case GUNZIP_FINE:
    case GUNZIP_DAMAGED:
    default:
        return fail(u, SG_E_ARCHIVE_REFUSED, "the gzip data is damaged, or something else follows it");
    }
}

static size_t inflated(struct unpack *u, char *buf, size_t cap)
{
    size_t made = 0;
    if (u->made >= GUNZIP_TURN) {
        u->waits = true;
        return VERCEL_READ_PAUSE;
    }
    if (cap > GUNZIP_TURN - u->made)
        cap = (size_t)(GUNZIP_TURN - u->made);
    for (;;) {
        const char *at = u->in + u->start;
        size_t n = u->end - u->start;
        enum gunzip_state state = gunzip_step(&u->gunzip, &at, &n, buf, cap, &made);
        u->start = u->end - n;
        if (state)
            return damaged(u, state);
        if (made)
            break;
        if (u->ended)
            return gunzip_whole(&u->gunzip) ? the_end(u)
                                            : fail(u, SG_E_ARCHIVE_REFUSED, "the gzip data ends too early");
        size_t rc = take(u);
        if (rc)
            return rc;
    }
    u->made += made;
    if (!sg_timer_active(u->next_turn))
        sg_timer_start(u->next_turn, 0);
    return made;
}

/* 0 once it is known what it is. */
static size_t look(struct unpack *u)
{
    while (u->end - u->start < 2 && !u->ended) {
        size_t rc = take(u);
        if (rc)
            return rc;
    }
    bool gzip = u->end - u->start >= 2 && !memcmp(u->in + u->start, "\x1f\x8b", 2);
    u->form = gzip ? UNPACK_GZIP : UNPACK_NOT;
    return 0;
}

size_t unpack_read(void *arg, char *buf, size_t cap)
{
    struct unpack *u = arg;
    size_t rc;
    if (u->failed)
        return VERCEL_READ_ABORT;
    if (u->over)
        return 0;
    if (u->form == UNPACK_LOOK && (rc = look(u)))
        return rc;
    return u->form == UNPACK_GZIP ? inflated(u, buf, cap) : plain(u, buf, cap);
}
