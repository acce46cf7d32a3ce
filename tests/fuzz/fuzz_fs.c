/* Whatever is asked of `fs`: options, paths in base64, globs and expressions are taken apart within their bounds, and
 * matching agrees with itself.  So are cursors of downloads and what is known of uploads, which a program of the sandbox
 * may have written: what is taken is what we would have written. */
#include "guest/fs_args.h"
#include "guest/fs_cursor.h"
#include "guest/fs_match.h"
#include "guest/fs_meta.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARGS_MAX = 40 };

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* util.c has more that is not wanted here */
bool guest_failed(struct guest_fail *f, enum sg_wire_fail code, int err, const char *text)
{
    (void)err;
    f->code = code;
    snprintf(f->text, sizeof f->text, "%s", text);
    return false;
}

static void check_bytes(const char *p, size_t max)
{
    check(!p || (*p && strlen(p) <= max));
}

/* Patterns, each ended by NUL, and an empty one behind them. */
static void check_list(const char *p)
{
    size_t n = 0;
    if (!p)
        return;
    check(*p);
    while (p[n])
        n += strlen(p + n) + 1;
    check(n <= FS_LIST_BYTES + 1);
}

/* Words, each ended by a NUL. */
static void arguments(const char *text, size_t size)
{
    char *copy = malloc(size + 1), *argv[ARGS_MAX + 1];
    size_t n = 0;
    check(copy);
    memcpy(copy, text, size);
    copy[size] = '\0';
    for (size_t at = 0; at < size && n < ARGS_MAX; at += strlen(copy + at) + 1)
        argv[n++] = copy + at;
    argv[n] = NULL;
    struct fs_args a;
    struct guest_fail f = {.code = SG_WF_INTERNAL};
    if (fs_args_parse(argv, &a, &f)) {
        check(a.op < FS_OPS && a.mode >= -1 && a.mode <= 07777);
        check_bytes(a.path, FS_PATH_MAX);
        check_bytes(a.to, FS_PATH_MAX);
        check_bytes(a.root, FS_PATH_MAX);
        check_bytes(a.after, FS_PATH_MAX);
        check_bytes(a.pattern, FS_PATTERN_MAX);
        check_bytes(a.glob, FS_PATTERN_MAX);
        check_list(a.include);
        check_list(a.exclude);
        check(!a.prefix || !strchr(a.prefix, '/'));
        check(a.max_line <= FS_LINE_MAX && a.context <= FS_CONTEXT_MAX);
        check(!a.id || fs_id_valid(a.id, strlen(a.id)));
        check(!a.nonce || (fs_id_valid(a.nonce, strlen(a.nonce)) && !strchr(a.nonce, '.')));
        check(!a.stage || (fs_stage_name_valid(a.stage) && !strchr(a.stage, '/')));
        check(!a.drop || (fs_stage_name_valid(a.drop) && !strchr(a.drop, '/')));
        check(a.inline_max <= FS_INLINE_MAX && a.offset <= INT64_MAX);
        check(!a.if_match || !a.exclusive);
        check(!a.cursor || (!a.has_offset && !a.has_tail));
    } else {
        check(f.code == SG_WF_USAGE && f.text[0]);
    }
    fs_args_free(&a);
    free(copy);
}

/* A pattern and a path; the first byte says the rest. */
static void patterns(bool hidden, char *pattern, const char *path)
{
    static struct match m;
    static struct match_state s[2];
    const char *wrong = match_make(pattern, hidden, &m);
    if (!wrong) {
        check(m.count >= 1 && m.count <= MATCH_PATTERNS_MAX && m.used <= MATCH_BYTES_MAX);
        (void)match_path(&m, path);
        match_start(&m, &s[0]);
        check(match_goes_on(&m, &s[0]) && !match_is_full(&m, &s[0], true));
        while (*path) {
            char name[256];
            size_t n = strcspn(path, "/");
            snprintf(name, sizeof name, "%.*s", (int)(n < 255 ? n : 255), path);
            bool could = match_goes_on(&m, &s[0]);
            match_step(&m, &s[0], name, &s[1]);
            s[0] = s[1];
            check(could || !match_is_full(&m, &s[0], true)); /* what is not gone into matches nothing */
            check(!match_is_full(&m, &s[0], false) || match_is_full(&m, &s[0], true));
            path += n + (path[n] == '/');
        }
    }
    match_free(&m);
}

static void cursor(const char *text)
{
    struct fs_cursor c;
    char again[FS_CURSOR_MAX];
    if (!fs_cursor_parse(text, &c))
        return;
    check(c.at < c.end && c.end <= c.size && c.size <= INT64_MAX);
    check(fs_cursor_format(again, &c) == strlen(text) && strcmp(again, text) == 0);
}

static void meta(const char *text, size_t len)
{
    static struct fs_meta m, again;
    static char out[FS_META_MAX];
    memcpy(m.text, text, len);
    if (fs_meta_parse(&m, len)) {
        check(m.a.op == FS_UPLOAD_OPEN && m.a.path && fs_id_valid(m.a.id, strlen(m.a.id)));
        size_t n = fs_meta_format(out, m.state, &m.a, &m.file, m.replaced);
        check(n > 0 && n <= FS_META_MAX);
        memcpy(again.text, out, n);
        check(fs_meta_parse(&again, n));
        check(again.state == m.state && strcmp(again.a.path, m.a.path) == 0 &&
              strcmp(again.a.id, m.a.id) == 0);
        check(!again.a.root == !m.a.root && (!m.a.root || strcmp(again.a.root, m.a.root) == 0));
        check(again.a.mode == m.a.mode && again.a.exclusive == m.a.exclusive &&
              again.a.parents == m.a.parents);
        check(m.state == FS_META_OPEN || (again.file.ino == m.file.ino && again.replaced == m.replaced));
        fs_meta_free(&again);
    }
    fs_meta_free(&m);
}

static void expressions(const char *pattern, const char *text)
{
    regex_t re;
    if (match_regex_wrong(pattern) || regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB))
        return;
    (void)regexec(&re, text, 0, NULL, 0);
    regfree(&re);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 8192)
        return 0;
    if (data[0] == 'M') {
        meta((const char *)data + 1, size - 1);
        return 0;
    }
    if (data[0] % 4 == 0) {
        arguments((const char *)data + 1, size - 1);
        return 0;
    }
    char *text = malloc(size);
    check(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    size_t n = strlen(text);
    const char *rest = n + 1 < size ? text + n + 1 : "";
    if (data[0] == 'C')
        cursor(text);
    else if (n <= FS_PATTERN_MAX && data[0] % 4 < 3)
        patterns(data[0] % 4 == 1, text, rest);
    else if (n <= 64 && strlen(rest) <= 256)
        expressions(text, rest);
    free(text);
    return 0;
}
