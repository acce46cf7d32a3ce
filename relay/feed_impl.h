/* What relay/feed.c (a process's bytes, once for all), relay/reader.c (who gets them) and relay/quiet.c (nothing to
 * get for the time being) share.  Loop thread.
 */
#ifndef SG_RELAY_FEED_IMPL_H
#define SG_RELAY_FEED_IMPL_H

#include "relay/feed.h"
#include "relay/internal.h"
#include "relay/named.h"
#include "relay/quiet.h"
#include "relay/ring.h"

#include <sys/queue.h>

enum {
    FEED_AHEAD = 256 * 1024, /* the upstream is paused when the fastest reader is so far behind, bytes */
    FEED_SERVE = 256 * 1024, /* one reader is given so much in one turn */
    FEED_JUMP = 256 * 1024,  /* a reader so far ahead of the ring makes the feed go on from there */
};

struct feeds { /* of one relay */
    struct relay *relay;
    TAILQ_HEAD(feed_list, feed) all; /* what was stored into last is last */
    TAILQ_HEAD(feed_due, feed) due;  /* has something to tell its readers at the end of this turn */
    size_t ndue;
    struct sg_timer *wake; /* for what becomes due after this turn's end was handled */
    size_t used;           /* bytes in all rings */
};

struct feed {
    struct relay_obj obj;
    struct named name; /* in RELAY_FEEDS while new readers may join */
    TAILQ_ENTRY(feed) all, due;
    bool is_due;
    struct feeds *feeds;
    struct session_copy session;
    char id[SG_WIRE_ID_MAX + 1];

    struct follower *up; /* NULL: quiet, parked or ended */
    bool attend;         /* its follower counts as attached */
    bool paused;         /* and waits for the readers */
    bool greeted;        /* the process is known */
    bool ended, failed;  /* after what is in the rings: p, or with failed e */
    struct sg_wire_process p;
    struct sg_error e;
    struct ring ring[2];
    size_t ahead; /* bytes that the fastest reader has not got; SIZE_MAX: there is none */
    bool wanted;  /* some reader has yet to get what is in the rings */

    TAILQ_HEAD(, reader) readers;
    size_t nreaders;
    struct reader *next;    /* of a walk over the readers: one of them may close */
    struct sg_timer *timer; /* without readers: how long it is kept; with: until it counts as quiet */
    int64_t heard_ms;       /* when the last bytes came */
    struct quiet_entry quiet;
};

struct reader {
    struct relay_obj obj;
    TAILQ_ENTRY(reader) link;
    struct feed *feed; /* NULL: a read of its own, `own` alone */
    struct follower_events ev;
    void *arg;
    uint64_t pos[2];
    int only;
    bool attend, lively;

    bool bounded;
    uint64_t start, limit_left; /* bounded */
    struct sg_timer *wait;      /* bounded, from the feed: for the first byte */
    bool wait_over;

    struct follower *own; /* what the ring does not have any more comes from here */
    uint64_t own_from[2];
    int stuck; /* such reads in a row that brought nothing */

    bool told_hello, ended, closed;
    bool paused, in_data, unpaused;
};

/* ---- feed.c, for reader.c ---- */

struct feed *feed_find(struct relay *r, const struct relay_session *s, const char *id);
/* A new one that begins at the offsets; the old one under this name, if any, is not found any more. */
struct feed *feed_new(struct relay *r, const struct follow_spec *s, struct sg_error *e);
/* Nobody reads it, or may: gone. */
void feed_drop(struct feed *f);
void feed_enter(struct feed *f, struct reader *r);
void feed_leave(struct feed *f, struct reader *r);
/* The readers are looked after at the end of this turn. */
void feed_due(struct feed *f);
/* What a reader who comes now should know. */
struct sg_wire_process feed_known(const struct feed *f);

/* ---- reader.c, for feed.c ---- */

/* Gives what there is.  True: there is more for the next turn. */
bool reader_serve(struct reader *r);
/* Bytes that could not be kept: for who stands right there. */
void reader_direct(struct reader *r, int stream, uint64_t offset, const void *data, size_t len);
/* Bytes of the ring that it has not got; SIZE_MAX: it reads elsewhere. */
size_t reader_lag(const struct reader *r);
bool reader_wants(const struct reader *r, int stream);

#endif
