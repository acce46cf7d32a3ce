/* The parts of the operation `watch`: which directories are watched (fs_watch_tree.c), what a scan has told already
 * (fs_watch_seen.c), the lines (fs_watch_tell.c), setting watches (fs_watch_scan.c), what the kernel says
 * (fs_watch_events.c), and the operation itself (fs_watch.c).  One thread.
 *
 * Watches belong to directories, not to names, and what the kernel says of names comes late.  So a directory is opened
 * by walking down from the watched one, never through a link, and where what is found does not agree with what is known
 * all watches are set anew and `overflow` is told. */
#ifndef SG_GUEST_FS_WATCH_H
#define SG_GUEST_FS_WATCH_H

#include "guest/fs.h"

#include <sys/inotify.h>

enum {
    WATCH_DIRECTORIES = 8192, /* that one watch takes, its own included */
    WATCH_BUCKETS = 16384,
    WATCH_HELD = 16,     /* changes that wait for being repeated */
    WATCH_HOLD_MS = 50,  /* and for how long */
    WATCH_SEEN = 65536,  /* names told by a scan whose own events may still come */
    WATCH_PAIR_MS = 10,  /* for the second half of a move */
    WATCH_LOOK_MS = 1000 /* between looks whether the path still leads to what is watched */
};

/* ---- directories: nodes of a tree with the name of each in its parent; node 0 is the watched one ---- */

struct watch_node {
    int wd;
    uint64_t dev, ino;
    int parent;             /* -1: an orphan (or node 0): it has no place, and its events mean nothing */
    char *name;             /* NULL without a place */
    int first, next, prev;  /* its children, its siblings; -1 for none */
    int same_wd, same_name; /* of hash chains */
    int found_parent;       /* it was seen at another place before its move was told; -1: not */
    char *found_name;
    bool
        missed; /* something in it could not be watched, because it is not any more where it is thought to be */
    bool doubted; /* it was moved, and could not be looked at where it is now */
    bool used;
};

struct watch_tree {
    struct watch_node *nodes; /* WATCH_DIRECTORIES */
    int *by_wd, *by_name;     /* WATCH_BUCKETS each */
    int unused;               /* chain of free nodes, by same_wd */
    size_t count, nfound;
};

bool watch_tree_init(struct watch_tree *t);  /* false: no memory */
void watch_tree_clear(struct watch_tree *t); /* empty, memory kept */
void watch_tree_free(struct watch_tree *t);
int watch_by_wd(const struct watch_tree *t, int wd);                       /* -1: unknown */
int watch_child(const struct watch_tree *t, int parent, const char *name); /* likewise */
/* A new node; the first one is node 0 and has no parent.  -1: no memory, or WATCH_DIRECTORIES are there. */
int watch_add(struct watch_tree *t, int parent, const char *name, int wd, const struct stat *st);
/* Takes its place away; what is below it goes along. */
void watch_orphan(struct watch_tree *t, int node);
/* Gives it another one.  False without memory. */
bool watch_place(struct watch_tree *t, int node, int parent, const char *name);
bool watch_found(struct watch_tree *t, int node, int parent, const char *name);
/* It is not watched any more; what is below it become orphans. */
void watch_forget(struct watch_tree *t, int node);
/* Is it that one, or below it? */
bool watch_below(const struct watch_tree *t, int node, int above);
/* The path of name in a node (name NULL: its own) from node 0 on; false: too long, or it has none. */
bool watch_path(const struct watch_tree *t, int node, const char *name, char out[FS_PATH_MAX + 1]);

/* ---- names that a scan told, while events may be queued that would tell them again ---- */

struct watch_seen {
    uint64_t *v; /* NULL before the first */
    size_t n;
};

void watch_seen_add(struct watch_seen *s, int wd, const char *name); /* does nothing when it cannot */
bool watch_seen_take(struct watch_seen *s, int wd, const char *name);
void watch_seen_clear(struct watch_seen *s);
void watch_seen_free(struct watch_seen *s);

/* ---- lines ---- */

struct watch_tell {
    struct {
        enum sg_wire_change change;
        char entry;
        char *path;
    } held[WATCH_HELD]; /* modify and attrib, in order */
    size_t n;
    uint64_t due_ms; /* when they are printed; 0: nothing is held */
    bool lost;       /* the last line was overflow */
};

/* A burst of the same modify or attrib is one; whatever else happens comes after it. */
void watch_tell(struct watch_tell *t, enum sg_wire_change change, char entry, const char *path);
void watch_tell_move(struct watch_tell *t, char entry, const char *from, const char *to);
void watch_tell_lost(struct watch_tell *t);
/* Prints what is held. */
void watch_tell_flush(struct watch_tell *t);

/* ---- the whole ---- */

struct watcher {
    struct fs *fs;
    const char *path; /* of the watched directory: absolute, or below the root */
    dev_t dev;        /* it */
    ino_t ino;
    bool recursive;
    int fd; /* inotify */
    struct watch_tree tree;
    struct watch_seen seen;
    struct watch_tell tell;
    bool lost;         /* what is known is not true any more: everything is to be set anew */
    uint64_t look_ms;  /* when to look at the path again */
    uint64_t fresh_ms; /* when what begins at `fresh` in the buffer was read */
    size_t at, fresh, len;
    _Alignas(struct inotify_event) char buf[64 * 1024];
};

/* ---- fs_watch_scan.c; false with w->fs->f: it has to end ---- */

/* All watches from nothing; first: what the path leads to now is what is watched. */
bool watch_all(struct watcher *w, bool first);
/* Does the path still lead there? */
bool watch_look(struct watcher *w);
/* A directory has come: watches it and what is below, which is told as created. */
bool watch_enter(struct watcher *w, int parent, const char *name);
/* It has another place: what could not be watched or looked at in it and below, now can be. */
bool watch_again(struct watcher *w, int node);
/* It is watched no more, nor what is below it. */
void watch_leave(struct watcher *w, int node);
/* Is a node what its path leads to?  True also when that leads nowhere now: then it is doubted. */
bool watch_is_true(struct watcher *w, int node);
bool watch_gone(struct watcher *w, const char *how);

/* ---- fs_watch_events.c ---- */

/* Takes what has been read, and what there is to read.  False as above. */
bool watch_read(struct watcher *w);

#endif
