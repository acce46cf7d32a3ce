#include "fs_calls.h"

#include "base/core/b64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPLIES = 4, ARGS_MAX = 40 };

static struct fs_reply replies[REPLIES];
static size_t next_reply;

static void reply_free(struct fs_reply *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free((void *)(uintptr_t)r->lines[i].name);
        free((void *)(uintptr_t)r->lines[i].data);
    }
    free(r->lines);
    free(r->out);
    *r = (struct fs_reply){0};
}

void fs_calls_free(void)
{
    for (size_t i = 0; i < REPLIES; i++)
        reply_free(&replies[i]);
}

static unsigned char *kept(const unsigned char *p, size_t n)
{
    unsigned char *copy = calloc(1, n + 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

static void take(struct fs_reply *r, const char *text, size_t n)
{
    unsigned char bytes[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    if (!sg_wire_parse(text, n, bytes, &l))
        fail_msg("malformed line: %.*s", (int)n, text);
    enum sg_wire_kind last = r->last.kind;
    assert_false(last == SG_WIRE_OK || last == SG_WIRE_MORE || last == SG_WIRE_ERROR);
    r->last = l;
    if (l.kind == SG_WIRE_DATA) {
        r->from = r->len ? r->from : l.offset;
        assert_int_equal(l.offset, r->from + r->len);
        r->out = realloc(r->out, r->len + l.len);
        assert_non_null(r->out);
        memcpy(r->out + r->len, l.data, l.len);
        r->len += l.len;
    } else if (l.kind == SG_WIRE_FILE || l.kind == SG_WIRE_NAME || l.kind == SG_WIRE_TEXT) {
        if ((r->n & (r->n - 1)) == 0)
            r->lines = realloc(r->lines, (r->n ? r->n * 2 : 1) * sizeof *r->lines);
        assert_non_null(r->lines);
        l.name = kept(l.name, l.name_len);
        l.data = kept(l.data, l.len);
        r->lines[r->n++] = l;
    } else {
        assert_true(l.kind == SG_WIRE_OK || l.kind == SG_WIRE_MORE || l.kind == SG_WIRE_ERROR);
    }
}

static void read_reply(struct fs_reply *r, pid_t pid, int fd)
{
    static char line[SG_WIRE_LINE_MAX];
    size_t n;
    char *text = line;
    FILE *f = fdopen(fd, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        n = strlen(line);
        assert_true(n && text[n - 1] == '\n');
        take(r, line, n - 1);
    }
    (void)fclose(f);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    r->rc = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    assert_true(r->rc == 0 || r->rc == 1 || r->rc == 64); /* 99: a sanitizer's word */
    assert_int_equal(r->rc == 0, r->last.kind != SG_WIRE_ERROR);
}

static const char *in_base64(const char *s)
{
    size_t n = strlen(s);
    char *out = malloc(SG_B64_LEN(n) + 1);
    assert_non_null(out);
    out[sg_b64_encode(out, s, n)] = '\0';
    return out;
}

const struct fs_reply *fs(const char *op, ...)
{
    static const char *const coded[] = {"--path",    "--to",   "--root",   "--after",
                                        "--pattern", "--glob", "--prefix", "--cursor"};
    const char *args[ARGS_MAX] = {"fs", "--op", op}, *made[ARGS_MAX];
    size_t n = 3, m = 0;
    va_list ap;
    va_start(ap, op);
    while (n < ARGS_MAX - 1 && (args[n] = va_arg(ap, const char *))) {
        for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
            if (strcmp(args[n - 1], coded[i]) == 0) {
                args[n] = made[m++] = in_base64(args[n]);
                break;
            }
        n++;
    }
    va_end(ap);
    struct fs_reply *r = &replies[next_reply++ % REPLIES];
    reply_free(r);
    int fd;
    pid_t pid = guest_spawn(NULL, args, &fd);
    read_reply(r, pid, fd);
    while (m)
        free((void *)(uintptr_t)made[--m]);
    return r;
}

void fs_fails(const struct fs_reply *r, const char *errno_name)
{
    assert_int_equal(r->last.kind, SG_WIRE_ERROR);
    assert_int_equal(r->last.fail, SG_WF_FILE);
    assert_string_equal(r->last.errno_name, errno_name);
    assert_string_not_equal(r->last.text, "outside");
}

void fs_says(const struct fs_reply *r, enum sg_wire_fail fail)
{
    assert_int_equal(r->last.kind, SG_WIRE_ERROR);
    if (r->last.fail != fail)
        fail_msg("%s: %s", sg_wire_fail_name(r->last.fail), r->last.text);
}

void fs_is_outside(const struct fs_reply *r)
{
    assert_int_equal(r->last.kind, SG_WIRE_ERROR);
    assert_int_equal(r->last.fail, SG_WF_FILE);
    assert_string_equal(r->last.errno_name, "EXDEV");
    assert_string_equal(r->last.text, "outside");
    assert_int_equal(r->n, 0);
    assert_int_equal(r->len, 0);
}

void fs_is_done(const struct fs_reply *r, const char *word)
{
    if (r->last.kind == SG_WIRE_ERROR)
        fail_msg("%s: %s", r->last.errno_name, r->last.text);
    assert_int_equal(r->last.kind, SG_WIRE_OK);
    assert_string_equal(r->last.text, word);
}

static char text[1 << 20];

const char *fs_names_of(const struct fs_reply *r)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < r->n && n < sizeof text - 300; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s ", (const char *)r->lines[i].name);
    return text;
}

const char *fs_text_of(const struct fs_reply *r)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < r->n && n < sizeof text - 10000; i++) {
        const struct sg_wire_line *l = &r->lines[i];
        if (l->kind != SG_WIRE_TEXT)
            continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%llu%c%s%c", (const char *)l->name,
                              l->name_len ? "/" : "", (unsigned long long)l->line, l->context ? '=' : ':',
                              (const char *)l->data,
                              l->goes_on ? '+'
                              : l->cut   ? '!'
                                         : '|');
    }
    return text;
}
