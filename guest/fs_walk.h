/* What lies below a directory, in the byte order of paths, in bounded memory and without following a link. */
#ifndef SG_GUEST_FS_WALK_H
#define SG_GUEST_FS_WALK_H

#include "guest/fs.h"

struct fs_entry {
    int dir; /* where name is */
    const char *name;
    const char *path; /* from where the walk began */
    size_t len;
    unsigned depth; /* 0 right below it */
};

struct fs_walk {
    void *arg;
    /* An entry, whatever it is.  False ends the walk. */
    bool (*visit)(void *arg, const struct fs_entry *e);
    /* Whether to look below a directory; NULL: always. */
    bool (*enter)(void *arg, const struct fs_entry *e);
    /* What could not be looked at, for errno.  False ends the walk; NULL: it goes on. */
    bool (*failed)(void *arg, const char *path);
    const char *after; /* NULL, or what comes before this path or is it is passed over */
    bool after_too;    /* but not that path itself */
    uint64_t deadline_ms;
    uint64_t names_deadline_ms; /* of reading the names of one directory; 0: likewise */
    bool unreadable, late;      /* out: something could not be looked at; the time is over */
    char last[FS_PATH_MAX + 1]; /* out: the last entry of which visit said true; "" for none */
};

/* fd stays open.  False with errno when it cannot be read, or there is no memory. */
bool fs_walk(struct fs_walk *w, int fd);

#endif
