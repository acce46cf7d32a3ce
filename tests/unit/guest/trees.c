#include "trees.h"

#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void run_program(const char *const *argv)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: status %d", argv[0], status);
}

unsigned char *file_bytes(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    unsigned char *p = malloc((size_t)st.st_size + 1);
    assert_non_null(p);
    assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
    close(fd);
    *n = (size_t)st.st_size;
    return p;
}

static void same_bytes(const char *a, const char *b)
{
    size_t n, m;
    unsigned char *p = file_bytes(a, &n), *q = file_bytes(b, &m);
    if (n != m || memcmp(p, q, n) != 0)
        fail_msg("%s: other bytes", a);
    free(p);
    free(q);
}

static void same_entry(const char *a, const char *b)
{
    struct stat s, t;
    char x[4096] = "", y[4096] = "";
    assert_int_equal(lstat(a, &s), 0);
    if (lstat(b, &t) != 0)
        fail_msg("%s is missing", b);
    if ((s.st_mode & ~06000U) != (t.st_mode & ~06000U))
        fail_msg("%s: mode %o, not %o", b, t.st_mode, s.st_mode);
    if (s.st_mtim.tv_sec != t.st_mtim.tv_sec)
        fail_msg("%s: time %lld, not %lld", b, (long long)t.st_mtim.tv_sec, (long long)s.st_mtim.tv_sec);
    if (S_ISLNK(s.st_mode)) {
        assert_true(readlink(a, x, sizeof x - 1) > 0 && readlink(b, y, sizeof y - 1) > 0);
        assert_string_equal(x, y);
    }
    if (S_ISREG(s.st_mode))
        same_bytes(a, b);
    if (S_ISDIR(s.st_mode))
        trees_are_same(a, b);
}

void trees_are_same(const char *a, const char *b)
{
    assert_int_equal(tree_count(a), tree_count(b));
    DIR *d = opendir(a);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *x, *y;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert_true(asprintf(&x, "%s/%s", a, e->d_name) > 0 && asprintf(&y, "%s/%s", b, e->d_name) > 0);
        same_entry(x, y);
        free(x);
        free(y);
    }
    closedir(d);
}

size_t tree_count(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        char *below;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert_true(asprintf(&below, "%s/%s", path, e->d_name) > 0);
        n += 1 + (lstat(below, &st) == 0 && S_ISDIR(st.st_mode) ? tree_count(below) : 0);
        free(below);
    }
    closedir(d);
    return n;
}

void make_tree(const char *path)
{
    char text[600];
    RUN("rm", "-rf", path);
    assert_int_equal(mkdir(path, 0755), 0);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0 && fchdir(dir) == 0);
    const char *const files[] = {"plain",     "empty",    "with space", "-dash",  "\xff\xfe not utf-8",
                                 "new\nline", "$(x)`'\"", "\xc3\xa4",   ".hidden"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        file_write(files[i], files[i], i == 1 ? 0 : strlen(files[i]));
    assert_int_equal(mkdir("sub", 0755) | mkdir("sub/closed", 0755) | mkdir("sub/closed/deep", 0555) |
                         mkdir("hollow", 01777),
                     0);
    file_write("sub/closed/deep/secret", "s", 1);
    memset(text, 'n', sizeof text);
    text[0] = 'l', text[100] = text[220] = text[440] = '/';
    text[100] = '\0';
    assert_int_equal(mkdir(text, 0755), 0);
    text[100] = '/', text[220] = '\0';
    assert_int_equal(mkdir(text, 0755), 0);
    text[220] = '/', text[440] = '\0';
    file_write(text, "long", 4);
    unsigned char *big = malloc(700001);
    assert_non_null(big);
    for (size_t i = 0; i < 700001; i++)
        big[i] = (unsigned char)(i * i >> 7);
    file_write("big", big, 700001);
    free(big);
    assert_int_equal(link("big", "sub/big again"), 0);
    text[220] = '\0';
    assert_int_equal(symlink("../plain", "sub/up") | symlink("no/where", "dangling") | symlink(".", "self") |
                         symlink(text, "long link"),
                     0);
    assert_int_equal(chmod("sub/closed/deep/secret", 0) | chmod("plain", 0755) | chmod("empty", 0400), 0);
    const struct timespec t[2] = {{.tv_sec = 1}, {.tv_sec = 1000000007}};
    assert_int_equal(utimensat(dir, "big", t, 0) | utimensat(dir, "hollow", t, 0) |
                         utimensat(dir, "dangling", t, AT_SYMLINK_NOFOLLOW) |
                         utimensat(dir, "sub/closed/deep", t, 0) | utimensat(dir, "sub", t, 0),
                     0);
    assert_int_equal(chmod("sub/closed", 0) | chdir("/"), 0);
    close(dir);
}
