/* Somebody who uploads, for the tests of transfer/upload.h over played.h. */
#ifndef UPLOAD_OWNER_H
#define UPLOAD_OWNER_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "played.h"
#include "transfer/upload_impl.h"

#define KIB   UINT64_C(1024)
#define MIB   (KIB * KIB)
#define PART  MIB
#define AHEAD (PART / 2)

struct owner {
    uint64_t size, ready, at; /* of the body: its length, as much may be read, as much was */
    size_t chunk;             /* bytes that one read gives at most; 0: any */
    bool abort_at_end;        /* it is cut there */
    bool waits;
    struct upload *upload;
    struct fs_request finish;
    bool done, ok;
    int times, quiet;
    uint64_t offset, file_size;
    char word[16];
    struct sg_error e;
};

extern struct uploads *all;

/* What a body holds at this place. */
char byte_at(uint64_t i);
vercel_read_fn read_body;
upload_done_fn on_done;
/* A put of so many bytes, of which as many as `ready` says are there; announced -1: nobody knows. */
void begin(struct owner *o, uint64_t size, int64_t announced);
/* The same, all of it at once and to its end. */
void run(struct owner *o, uint64_t size, int64_t announced);
/* So many bytes more are there. */
void give(struct owner *o, uint64_t n);
void leave(struct owner *o);
/* The target is what the body was, and lies alone. */
void assert_there(uint64_t size);
void assert_nothing(void);
uint64_t offset_of(const struct played_write *w);
/* Everything anew, with parts and a pool of these sizes. */
void start_over(uint64_t part, uint64_t pool);
int setup(void **state);
int teardown(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
