/* Downloads over a sandbox, an upstream and an owner that are played: test_download*.c.  Time is the play's own; what
 * happens next is by chance, from a seed that is printed. */
#ifndef DOWNLOAD_PLAY_H
#define DOWNLOAD_PLAY_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "transfer/download.h"

enum {
    STAGED = 64,
    CALLS = 256,
    LINES = 64,
    PART = 200 * 1024,
    SIZE = 1100 * 1024 + 17, /* five parts, and a rest that comes with the answer */
    LINE = SG_WIRE_DATA_MAX,
};

/* ---- download_play.c: the sandbox and the upstream ---- */

struct staged {
    char name[64];
    unsigned char *data;
    size_t len;
};

struct box {
    unsigned char *data;
    uint64_t size;
    struct sg_wire_file facts;
    struct staged staged[STAGED];
    bool full;
    size_t most; /* parts that lay there at the same time */
    int calls, reads, drops, fetches, abandoned;
};
extern struct box box;

enum fate { FINE, NOT_SENT, NOT_ARRIVED, LOST, LATE, CUT, FAILS, SILENT };

struct guest_call;
/* What becomes of things: by their order, FINE behind; or by chance. */
struct plan {
    enum fate calls[CALLS], reads[CALLS];
    int cut_at[CALLS];         /* lines of a call, bytes of a read */
    enum sg_code code;         /* of NOT_SENT, NOT_ARRIVED, LOST and CUT; 0: UPSTREAM_UNREACHABLE */
    struct sg_wire_line error; /* of FAILS; no kind: it cannot begin */
    int64_t retry_after;
    int chance; /* of 1000, for everything that may go wrong */
    bool is_chunked;
    int grows, changes;                 /* of 1000, at each step */
    void (*says)(struct guest_call *c); /* instead of what fetch would */
};
extern struct plan plan;

extern struct guest_call {
    bool used, dead, paused, executed, late;
    struct guest_events ev;
    void *arg;
    char **args;
    enum fate fate;
    int cut_at;
    bool sudo;
    struct sg_wire_line lines[LINES], last;
    unsigned char *data[LINES];
    char words[3][128];
    size_t n, said;
} calls[CALLS];

extern uint64_t slept[CALLS]; /* milliseconds, of the shorter timers in their order */
extern uint64_t now_ms;
extern int nslept;

uint64_t chance(uint64_t below);
void unstage(const char *name); /* NULL and "": nothing */
void unstage_all(void);
void stage(const char *name, uint64_t at, uint64_t len);
size_t lying(void);
void touch(void); /* the file was written to */
const char *option(const struct guest_call *c, const char *name);
void say(struct guest_call *c, struct sg_wire_line line);
/* Something that can happen does; false when there is nothing. */
bool play_upstream(void);
bool play_time(void);
void play_reset(uint64_t size);
void play_begin(void);
/* Everything has ended and is freed. */
void play_is_over(void);
void play_end(void);

/* ---- download_owner.c: who downloads ---- */

extern struct owner {
    struct download *d;
    struct fs_request request;
    unsigned char got[SIZE + 8192];
    size_t len;
    int opens, heads, dones;
    bool same, ok, gone, slow, paused;
    struct sg_wire_file file;
    struct sg_error e;
    uint64_t leaves_at; /* cancels when it has so much; UINT64_MAX: never */
    bool leaves_at_open, leaves_at_head;
} owner;

extern struct guestlink *const the_link;

void owner_reset(void);
void world_reset(uint64_t size);
bool begin(void);
void leave(void);
bool step(void); /* false when nothing is left to happen */
void run(void);  /* until then */
void check_bytes(uint64_t from, uint64_t len);
void check_fails(enum sg_code code);
int setup(void **state);
int teardown(void **state);
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

#endif
