/* The archive of a directory, at once and in parts: C8, E11. */
#include "fs_calls.h"
#include "trees.h"

#include "base/core/b64.h"
#include "base/core/num.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static char *fresh(const char *name)
{
    char *path = below(name);
    RUN("rm", "-rf", path);
    assert_int_equal(mkdir(path, 0755), 0);
    return path;
}

static void make_file(const char *name, const char *text)
{
    file_write(below(name), text, strlen(text));
}

struct archive {
    unsigned char *bytes;
    size_t len;
    unsigned calls, staged;
    char word[SG_WIRE_TEXT_MAX]; /* of the end */
};

static void archive_free(struct archive *a)
{
    free(a->bytes);
    *a = (struct archive){0};
}

static void add(struct archive *a, const void *bytes, size_t n)
{
    a->bytes = realloc(a->bytes, a->len + n + 1);
    assert_non_null(a->bytes);
    memcpy(a->bytes + a->len, bytes, n);
    a->len += n;
}

/* Takes the bytes of an answer.  *cursor: where it goes on, "" at the end. */
static void take(struct archive *a, const struct fs_reply *r, char cursor[4100])
{
    uint64_t staged = UINT64_MAX;
    cursor[0] = '\0';
    assert_true(r->n >= 1 && r->lines[0].kind == SG_WIRE_FILE && r->lines[0].file.type == 'd');
    assert_int_equal(r->lines[0].name_len, 0);
    if (r->len) {
        assert_int_equal(r->from, a->len);
        add(a, r->out, r->len);
    }
    for (size_t i = 1; i < r->n; i++) {
        const char *text = (const char *)r->lines[i].name;
        assert_int_equal(r->lines[i].kind, SG_WIRE_NAME);
        if (text[0] == 's')
            assert_true(sg_parse_u64(text + 1, strlen(text + 1), INT64_MAX, &staged));
        else
            snprintf(cursor, 4100, "%s", text + 1);
    }
    if (staged != UINT64_MAX) {
        size_t n;
        unsigned char *bytes = file_bytes(path_in(root, ".down-1"), &n);
        assert_true(n == staged && r->len == 0);
        add(a, bytes, n);
        free(bytes);
        a->staged++;
    } else {
        assert_int_equal(access(path_in(root, ".down-1"), F_OK), -1);
    }
    a->calls++;
    assert_int_equal(r->last.kind, cursor[0] ? SG_WIRE_MORE : SG_WIRE_OK);
}

struct options {
    const char *include, *exclude, *held, *part; /* NULL: not given */
};

/* Lists have '|' between their patterns here. */
static const char *list(const char *patterns, char out[1400])
{
    char bytes[1000];
    size_t n = strlen(patterns);
    memcpy(bytes, patterns, n);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] == '|')
            bytes[i] = '\0';
    out[sg_b64_encode(out, bytes, n)] = '\0';
    return out;
}

/* Adds what is given; the end of args is *n. */
static void option(const char **args, size_t *n, const char *name, const char *value)
{
    if (!value)
        return;
    args[(*n)++] = name;
    args[(*n)++] = value;
}

static const struct fs_reply *call(const char *dir, const struct options *o, const char *cursor)
{
    char include[1400], exclude[1400];
    const char *args[14] = {0};
    size_t n = 0;
    (void)mkdir(root, 0700);
    option(args, &n, "--include", o->include ? list(o->include, include) : NULL);
    option(args, &n, "--exclude", o->exclude ? list(o->exclude, exclude) : NULL);
    option(args, &n, "--inline", o->held);
    option(args, &n, "--part", o->part);
    option(args, &n, "--cursor", cursor && *cursor ? cursor : NULL);
    option(args, &n, "--drop", cursor && *cursor ? ".down-1" : NULL);
    return fs("tar", "--path", dir, "--stage", ".down-1", args[0], args[1], args[2], args[3], args[4],
              args[5], args[6], args[7], args[8], args[9], args[10], args[11], args[12], NULL);
}

static void drop(void)
{
    fs_is_done(fs("drop", "--stage", ".down-1", NULL), "");
}

/* The whole archive, in as many calls as it takes. */
static struct archive archive(const char *dir, const struct options *o)
{
    struct archive a = {0};
    char cursor[4100] = "";
    do {
        const struct fs_reply *r = call(dir, o, cursor);
        if (r->last.kind == SG_WIRE_ERROR)
            fail_msg("%s: %s", r->last.errno_name, r->last.text);
        take(&a, r, cursor);
        snprintf(a.word, sizeof a.word, "%s", r->last.text);
        assert_true(a.calls < 20000);
    } while (cursor[0]);
    drop();
    return a;
}

static const struct options at_once = {.held = "1000000", .part = "33554432"};

static void extract_with_tar(const struct archive *a, const char *to)
{
    char *path = below("made.tar");
    file_write(path, a->bytes, a->len);
    RUN("tar", "-xpf", path, "-C", to);
    assert_int_equal(unlink(path), 0);
}

/* The names in it, in order, as tar lists them, with a space behind each. */
static const char *names_in(const struct archive *a)
{
    static char text[65536];
    char command[2 * PATH_MAX + 64];
    char *path = below("made.tar");
    file_write(path, a->bytes, a->len);
    snprintf(command, sizeof command, "tar -tf '%s'", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    assert_int_equal(pclose(f), 0);
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    assert_int_equal(unlink(path), 0);
    return text;
}

static void has_names(const char *dir, const char *include, const char *exclude, const char *names)
{
    struct archive a =
        archive(dir, &(struct options){.held = "1000000", .include = include, .exclude = exclude});
    assert_string_equal(names_in(&a), names);
    archive_free(&a);
}

static void tar_extracts_it(void **state)
{
    (void)state;
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s", below("source"));
    make_tree(from);
    snprintf(to, sizeof to, "%s", fresh("target"));
    struct archive a = archive(from, &at_once);
    assert_string_equal(a.word, "skipped:0");
    assert_true(a.calls == 1 && a.staged == 1 && a.len % 512 == 0);
    extract_with_tar(&a, to);
    trees_are_same(from, to);
    RUN("sh", "-c", "chmod -R u+rwX \"$0\"", to);
    /* and so do we */
    snprintf(to, sizeof to, "%s", fresh("target"));
    file_write(path_in(root, ".up-1"), a.bytes, a.len);
    char word[32];
    snprintf(word, sizeof word, "files:%zu", tree_count(from));
    fs_is_done(fs("untar", "--from", ".up-1", "--path", to, NULL), word);
    trees_are_same(from, to);
    archive_free(&a);
    /* an empty one */
    a = archive(fresh("empty"), &at_once);
    assert_true(a.calls == 1 && a.staged == 0 && a.len == 1024);
    archive_free(&a);
}

/* Whatever the parts, the bytes are those of one uncut archive. */
static void parts_are_the_whole(void **state)
{
    (void)state;
    static const char *const parts[] = {"97", "511", "512", "513", "1024", "1536", "4096"};
    static const char *const large[] = {"20000", "65537", "700000"};
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", fresh("parts"));
    char longer[130];
    memset(longer, 'l', sizeof longer);
    longer[129] = '\0';
    make_file("parts/a", "");
    make_file("parts/b", "some content");
    assert_int_equal(mkdir(below("parts/dir"), 0700) | symlink("b", below("parts/link")), 0);
    make_file("parts/dir/\xff", "x");
    make_file("parts/dir.txt", "between dir and what is in it");
    char name[200];
    snprintf(name, sizeof name, "parts/dir/%s", longer);
    make_file(name, "a pax header");
    struct archive small = archive(dir, &at_once);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct archive a = archive(dir, &(struct options){.held = i % 2 ? "0" : "300", .part = parts[i]});
        assert_true(a.len == small.len && memcmp(a.bytes, small.bytes, a.len) == 0);
        archive_free(&a);
    }
    archive_free(&small);
    /* one of many kinds, and files that take several parts */
    snprintf(dir, sizeof dir, "%s", below("source"));
    make_tree(dir);
    struct archive whole = archive(dir, &at_once);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct archive a = archive(dir, &(struct options){.held = "1000", .part = large[i]});
        assert_true(a.len == whole.len && memcmp(a.bytes, whole.bytes, a.len) == 0);
        assert_true(a.calls >= whole.len / 700000);
        archive_free(&a);
    }
    /* with the answers, for want of a file to put them in */
    struct archive a = {0};
    char cursor[4100] = "";
    do {
        take(&a, fs("tar", "--path", dir, "--inline", "100", cursor[0] ? "--cursor" : NULL, cursor, NULL),
             cursor);
    } while (cursor[0]);
    assert_true(a.len == whole.len && memcmp(a.bytes, whole.bytes, a.len) == 0);
    archive_free(&a);
    archive_free(&whole);
}

static void selects(void **state)
{
    (void)state;
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", fresh("s"));
    assert_int_equal(mkdir(below("s/src"), 0755) | mkdir(below("s/src/deep"), 0755) |
                         mkdir(below("s/build"), 0755) | mkdir(below("s/src/build"), 0755) |
                         mkdir(below("s/.git"), 0755),
                     0);
    const char *const files[] = {"a.c",       "b.o",         "src/a.c",     "src/b.o", "src/deep/a.c",
                                 "build/out", "src/build/x", ".git/config", "src/.env"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        snprintf(name, sizeof name, "s/%s", files[i]);
        make_file(name, "x");
    }
    has_names(dir, NULL, NULL,
              ".git/ .git/config a.c b.o build/ build/out src/ src/.env src/a.c src/b.o src/build/ "
              "src/build/x src/deep/ src/deep/a.c ");
    has_names(dir, "*.c", NULL, "a.c src/a.c src/deep/a.c ");
    has_names(dir, "src/*.c", NULL, "src/a.c ");
    has_names(dir, "src/", NULL,
              "src/ src/.env src/a.c src/b.o src/build/ src/build/x src/deep/ src/deep/a.c ");
    has_names(dir, "src/deep|a.*", NULL, "a.c src/a.c src/deep/ src/deep/a.c ");
    has_names(dir, "src/**/*.{c,o}", NULL, "src/a.c src/b.o src/deep/a.c ");
    has_names(dir, NULL, "build|.git|*.o", "a.c src/ src/.env src/a.c src/deep/ src/deep/a.c ");
    has_names(dir, NULL, "build/out|src/*", ".git/ .git/config a.c b.o build/ src/ ");
    has_names(dir, "src", "src/build|.*", "src/ src/a.c src/b.o src/deep/ src/deep/a.c ");
    has_names(dir, "none", NULL, "");
    has_names(dir, "build/", "build/", "");
    has_names(dir, "out/", NULL, ""); /* it is no directory */
    /* the same in parts: what was chosen is known again below directories that were passed */
    struct options o = {.held = "0", .part = "600", .include = "src/deep|build|a.c", .exclude = "src/build"};
    struct archive a = archive(dir, &o);
    assert_string_equal(names_in(&a), "a.c build/ build/out src/a.c src/deep/ src/deep/a.c ");
    assert_true(a.calls > 6);
    archive_free(&a);
    static const char *const wrong[] = {"/a", "../a", "a|../b", "a/./b"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        fs_fails(call(dir, &(struct options){.exclude = wrong[i], .held = "0"}, NULL), "EINVAL");
    static const char *const misuse[] = {"a||b", "|a", "a|"};
    for (size_t i = 0; i < sizeof misuse / sizeof *misuse; i++)
        assert_int_equal(call(dir, &(struct options){.include = misuse[i]}, NULL)->last.fail, SG_WF_USAGE);
}

static void skips_what_is_no_file(void **state)
{
    (void)state;
    char *dir = fresh("odd");
    make_file("odd/file", "x");
    assert_int_equal(mkfifo(below("odd/fifo"), 0600), 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0 && chdir(dir) == 0);
    snprintf(at.sun_path, sizeof at.sun_path, "socket");
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at) | chdir("/"), 0);
    close(s);
    struct archive a = archive(dir, &(struct options){.held = "0", .part = "512"});
    assert_string_equal(a.word, "skipped:2");
    assert_string_equal(names_in(&a), "file ");
    archive_free(&a);
    a = archive(dir, &(struct options){.held = "0", .exclude = "f*"});
    assert_string_equal(a.word, "skipped:1");
    archive_free(&a);
    /* nor what we put aside ourselves */
    char *base = below("..");
    a = archive(base, &(struct options){.held = "0", .include = "root|odd"});
    assert_string_equal(names_in(&a), "scratch/odd/ scratch/odd/file ");
    archive_free(&a);
}

static void has_changed(const struct fs_reply *r, const char *name)
{
    assert_int_equal(r->last.kind, SG_WIRE_ERROR);
    if (r->last.fail != SG_WF_CHANGED || !strstr(r->last.text, name))
        fail_msg("%d %s", r->last.fail, r->last.text);
    assert_int_equal(access(path_in(root, ".down-1"), F_OK), -1);
}

/* The first part, of 2,000 bytes: it ends in the content of "b". */
static void begin(const char *dir, char cursor[4100])
{
    static const struct options o = {.held = "0", .part = "2000"};
    struct archive a = {0};
    char text[5000];
    memset(text, 'x', sizeof text);
    make_file("c/a", "a");
    file_write(below("c/b"), text, sizeof text);
    make_file("c/c", "c");
    take(&a, call(dir, &o, NULL), cursor);
    assert_int_equal(a.len, 2000);
    archive_free(&a);
}

static void notices_changes(void **state)
{
    (void)state;
    static const struct options o = {.held = "0", .part = "2000"};
    char dir[PATH_MAX], cursor[4100], next[4100];
    snprintf(dir, sizeof dir, "%s", fresh("c"));
    begin(dir, cursor);
    assert_int_equal(truncate(below("c/b"), 4999), 0);
    has_changed(call(dir, &o, cursor), "b: ");
    begin(dir, cursor);
    make_file("c/b", "replaced");
    has_changed(call(dir, &o, cursor), "b: ");
    begin(dir, cursor);
    assert_int_equal(unlink(below("c/b")), 0);
    has_changed(call(dir, &o, cursor), "b: ");
    begin(dir, cursor);
    assert_int_equal(unlink(below("c/b")) | mkdir(below("c/b"), 0755), 0);
    has_changed(call(dir, &o, cursor), "b: ");
    assert_int_equal(rmdir(below("c/b")), 0);
    begin(dir, cursor);
    const struct timespec t[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
    assert_int_equal(utimensat(AT_FDCWD, below("c/b"), t, 0), 0);
    has_changed(call(dir, &o, cursor), "b: ");
    assert_int_equal(unlink(below("c/b")), 0);
    /* written anew, and longer: not grown */
    begin(dir, cursor);
    char text[6000];
    memset(text, 'y', sizeof text);
    int anew = open(below("c/b"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(anew, text, sizeof text), sizeof text);
    close(anew);
    has_changed(call(dir, &o, cursor), "b: ");
    begin(dir, cursor);
    assert_int_equal(rename(dir, below("moved")) | mkdir(dir, 0755), 0);
    has_changed(call(dir, &o, cursor), "the directory is another one");
    assert_int_equal(rmdir(dir) | rename(below("moved"), dir), 0);
    /* What others do beside it, or behind its end, does no harm. */
    begin(dir, cursor);
    int fd = open(below("c/b"), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "grown", 5), 5);
    close(fd);
    make_file("c/bb", "new");
    assert_int_equal(unlink(below("c/a")), 0);
    struct archive a = {0};
    add(&a, (const char[2000]){0}, 2000);
    while (cursor[0]) {
        take(&a, call(dir, &o, cursor), next);
        memcpy(cursor, next, sizeof cursor);
    }
    const unsigned char *bb = a.bytes + 1024 + 512 + 5120;
    assert_string_equal(bb, "bb");
    assert_int_equal(a.bytes[1024 + 512 + 4999], 'x');
    assert_int_equal(a.bytes[1024 + 512 + 5000], 0);
    assert_int_equal(a.len, 1024 + 512 + 5120 + 1024 + 1024 + 1024);
    archive_free(&a);
    drop();
}

static void refuses(void **state)
{
    (void)state;
    char *dir = fresh("r");
    make_file("r/file", "x");
    fs_fails(call(below("r/none"), &at_once, NULL), "ENOENT");
    fs_fails(call(below("r/file"), &at_once, NULL), "ENOTDIR");
    static const char *const wrong[] = {"x", "t1:", "f1:0:1:1:1:1:1:1", "t1:0:0:0:0:a:0:0:0:0:0:0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(call(dir, &at_once, wrong[i])->last.fail, SG_WF_USAGE);
    has_changed(call(dir, &at_once, "t1:0:0:1:1:a:0:0:0:0:0:0:0:="), "another one");
    /* A forged one leads to an archive that is wrong, and nowhere else. */
    struct stat st;
    char forged[200];
    assert_int_equal(stat(dir, &st), 0);
    static const char *const paths[] = {"../../etc", "/etc/passwd", "file/x", "zzz"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(forged, sizeof forged, "t1:0:0:%llu:%llu:d:5:0:0:9:0:0:0:=%s", (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino, paths[i]);
        has_changed(call(dir, &at_once, forged), paths[i]);
    }
    snprintf(forged, sizeof forged, "t1:0:0:%llu:%llu:h:5:0:0:9:0:0:0:=file", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    has_changed(call(dir, &at_once, forged), "file");
    /* below a root */
    assert_int_equal(symlink("/etc", below("r/out")), 0);
    fs_is_outside(fs("tar", "--path", below("r/out"), "--root", dir, "--inline", "9", NULL));
    const struct fs_reply *r = fs("tar", "--path", ".", "--root", dir, "--inline", "9999", NULL);
    fs_is_done(r, "skipped:0");
}

static void tells_what_it_cannot_read(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    RUN("rm", "-rf", root);
    assert_int_equal(mkdir(root, 0700) | chown(root, NOBODY, NOBODY), 0);
    char *dir = fresh("u");
    make_file("u/a", "a");
    make_file("u/secret", "s");
    assert_int_equal(chmod(below("u/secret"), 0) | mkdir(below("u/shut"), 0), 0);
    guest_uid = NOBODY;
    const struct fs_reply *r = call(dir, &at_once, NULL);
    fs_fails(r, "EACCES");
    assert_string_equal(r->last.text, "secret: cannot be read");
    r = call(dir, &(struct options){.held = "9999", .exclude = "secret"}, NULL);
    fs_fails(r, "EACCES");
    assert_string_equal(r->last.text, "shut: cannot be read");
    struct archive a = archive(dir, &(struct options){.held = "9999", .exclude = "secret|shut"});
    assert_string_equal(names_in(&a), "a ");
    archive_free(&a);
    guest_uid = 0;
    RUN("rm", "-rf", root);
}

static atomic_bool racing;

static void *swap(void *arg)
{
    char *const *p = arg;
    while (atomic_load(&racing)) {
        (void)rename(p[0], p[1]);
        (void)rename(p[2], p[0]);
        (void)rename(p[0], p[2]);
        (void)rename(p[1], p[0]);
    }
    return NULL;
}

static void races_do_not_lead_out(void **state)
{
    (void)state;
    pthread_t t;
    char *dir = fresh("in");
    fresh("out");
    make_file("out/f", "secret");
    assert_int_equal(mkdir(below("in/race"), 0755) | symlink("../out", below("in/link")), 0);
    make_file("in/race/f", "ours!!");
    char *places[] = {strdup(below("in/race")), strdup(below("in/aside")), strdup(below("in/link"))};
    atomic_store(&racing, true);
    assert_int_equal(pthread_create(&t, NULL, swap, places), 0);
    for (int i = 0; i < 30; i++) {
        const struct fs_reply *r = call(dir, &(struct options){.held = "100000"}, NULL);
        assert_true(!r->out || !memmem(r->out, r->len, "secret", 6));
        assert_true(r->last.kind == SG_WIRE_OK || r->last.fail == SG_WF_CHANGED);
    }
    atomic_store(&racing, false);
    assert_int_equal(pthread_join(t, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        free(places[i]);
}

/* A call that is out of time ends where it is. */
static void goes_on_when_time_is_over(void **state)
{
    (void)state;
    char dir[PATH_MAX], name[32];
    snprintf(dir, sizeof dir, "%s", fresh("slow"));
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "slow/%d", i);
        make_file(name, "x");
    }
    struct archive whole = archive(dir, &at_once);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "20", 1), 0);
    struct archive a = archive(dir, &at_once);
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    assert_true(a.calls > 1 && a.len == whole.len && memcmp(a.bytes, whole.bytes, a.len) == 0);
    archive_free(&a);
    archive_free(&whole);
}

/* However many files one directory has. */
static void takes_many_files(void **state)
{
    (void)state;
    enum { FILES = 30000 };
    const char *binary = getenv("GUEST_BINARY");
    struct rlimit old, little = {.rlim_cur = 24 << 20, .rlim_max = RLIM_INFINITY};
    char dir[PATH_MAX], name[80];
    snprintf(dir, sizeof dir, "%s", fresh("many"));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "a file with a name of some length, whose number is %d", i);
        int f = openat(fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(f >= 0);
        close(f);
    }
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    bool limited = binary && strstr(binary, "static"); /* a sanitizer takes more */
    if (limited)
        assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    const struct fs_reply *r = call(dir, &(struct options){.held = "0", .part = "100000000"}, NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    fs_is_done(r, "skipped:0");
    struct stat st;
    assert_int_equal(stat(path_in(root, ".down-1"), &st), 0);
    assert_int_equal(st.st_size, 512 * FILES + 1024);
    drop();
    RUN("rm", "-rf", dir);
}

/* The last one: it mounts. */
static void goes_without_a_disk(void **state)
{
    (void)state;
    RUN("rm", "-rf", root);
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", below("source"));
    make_tree(dir);
    struct archive whole = archive(dir, &at_once);
    RUN("rm", "-rf", root);
    if (!small_root("size=300k,mode=0755")) {
        archive_free(&whole);
        skip();
    }
    struct archive a = archive(dir, &(struct options){.held = "1000", .part = "33554432"});
    assert_int_equal(a.staged, 0);
    assert_true(a.len == whole.len && memcmp(a.bytes, whole.bytes, a.len) == 0);
    archive_free(&a);
    archive_free(&whole);
    assert_int_equal(umount2(root, MNT_DETACH), 0);
}

static int teardown(void **state)
{
    fs_calls_free();
    RUN("chmod", "-R", "u+rwX", scratch);
    return harness_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tar_extracts_it),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(selects),
        cmocka_unit_test(skips_what_is_no_file),
        cmocka_unit_test(notices_changes),
        cmocka_unit_test(refuses),
        cmocka_unit_test(tells_what_it_cannot_read),
        cmocka_unit_test(races_do_not_lead_out),
        cmocka_unit_test(goes_on_when_time_is_over),
        cmocka_unit_test(takes_many_files),
        cmocka_unit_test(goes_without_a_disk),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
