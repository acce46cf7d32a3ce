/* gzip, both ways, piece by piece.  Pure but for its memory (44 KiB to read, 256 KiB to write); any thread, one at a time.
 *
 * Who reads does so on the loop thread: a core inflates 200 MB/s at least, so GUNZIP_TURN bytes of output, which is what
 * a turn of the loop may ask for, hold it for about a millisecond.  Who writes does so in the loop's thread pool
 * (transfer/packer.h): deflating takes 2 to 5 times as long, and a client that takes its archive fast enough would keep
 * the loop busy with nothing else.  GZIP_LEVEL is the fastest, 50 to 110 MB/s: level 6 takes two and a half times as long
 * for a fifth less.
 */
#ifndef SG_TRANSFER_GZIP_H
#define SG_TRANSFER_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

enum {
    GZIP_LEVEL = 1,
    GUNZIP_TURN = 256 * 1024,
    /* The policy for what grows out of all proportion: beyond `free_bytes`, output may be at most so many times the
     * input.  Tars of text are 3 to 10 times as long, of sparse files much more; a bomb is 1000 times as long. */
    GUNZIP_RATIO_MAX = 100,
};

enum gunzip_state {
    GUNZIP_FINE,
    GUNZIP_DAMAGED,  /* it is no gzip from here on: also what follows the last member, be it zeros */
    GUNZIP_TOO_MUCH, /* see GUNZIP_RATIO_MAX */
    GUNZIP_NO_MEMORY,
};

/* Must not be moved once it is open. */
struct gunzip {
    z_stream z;
    bool open, inside;
    uint64_t members, in, out, free_bytes;
};

bool gunzip_open(struct gunzip *g, uint64_t free_bytes); /* false: no memory */
/* Takes from *in what it can (advances both) and fills out with *made bytes, cap at most.  It is through with the input
 * when *in_len is 0 and *made < cap; otherwise call again.  Anything but FINE is final. */
enum gunzip_state gunzip_step(struct gunzip *g, const char **in, size_t *in_len, char *out, size_t cap,
                              size_t *made);
/* Whether the input may end here: behind a member. */
bool gunzip_whole(const struct gunzip *g);
void gunzip_close(struct gunzip *g); /* also of one that is zeroed */

/* Must not be moved once it is open. */
struct gzip {
    z_stream z;
    bool open, done;
};

bool gzip_open(struct gzip *g, int level); /* false: no memory */
/* As gunzip_step; `last`: nothing follows this input.  True: through with the input, and with `last` all was given. */
bool gzip_step(struct gzip *g, const char **in, size_t *in_len, bool last, char *out, size_t cap,
               size_t *made);
void gzip_close(struct gzip *g); /* also of one that is zeroed */

#endif
