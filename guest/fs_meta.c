#include "guest/fs_meta.h"

#include "base/core/b64.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Lines: a head, the state, of what ends or has ended its S line and "created" or "replaced", then the words of the
 * command line, each a line of its own, and "end". */
static const char head[] = "sandgate upload 1", end[] = "end";
static const char *const states[] = {"open", "ends", "done"};

enum { WORDS_MAX = 40 };

struct writer {
    char *out;
    size_t len; /* FS_META_MAX and more: it does not fit */
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list ap;
    size_t room = w->len < FS_META_MAX ? FS_META_MAX - w->len : 0;
    va_start(ap, format);
    int n = vsnprintf(room ? w->out + w->len : NULL, room, format, ap);
    va_end(ap);
    w->len += n > 0 ? (size_t)n : 0;
}

static void put_bytes(struct writer *w, const char *option, const char *bytes)
{
    char text[SG_B64_LEN(FS_PATH_MAX) + 1];
    size_t n = bytes ? strlen(bytes) : 0;
    if (n == 0 || n > FS_PATH_MAX)
        return;
    text[sg_b64_encode(text, bytes, n)] = '\0';
    put(w, "%s\n%s\n", option, text);
}

static void put_text(struct writer *w, const char *option, const char *text)
{
    if (text)
        put(w, "%s\n%s\n", option, text);
}

size_t fs_meta_format(char out[FS_META_MAX], enum fs_meta_state state, const struct fs_args *a,
                      const struct sg_wire_file *file, bool replaced)
{
    struct writer w = {.out = out};
    char line[SG_WIRE_LINE_MAX];
    put(&w, "%s\n%s\n", head, states[state]);
    if (state != FS_META_OPEN) {
        struct sg_wire_line l = {.kind = SG_WIRE_FILE, .file = *file};
        put(&w, "%.*s%s\n", (int)sg_wire_format(line, &l), line, replaced ? "replaced" : "created");
    }
    put(&w, "--op\nupload-open\n");
    put_text(&w, "--upload", a->id);
    put_bytes(&w, "--path", a->path);
    put_bytes(&w, "--root", a->root);
    put_text(&w, "--if-match", a->if_match);
    put_text(&w, "--unless", a->unless);
    put_text(&w, "--digest", a->digest);
    if (a->mode >= 0)
        put(&w, "--mode\n%o\n", (unsigned)a->mode);
    if (a->has_length)
        put(&w, "--length\n%" PRIu64 "\n", a->length);
    if (a->parents)
        put(&w, "--parents\n");
    if (a->exclusive)
        put(&w, "--exclusive\n");
    put(&w, "%s\n", end);
    return w.len < FS_META_MAX ? w.len : 0;
}

/* The next line of *at, which moves behind it; NULL when there is none. */
static char *next_line(char **at)
{
    char *line = *at, *lf = strchr(line, '\n');
    if (!lf)
        return NULL;
    *lf = '\0';
    *at = lf + 1;
    return line;
}

static bool parse_end(struct fs_meta *m, char **at)
{
    unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    char *file = next_line(at), *word = file ? next_line(at) : NULL;
    if (!word || !sg_wire_parse(file, strlen(file), scratch, &l) || l.kind != SG_WIRE_FILE)
        return false;
    m->file = l.file;
    m->replaced = strcmp(word, "replaced") == 0;
    return m->replaced || strcmp(word, "created") == 0;
}

bool fs_meta_parse(struct fs_meta *m, size_t len)
{
    char *words[WORDS_MAX + 1], *at = m->text, *line;
    struct guest_fail ignored;
    size_t n = 0, state = 0;
    m->a = (struct fs_args){0};
    m->text[len <= FS_META_MAX ? len : 0] = '\0';
    if (strlen(m->text) != len || !(line = next_line(&at)) || strcmp(line, head) != 0 ||
        !(line = next_line(&at)))
        return false;
    while (state <= FS_META_DONE && strcmp(line, states[state]) != 0)
        state++;
    if (state > FS_META_DONE)
        return false;
    m->state = (enum fs_meta_state)state;
    if (m->state != FS_META_OPEN && !parse_end(m, &at))
        return false;
    while (n < WORDS_MAX && (line = next_line(&at)) && strcmp(line, end) != 0)
        words[n++] = line;
    words[n] = NULL;
    if (!line || strcmp(line, end) != 0 || *at)
        return false;
    return fs_args_parse(words, &m->a, &ignored) && m->a.op == FS_UPLOAD_OPEN;
}

void fs_meta_free(struct fs_meta *m)
{
    fs_args_free(&m->a);
}
