/* The content of a file: short with the answer, long in parts put aside, and all of one state of it: A16, E10, P29. */
#include "fs_calls.h"

#include "base/core/b64.h"
#include "base/core/file_tag.h"
#include "guest/guest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BIG = 1500000, PART = 400000 };

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static const char *number(uint64_t n)
{
    static char text[8][24];
    static unsigned next;
    char *at = text[next++ % 8];
    snprintf(at, 24, "%" PRIu64, n);
    return at;
}

/* Bytes that differ everywhere. */
static unsigned char *make_big(const char *name)
{
    static unsigned char bytes[BIG];
    uint32_t x = 12345;
    for (size_t i = 0; i < BIG; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(x >> 24);
    }
    file_write(below(name), bytes, BIG);
    return bytes;
}

static void is(const struct fs_reply *r, uint64_t from, const char *text)
{
    fs_is_done(r, "");
    assert_int_equal(r->n, 1);
    assert_int_equal(r->lines[0].kind, SG_WIRE_FILE);
    assert_int_equal(r->len, strlen(text));
    assert_memory_equal(r->out ? r->out : (const void *)"", text, r->len);
    if (r->len)
        assert_int_equal(r->from, from);
}

static void short_files_come_at_once(void **state)
{
    (void)state;
    char path[PATH_MAX], tag[SG_FILE_TAG_LEN + 1], list[128];
    snprintf(path, sizeof path, "%s", below("short"));
    file_write(path, "0123456789", 10);
#define FETCH(...) fs("fetch", "--path", path, "--inline", "100", __VA_ARGS__)
    const struct fs_reply *r = FETCH(NULL);
    is(r, 0, "0123456789");
    assert_int_equal(r->lines[0].name_len, 0);
    assert_int_equal(r->lines[0].file.size, 10);
    sg_file_tag(&r->lines[0].file, tag);
    is(FETCH("--offset", "3", NULL), 3, "3456789");
    is(FETCH("--offset", "3", "--limit", "4", NULL), 3, "3456");
    is(FETCH("--limit", "0", NULL), 0, "");
    is(FETCH("--offset", "10", NULL), 0, "");
    is(FETCH("--offset", "99999999999", NULL), 0, "");
    is(FETCH("--tail", "3", NULL), 7, "789");
    is(FETCH("--tail", "30", NULL), 0, "0123456789");
    is(FETCH("--tail", "0", NULL), 0, "");
    is(FETCH("--unless", "0123456789abcdefghijkl", NULL), 0, "0123456789");
    snprintf(list, sizeof list, "0123456789abcdefghijkl,%s", tag);
    r = FETCH("--unless", list, NULL);
    fs_is_done(r, "same");
    assert_true(r->n == 1 && r->len == 0);
    assert_int_equal(access(path_in(root, ""), F_OK), -1); /* nothing of ours was needed */
    file_write(path, "", 0);
    is(FETCH(NULL), 0, "");
    is(fs("fetch", "--path", path, NULL), 0, "");
#undef FETCH
    assert_int_equal(mkfifo(below("fifo"), 0600), 0);
    fs_fails(fs("fetch", "--path", scratch, NULL), "EISDIR");
    fs_fails(fs("fetch", "--path", below("fifo"), NULL), "EINVAL");
    fs_fails(fs("fetch", "--path", below("absent"), NULL), "ENOENT");
    fs_fails(fs("fetch", "--path", "/dev/zero", NULL), "EINVAL");
    is(fs("fetch", "--path", "short", "--root", scratch, NULL), 0, "");
    fs_is_outside(fs("fetch", "--path", "../root", "--root", scratch, NULL));
}

/* What says nothing or nonsense about its size is read to its end. */
static void files_of_the_kernel(void **state)
{
    (void)state;
    const struct fs_reply *r = fs("fetch", "--path", "/proc/version", NULL);
    fs_is_done(r, "");
    assert_true(r->len > 10 && memcmp(r->out, "Linux ", 6) == 0);
    assert_int_equal(r->lines[0].file.size, r->len);
    is(fs("fetch", "--path", "/proc/version", "--offset", "1", "--limit", "4", NULL), 1, "inux");
    r = fs("fetch", "--path", "/proc/version", "--limit", "0", NULL);
    fs_is_done(r, "");
    assert_true(r->lines[0].file.size > 10 && r->len == 0); /* as HEAD asks */
    r = fs("fetch", "--path", "/sys/kernel/mm/transparent_hugepage/enabled", NULL);
    if (r->last.kind == SG_WIRE_OK) /* 4096, it says */
        assert_true(r->len > 0 && r->len == r->lines[0].file.size && r->len < 4096);
}

struct staged {
    const char *cursor; /* NULL: that was all */
    uint64_t bytes;     /* put aside; 0: with the answer */
};

/* What a part's answer says after its S line. */
static struct staged parts_of(const struct fs_reply *r)
{
    struct staged s = {NULL, 0};
    if (r->last.kind == SG_WIRE_ERROR)
        fail_msg("%s: %s", r->last.errno_name, r->last.text);
    assert_int_equal(r->lines[0].kind, SG_WIRE_FILE);
    for (size_t i = 1; i < r->n; i++) {
        const char *word = (const char *)r->lines[i].name;
        assert_int_equal(r->lines[i].kind, SG_WIRE_NAME);
        if (word[0] == 's')
            s.bytes = strtoull(word + 1, NULL, 10);
        else if (word[0] == 'c')
            s.cursor = word + 1;
        else
            fail();
    }
    assert_int_equal(r->last.kind, s.cursor ? SG_WIRE_MORE : SG_WIRE_OK);
    return s;
}

static size_t staged_text(const char *name, unsigned char *to, size_t room)
{
    struct stat st;
    FILE *f = fopen(path_in(root, name), "re");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true((size_t)st.st_size <= room && fread(to, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    (void)fclose(f);
    return (size_t)st.st_size;
}

/* All parts of from..end of the file; true when they are what it holds. */
static bool comes_in_parts(const char *path, const unsigned char *bytes, uint64_t from, uint64_t end,
                           const char *part)
{
    static unsigned char out[BIG];
    char cursor[512] = "", stage[32], drop[32] = "";
    size_t len = 0, staged = 0;
    for (unsigned i = 0;; i++) {
        snprintf(stage, sizeof stage, ".down-a.%u", i);
        const struct fs_reply *r =
            cursor[0] ? fs("fetch", "--path", path, "--inline", "1000", "--part", part, "--stage", stage,
                           "--cursor", cursor, "--drop", drop, NULL)
                      : fs("fetch", "--path", path, "--inline", "1000", "--part", part, "--stage", stage,
                           "--offset", number(from), "--limit", number(end - from), NULL);
        struct staged s = parts_of(r);
        if (drop[0])
            assert_int_equal(access(path_in(root, drop), F_OK), -1);
        if (s.bytes) {
            assert_int_equal(r->len, 0);
            assert_int_equal(staged_text(stage, out + len, sizeof out - len), s.bytes);
            len += s.bytes;
            staged++;
        } else {
            assert_int_equal(r->from, from + len);
            memcpy(out + len, r->out, r->len);
            len += r->len;
        }
        snprintf(drop, sizeof drop, "%s", stage);
        if (!s.cursor)
            break;
        snprintf(cursor, sizeof cursor, "%s", s.cursor);
    }
    fs_is_done(fs("drop", "--stage", drop, NULL), "");
    fs_is_done(fs("drop", "--stage", drop, NULL), ""); /* absent is fine */
    assert_int_equal(access(path_in(root, drop), F_OK), -1);
    assert_true(staged > 0);
    return len == end - from && memcmp(out, bytes + from, len) == 0;
}

static void long_files_come_in_parts(void **state)
{
    (void)state;
    fs_is_done(fs("drop", "--stage", ".down-x", NULL), ""); /* without a root as well */
    (void)mkdir(root, 0700);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", below("big"));
    const unsigned char *bytes = make_big("big");
    assert_true(comes_in_parts(path, bytes, 0, BIG, number(PART)));
    assert_true(comes_in_parts(path, bytes, 0, BIG, number(BIG)));
    assert_true(comes_in_parts(path, bytes, 0, BIG, number(BIG / 2)));
    assert_true(comes_in_parts(path, bytes, 77777, BIG - 1, number(PART)));
    /* Without a place to put it, with the answers. */
    const struct fs_reply *r = fs("fetch", "--path", path, NULL);
    fs_is_done(r, "");
    assert_true(r->len == BIG && memcmp(r->out, bytes, BIG) == 0);
    /* A name that is taken gives way, and is not followed. */
    file_write(below("mine"), "mine", 4);
    assert_int_equal(symlink(below("mine"), path_in(root, ".down-l")), 0);
    struct staged s = parts_of(fs("fetch", "--path", path, "--stage", ".down-l", "--part", "1000", NULL));
    assert_int_equal(s.bytes, 1000);
    assert_string_equal(file_text(below("mine")), "mine");
    s = parts_of(fs("fetch", "--path", path, "--stage", ".down-l", "--part", "1000", NULL)); /* again */
    assert_int_equal(s.bytes, 1000);
    assert_int_equal(unlink(path_in(root, ".down-l")), 0);
    static const char *const bad[] = {
        ".down-",
        "down-x",
        ".down-a/b",
        ".down-a b",
        ".up-1",
        "guest-x",
        "../x",
        ".down-\xc3\xa4",
        ".down-0123456789012345678901234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fs_says(fs("drop", "--stage", bad[i], NULL), SG_WF_USAGE);
        fs_says(fs("fetch", "--path", path, "--stage", bad[i], NULL), SG_WF_USAGE);
        fs_says(fs("fetch", "--path", path, "--drop", bad[i], NULL), SG_WF_USAGE);
    }
}

static const char *first_cursor(const char *path)
{
    static char cursor[512];
    struct staged s =
        parts_of(fs("fetch", "--path", path, "--stage", ".down-1", "--part", number(PART), NULL));
    assert_non_null(s.cursor);
    snprintf(cursor, sizeof cursor, "%s", s.cursor);
    return cursor;
}

#define GO_ON(path, cursor)                                                                                  \
    fs("fetch", "--path", path, "--stage", ".down-1", "--part", number(PART), "--cursor", cursor, NULL)

/* What came before and what comes next are of one file, or the client hears of it: P29. */
static void changes_between_parts(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    char path[PATH_MAX], other[PATH_MAX];
    snprintf(path, sizeof path, "%s", below("changing"));
    snprintf(other, sizeof other, "%s", below("other"));
    const unsigned char *bytes = make_big("changing");
    const char *cursor = first_cursor(path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    /* It grew: no matter. */
    assert_int_equal(pwrite(fd, "more", 4, BIG), 4);
    struct staged s = parts_of(GO_ON(path, cursor));
    assert_int_equal(s.bytes, PART);
    static unsigned char out[PART];
    assert_int_equal(staged_text(".down-1", out, sizeof out), PART);
    assert_memory_equal(out, bytes + PART, PART);
    /* And then somebody wrote into it; the size, as it was seen last, and even its mtime are the same. */
    char second[512];
    snprintf(second, sizeof second, "%s", s.cursor);
    assert_int_equal(pwrite(fd, "XXXX", 4, BIG - 100), 4);
    assert_int_equal(futimens(fd, (struct timespec[2]){st.st_atim, st.st_mtim}), 0);
    fs_says(GO_ON(path, second), SG_WF_CHANGED);
    assert_int_equal(access(path_in(root, ".down-1"), F_OK), 0); /* what is there is somebody's yet */
    assert_int_equal(ftruncate(fd, BIG - 1), 0);
    fs_says(GO_ON(path, second), SG_WF_CHANGED);
    assert_int_equal(ftruncate(fd, BIG), 0);
    fs_says(GO_ON(path, cursor), SG_WF_CHANGED);
    close(fd);
    /* Emptied and written anew, and longer than before: that is not growth. */
    bytes = make_big("changing");
    cursor = first_cursor(path);
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < BIG + 4096; i += 4096)
        assert_int_equal(write(fd, memset((char[4096]){0}, 'n', 4096), 4096), 4096);
    close(fd);
    fs_says(GO_ON(path, cursor), SG_WF_CHANGED);
    /* Replaced by one that is just the same. */
    (void)make_big("other");
    cursor = first_cursor(path);
    assert_int_equal(rename(other, path), 0);
    fs_says(GO_ON(path, cursor), SG_WF_CHANGED);
    cursor = first_cursor(path);
    assert_int_equal(unlink(path), 0);
    fs_fails(GO_ON(path, cursor), "ENOENT");
    (void)unlink(path_in(root, ".down-1"));
}

static void forged_cursors(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    char path[PATH_MAX], cursor[512], forged[600];
    snprintf(path, sizeof path, "%s", below("big"));
    (void)make_big("big");
    snprintf(cursor, sizeof cursor, "%s", first_cursor(path));
    assert_true(parts_of(GO_ON(path, cursor)).bytes > 0);
    for (size_t i = 0; i < strlen(cursor); i += i < 12 ? 1 : 5) {
        snprintf(forged, sizeof forged, "%s", cursor);
        forged[i] = 'x';
        fs_says(GO_ON(path, forged), SG_WF_USAGE);
        forged[i] = '\0';
        if (i) {
            const struct fs_reply *r = GO_ON(path, forged); /* the last number may be cut */
            assert_int_equal(r->last.kind, SG_WIRE_ERROR);
            assert_true(r->last.fail == SG_WF_USAGE || r->last.fail == SG_WF_CHANGED);
        }
        snprintf(forged, sizeof forged, "%.*s0%s", (int)i, cursor, cursor + i);
        const struct fs_reply *r = GO_ON(path, forged);
        assert_int_equal(r->last.kind, SG_WIRE_ERROR);
    }
    static const char *const bad[] = {"f1:5:5:10:1:1:1:1",
                                      "f1:0:11:10:1:1:1:1",
                                      "f1:0:5:10:1:1:1:-0",
                                      "f1:-1:5:10:1:1:1:1",
                                      "f1:0:5:10:1:1:1:1:",
                                      "f1:",
                                      "f1:0:5:18446744073709551615:1:1:1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        fs_says(GO_ON(path, bad[i]), SG_WF_USAGE);
    fs_says(fs("fetch", "--path", path, "--cursor", cursor, "--offset", "1", NULL), SG_WF_USAGE);
    fs_says(fs("fetch", "--path", path, "--tail", "1", "--offset", "1", NULL), SG_WF_USAGE);
    (void)unlink(path_in(root, ".down-1"));
}

enum writer { REPLACES, APPENDS };

/* A program that changes the file without rest: every byte of it is the same letter. */
static pid_t start_writer(const char *path, enum writer how, size_t size)
{
    char temp[PATH_MAX + 8];
    snprintf(temp, sizeof temp, "%s.new", path);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *bytes = malloc(size);
    for (unsigned char c = 'a';; c = c == 'z' ? 'a' : c + 1) {
        int fd = open(how == REPLACES ? temp : path,
                      O_WRONLY | O_CLOEXEC |
                          (how == REPLACES  ? O_CREAT | O_TRUNC
                           : how == APPENDS ? O_APPEND
                                            : 0),
                      0600);
        if (!bytes || fd < 0)
            _exit(1);
        memset(bytes, how == APPENDS ? 'a' : c, size);
        size_t n = how == APPENDS ? 100 : size;
        if (write(fd, bytes, n) != (ssize_t)n || (how == REPLACES && rename(temp, path)))
            _exit(1);
        close(fd);
        if (how == APPENDS)
            (void)poll(NULL, 0, 1); /* or it is longer than the reader wants before we are through */
    }
}

static void one_state_while_it_changes(void **state)
{
    (void)state;
    enum { SIZE = 60000 };
    (void)mkdir(root, 0700);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", below("busy"));
    static unsigned char all_a[SIZE];
    memset(all_a, 'a', SIZE);
    for (int how = REPLACES; how <= APPENDS; how++) {
        file_write(path, all_a, SIZE);
        pid_t pid = start_writer(path, (enum writer)how, SIZE);
        for (int i = 0; i < 24; i++) {
            const struct fs_reply *r = i % 2 ? fs("fetch", "--path", path, "--inline", "1000000", NULL)
                                             : fs("fetch", "--path", path, "--inline", "10", "--stage",
                                                  ".down-w", "--part", "1000000", NULL);
            fs_is_done(r, ""); /* none of them ever disturbs a reader */
            static unsigned char out[1 << 24];
            size_t len = r->len;
            if (i % 2)
                memcpy(out, r->out, len);
            else
                len = staged_text(".down-w", out, sizeof out);
            assert_int_equal(len, r->lines[0].file.size);
            for (size_t k = 1; k < len; k++)
                if (out[k] != out[0])
                    fail_msg("two states in one answer, at %zu of %zu", k, len);
            (void)unlink(path_in(root, ".down-w"));
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

/* While its answer waits for us, the file changes. */
static void changes_while_it_is_read(void **state)
{
    (void)state;
    char path[PATH_MAX], coded[8192], line[SG_WIRE_LINE_MAX];
    snprintf(path, sizeof path, "%s", below("slow"));
    coded[sg_b64_encode(coded, path, strlen(path))] = '\0';
    for (int grows = 0; grows < 2; grows++) {
        (void)make_big("slow");
        const char *args[] = {"fs", "--op", "fetch", "--path", coded, NULL};
        int from;
        pid_t pid = guest_spawn(NULL, args, &from);
        for (size_t n = 0; n == 0 || line[n - 1] != '\n'; n++)
            assert_true(n < sizeof line && read(from, line + n, 1) == 1);
        assert_int_equal(line[0], 'S'); /* and a pipe does not hold all the rest */
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0 && pwrite(fd, "X", 1, grows ? BIG : 0) == 1);
        close(fd);
        struct answer a = answer_read(pid, from, (uint64_t[2]){0, 0});
        if (grows)
            assert_true(a.last.kind == SG_WIRE_OK && a.len[0] == BIG);
        else
            assert_error(&a, SG_WF_CHANGED, "");
        answer_free(&a);
    }
}

static void beyond_4_gib(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    const uint64_t far = UINT64_C(5) << 30;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", below("sparse"));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && pwrite(fd, "the end", 7, (off_t)far) == 7);
    close(fd);
    is(fs("fetch", "--path", path, "--inline", "100", "--offset", number(far + 4), NULL), far + 4, "end");
    is(fs("fetch", "--path", path, "--inline", "100", "--tail", "7", NULL), far, "the end");
    struct staged s = parts_of(fs("fetch", "--path", path, "--stage", ".down-s", "--part", "100000",
                                  "--offset", number(far - 150000), NULL));
    assert_int_equal(s.bytes, 100000);
    char cursor[512];
    snprintf(cursor, sizeof cursor, "%s", s.cursor);
    s = parts_of(
        fs("fetch", "--path", path, "--stage", ".down-s", "--part", "100000", "--cursor", cursor, NULL));
    assert_int_equal(s.bytes, 50007);
    static unsigned char out[100000];
    assert_int_equal(staged_text(".down-s", out, sizeof out), 50007);
    assert_memory_equal(out + 50000, "the end", 7);
    assert_int_equal(unlink(path), 0);
    (void)unlink(path_in(root, ".down-s"));
}

/* A disk without room gives the bytes with the answers, and is left as full as it was. */
static void no_room(void **state)
{
    (void)state;
    char path[PATH_MAX];
    const unsigned char *bytes = make_big("big");
    snprintf(path, sizeof path, "%s", below("big"));
    (void)mkdir(root, 0700);
    if (!small_root("size=1M,mode=0700"))
        skip();
    /* A part that is more than there is. */
    const struct fs_reply *r = fs("fetch", "--path", path, "--inline", "1000", "--stage", ".down-1", NULL);
    fs_is_done(r, "");
    assert_true(r->len == BIG && memcmp(r->out, bytes, BIG) == 0);
    assert_int_equal(access(path_in(root, ".down-1"), F_OK), -1);
    r = fs("fetch", "--path", path, "--inline", "1000", "--stage", ".down-1", "--part", number(PART), NULL);
    struct staged s = parts_of(r);
    assert_true(s.cursor && s.bytes == 0 && r->len == PART && memcmp(r->out, bytes, PART) == 0);
    struct statvfs v;
    assert_int_equal(statvfs(root, &v), 0);
    assert_int_equal(v.f_bfree, v.f_blocks);
    assert_int_equal(umount2(root, MNT_DETACH), 0);
    /* A limit on the size of files is no room either, though nothing says so before. */
    struct rlimit old, small = {.rlim_cur = 100000};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    r = fs("fetch", "--path", path, "--inline", "1000", "--stage", ".down-1", "--part", number(PART), NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    s = parts_of(r);
    assert_true(s.cursor && s.bytes == 0 && r->len == PART && memcmp(r->out, bytes, PART) == 0);
    assert_int_equal(access(path_in(root, ".down-1"), F_OK), -1);
    /* Read-only. */
    assert_true(small_root("size=4M,mode=0700"));
    file_write(path_in(root, ".down-old"), "x", 1);
    assert_int_equal(mount(NULL, root, NULL, MS_REMOUNT | MS_RDONLY, "size=4M"), 0);
    r = fs("fetch", "--path", path, "--inline", "1000", "--stage", ".down-1", "--part", number(PART),
           "--drop", ".down-old", NULL);
    s = parts_of(r);
    assert_true(s.cursor && s.bytes == 0 && r->len == PART && memcmp(r->out, bytes, PART) == 0);
    assert_int_equal(umount2(root, MNT_DETACH), 0);
}

/* What root puts aside is read by the sandbox's user: U8. */
static void belongs_to_the_owner_of_the_root(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    (void)mkdir(root, 0700);
    assert_int_equal(chown(root, 1234, 1235), 0);
    (void)make_big("big");
    (void)parts_of(fs("fetch", "--path", below("big"), "--stage", ".down-1", "--part", "100000", NULL));
    struct stat st;
    assert_int_equal(stat(path_in(root, ".down-1"), &st), 0);
    assert_true(st.st_uid == 1234 && st.st_gid == 1235 && (st.st_mode & 07777) == 0600);
    assert_int_equal(unlink(path_in(root, ".down-1")), 0);
    assert_int_equal(chown(root, 0, 0), 0);
}

static void killed_in_between(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    (void)make_big("big");
    struct staged s =
        parts_of(fs("fetch", "--path", below("big"), "--stage", ".down-1", "--part", "100000", NULL));
    assert_int_equal(s.bytes, 100000);
    /* What is left of it goes in its time, when somebody puts something aside. */
    assert_int_equal(setenv("SANDGATE_GUEST_AHEAD_S", "3500", 1), 0);
    (void)parts_of(fs("fetch", "--path", below("big"), "--stage", ".down-2", "--part", "100000", NULL));
    assert_int_equal(access(path_in(root, ".down-1"), F_OK), 0);
    assert_int_equal(setenv("SANDGATE_GUEST_AHEAD_S", "3700", 1), 0);
    (void)parts_of(fs("fetch", "--path", below("big"), "--stage", ".down-3", "--part", "100000", NULL));
    assert_int_equal(unsetenv("SANDGATE_GUEST_AHEAD_S"), 0);
    assert_int_equal(access(path_in(root, ".down-1"), F_OK), -1);
    assert_int_equal(access(path_in(root, ".down-3"), F_OK), 0);
}

static int teardown(void **state)
{
    fs_calls_free();
    return harness_teardown(state);
}

int main(void)
{
    umask(022);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_files_come_at_once),
        cmocka_unit_test(files_of_the_kernel),
        cmocka_unit_test(long_files_come_in_parts),
        cmocka_unit_test(changes_between_parts),
        cmocka_unit_test(forged_cursors),
        cmocka_unit_test(one_state_while_it_changes),
        cmocka_unit_test(changes_while_it_is_read),
        cmocka_unit_test(beyond_4_gib),
        cmocka_unit_test(belongs_to_the_owner_of_the_root),
        cmocka_unit_test(killed_in_between),
        cmocka_unit_test(no_room),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
