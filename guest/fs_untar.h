/* `untar`: an archive becomes files below a directory.  The first pass reads all of it and touches nothing: so a bad
 * archive is refused whole.  The second acts through descriptors of directories, each found from the target without
 * following a link: what is swapped meanwhile makes it fail, and never leads it elsewhere.
 * Private to guest/fs_untar*.c. */
#ifndef SG_GUEST_FS_UNTAR_H
#define SG_GUEST_FS_UNTAR_H

#include "guest/fs.h"
#include "guest/tar_source.h"
#include "guest/untar_names.h"

struct untar {
    struct fs *fs;
    int archive;
    struct stat facts;    /* of it, as it was opened */
    uint64_t deadline_ms; /* of this call: guest_now_ms */
    int dir;              /* the target; -1: it is not there */
    char dir_real[FS_PATH_MAX + 1];
    struct untar_names names;
    uint64_t entries; /* of the whole archive */
    uint64_t done;    /* of them */
    /* Where extracting begins: an entry, and what the archive said for all entries before it. */
    uint64_t at;
    struct tar_reader reader;
    bool found;      /* there is an entry, or the end, at that place */
    bool extracting; /* the second pass */
    uint32_t left;   /* directories from this node down are to be finished; 0: all */
    unsigned temps;
    /* the directory that was used last */
    int parent;
    char parent_path[TAR_PATH_MAX + 1];
    struct tar_source source;
};

/* Extracts u->archive to what u->fs->a->path names; the rest of u is zero, and its descriptors -1.  *more: the time is
 * over, and it goes on at u->at.  u is to be closed in any case. */
bool untar_run(struct untar *u, bool *more);
void untar_close(struct untar *u); /* but for its archive */

/* What is wrong with an entry of this name (as it is in the archive; ""), always false. */
bool untar_refused(struct untar *u, const char *name, const char *wrong);
/* Likewise, of something that failed with errno: in the second pass it says how much was done. */
bool untar_failed(struct untar *u, const char *path, const char *what);

/* ---- fs_untar_place.c ---- */

/* The directory of the first len bytes of path below the target (O_PATH), without following a link; -1 with errno.  It
 * stays u's, until the next call. */
int untar_open(struct untar *u, const char *path, size_t len);
/* The directory that path lies in, made with those above it if need be.  *name: its last part. */
int untar_make_parent(struct untar *u, const char *path, const char **name);
/* Opens what lies below the target, without following a link; the caller's to close; -1 with errno. */
int untar_open_at(const struct untar *u, const char *path, int flags);
void untar_place_close(struct untar *u);

/* ---- fs_untar_check.c ---- */

/* The first pass. */
bool untar_check(struct untar *u);
/* NULL, or why the link at path may not have this target.  *later: only all names of the archive tell. */
const char *untar_target_wrong(const struct untar *u, const char *path, const char *target, bool *later);

/* ---- fs_untar_entry.c ---- */

/* The source's entry takes its place. */
bool untar_extract(struct untar *u);
/* Modes and times of directories, the deepest first.  *late: the time is over, and u->left says where to go on. */
bool untar_finish_directories(struct untar *u, bool *late);

#endif
