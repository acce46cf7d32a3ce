/* Recorded output: files `out.N` and `err.N` in a record, N the offset of their first byte (twenty digits).
 *
 * The writer (the monitor) appends to the newest.  As a ring it drops the oldest when more than `retain` bytes are
 * kept or the disk is full; lossless it drops only what was acknowledged, and takes nothing where there is no room.
 * Readers are other processes; a file that they hold open stays readable when dropped.
 */
#ifndef SG_GUEST_SEGMENT_H
#define SG_GUEST_SEGMENT_H

#include "guest/record.h"

enum { RECORDER_FILES = 1100 };

struct recorder {
    const struct guest_root *root;
    int dir;         /* borrowed */
    unsigned stream; /* 0 stdout, 1 stderr */
    uint64_t retain, file_size;
    int fd;                         /* the newest file, -1 before the first byte and after a loss */
    uint64_t base, end;             /* its first offset; offset after the last byte of the stream */
    uint64_t files[RECORDER_FILES]; /* a ring of first offsets */
    size_t first, count;
    bool incomplete; /* the disk was full: bytes were dropped that `retain` would have kept */
    bool lossless;
    uint64_t acked; /* lossless: received before this offset */
};

void recorder_init(struct recorder *r, const struct guest_root *root, int dir, unsigned stream,
                   uint64_t retain, bool lossless);
/* Records n bytes and returns how many: all of them, unless lossless finds the disk full.  As a ring what finds no
 * room counts as lost; other (may be NULL) is the process's other stream, whose oldest file goes too then. */
size_t recorder_write(struct recorder *r, const unsigned char *data, size_t n, struct recorder *other);
/* Which files there are, to see later whether some came or went. */
struct recorder_files {
    uint64_t base;
    size_t first, count;
};
struct recorder_files recorder_files(const struct recorder *r);
bool recorder_changed(const struct recorder *r, const struct recorder_files *before);
/* How many bytes may be recorded until something is acknowledged; without end for a ring. */
uint64_t recorder_room(const struct recorder *r);
/* Lossless: what lies before the offset was received. */
void recorder_ack(struct recorder *r, uint64_t received);
/* Lossless no longer: the program has ended and its last bytes find no room. */
void recorder_give_up(struct recorder *r);
/* After a loss the end offset has to show in a file name; called before the exit record is written. */
void recorder_seal(struct recorder *r);

/* First kept offset and offset after the last byte of both streams; 0 without any output.  False with errno. */
bool segments_extent(int dir, uint64_t oldest[2], uint64_t end[2]);

struct reader {
    int dir; /* borrowed */
    unsigned stream;
    uint64_t pos;
    int fd; /* the file that holds pos, or -1 */
    uint64_t base;
};

enum reader_result { READER_DATA, READER_NONE, READER_GAP };

void reader_init(struct reader *r, int dir, unsigned stream, uint64_t pos);
void reader_close(struct reader *r);
/* DATA: *n bytes (at most cap) at r->pos were read; the caller advances pos.  NONE: nothing there yet.
 * GAP: bytes up to *gap_to are not kept; the caller advances pos. */
enum reader_result reader_next(struct reader *r, unsigned char *buf, size_t cap, size_t *n, uint64_t *gap_to);

#endif
