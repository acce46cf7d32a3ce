/* The tokens in memory: a sorted array that is swapped whole when the file changed. */
#include "auth/internal.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LOOK_MS = 500, MAX_MEMORY_TOKENS = 16, MAX_TOKEN_INPUT = 4096, MAX_BAD_LINES_LOGGED = 20 };

struct token_set {
    struct token_entry *v;
    size_t n, cap;
};

struct token_table {
    char *path;
    _Atomic int64_t looked_ms; /* monotonic; whoever moves it on does the look */
    struct token_file_id seen; /* only the looker touches it */
    int read_errno;            /* likewise: what was logged last */
    pthread_mutex_t lock;      /* guards set and memory; never held over I/O */
    struct token_set set;
    struct token_set memory;
};

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct token_entry *)a)->who.id, ((const struct token_entry *)b)->who.id);
}

static bool add(struct token_set *s, const struct token_entry *entry)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        struct token_entry *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return false;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = *entry;
    return true;
}

/* False when out of memory.  A malformed line is said once per reading of the file, and skipped. */
static bool parse_all(const struct token_table *t, const struct sg_buf *b, struct token_set *out)
{
    int64_t number = 0;
    int64_t bad = 0;
    for (size_t pos = 0; pos < b->len;) {
        const char *line = b->data + pos;
        const char *nl = memchr(line, '\n', b->len - pos);
        size_t len = nl ? (size_t)(nl - line) : b->len - pos;
        struct token_entry entry;
        pos += len + 1;
        number++;
        if (!len)
            continue;
        if (!token_line_parse(line, len, &entry)) {
            if (bad++ < MAX_BAD_LINES_LOGGED)
                sg_log(SG_LOG_WARN, "token_line_malformed", "path", "s", t->path, "line", "i", number, NULL);
        } else if (!add(out, &entry)) {
            return false;
        }
    }
    if (out->n)
        qsort(out->v, out->n, sizeof *out->v, by_id);
    return true;
}

/* Reads the file and swaps it in.  Returns 0 or -errno; the old table stays on failure. */
static int reload(struct token_table *t)
{
    struct sg_buf b;
    struct token_set fresh = {0};
    struct token_file_id id;
    int rc = token_file_read(t->path, &b, &id);
    if (!rc && !parse_all(t, &b, &fresh))
        rc = -ENOMEM;
    sg_buf_free(&b);
    if (rc) {
        free(fresh.v);
        return rc;
    }
    t->seen = id;
    pthread_mutex_lock(&t->lock);
    struct token_set old = t->set;
    t->set = fresh;
    pthread_mutex_unlock(&t->lock);
    free(old.v);
    return 0;
}

static bool same_file(const struct token_file_id *a, const struct token_file_id *b)
{
    return a->exists == b->exists && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

/* At most once in LOOK_MS, by one thread: is the file another one? */
static void look(struct token_table *t)
{
    int64_t now = sg_mono_ms();
    int64_t last = atomic_load(&t->looked_ms);
    if (!t->path || now - last < LOOK_MS || !atomic_compare_exchange_strong(&t->looked_ms, &last, INT64_MAX))
        return;
    struct token_file_id id;
    int rc = token_file_stat(t->path, &id);
    if (!rc && (!same_file(&id, &t->seen) || t->read_errno))
        rc = reload(t);
    if (rc != t->read_errno && rc)
        sg_log(SG_LOG_ERROR, "token_file_unreadable", "path", "s", t->path, "errno", "s", sg_errno_name(-rc),
               NULL);
    t->read_errno = rc;
    atomic_store(&t->looked_ms, sg_mono_ms()); /* gives the right to look back */
}

enum sg_code token_table_open(const char *path, struct token_table **out, struct sg_error *e)
{
    *out = NULL;
    struct token_table *t = calloc(1, sizeof *t);
    if (t && path && !(t->path = strdup(path))) {
        free(t);
        t = NULL;
    }
    if (!t)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
    pthread_mutex_init(&t->lock, NULL);
    int rc = path ? reload(t) : 0;
    if (rc) {
        token_table_free(t);
        enum sg_code code = sg_fail(e, SG_E_FILE_ERROR, SG_NOT_SENT, "cannot read the token file %.150s: %s",
                                    path, strerror(-rc));
        if (e)
            (void)snprintf(e->errno_name, sizeof e->errno_name, "%s", sg_errno_name(-rc));
        return code;
    }
    atomic_store(&t->looked_ms, sg_mono_ms());
    *out = t;
    return SG_OK;
}

void token_table_free(struct token_table *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    free(t->set.v);
    free(t->memory.v);
    free(t->path);
    free(t);
}

enum sg_code token_table_add_memory(struct token_table *t, const char *token, const char *name,
                                    struct sg_error *e)
{
    if (!token_format_valid(token) || !token_name_valid(name))
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "not a token, or not a name for one");
    struct token_entry entry = {.created_at = sg_wall_ms()};
    memcpy(entry.who.id, token + 4, TOKEN_ID_LEN);
    (void)snprintf(entry.who.name, sizeof entry.who.name, "%s", name);
    sg_sha256(token, strlen(token), entry.hash);
    pthread_mutex_lock(&t->lock);
    bool room = t->memory.n < MAX_MEMORY_TOKENS;
    bool ok = room && add(&t->memory, &entry);
    pthread_mutex_unlock(&t->lock);
    if (ok)
        return SG_OK;
    return room ? sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory")
                : sg_fail(e, SG_E_OVERLOADED, SG_NOT_SENT, "too many tokens in memory");
}

/* A copy of the entry with this id.  The id is no secret, so looking it up may take what time it takes. */
static bool find(struct token_table *t, const char *id, struct token_entry *out)
{
    struct token_entry key;
    memcpy(key.who.id, id, TOKEN_ID_LEN);
    key.who.id[TOKEN_ID_LEN] = '\0';
    const struct token_entry *hit = NULL;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->memory.n && !hit; i++)
        if (by_id(&key, &t->memory.v[i]) == 0)
            hit = &t->memory.v[i];
    if (!hit && t->set.n)
        hit = bsearch(&key, t->set.v, t->set.n, sizeof *t->set.v, by_id);
    if (hit)
        *out = *hit;
    pthread_mutex_unlock(&t->lock);
    return hit != NULL;
}

/* Every token, of whatever form and length, costs one digest of what was sent and one comparison of two
 * digests; an unknown id is compared with a digest that no token has. */
enum sg_code token_check(struct token_table *t, const char *token, struct principal *out, struct sg_error *e)
{
    unsigned char digest[TOKEN_HASH_LEN];
    struct token_entry entry;
    memset(&entry, 0, sizeof entry);
    look(t);
    sg_sha256(token, strnlen(token, MAX_TOKEN_INPUT), digest);
    bool known = token_format_valid(token) && find(t, token + 4, &entry);
    bool equal = sg_equal_ct(digest, entry.hash, TOKEN_HASH_LEN);
    if (!known || !equal)
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "the token is not valid");
    if (entry.who.expires_at && entry.who.expires_at <= sg_wall_ms()) {
        char when[SG_TIME_TEXT];
        sg_time_format(entry.who.expires_at, when);
        return sg_fail(e, SG_E_TOKEN_EXPIRED, SG_NOT_SENT, "the token expired at %s", when);
    }
    *out = entry.who;
    return SG_OK;
}

enum sg_code token_check_header(struct token_table *t, const char *authorization, struct principal *out,
                                struct sg_error *e)
{
    if (!authorization)
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "the Authorization header is missing");
    const char *p = authorization + strspn(authorization, " \t");
    if (strncasecmp(p, "bearer", 6) != 0 || (p[6] != ' ' && p[6] != '\t'))
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                       "the Authorization header is not \"Bearer <token>\"");
    p += 6 + strspn(p + 6, " \t");
    size_t len = strcspn(p, " \t");
    char token[TOKEN_TEXT + 1]; /* one more than a token: a longer text stays a wrong one */
    if (p[len + strspn(p + len, " \t")])
        len = sizeof token - 1; /* something after the token: wrong as a whole */
    (void)snprintf(token, sizeof token, "%.*s", (int)(len < sizeof token ? len : sizeof token - 1), p);
    enum sg_code code = token_check(t, token, out, e);
    explicit_bzero(token, sizeof token);
    return code;
}
