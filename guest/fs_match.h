/* Glob patterns of paths: *, ?, [set], {a,b}, \ before a byte that means itself, and ** for any number of directories.
 * Bytes, not text, but ? takes a whole character of UTF-8.  Bounded: what expands to too much is refused.  Pure but for
 * its memory. */
#ifndef SG_GUEST_FS_MATCH_H
#define SG_GUEST_FS_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MATCH_PATTERNS_MAX = 64, /* after braces */
    MATCH_PARTS_MAX = 60,    /* of one */
    MATCH_BYTES_MAX = 16 * 1024,
};

struct match_pattern {
    const char *parts[MATCH_PARTS_MAX];
    unsigned count;
    bool directories; /* ends in a slash */
};

struct match {
    char *text; /* all parts, each with its NUL */
    size_t used;
    struct match_pattern patterns[MATCH_PATTERNS_MAX];
    size_t count;
    bool hidden; /* * and ? and ** take names with a dot in front */
};

/* NULL, or what is wrong with the pattern.  match_free in any case. */
const char *match_make(const char *pattern, bool hidden, struct match *m);
/* One more pattern beside it. */
const char *match_add(const char *pattern, struct match *m);
void match_free(struct match *m);

/* How far each pattern has come along a path: bit i, so many parts are done. */
struct match_state {
    uint64_t at[MATCH_PATTERNS_MAX];
};

void match_start(const struct match *m, struct match_state *s);
/* One name further down. */
void match_step(const struct match *m, const struct match_state *s, const char *name,
                struct match_state *out);
/* The path so far is matched. */
bool match_is_full(const struct match *m, const struct match_state *s, bool is_directory);
/* Something below it may be. */
bool match_goes_on(const struct match *m, const struct match_state *s);
/* One name against one part, without "**". */
bool match_name(const char *part, const char *name, bool hidden);
/* A path and its parts against the whole patterns; patterns of one part match the last name at any depth. */
bool match_path(const struct match *m, const char *path);

/* NULL, or why a POSIX extended regular expression is not taken: what costs too much memory or time. */
const char *match_regex_wrong(const char *pattern);

#endif
