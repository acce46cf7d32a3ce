/* Any bytes as an archive for the guest: read or refused with a sentence; what is extracted lies below the target, over
 * links that are there already, and no link of it leads out.  And any cursor.  (P33, P34) */
#include "guest/fs_tar_cursor.h"
#include "guest/fs_untar.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPENAT2 = 437, BENEATH = 0x08, CONFINED = 1, IN_STEPS = 2, PREPARED = 4, MADE = 8 };

static int archive = -1;

static void check(bool ok)
{
    if (!ok)
        __builtin_trap();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    scratch_make();
    archive = memfd_create("archive", MFD_CLOEXEC);
    return archive < 0;
}

/* Headers with the right checksums, or hardly any change of theirs would come through. */
static void mend(uint8_t *tar, size_t size)
{
    enum { BLOCK = 512, SIZE_AT = 124, SUM_AT = 148, FIELD = 8 };
    for (size_t at = 0; at + BLOCK <= size;) {
        uint8_t *h = tar + at;
        unsigned sum = 0;
        size_t length = 0;
        char text[FIELD];
        memset(h + SUM_AT, ' ', FIELD);
        for (size_t i = 0; i < BLOCK; i++)
            sum += h[i];
        if (sum == FIELD * ' ') { /* empty */
            memset(h + SUM_AT, 0, FIELD);
            at += BLOCK;
            continue;
        }
        (void)snprintf(text, sizeof text, "%06o", sum & 0777777);
        memcpy(h + SUM_AT, text, FIELD - 1);
        for (size_t i = 0; i < 11 && h[SIZE_AT + i] >= '0' && h[SIZE_AT + i] <= '7'; i++)
            length = length * 8 + (size_t)(h[SIZE_AT + i] - '0');
        if (length > size)
            return;
        at += BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK;
    }
}

static void check_name(const char *path)
{
    check(path[0] != '/' && strlen(path) <= TAR_PATH_MAX);
    while (*path) {
        size_t n = strcspn(path, "/");
        check(n > 0 && n <= TAR_NAME_MAX && !(n == 1 && path[0] == '.') &&
              !(n == 2 && path[0] == '.' && path[1] == '.'));
        check(!path[n] || path[n + 1]);
        path += n + (path[n] == '/');
    }
}

/* The reader alone, by blocks. */
static void read_headers(const uint8_t *tar, size_t size)
{
    static struct tar_reader r;
    tar_read_start(&r);
    for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK) {
        enum tar_step step = tar_read_block(&r, tar + at);
        check((step == TAR_WRONG) == (r.wrong != NULL));
        if (step == TAR_WRONG)
            return;
        if (step == TAR_END)
            check(!tar_read_finish(&r));
        if (step != TAR_ENTRY)
            continue;
        const struct tar_entry *e = &r.entry;
        check_name(e->path);
        check(e->path[0] || e->kind == TAR_DIRECTORY);
        check(e->kind == TAR_FILE || e->size == 0);
        check(e->size <= INT64_MAX && e->mode <= 07777 && e->mtime_ns < 1000000000);
        check((e->target[0] != '\0') == (e->kind == TAR_SYMLINK || e->kind == TAR_HARDLINK));
        if (e->kind == TAR_HARDLINK)
            check_name(e->target);
    }
}

/* Every link below the directory, which is TOP/in, stays there. */
static bool link_stays(void *arg, int dir, const char *name)
{
    struct stat st;
    struct {
        uint64_t flags, mode, resolve;
    } how = {.flags = O_PATH | O_CLOEXEC, .resolve = BENEATH};
    char path[2 * TAR_PATH_MAX], *above = arg;
    if (fstatat(dir, name, &st,
                AT_SYMLINK_NOFOLLOW)) { /* the archive gave a directory a mode of names alone */
        check(errno == EACCES);
        return true;
    }
    int n = snprintf(path, sizeof path, "%s%s%s", above, *above ? "/" : "", name);
    check(n > 0 && (size_t)n < sizeof path);
    if (S_ISLNK(st.st_mode)) {
        int fd = (int)syscall(OPENAT2, AT_FDCWD, path, &how, sizeof how);
        check(fd >= 0 || errno != EXDEV);
        fs_close(fd);
    }
    if (S_ISDIR(st.st_mode)) {
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        check(fd < 0 || fs_each(fd, link_stays, path));
    }
    return true;
}

static void prepare(int in)
{
    /* as programs in a sandbox may have done */
    check(symlinkat("../outside", in, "out") == 0 && symlinkat("/", in, "root") == 0 &&
          symlinkat("../outside/canary", in, "file") == 0 && mkdirat(in, "dir", 0755) == 0);
}

static void extract(struct untar *u, unsigned how)
{
    static char here[] = ".", made[] = "dir/made", root[] = ".";
    struct fs_args a = {
        .path = how & MADE ? made : here, .parents = true, .root = how & CONFINED ? root : NULL};
    struct guest_fail f = {.code = SG_WF_INTERNAL};
    struct fs fs = {.a = &a, .f = &f, .root = -1};
    check(fs_confine(&fs));
    bool more = true;
    for (int calls = 0; more && calls < 10000; calls++) {
        uint64_t at = u->at, done = u->done;
        uint32_t left = u->left;
        memset(u, 0, sizeof *u);
        u->fs = &fs;
        u->archive = archive;
        u->deadline_ms = guest_now_ms() + (how & IN_STEPS ? 0 : 1000000);
        u->dir = u->parent = -1;
        u->at = at;
        u->done = done;
        u->left = left;
        more = false;
        bool ok = fstat(archive, &u->facts) == 0 && untar_run(u, &more);
        check(ok || (f.text[0] && memchr(f.text, '\0', sizeof f.text)));
        check(!ok || u->done <= u->entries);
        untar_close(u);
        more = ok && more;
    }
    check(!more);
    fs_close(fs.root);
}

static void cursors(const uint8_t *data, size_t size)
{
    static struct fs_tar_cursor c;
    char text[FS_TAR_CURSOR_MAX + 1], again[FS_TAR_CURSOR_MAX];
    size_t n = size < FS_TAR_CURSOR_MAX ? size : FS_TAR_CURSOR_MAX;
    memcpy(text, data, n);
    text[n] = '\0';
    if (!fs_tar_cursor_parse(text, &c))
        return;
    check(fs_tar_cursor_format(again, &c) && strcmp(again, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct untar u;
    if (size < 1 || size > 65536)
        return 0;
    if (size > 3 && memcmp(data, "t1:", 3) == 0)
        cursors(data, size);
    unsigned how = *data++;
    size--;
    uint8_t *copy = malloc(size + 1);
    check(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    mend(copy, size);
    read_headers(copy, size);
    check(ftruncate(archive, 0) == 0 && pwrite(archive, copy, size, 0) == (ssize_t)size);
    free(copy);
    int in = scratch_enter();
    if (how & PREPARED)
        prepare(in);
    memset(&u, 0, sizeof u);
    extract(&u, how);
    char top[] = "";
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!(how & PREPARED))
        check(fd < 0 || fs_each(fd, link_stays, top));
    else
        fs_close(fd);
    scratch_leave();
    scratch_check();
    return 0;
}
