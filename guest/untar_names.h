/* All names of an archive as a tree, so that each can be held against the others.  A million of them at most.
 * Pure but for its memory. */
#ifndef SG_GUEST_UNTAR_NAMES_H
#define SG_GUEST_UNTAR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UNTAR_NAMES_MAX = 1000000,
    UNTAR_BYTES_MAX = 64 * 1024 * 1024, /* of the names together */
    UNTAR_TOP = 1,                      /* the directory that all is relative to */
};

enum untar_kind {
    UNTAR_IMPLIED, /* a directory, because something is below it */
    UNTAR_DIRECTORY,
    UNTAR_FILE, /* or a hard link to one */
    UNTAR_LINK,
};

struct untar_directory {
    int64_t mtime_s;
    uint32_t mtime_ns, mode;
};

struct untar_node {
    uint32_t parent; /* has a smaller number */
    uint32_t next;   /* with the same hash */
    uint32_t name, len;
    uint32_t directory; /* its number in directories, from 1; 0: none */
    uint8_t kind;       /* enum untar_kind */
    bool there;         /* on the disk, before anything was extracted */
};

struct untar_names {
    struct untar_node *nodes; /* from UNTAR_TOP to n, included */
    uint32_t n;
    struct untar_directory *directories; /* what is to be set in the end */
    uint32_t directory_count;
    /* private */
    uint32_t cap, directory_cap, *heads, seed;
    char *bytes;
    size_t used, byte_cap;
};

/* False: no memory.  untar_names_free in any case. */
bool untar_names_start(struct untar_names *t, uint32_t seed);
void untar_names_free(struct untar_names *t);
/* 0: there is none. */
uint32_t untar_names_find(const struct untar_names *t, uint32_t parent, const char *name, size_t len);
/* len: 255 at most.  0: there is no room for it. */
uint32_t untar_names_add(struct untar_names *t, uint32_t parent, const char *name, size_t len,
                         enum untar_kind kind);
/* What the directory is to get in the end; the last one counts.  False: no memory. */
bool untar_names_set(struct untar_names *t, uint32_t node, const struct untar_directory *d);
static inline bool untar_is_directory(const struct untar_names *t, uint32_t node)
{
    return t->nodes[node].kind == UNTAR_IMPLIED || t->nodes[node].kind == UNTAR_DIRECTORY;
}
/* The path of a node, out of its names; false when it has more than cap - 1 bytes. */
bool untar_names_path(const struct untar_names *t, uint32_t node, char *out, size_t cap);

#endif
