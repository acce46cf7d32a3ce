/* What happens below a directory is told as it happens, by a real kernel: C8. */
#include "talk.h"

#include "base/core/b64.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct talk t;
static char top[PATH_MAX]; /* what is watched */
static int ntops;

static char *at(const char *name)
{
    return path_in(top, name);
}

/* at("<before><i><after>") */
static char *numbered(const char *before, int i, const char *after)
{
    char name[64];
    snprintf(name, sizeof name, "%s%d%s", before, i, after);
    return at(name);
}

static const char *coded(const char *path)
{
    static char text[4][SG_B64_LEN((size_t)PATH_MAX) + 1];
    static unsigned next;
    char *out = text[next++ % 4];
    out[sg_b64_encode(out, path, strlen(path))] = '\0';
    return out;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *f)
{
    (void)st;
    (void)flag;
    (void)f;
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_top(void **state)
{
    char name[32];
    (void)state;
    snprintf(name, sizeof name, "watched-%d", ntops++);
    snprintf(top, sizeof top, "%s", path_in(scratch, name));
    return mkdir(top, 0755);
}

static int drop_top(void **state)
{
    (void)state;
    remove_tree(top);
    return 0;
}

static void touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    close(fd);
}

static void begin(bool recursive)
{
    talk_open(&t, "fs", "--op", "watch", "--path", coded(top), recursive ? "--recursive" : NULL, NULL);
    struct sg_wire_line l = talk_line(&t);
    assert_int_equal(l.kind, SG_WIRE_OK);
}

static void end(void)
{
    assert_int_equal(kill(t.pid, SIGKILL), 0);
    size_t n;
    while (talk_text(&t, &n)) {
    }
    assert_int_equal(talk_end(&t), -SIGKILL);
}

/* "create d a/b", "move f a > b", "overflow", "E no_watch deleted" */
static const char *said(void)
{
    static char text[2 * SG_WIRE_DATA_MAX];
    struct sg_wire_line l = talk_line(&t);
    if (l.kind == SG_WIRE_ERROR) {
        snprintf(text, sizeof text, "E %s %s", sg_wire_fail_name(l.fail), l.text);
        return text;
    }
    assert_int_equal(l.kind, SG_WIRE_CHANGE);
    if (l.change == SG_CH_OVERFLOW)
        return "overflow";
    snprintf(text, sizeof text, "%s %c %.*s%s%.*s", sg_wire_change_name(l.change), l.entry ? l.entry : '-',
             (int)l.name_len, (const char *)l.name, l.len ? " > " : "", (int)l.len, (const char *)l.data);
    return text;
}

static void hears(const char *first, ...)
{
    va_list ap;
    va_start(ap, first);
    for (const char *want = first; want; want = va_arg(ap, const char *))
        assert_string_equal(said(), want);
    va_end(ap);
}

static void quiet(void)
{
    struct pollfd p = {.fd = t.out, .events = POLLIN};
    assert_int_equal(t.have, 0);
    assert_int_equal(poll(&p, 1, 150), 0);
}

/* ---- single changes ---- */

static void every_kind(void **state)
{
    (void)state;
    touch(at("old"));
    begin(false);
    touch(at("a"));
    hears("create f a", "modify f a", NULL);
    file_write(at("a"), "one", 3);
    hears("modify f a", NULL);
    assert_int_equal(chmod(at("a"), 0600), 0);
    hears("attrib f a", NULL);
    assert_int_equal(rename(at("a"), at("b")), 0);
    hears("move f a > b", NULL);
    assert_int_equal(rename(at("b"), at("old")), 0); /* replaces it */
    hears("move f b > old", NULL);
    assert_int_equal(unlink(at("old")), 0);
    hears("delete f old", NULL);
    assert_int_equal(mkdir(at("d"), 0755), 0);
    hears("create d d", NULL);
    touch(at("d/inner")); /* not recursive */
    assert_int_equal(symlink("nowhere", at("link")), 0);
    hears("create f link", NULL);
    assert_int_equal(chmod(top, 0700), 0);
    hears("attrib d .", NULL);
    assert_int_equal(unlink(at("d/inner")), 0);
    assert_int_equal(rmdir(at("d")), 0);
    hears("delete d d", NULL);
    assert_int_equal(mkdir(at("\xff\xfe\n"), 0755), 0);
    hears("create d \xff\xfe\n", NULL);
    quiet();
    end();
}

static void a_burst_is_one(void **state)
{
    (void)state;
    touch(at("f"));
    touch(at("g"));
    begin(false);
    int f = open(at("f"), O_WRONLY | O_CLOEXEC), g = open(at("g"), O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < 100; i++) { /* two writers in turn */
        assert_int_equal(write(f, "x", 1), 1);
        assert_int_equal(write(g, "x", 1), 1);
    }
    close(f);
    close(g);
    touch(at("stop"));
    int told = 0;
    const char *text;
    for (; strcmp(text = said(), "create f stop") != 0; told++)
        assert_true(strcmp(text, "modify f f") == 0 || strcmp(text, "modify f g") == 0);
    assert_in_range(told, 2, 12); /* a slow machine may see more than one window */
    hears("modify f stop", NULL);
    /* The last word on a change comes before what follows it. */
    file_write(at("f"), "y", 1);
    assert_int_equal(unlink(at("f")), 0);
    hears("modify f f", "delete f f", NULL);
    end();
}

static void directories_that_come_and_go(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("a"), 0755), 0);
    assert_int_equal(mkdir(at("a/b"), 0755), 0);
    char outside[PATH_MAX];
    snprintf(outside, sizeof outside, "%s", path_in(scratch, "outside"));
    assert_int_equal(mkdir(outside, 0755), 0);
    begin(true);
    touch(at("a/b/f"));
    hears("create f a/b/f", "modify f a/b/f", NULL);
    assert_int_equal(rename(at("a/b"), at("c")), 0); /* one move, whatever is in it */
    hears("move d a/b > c", NULL);
    file_write(at("c/f"), "x", 1);
    hears("modify f c/f", NULL);
    assert_int_equal(mkdir(at("c/new"), 0755), 0);
    hears("create d c/new", NULL);
    touch(at("c/new/g"));
    hears("create f c/new/g", "modify f c/new/g", NULL);
    /* Out of the tree: nothing of it is told any more. */
    assert_int_equal(rename(at("c"), path_in(outside, "c")), 0);
    hears("delete d c", NULL);
    touch(path_in(outside, "c/new/h"));
    quiet();
    /* And in again, with all it holds. */
    assert_int_equal(rename(path_in(outside, "c"), at("a/c")), 0);
    hears("create d a/c", NULL);
    bool f = false, new = false, g = false, h = false;
    for (int i = 0; i < 4; i++) {
        const char *text = said();
        f = f || strcmp(text, "create f a/c/f") == 0;
        new = new || strcmp(text, "create d a/c/new") == 0;
        g = g || strcmp(text, "create f a/c/new/g") == 0;
        h = h || strcmp(text, "create f a/c/new/h") == 0;
    }
    assert_true(f && new &&g &&h);
    file_write(at("a/c/new/g"), "x", 1);
    hears("modify f a/c/new/g", NULL);
    /* A link to a directory is not gone into. */
    assert_int_equal(symlink(outside, at("link")), 0);
    hears("create f link", NULL);
    touch(path_in(outside, "unseen"));
    quiet();
    end();
    remove_tree(outside);
}

static void no_gap_after_mkdir(void **state)
{
    (void)state;
    begin(true);
    for (int i = 0; i < 200; i++) { /* the file may be there before the watch is */
        assert_int_equal(mkdir(numbered("d", i, ""), 0755), 0);
        assert_int_equal(mkdir(numbered("d", i, "/sub"), 0755), 0);
        touch(numbered("d", i, "/sub/f"));
    }
    int created[3] = {0};
    for (int left = 600; left > 0;) {
        const char *text = said();
        if (strncmp(text, "create ", 7) != 0) {
            assert_non_null(strstr(text, "modify f d"));
            continue;
        }
        int slashes = 0;
        for (const char *p = text; *p; p++)
            slashes += *p == '/';
        assert_in_range(slashes, 0, 2);
        created[slashes]++;
        left--;
    }
    assert_int_equal(created[0], 200); /* and none twice */
    assert_int_equal(created[1], 200);
    assert_int_equal(created[2], 200);
    end();
}

/* ---- its end ---- */

static void the_end(void **state)
{
    (void)state;
    struct {
        const char *how, *word;
    } ends[] = {{"rmdir", "E no_watch deleted"},
                {"held", "E no_watch deleted"},
                {"move", "E no_watch moved"},
                {"replace", "E no_watch replaced"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        begin(true);
        int held = -1;
        char aside[PATH_MAX];
        snprintf(aside, sizeof aside, "%s", path_in(scratch, "aside"));
        if (i == 1) /* as the working directory of a shell would */
            held = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (i < 2)
            assert_int_equal(rmdir(top), 0);
        if (i == 2)
            assert_int_equal(rename(top, aside), 0);
        if (i == 3) {
            assert_int_equal(mkdir(aside, 0755), 0);
            held = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            assert_int_equal(rename(aside, top), 0);
        }
        const char *text = said();
        if (strncmp(text, "attrib d .", 10) == 0)
            text = said();
        assert_string_equal(text, ends[i].word);
        assert_int_equal(talk_end(&t), 1);
        if (held >= 0)
            close(held);
        remove_tree(top);
        remove_tree(aside);
        assert_int_equal(mkdir(top, 0755), 0);
    }
}

static void what_cannot_be_watched(void **state)
{
    (void)state;
    touch(at("file"));
    assert_int_equal(symlink(top, at("loop")), 0);
    static const struct {
        const char *name, *errno_name;
    } bad[] = {{"none", "ENOENT"}, {"file", "ENOTDIR"}, {"file/x", "ENOTDIR"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        talk_open(&t, "fs", "--op", "watch", "--path", coded(at(bad[i].name)), NULL);
        struct sg_wire_line l = talk_line(&t);
        assert_int_equal(l.kind, SG_WIRE_ERROR);
        assert_int_equal(l.fail, SG_WF_FILE);
        assert_string_equal(l.errno_name, bad[i].errno_name);
        assert_int_equal(talk_end(&t), 1);
    }
}

static void below_a_root(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("in"), 0755), 0);
    assert_int_equal(mkdir(at("in/sub"), 0755), 0);
    assert_int_equal(symlink("..", at("in/up")), 0);
    talk_open(&t, "fs", "--op", "watch", "--path", coded("up"), "--root", coded(at("in")), NULL);
    struct sg_wire_line l = talk_line(&t);
    assert_int_equal(l.kind, SG_WIRE_ERROR);
    assert_string_equal(l.text, "outside");
    assert_int_equal(talk_end(&t), 1);
    talk_open(&t, "fs", "--op", "watch", "--path", coded("sub"), "--root", coded(at("in")), NULL);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_OK);
    touch(at("in/sub/f"));
    hears("create f f", "modify f f", NULL);
    end();
    /* The root itself, and its end. */
    talk_open(&t, "fs", "--op", "watch", "--path", coded("."), "--root", coded(at("in/sub")), NULL);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_OK);
    assert_int_equal(unlink(at("in/sub/f")), 0);
    assert_int_equal(rmdir(at("in/sub")), 0);
    hears("delete f f", "E no_watch deleted", NULL);
    assert_int_equal(talk_end(&t), 1);
}

static void a_relative_path_is_that_of_the_beginning(void **state)
{
    (void)state;
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(top), 0);
    talk_open(&t, "fs", "--op", "watch", "--path", coded("."), NULL);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(talk_line(&t).kind, SG_WIRE_OK);
    assert_int_equal(rmdir(top), 0); /* our own working directory does not hold it */
    hears("E no_watch deleted", NULL);
    assert_int_equal(talk_end(&t), 1);
    assert_int_equal(mkdir(top, 0755), 0);
}

/* ---- too much ---- */

static void more_directories_than_it_takes(void **state)
{
    (void)state;
    for (int i = 0; i < 8191; i++)
        assert_int_equal(mkdir(numbered("", i, ""), 0755), 0);
    begin(true); /* with itself just as many as it takes */
    touch(at("8190/f"));
    hears("create f 8190/f", "modify f 8190/f", NULL);
    assert_int_equal(rename(at("8190"), at("0/8190")), 0);
    hears("move d 8190 > 0/8190", NULL);
    assert_int_equal(mkdir(at("more"), 0755), 0);
    hears("create d more", "E watch_limit one watch takes 8192 directories at most", NULL);
    assert_int_equal(talk_end(&t), 1);
    talk_open(&t, "fs", "--op", "watch", "--path", coded(top), "--recursive", NULL);
    hears("E watch_limit one watch takes 8192 directories at most", NULL);
    assert_int_equal(talk_end(&t), 1);
    begin(false);
    end();
}

static void the_kernels_queue_overflows(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("d"), 0755), 0);
    begin(true);
    assert_int_equal(kill(t.pid, SIGSTOP), 0);
    for (int i = 0; i < 10000; i++) /* two events each, and the queue takes 16384 */
        touch(numbered("d/", i, ""));
    assert_int_equal(mkdir(at("late"), 0755), 0); /* its event is lost */
    assert_int_equal(kill(t.pid, SIGCONT), 0);
    int creates = 0;
    const char *text = said();
    for (; strcmp(text, "overflow") != 0; text = said())
        creates += strncmp(text, "create f d/", 11) == 0;
    assert_in_range(creates, 1000, 9999);
    touch(at("late/f")); /* but it is watched afterwards, as all others are */
    hears("create f late/f", "modify f late/f", NULL);
    assert_int_equal(unlink(at("d/1")), 0);
    hears("delete f d/1", NULL);
    end();
}

/* ---- whoever applies what is told has the tree ---- */

enum { NAMES = 4, MODEL_MAX = 4096 };

struct model {
    char *path[MODEL_MAX];
    size_t n;
};

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (path[n] == '/' || !path[n]);
}

static void model_remove(struct model *m, const char *path)
{
    for (size_t i = 0; i < m->n;)
        if (is_below(m->path[i], path)) {
            free(m->path[i]);
            m->path[i] = m->path[--m->n];
        } else {
            i++;
        }
}

static void model_add(struct model *m, const char *path)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->path[i], path) == 0)
            return;
    assert_true(m->n < MODEL_MAX);
    m->path[m->n++] = strdup(path);
}

static void model_move(struct model *m, const char *from, const char *to)
{
    char path[2 * PATH_MAX];
    if (!is_below(from, to))
        model_remove(m, to);
    for (size_t i = 0; i < m->n; i++)
        if (is_below(m->path[i], from)) {
            snprintf(path, sizeof path, "%s%s", to, m->path[i] + strlen(from));
            free(m->path[i]);
            m->path[i] = strdup(path);
        }
    model_add(m, to);
}

static struct model real; /* nftw has no argument */

static int add_real(const char *path, const struct stat *st, int flag, struct FTW *f)
{
    (void)st;
    (void)flag;
    if (f->level)
        model_add(&real, path + strlen(top) + 1);
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void model_clear(struct model *m)
{
    while (m->n)
        free(m->path[--m->n]);
}

static unsigned dice(unsigned *seed, unsigned sides)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % sides;
}

/* A place in a small tree that may be there or not; 3 is outside of what is watched. */
static char *somewhere(unsigned *seed)
{
    static char text[4][PATH_MAX];
    static unsigned next;
    char *out = text[next++ % 4];
    snprintf(out, PATH_MAX, "%s", dice(seed, 8) ? top : path_in(scratch, "beside"));
    for (unsigned depth = 1 + dice(seed, 3); depth; depth--) {
        size_t n = strlen(out);
        snprintf(out + n, PATH_MAX - n, "/%c", (char)('a' + (char)dice(seed, NAMES)));
    }
    return out;
}

static void do_something(unsigned *seed)
{
    char *a = somewhere(seed), *b = somewhere(seed);
    unsigned what = dice(seed, 10);
    int fd;
    if (what < 3)
        (void)mkdir(a, 0755);
    else if (what < 5 && (fd = open(a, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) >= 0)
        close(fd);
    else if (what < 6)
        (void)remove(a);
    else if (what >= 6)
        (void)rename(a, b);
}

/* Applies what is told until "stop" is there; false: something was lost on the way, so it means nothing. */
static bool listen_until_stop(struct model *m)
{
    for (;;) {
        struct sg_wire_line l = talk_line(&t);
        char name[PATH_MAX], to[PATH_MAX];
        assert_int_equal(l.kind, SG_WIRE_CHANGE);
        snprintf(name, sizeof name, "%.*s", (int)l.name_len, (const char *)l.name);
        snprintf(to, sizeof to, "%.*s", (int)l.len, (const char *)l.data);
        if (l.change == SG_CH_OVERFLOW)
            return false;
        if (l.change == SG_CH_CREATE)
            model_add(m, name);
        if (l.change == SG_CH_DELETE)
            model_remove(m, name);
        if (l.change == SG_CH_MOVE)
            model_move(m, name, to);
        if (l.change == SG_CH_CREATE && strcmp(name, "stop") == 0)
            return true;
    }
}

static void what_is_told_is_the_tree(void **state)
{
    (void)state;
    int lost = 0;
    enum { ROUNDS = 60 };
    char beside[PATH_MAX];
    snprintf(beside, sizeof beside, "%s", path_in(scratch, "beside"));
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned seed = round + 1;
        struct model m = {.n = 0};
        assert_int_equal(mkdir(beside, 0755), 0);
        begin(true);
        for (unsigned i = 0; i < 300; i++) {
            do_something(&seed);
            if (dice(&seed, 40) == 0)
                (void)poll(NULL, 0, (int)dice(&seed, 4)); /* sometimes it catches up */
        }
        touch(at("stop"));
        bool whole = listen_until_stop(&m);
        end();
        lost += !whole;
        assert_int_equal(nftw(top, add_real, 16, FTW_PHYS), 0);
        qsort(m.path, m.n, sizeof *m.path, by_text);
        qsort(real.path, real.n, sizeof *real.path, by_text);
        for (size_t i = 0; whole && i < m.n && i < real.n; i++)
            if (strcmp(m.path[i], real.path[i]) != 0)
                fail_msg("round %u: told %s, there is %s", round, m.path[i], real.path[i]);
        if (whole)
            assert_int_equal(m.n, real.n);
        model_clear(&m);
        model_clear(&real);
        remove_tree(beside);
        remove_tree(top);
        assert_int_equal(mkdir(top, 0755), 0);
    }
    print_message("# %d of %d rounds told an overflow\n", lost, ROUNDS);
    assert_in_range(lost, 0, ROUNDS / 2);
}

/* ---- as a recorded helper ---- */

static bool record_is_there(void)
{
    return access(path_in(root, "s/sgw-1"), F_OK) == 0;
}

static bool record_is_gone(const void *arg)
{
    (void)arg;
    return !record_is_there();
}

static void recorded(void **state)
{
    (void)state;
    assert_int_equal(setenv("SANDGATE_GUEST_PATIENCE_MS", "300", 1), 0);
    talk_open(&t, "run", "--session", "s", "--id", "sgw-1", "--spec", "h", "--retain", "65536",
              "--unattended-ms", "300", "--own", "--", "fs", "--op", "watch", "--path", coded(top), NULL);
    struct sg_wire_line l = talk_line(&t);
    assert_int_equal(l.kind, SG_WIRE_HELLO);
    assert_true(l.process.ends_unattended);
    l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_DATA && l.offset == 0 && l.len == 2 && memcmp(l.data, "K\n", 2) == 0);
    touch(at("a"));
    l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_DATA && l.offset == 2 && memcmp(l.data, "V create f ", 11) == 0);
    struct answer a = guest("list", "--session", "s", NULL);
    assert_int_equal(a.processes, 0);
    answer_free(&a);
    /* Nobody listens any more: it ends, and leaves nothing. */
    assert_int_equal(kill(t.pid, SIGKILL), 0);
    size_t n;
    while (talk_text(&t, &n)) {
    }
    (void)talk_end(&t);
    wait_until(record_is_gone, NULL);
    /* Nor does one that ends by itself. */
    a = guest("run", "--session", "s", "--id", "sgw-1", "--spec", "h", "--own", "--", "fs", "--op", "watch",
              "--path", coded(at("none")), NULL);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.value, 1);
    assert_true(a.len[0] > 14 && memcmp(a.out[0], "E file ENOENT ", 14) == 0);
    answer_free(&a);
    wait_until(record_is_gone, NULL);
    assert_int_equal(unsetenv("SANDGATE_GUEST_PATIENCE_MS"), 0);
}

static void own_ids_are_for_own_programs(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "s", "--id", "sgw-2", "--spec", "h", "--", "true", NULL);
    assert_error(&a, SG_WF_USAGE, "");
    answer_free(&a);
    a = guest("start", "--session", "s", "--id", "sgw-2", "--spec", "h", "--", "true", NULL);
    assert_error(&a, SG_WF_USAGE, "");
    answer_free(&a);
    a = guest("run", "--session", "s", "--id", "x", "--spec", "h", "--own", "--", "fs", NULL);
    assert_error(&a, SG_WF_USAGE, "");
    answer_free(&a);
    a = guest("run", "--session", "s", "--id", "sgw-2", "--spec", "h", "--own", "--", "true", NULL);
    assert_error(&a, SG_WF_USAGE, "");
    answer_free(&a);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_top, drop_top)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind),
        TEST(a_burst_is_one),
        TEST(directories_that_come_and_go),
        TEST(no_gap_after_mkdir),
        TEST(the_end),
        TEST(what_cannot_be_watched),
        TEST(below_a_root),
        TEST(a_relative_path_is_that_of_the_beginning),
        TEST(more_directories_than_it_takes),
        TEST(the_kernels_queue_overflows),
        TEST(what_is_told_is_the_tree),
        TEST(recorded),
        TEST(own_ids_are_for_own_programs),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
