/* Runs the helper as real processes below a private root, and reads its answers strictly. */
#ifndef GUEST_HARNESS_H
#define GUEST_HARNESS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/carrier.h"
#include "base/core/wire.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

extern char root[PATH_MAX];    /* SANDGATE_GUEST_ROOT of this program */
extern char scratch[PATH_MAX]; /* a directory beside it, for what tests write */

extern uid_t guest_uid; /* not 0: run the helper as this user (needs root) */

int harness_setup(void **state); /* group setup */
/* Gives this process a small tmpfs of its own as the root.  False without the right to: then there is no test. */
bool small_root(const char *options);
int harness_teardown(void **state); /* ends what still runs below the root, deletes both directories */

struct answer {
    int rc; /* exit status; -N when killed by signal N */
    size_t lines;
    struct sg_wire_line first, last; /* their data pointers are not valid */
    unsigned char *out[2];           /* the D bytes, contiguous but for gaps */
    size_t len[2], cap[2];
    uint64_t next[2]; /* offset after the last byte or gap */
    bool terminal;    /* there was output of a terminal: it is in out[0] */
    size_t gaps;
    uint64_t gap_to[2];
    size_t processes; /* P lines */
    struct sg_wire_process process[8];
};

/* Starts the helper (or argv0, when not NULL) with the arguments up to NULL; returns its pid, *fd its stdout. */
pid_t guest_spawn(const char *argv0, const char *const *args, int *fd);
/* Reads to the end and waits.  Fails the test on any line that does not parse, on a line after the last one, and
 * on a D line that does not continue its stream (which begins at from[]). */
struct answer answer_read(pid_t pid, int fd, const uint64_t from[2]);
void answer_free(struct answer *a);

/* guest("run", "--session", …, NULL): spawn and read, streams from 0. */
__attribute__((sentinel)) struct answer guest(const char *first, ...);
__attribute__((sentinel)) struct answer guest_from(uint64_t out, uint64_t err, const char *first, ...);

/* A shell program under session "s", spec "h". */
struct answer run_sh(const char *id, const char *script);
struct answer start_sh(const char *id, const char *script);

char *path_in(const char *dir, const char *name); /* in a ring of static buffers */
void file_write(const char *path, const void *data, size_t len);
char *file_text(const char *path); /* static buffer, NULL when it does not exist */
/* Waits (at most ten seconds) until done(arg) holds; fails the test otherwise. */
void wait_until(bool (*done)(const void *arg), const void *arg);
bool file_has_text(const void *path);
bool pid_is_gone(const void *pid); /* const pid_t * */
/* Waits for a file to hold a number and returns it. */
pid_t pid_from(const char *path);

enum { STATE_STARTED = 1, STATE_MONITOR = 7 };
/* The slot-th 128 bytes of the record's state file, session "s". */
void state_slot(const char *id, unsigned slot, char text[128]);
void state_write(const char *id, unsigned slot, const char *text);
/* program, its start, monitor, its start, time: of a record of session "s". */
void started_numbers(const char *id, uint64_t v[5]);

/* ---- the monitor's socket, without the helper's calls in between ---- */

/* Connects to the record's monitor, session "s", and says what for.  -1: refused. */
int ctl_open(const char *id, char what);
/* Reads one line, LF included, within ten seconds; false at the end.  A line that does not parse fails the test. */
bool ctl_line(int fd, struct sg_wire_line *l);
/* The answer to one act. */
struct sg_wire_line ctl_say(const char *id, const char *act);
void carrier_data(int fd, uint64_t offset, const void *data, size_t n);
/* A frame without payload. */
void carrier_frame(int fd, struct sg_carrier_frame f);
/* Reads A lines until one says that so much was accepted; returns it. */
struct sg_wire_line carrier_accepted(int fd, uint64_t accepted);

void assert_error(const struct answer *a, enum sg_wire_fail fail, const char *errno_name);
void assert_text(const struct answer *a, int stream, const char *text);

#endif
