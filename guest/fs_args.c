#include "guest/fs_args.h"

#include "base/core/b64.h"
#include "base/core/file_tag.h"
#include "base/core/num.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALNUM   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#define BIT(op) (UINT64_C(1) << (op))
#define NAMELESS                                                                                             \
    (BIT(FS_DROP) | BIT(FS_JOIN) | BIT(FS_UPLOAD_STATE) | BIT(FS_UPLOAD_FINISH) | BIT(FS_UPLOAD_REMOVE))
#define ALL   ((BIT(FS_OPS) - 1) & ~NAMELESS)
#define PAIRS (BIT(FS_MOVE) | BIT(FS_COPY) | BIT(FS_SYMLINK) | BIT(FS_LINK))
#define FINDS (BIT(FS_GLOB) | BIT(FS_GREP))
#define TREES (BIT(FS_REMOVE) | BIT(FS_COPY) | BIT(FS_CHMOD) | BIT(FS_CHOWN))
#define PAGED (BIT(FS_LIST) | BIT(FS_GLOB))
#define TEXTS (BIT(FS_LINES) | BIT(FS_GREP))
#define DOWNS (BIT(FS_FETCH) | BIT(FS_TAR))
#define PUTS  (BIT(FS_PUT) | BIT(FS_UPLOAD_OPEN))
#define IDS                                                                                                  \
    (BIT(FS_JOIN) | BIT(FS_UPLOAD_OPEN) | BIT(FS_UPLOAD_STATE) | BIT(FS_UPLOAD_FINISH) |                     \
     BIT(FS_UPLOAD_REMOVE))
#define PLACES (PUTS | BIT(FS_APPEND))
#define FROMS  (BIT(FS_APPEND) | BIT(FS_PUT) | BIT(FS_UNTAR))

static const char *const ops[FS_OPS] = {
    "stat",         "lstat",         "list",          "exists", "access",  "readlink", "realpath",
    "mkdir",        "remove",        "move",          "copy",   "symlink", "link",     "chmod",
    "chown",        "truncate",      "utimes",        "mktemp", "append",  "read",     "lines",
    "glob",         "grep",          "put",           "fetch",  "drop",    "join",     "upload-open",
    "upload-state", "upload-finish", "upload-remove", "tar",    "untar",   "watch"};

enum kind { FLAG, BYTES, NUMBER, SIGNED, OCTAL, ACCESS, TEXT, TAGS, STAGE, ID, LIST };

struct option {
    const char *name;
    enum kind kind;
    uint64_t ops, needed; /* bits of those that take it, and of those that cannot do without */
    uint64_t max;         /* bytes of BYTES and LIST */
    size_t offset;        /* in struct fs_args */
    size_t given_offset;  /* of a bool that says it was given, 0 for none */
};

#define AT(field) offsetof(struct fs_args, field)

static const struct option options[] = {
    {"--path", BYTES, ALL, ALL, FS_PATH_MAX, AT(path), 0},
    {"--to", BYTES, PAIRS, PAIRS, FS_PATH_MAX, AT(to), 0},
    {"--root", BYTES, BIT(FS_OPS) - 1, 0, FS_PATH_MAX, AT(root), 0},
    {"--after", BYTES, PAGED | BIT(FS_GREP), 0, FS_PATH_MAX, AT(after), 0},
    {"--pattern", BYTES, FINDS, FINDS, FS_PATTERN_MAX, AT(pattern), 0},
    {"--glob", BYTES, BIT(FS_GREP), 0, FS_PATTERN_MAX, AT(glob), 0},
    {"--prefix", BYTES, BIT(FS_MKTEMP), 0, 128, AT(prefix), 0},
    {"--include", LIST, BIT(FS_TAR), 0, FS_LIST_BYTES, AT(include), 0},
    {"--exclude", LIST, BIT(FS_TAR), 0, FS_LIST_BYTES, AT(exclude), 0},
    {"--cursor", BYTES, DOWNS | BIT(FS_UNTAR), 0, FS_PATH_MAX, AT(cursor), 0},
    {"--from", TEXT, FROMS, FROMS, 0, AT(upload), 0},
    {"--upload", ID, IDS, IDS, 0, AT(id), 0},
    {"--nonce", ID, BIT(FS_JOIN), BIT(FS_JOIN), 0, AT(nonce), 0},
    {"--length", NUMBER, BIT(FS_UPLOAD_OPEN), 0, INT64_MAX, AT(length), AT(has_length)},
    {"--if-match", TAGS, PUTS | BIT(FS_REMOVE), 0, 1, AT(if_match), 0},
    {"--unless", TAGS, PUTS | BIT(FS_FETCH), 0, 0, AT(unless), 0},
    {"--digest", TEXT, PUTS | BIT(FS_UPLOAD_FINISH), 0, 0, AT(digest), 0},
    {"--size", NUMBER, FROMS | BIT(FS_JOIN), 0, INT64_MAX, AT(size), AT(has_size)},
    {"--size", NUMBER, BIT(FS_UPLOAD_FINISH), BIT(FS_UPLOAD_FINISH), INT64_MAX, AT(size), AT(has_size)},
    {"--stage", STAGE, DOWNS | BIT(FS_DROP), BIT(FS_DROP), 0, AT(stage), 0},
    {"--drop", STAGE, DOWNS | BIT(FS_DROP), 0, 0, AT(drop), 0},
    {"--inline", NUMBER, DOWNS, 0, FS_INLINE_MAX, AT(inline_max), 0},
    {"--part", NUMBER, DOWNS, 0, INT64_MAX / 4, AT(part), 0},
    {"--from", NUMBER, TEXTS, 0, INT64_MAX, AT(from), 0},
    {"--count", NUMBER, BIT(FS_LINES), 0, INT64_MAX, AT(count), 0},
    {"--mode", OCTAL, BIT(FS_MKDIR) | BIT(FS_CHMOD) | PLACES, BIT(FS_CHMOD), 07777, AT(mode), 0},
    {"--mode", ACCESS, BIT(FS_ACCESS), 0, 0, AT(access), 0},
    {"--limit", NUMBER, PAGED, 0, 10000, AT(limit), 0},
    {"--limit", NUMBER, BIT(FS_READ), 0, GUEST_FOLLOW_BYTES, AT(limit), 0},
    {"--limit", NUMBER, BIT(FS_FETCH), 0, INT64_MAX, AT(limit), 0},
    {"--offset", NUMBER, BIT(FS_READ) | BIT(FS_APPEND) | BIT(FS_FETCH), 0, INT64_MAX / 4, AT(offset),
     AT(has_offset)},
    {"--offset", NUMBER, BIT(FS_JOIN), BIT(FS_JOIN), INT64_MAX / 4, AT(offset), AT(has_offset)},
    {"--tail", NUMBER, BIT(FS_READ) | BIT(FS_FETCH), 0, INT64_MAX, AT(tail), AT(has_tail)},
    {"--uid", NUMBER, BIT(FS_CHOWN), 0, UINT32_MAX - 1, AT(uid), 0},
    {"--gid", NUMBER, BIT(FS_CHOWN), 0, UINT32_MAX - 1, AT(gid), 0},
    {"--size", NUMBER, BIT(FS_TRUNCATE), BIT(FS_TRUNCATE), INT64_MAX, AT(size), 0},
    {"--atime-ns", SIGNED, BIT(FS_UTIMES), 0, INT64_MAX, AT(atime_ns), AT(has_atime)},
    {"--mtime-ns", SIGNED, BIT(FS_UTIMES), 0, INT64_MAX, AT(mtime_ns), AT(has_mtime)},
    {"--max-matches", NUMBER, BIT(FS_GREP), 0, INT64_MAX, AT(max_matches), 0},
    {"--max-line-bytes", NUMBER, TEXTS, 0, FS_LINE_MAX, AT(max_line), 0},
    {"--max-bytes", NUMBER, TEXTS, 0, INT64_MAX, AT(max_bytes), 0},
    {"--context", NUMBER, BIT(FS_GREP), 0, FS_CONTEXT_MAX, AT(context), 0},
    {"--any-links", FLAG, BIT(FS_UNTAR), 0, 0, AT(any_links), 0},
    {"--parents", FLAG, BIT(FS_MKDIR) | PLACES | BIT(FS_UNTAR), 0, 0, AT(parents), 0},
    {"--recursive", FLAG, TREES | BIT(FS_WATCH), 0, 0, AT(recursive), 0},
    {"--force", FLAG, BIT(FS_REMOVE), 0, 0, AT(force), 0},
    {"--exclusive", FLAG, BIT(FS_MOVE) | BIT(FS_COPY) | PUTS, 0, 0, AT(exclusive), 0},
    {"--no-follow", FLAG, BIT(FS_UTIMES) | BIT(FS_CHOWN), 0, 0, AT(no_follow), 0},
    {"--directory", FLAG, BIT(FS_MKTEMP), 0, 0, AT(directory), 0},
    {"--hidden", FLAG, FINDS, 0, 0, AT(hidden), 0},
    {"--fixed", FLAG, BIT(FS_GREP), 0, 0, AT(fixed), 0},
    {"--icase", FLAG, BIT(FS_GREP), 0, 0, AT(icase), 0},
    {"--binary", FLAG, BIT(FS_GREP), 0, 0, AT(binary), 0},
};
enum { OPTIONS = sizeof options / sizeof *options };

static bool misuse(struct guest_fail *f, const char *what, const char *name)
{
    char text[sizeof f->text];
    snprintf(text, sizeof text, "%s%.64s", what, name);
    return guest_failed(f, SG_WF_USAGE, 0, text);
}

/* What is in base64, NUL behind it; NULL when it is empty or longer than max. */
static char *decode(const char *v, uint64_t max, size_t *len)
{
    size_t n = strlen(v);
    if (n == 0 || n > SG_B64_LEN((size_t)max))
        return NULL;
    char *bytes = malloc(n / 4 * 3 + 2);
    ssize_t got = bytes ? sg_b64_decode(bytes, v, n) : -1;
    if (got <= 0 || (uint64_t)got > max) {
        free(bytes);
        return NULL;
    }
    bytes[got] = '\0';
    *len = (size_t)got;
    return bytes;
}

static bool store_bytes(char **at, const char *v, uint64_t max)
{
    size_t len;
    char *bytes = decode(v, max, &len);
    if (!bytes || memchr(bytes, '\0', len)) {
        free(bytes);
        return false;
    }
    *at = bytes;
    return true;
}

/* Texts with NUL between them; an empty one follows the last. */
static bool store_list(char **at, const char *v, uint64_t max)
{
    size_t len;
    char *bytes = decode(v, max, &len);
    if (!bytes)
        return false;
    bytes[len + 1] = '\0';
    for (size_t i = 0; i < len; i += strlen(bytes + i) + 1)
        if (!bytes[i] || i + strlen(bytes + i) + 1 == len) {
            free(bytes);
            return false;
        }
    *at = bytes;
    return true;
}

static bool store_octal(int *at, const char *v, uint64_t max)
{
    unsigned mode = 0;
    size_t n = strlen(v);
    if (n == 0 || n > 5 || strspn(v, "01234567") != n)
        return false;
    for (; *v; v++)
        mode = mode * 8 + (unsigned)(*v - '0');
    *at = (int)mode;
    return mode <= max;
}

static bool store_access(int *at, const char *v)
{
    *at = F_OK;
    for (; *v; v++) {
        int bit = *v == 'r' ? R_OK : *v == 'w' ? W_OK : *v == 'x' ? X_OK : 0;
        if (bit == 0 || (*at & bit))
            return false;
        *at |= bit;
    }
    return true;
}

static bool store_signed(int64_t *at, const char *v)
{
    bool minus = *v == '-';
    uint64_t n;
    if (!sg_parse_u64(v + minus, strlen(v + minus), INT64_MAX, &n))
        return false;
    *at = minus ? -(int64_t)n : (int64_t)n;
    return true;
}

bool fs_stage_name_valid(const char *name)
{
    static const char prefix[] = ".down-";
    size_t n = strlen(name), front = sizeof prefix - 1;
    return n > front && n <= front + 64 && strncmp(name, prefix, front) == 0 &&
           strspn(name + front, ALNUM "._-") == n - front;
}

bool fs_id_valid(const char *id, size_t n)
{
    return n >= 1 && n <= FS_ID_MAX && strspn(id, ALNUM) >= n;
}

static bool store(struct fs_args *a, const struct option *o, const char *v)
{
    void *at = (char *)a + o->offset;
    if (o->given_offset)
        *(bool *)((char *)a + o->given_offset) = true;
    switch (o->kind) {
    case FLAG:
        *(bool *)at = true;
        return true;
    case BYTES:
        return store_bytes(at, v, o->max);
    case LIST:
        return store_list(at, v, o->max);
    case NUMBER:
        return sg_parse_u64(v, strlen(v), o->max, at);
    case SIGNED:
        return store_signed(at, v);
    case OCTAL:
        return store_octal(at, v, o->max);
    case ACCESS:
        return store_access(at, v);
    case TEXT:
        *(const char **)at = v;
        return *v && strlen(v) < FS_PATH_MAX;
    case TAGS: /* max: also any */
        *(const char **)at = v;
        return sg_file_tags_valid(v) || (o->max && strcmp(v, "*") == 0);
    case STAGE:
        *(const char **)at = v;
        return fs_stage_name_valid(v);
    case ID:
        *(const char **)at = v;
        return fs_id_valid(v, strlen(v));
    }
    return false;
}

static const struct option *find_option(const char *name, uint64_t bit)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if ((options[i].ops & bit) && strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

static bool fits_together(const struct fs_args *a, struct guest_fail *f)
{
    if (a->has_tail && a->has_offset)
        return misuse(f, "--tail and ", "--offset");
    if (a->op == FS_CHOWN && a->recursive && a->no_follow)
        return misuse(f, "--recursive and ", "--no-follow");
    if (a->cursor && (a->has_offset || a->has_tail || a->unless))
        return misuse(f, "--cursor and ", a->unless ? "--unless" : "--offset or --tail");
    if (a->prefix && strchr(a->prefix, '/'))
        return misuse(f, "bad value of ", "--prefix");
    if (a->exclusive && a->if_match)
        return misuse(f, "--exclusive and ", "--if-match");
    if (a->op == FS_LINES && a->from == 0)
        return misuse(f, "bad value of ", "--from");
    return true;
}

bool fs_args_parse(char *const *argv, struct fs_args *a, struct guest_fail *f)
{
    *a = (struct fs_args){.mode = -1,
                          .uid = UINT32_MAX,
                          .gid = UINT32_MAX,
                          .limit = 10000,
                          .count = 1000,
                          .max_matches = 1000,
                          .max_line = 4096,
                          .max_bytes = UINT64_C(1024) * 1024};
    if (!argv[0] || strcmp(argv[0], "--op") != 0 || !argv[1])
        return misuse(f, "missing ", "--op");
    unsigned op = 0;
    while (op < FS_OPS && strcmp(ops[op], argv[1]) != 0)
        op++;
    if (op == FS_OPS)
        return misuse(f, "unknown operation ", argv[1]);
    a->op = (enum fs_op)op;
    if (a->op == FS_READ)
        a->limit = GUEST_FOLLOW_BYTES;
    if (a->op == FS_FETCH)
        a->limit = INT64_MAX;
    if (a->op == FS_LINES)
        a->from = 1;
    bool given[OPTIONS] = {false};
    for (argv += 2; *argv; argv++) {
        const struct option *o = find_option(*argv, BIT(op));
        if (!o)
            return misuse(f, "unknown option ", *argv);
        if (given[o - options])
            return misuse(f, "repeated ", o->name);
        given[o - options] = true;
        if (o->kind != FLAG && !*++argv)
            return misuse(f, "no value for ", o->name);
        if (!store(a, o, o->kind == FLAG ? "" : *argv))
            return misuse(f, "bad value of ", o->name);
    }
    for (size_t i = 0; i < OPTIONS; i++)
        if ((options[i].needed & BIT(op)) && !given[i])
            return misuse(f, "missing ", options[i].name);
    return fits_together(a, f);
}

void fs_args_free(struct fs_args *a)
{
    char **all[] = {&a->path, &a->to,     &a->root,   &a->after,   &a->pattern,
                    &a->glob, &a->prefix, &a->cursor, &a->include, &a->exclude};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(*all[i]);
        *all[i] = NULL;
    }
}
