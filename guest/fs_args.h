/* The command line of `fs`.  Pure but for its memory; any thread. */
#ifndef SG_GUEST_FS_ARGS_H
#define SG_GUEST_FS_ARGS_H

#include "guest/guest.h"

enum {
    FS_PATH_MAX = 4096,
    FS_PATTERN_MAX = 1024,
    FS_LIST_BYTES = 16 * 1024, /* of all patterns of a list */
    FS_CONTEXT_MAX = 100,
    FS_LINE_MAX = 65536,
    FS_ID_MAX = 32,
    FS_INLINE_MAX = 1024 * 1024, /* bytes of --inline */
};

enum fs_op {
    FS_STAT,
    FS_LSTAT,
    FS_LIST,
    FS_EXISTS,
    FS_ACCESS,
    FS_READLINK,
    FS_REALPATH,
    FS_MKDIR,
    FS_REMOVE,
    FS_MOVE,
    FS_COPY,
    FS_SYMLINK,
    FS_LINK,
    FS_CHMOD,
    FS_CHOWN,
    FS_TRUNCATE,
    FS_UTIMES,
    FS_MKTEMP,
    FS_APPEND,
    FS_READ,
    FS_LINES,
    FS_GLOB,
    FS_GREP,
    FS_PUT,
    FS_FETCH,
    FS_DROP,
    FS_JOIN,
    FS_UPLOAD_OPEN,
    FS_UPLOAD_STATE,
    FS_UPLOAD_FINISH,
    FS_UPLOAD_REMOVE,
    FS_TAR,
    FS_UNTAR,
    FS_WATCH,
    FS_OPS,
};

/* What was not given is zero, or what fs_args_parse says. */
struct fs_args {
    enum fs_op op;
    char *path, *to, *root; /* any bytes but NUL, 1..FS_PATH_MAX of them; freed by fs_args_free */
    char *after, *pattern, *glob, *prefix;
    char *include, *exclude;   /* tar: patterns, each ended by NUL, and an empty one behind them */
    char *cursor;              /* fetch, tar, untar; likewise, as they printed it */
    const char *upload;        /* append, put and untar: its name */
    const char *if_match;      /* put, remove: tags of what may be replaced, or "*" */
    const char *unless;        /* put: tags of what may not be; fetch: of what is not wanted */
    const char *digest;        /* put: sha-256:HEX, of what is put there */
    const char *id, *nonce;    /* of an upload: [A-Za-z0-9]{1,32} */
    const char *stage, *drop;  /* fetch, tar: fs_stage_name_valid; drop has its name in stage, too */
    uint64_t inline_max, part; /* fetch, tar: bytes */
    uint64_t length;           /* upload-open */
    int mode;                  /* -1: not given */
    int access;                /* R_OK | W_OK | X_OK, 0: that it is there */
    uint64_t limit;       /* names of list (10000) and glob (10000), bytes of read (GUEST_FOLLOW_BYTES) */
    uint64_t offset;      /* read, append */
    uint64_t tail;        /* read: so many bytes before the end */
    uint64_t uid, gid;    /* chown; UINT32_MAX: as it is */
    uint64_t size;        /* truncate; put, append, untar: it has to be so long; join: no further than that */
    uint64_t from, count; /* lines: 1, 1000; grep's from: 0 */
    uint64_t max_matches, max_line, max_bytes, context; /* 1000, 4096, 1 MiB, 0 */
    int64_t atime_ns, mtime_ns;
    bool has_offset, has_tail, has_atime, has_mtime, has_size, has_length;
    bool any_links; /* untar: also those that lead out of the directory */
    bool parents, recursive, force, exclusive, no_follow, directory, hidden, fixed, icase, binary;
};

/* argv: what follows "fs", up to NULL.  Strict: unknown, repeated, missing or foreign options are refused. */
bool fs_args_parse(char *const *argv, struct fs_args *a, struct guest_fail *f);
void fs_args_free(struct fs_args *a); /* also after a failure */

/* Whether it may be the name of what is put aside: ".down-" and then 1..64 of [A-Za-z0-9._-]. */
bool fs_stage_name_valid(const char *name);
/* [A-Za-z0-9]{1,32} */
bool fs_id_valid(const char *id, size_t len);

#endif
