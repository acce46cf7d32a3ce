#include "transfer/upload_impl.h"

#include <string.h>

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* So many bytes may be held: the part that is on its way and some of the next, or all of one that is still to be sent. */
static uint64_t allowance(const struct upload *u)
{
    if (!u->part.active)
        return u->limit;
    return u->part.size + (blocks_plenty(u->all->blocks) ? least(u->limit / 2, UPLOAD_AHEAD) : 0);
}

static bool wants_more(const struct upload *u)
{
    return u->read && !u->ended && !u->broken && !u->is_cut && !u->source_waits;
}

static void break_off(struct upload *u, const char *why)
{
    u->broken = true;
    (void)sg_fail(&u->why, SG_E_BAD_REQUEST, SG_NOT_STARTED, "%s", why);
    upload_kick(u);
}

/* What read said besides bytes. */
static void no_bytes(struct upload *u, size_t said)
{
    if (said == VERCEL_READ_PAUSE) {
        u->source_waits = true;
    } else if (said == 0 && (u->size < 0 || u->came == (uint64_t)u->size)) {
        u->ended = true;
        upload_kick(u);
    } else {
        break_off(u, said == 0 ? "the body ended early" : "the body was cut");
    }
}

static bool is_bytes(size_t said)
{
    return said != 0 && said != VERCEL_READ_PAUSE && said != VERCEL_READ_ABORT;
}

/* All that was announced is here: it has to be the end. */
static void look_for_end(struct upload *u)
{
    char more;
    size_t said = u->read(u->arg, &more, 1);
    if (!wants_more(u))
        return;
    if (is_bytes(said))
        break_off(u, "the body is longer than it was announced");
    else
        no_bytes(u, said);
}

/* Where the next bytes may go; 0: nowhere for now. */
static size_t find_room(struct upload *u, char **room)
{
    struct blocks *pool = u->all->blocks;
    uint64_t most = allowance(u);
    size_t n;
    u->starved = false;
    if (u->held.bytes >= most)
        return 0;
    *room = chain_room(&u->held, &n);
    if (!n) {
        struct block *b = blocks_take(pool);
        u->starved = !b && u->held.bytes;
        if (!b && !u->held.bytes && !u->wait.waiting && !blocks_wait(pool, &u->wait)) {
            u->broken = true;
            (void)sg_fail(&u->why, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the upload");
            upload_kick(u);
        }
        if (!b)
            return 0;
        chain_push(&u->held, b);
        *room = chain_room(&u->held, &n);
    }
    return (size_t)least(n, most - u->held.bytes);
}

void upload_fill(struct upload *u)
{
    while (wants_more(u)) {
        char *room = NULL;
        if (u->size >= 0 && u->came == (uint64_t)u->size) {
            look_for_end(u);
            return;
        }
        size_t cap = find_room(u, &room);
        if (!cap)
            return;
        if (u->size >= 0)
            cap = (size_t)least(cap, (uint64_t)u->size - u->came);
        size_t n = u->read(u->arg, room, cap);
        if (!wants_more(u)) /* cancelled in there */
            return;
        if (!is_bytes(n)) {
            no_bytes(u, n);
        } else {
            u->came += n;
            chain_wrote(&u->held, n);
        }
    }
}

void upload_cut(struct upload *u, const struct sg_error *why)
{
    if (u->phase != UPLOAD_FLOWS || u->is_cut)
        return;
    if (why != &u->why)
        u->why = *why;
    u->is_cut = true;
    u->read = NULL;
    blocks_wait_off(u->all->blocks, &u->wait);
    upload_kick(u);
}
