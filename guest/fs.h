/* `fs`: one operation on the files of the sandbox per call.  Its answer is S, N, R and D lines, then K, M or E.
 *
 * With --root every path, also a relative one, is resolved below that directory by openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS) and
 * acted on through the descriptors it gives, so no link and no race leads out of it: that is E file EXDEV "outside".
 * Without openat2 there is no such confinement, and the operation is refused.
 * Private to guest/fs*.c but for act_fs.
 */
#ifndef SG_GUEST_FS_H
#define SG_GUEST_FS_H

#include "base/core/file_tag.h"
#include "guest/fs_args.h"
#include "guest/record.h"

#include <sys/stat.h>
#include <sys/types.h>

enum {
    FS_DEPTH_MAX = 512,            /* directories below each other that an operation on a tree goes into */
    FS_LIST_MAX = 10000,           /* names of one list or glob */
    FS_LOOK_MS = 20 * 1000,        /* how long what only looks may take: nobody waits for longer than 25 s */
    FS_TEXT_MAX = 8 * 1024 * 1024, /* bytes of names and texts that one grep or lines prints at most */
};

struct fs {
    const struct fs_args *a;
    struct guest_fail *f;
    int root;                        /* -1: not confined */
    char root_real[FS_PATH_MAX + 1]; /* where it is */
    bool outside;                    /* a path was refused because it leads out of the root */
    uint64_t deadline_ms;            /* for what looks: guest_now_ms */
};

/* argv: what follows "fs", NULL at its end.  umask: the one that new files get. */
bool act_fs(char *const *argv, mode_t umask, struct guest_fail *f);

/* ---- fs_path.c ---- */

/* Opens the root when there is one. */
bool fs_confine(struct fs *fs);
/* Says what errno is about; always false. */
bool fs_failed(struct fs *fs, const char *text);
bool fs_refused(struct fs *fs, int err, const char *text);
/* open() with O_CLOEXEC, below the root if there is one; -1 with errno. */
int fs_open(struct fs *fs, const char *path, int flags, mode_t mode);
/* The directory (O_PATH) that path lies in and its last part, which is no "." or "..", nor followed. */
struct fs_place {
    int dir;
    char name[FS_PATH_MAX + 1];
};
/* -1 in dir and errno when there is none: EBUSY for "/" and the root itself, EINVAL for "." and "..", ENOTDIR for
 * something with a slash behind that is no directory. */
bool fs_place(struct fs *fs, const char *path, struct fs_place *p);
void fs_place_close(struct fs_place *p);
/* The same for an open (O_PATH) file; 0, or -1 with errno. */
int fs_chmod_fd(int fd, mode_t mode);
/* "/proc/self/fd/N" */
const char *fs_fd_path(int fd, char out[32]);
void fs_close(int fd); /* keeps errno; -1 is fine */

/* Takes the lock of an open file or directory, which programs may hold as long as they like: so it waits for it until
 * the call's own end, or so long.  False with errno. */
bool fs_lock(struct fs *fs, int fd, uint64_t most_ms);

/* Of acts on trees, which end after a while and go on with the next call: how far this one may go. */
struct fs_clock {
    uint64_t end_ms;
    unsigned n;
    bool over;
};
struct fs_clock fs_clock_start(void);
/* Before each entry; true with ETIMEDOUT once the time is over, but never before many entries. */
bool fs_clock_over(struct fs_clock *c);

/* Calls fn for every entry but "." and ".." of the directory fd, which is closed, in no order, until it says false.
 * False with errno. */
typedef bool fs_entry_fn(void *arg, int dir, const char *name);
bool fs_each(int fd, fs_entry_fn *fn, void *arg);

/* In nanoseconds since the epoch, as far as they can be told. */
int64_t fs_ns(struct timespec t);
struct sg_wire_file fs_wire_file(const struct stat *st);
/* The tag that the gateway makes of its S line. */
void fs_tag(const struct stat *st, char out[SG_FILE_TAG_LEN + 1]);
/* What fs->a->path names, open for reading, if it is a regular file; never waits for the other end of something. -1 with
 * errno. */
int fs_open_regular(struct fs *fs, struct stat *st);
/* Whether what is read of the file now is what was there at *was, which becomes how it is now: nobody wrote to it since,
 * but behind its end.  That it is longer may also be because it was emptied and written anew: fs_mark tells. */
bool fs_is_unchanged(int fd, struct stat *was);
/* A hash of some blocks of what is before `at`, the first and the last among them: a file that was emptied and written
 * anew is not taken for one that has grown. */
uint64_t fs_mark(int fd, uint64_t at);
/* FNV-1a, going on from hash (FS_HASH_START). */
uint64_t fs_hash(uint64_t hash, const unsigned char *p, size_t n);
#define FS_HASH_START UINT64_C(14695981039346656037)
/* How many of the n bytes at `at` there are; -1 with errno. */
ssize_t fs_read_range(int fd, unsigned char *to, size_t n, uint64_t at);
/* Prints an S line: name "" for none, dir and entry (may be NULL) say where to read the target of a link. */
void fs_print(const struct stat *st, const char *name, int dir, const char *entry);
void fs_print_name(const char *name, size_t len);
/* The end of what ran out of time: it goes on after this line of this file ("": the only one; line 0: after it). */
void fs_print_late(const char *path, uint64_t line);

/* A write shows in a file's times when it begins, and not when it goes on.  Waits until *st, which becomes how the file is
 * now, tells of no write that may still be under way, a fifth of a second at most; false when it never rests.  One that
 * grows need not. */
bool fs_rest(int fd, struct stat *st);

/* Makes the directories before the last part of path, which is written to meanwhile. */
bool fs_make_parents(struct fs *fs, char *path);
/* From where they are to the end of `from`; false with errno. */
bool fs_copy_bytes(int from, int to);
/* rename, of files also exclusively where the file system cannot do that. */
bool fs_rename(int from, const char *name, int to, const char *to_name, bool exclusive);
bool fs_sync_directory(int dir);

/* ---- the operations ---- */

bool fs_stat(struct fs *fs); /* stat, lstat */
bool fs_list(struct fs *fs);
bool fs_exists(struct fs *fs);
bool fs_access(struct fs *fs);
bool fs_readlink(struct fs *fs);
bool fs_realpath(struct fs *fs);
bool fs_mkdir(struct fs *fs);
bool fs_symlink(struct fs *fs);
bool fs_link(struct fs *fs);
bool fs_chmod(struct fs *fs);
bool fs_chown(struct fs *fs);
bool fs_truncate(struct fs *fs);
bool fs_utimes(struct fs *fs);
bool fs_mktemp(struct fs *fs);
bool fs_append(struct fs *fs);
bool fs_remove(struct fs *fs);
bool fs_copy(struct fs *fs);
bool fs_move(struct fs *fs);
bool fs_read(struct fs *fs);
bool fs_lines(struct fs *fs);
bool fs_glob(struct fs *fs);
bool fs_grep(struct fs *fs);
bool fs_put(struct fs *fs);
bool fs_tar(struct fs *fs);
bool fs_untar(struct fs *fs);
bool fs_fetch(struct fs *fs);
bool fs_drop(struct fs *fs);
bool fs_join(struct fs *fs);
bool fs_upload_open(struct fs *fs);
bool fs_upload_state(struct fs *fs);
bool fs_upload_finish(struct fs *fs);
bool fs_upload_remove(struct fs *fs);
bool fs_watch(struct fs *fs); /* prints K when the watch is in force, then V lines; ends with E only */

#endif
