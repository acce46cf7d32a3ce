/* A body on its way up that may be gzip, as what is in it: reads from a source, and is read like one.
 *
 * Inflating is done when it is read, at most GUNZIP_TURN bytes in a turn of the loop (transfer/gzip.h): then it pauses and
 * goes on by itself.  The digest of what came, before it is unpacked, is checked at its end, where one is expected.  Loop
 * thread; 60 KiB.
 */
#ifndef SG_TRANSFER_UNPACK_H
#define SG_TRANSFER_UNPACK_H

#include "base/error.h"
#include "base/loop.h"
#include "vercel/client.h"

enum unpack_form {
    UNPACK_NOT,
    UNPACK_GZIP,
    UNPACK_LOOK, /* gzip, when it begins like it */
};

struct unpack_spec {
    struct sg_loop *loop;
    enum unpack_form form;
    uint64_t free_bytes;         /* of gunzip_open */
    const unsigned char *sha256; /* 32 bytes, copied; NULL: none is expected */
    vercel_read_fn *read;        /* the source */
    void (*more)(void *arg);     /* unpack_read, which paused, has something to say; must not free it */
    void *arg;                   /* of both */
};

struct unpack;
struct unpack *unpack_new(const struct unpack_spec *s); /* NULL: no memory */
void unpack_free(struct unpack *u);                     /* NULL is fine */
/* As vercel_read_fn, with u as its arg.  VERCEL_READ_ABORT: the source said so, or unpack_error tells what is wrong. */
size_t unpack_read(void *u, char *buf, size_t cap);
/* The source, which paused, has more. */
void unpack_more(struct unpack *u);
/* ARCHIVE_REFUSED, DIGEST_MISMATCH or OUT_OF_MEMORY; SG_OK: nothing is wrong so far. */
enum sg_code unpack_error(const struct unpack *u, struct sg_error *e);
/* The source begins again.  False: no memory. */
bool unpack_rewind(struct unpack *u);

#endif
