#include "guest/fs_watch.h"

#include <stdlib.h>
#include <string.h>

/* ---- hash chains ---- */

static int *wd_bucket(const struct watch_tree *t, int wd)
{
    return &t->by_wd[(unsigned)wd % WATCH_BUCKETS];
}

static int *name_bucket(const struct watch_tree *t, int parent, const char *name)
{
    uint32_t h = (2166136261u ^ (uint32_t)parent) * 16777619u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return &t->by_name[(h ^ h >> 16) % WATCH_BUCKETS];
}

int watch_by_wd(const struct watch_tree *t, int wd)
{
    int i = *wd_bucket(t, wd);
    while (i >= 0 && t->nodes[i].wd != wd)
        i = t->nodes[i].same_wd;
    return i;
}

int watch_child(const struct watch_tree *t, int parent, const char *name)
{
    int i = *name_bucket(t, parent, name);
    while (i >= 0 && (t->nodes[i].parent != parent || strcmp(t->nodes[i].name, name) != 0))
        i = t->nodes[i].same_name;
    return i;
}

static void wd_remove(struct watch_tree *t, int node)
{
    int *at = wd_bucket(t, t->nodes[node].wd);
    while (*at != node)
        at = &t->nodes[*at].same_wd;
    *at = t->nodes[node].same_wd;
}

static void name_remove(struct watch_tree *t, int node)
{
    int *at = name_bucket(t, t->nodes[node].parent, t->nodes[node].name);
    while (*at != node)
        at = &t->nodes[*at].same_name;
    *at = t->nodes[node].same_name;
}

/* ---- life ---- */

bool watch_tree_init(struct watch_tree *t)
{
    *t = (struct watch_tree){.nodes = calloc(WATCH_DIRECTORIES, sizeof *t->nodes),
                             .by_wd = calloc(WATCH_BUCKETS, sizeof *t->by_wd),
                             .by_name = calloc(WATCH_BUCKETS, sizeof *t->by_name)};
    if (!t->nodes || !t->by_wd || !t->by_name)
        return false;
    watch_tree_clear(t);
    return true;
}

void watch_tree_clear(struct watch_tree *t)
{
    for (int i = 0; i < WATCH_BUCKETS; i++)
        t->by_wd[i] = t->by_name[i] = -1;
    for (int i = 0; i < WATCH_DIRECTORIES; i++) {
        struct watch_node *n = &t->nodes[i];
        free(n->name);
        free(n->found_name);
        *n = (struct watch_node){.same_wd = i + 1 < WATCH_DIRECTORIES ? i + 1 : -1};
    }
    t->unused = 0;
    t->count = t->nfound = 0;
}

void watch_tree_free(struct watch_tree *t)
{
    if (t->nodes && t->by_wd && t->by_name)
        watch_tree_clear(t);
    free(t->nodes);
    free(t->by_wd);
    free(t->by_name);
    *t = (struct watch_tree){0};
}

static void found_none(struct watch_tree *t, struct watch_node *n)
{
    t->nfound -= n->found_parent >= 0;
    free(n->found_name);
    n->found_name = NULL;
    n->found_parent = -1;
}

int watch_add(struct watch_tree *t, int parent, const char *name, int wd, const struct stat *st)
{
    int i = t->unused;
    if (i < 0)
        return -1;
    struct watch_node *n = &t->nodes[i];
    int rest = n->same_wd;
    *n = (struct watch_node){.wd = wd,
                             .dev = st->st_dev,
                             .ino = st->st_ino,
                             .parent = -1,
                             .first = -1,
                             .next = -1,
                             .prev = -1,
                             .same_wd = *wd_bucket(t, wd),
                             .found_parent = -1,
                             .used = true};
    if (parent >= 0 && !watch_place(t, i, parent, name)) {
        *n = (struct watch_node){.same_wd = rest};
        return -1;
    }
    t->unused = rest;
    t->count++;
    *wd_bucket(t, wd) = i;
    return i;
}

void watch_orphan(struct watch_tree *t, int node)
{
    struct watch_node *n = &t->nodes[node];
    if (n->parent < 0)
        return;
    name_remove(t, node);
    if (n->prev >= 0)
        t->nodes[n->prev].next = n->next;
    else
        t->nodes[n->parent].first = n->next;
    if (n->next >= 0)
        t->nodes[n->next].prev = n->prev;
    free(n->name);
    n->name = NULL;
    n->parent = n->next = n->prev = -1;
}

bool watch_place(struct watch_tree *t, int node, int parent, const char *name)
{
    char *copy = strdup(name);
    if (!copy)
        return false;
    struct watch_node *n = &t->nodes[node], *p = &t->nodes[parent];
    watch_orphan(t, node);
    if (n->found_parent == parent && strcmp(n->found_name, name) == 0)
        found_none(t, n); /* else it may have been moved more than once until it was found there */
    n->parent = parent;
    n->name = copy;
    n->next = p->first;
    if (n->next >= 0)
        t->nodes[n->next].prev = node;
    p->first = node;
    int *bucket = name_bucket(t, parent, name);
    n->same_name = *bucket;
    *bucket = node;
    return true;
}

bool watch_found(struct watch_tree *t, int node, int parent, const char *name)
{
    char *copy = strdup(name);
    if (!copy)
        return false;
    found_none(t, &t->nodes[node]);
    t->nfound++;
    t->nodes[node].found_parent = parent;
    t->nodes[node].found_name = copy;
    return true;
}

void watch_forget(struct watch_tree *t, int node)
{
    struct watch_node *n = &t->nodes[node];
    while (n->first >= 0)
        watch_orphan(t, n->first);
    watch_orphan(t, node);
    wd_remove(t, node);
    found_none(t, n);
    for (int i = 0; t->nfound && i < WATCH_DIRECTORIES; i++)
        if (t->nodes[i].used && t->nodes[i].found_parent == node)
            found_none(t, &t->nodes[i]);
    *n = (struct watch_node){.same_wd = t->unused};
    t->unused = node;
    t->count--;
}

bool watch_below(const struct watch_tree *t, int node, int above)
{
    while (node >= 0 && node != above)
        node = t->nodes[node].parent;
    return node == above;
}

bool watch_path(const struct watch_tree *t, int node, const char *name, char out[FS_PATH_MAX + 1])
{
    size_t at = FS_PATH_MAX; /* from the end */
    out[at] = '\0';
    for (const char *part = name; node >= 0; node = t->nodes[node].parent) {
        size_t n = part ? strlen(part) : 0, slash = part && out[at];
        if (n + slash > at)
            return false;
        if (slash)
            out[--at] = '/';
        at -= n;
        if (n)
            memcpy(out + at, part, n);
        part = t->nodes[node].name;
        if (node == 0)
            break;
        if (!part)
            return false;
    }
    memmove(out, out + at, FS_PATH_MAX + 1 - at);
    if (!out[0])
        memcpy(out, ".", 2);
    return node == 0;
}
