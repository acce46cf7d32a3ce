#include "guest/fs.h"

#include "guest/out.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

static bool (*const acts[FS_OPS])(struct fs *) = {
    [FS_STAT] = fs_stat,
    [FS_LSTAT] = fs_stat,
    [FS_LIST] = fs_list,
    [FS_EXISTS] = fs_exists,
    [FS_ACCESS] = fs_access,
    [FS_READLINK] = fs_readlink,
    [FS_REALPATH] = fs_realpath,
    [FS_MKDIR] = fs_mkdir,
    [FS_REMOVE] = fs_remove,
    [FS_MOVE] = fs_move,
    [FS_COPY] = fs_copy,
    [FS_SYMLINK] = fs_symlink,
    [FS_LINK] = fs_link,
    [FS_CHMOD] = fs_chmod,
    [FS_CHOWN] = fs_chown,
    [FS_TRUNCATE] = fs_truncate,
    [FS_UTIMES] = fs_utimes,
    [FS_MKTEMP] = fs_mktemp,
    [FS_APPEND] = fs_append,
    [FS_READ] = fs_read,
    [FS_LINES] = fs_lines,
    [FS_GLOB] = fs_glob,
    [FS_GREP] = fs_grep,
    [FS_PUT] = fs_put,
    [FS_FETCH] = fs_fetch,
    [FS_DROP] = fs_drop,
    [FS_JOIN] = fs_join,
    [FS_UPLOAD_OPEN] = fs_upload_open,
    [FS_UPLOAD_STATE] = fs_upload_state,
    [FS_UPLOAD_FINISH] = fs_upload_finish,
    [FS_UPLOAD_REMOVE] = fs_upload_remove,
    [FS_TAR] = fs_tar,
    [FS_UNTAR] = fs_untar,
    [FS_WATCH] = fs_watch,
};

/* One descriptor or two for each level of a tree that is gone into. */
static void allow_descriptors(void)
{
    const rlim_t wanted = (rlim_t)3 * FS_DEPTH_MAX;
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < wanted) {
        r.rlim_cur = r.rlim_max < wanted ? r.rlim_max : wanted;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
}

enum { CLOCK_EACH = 64 };

struct fs_clock fs_clock_start(void)
{
    return (struct fs_clock){.end_ms = guest_now_ms() + guest_life_ms() / 2};
}

bool fs_clock_over(struct fs_clock *c)
{
    if (!c->over && ++c->n % CLOCK_EACH == 0)
        c->over = guest_now_ms() > c->end_ms;
    if (c->over)
        errno = ETIMEDOUT;
    return c->over;
}

static uint64_t look_ms(void)
{
    uint64_t life = guest_life_ms() / 2;
    return life < FS_LOOK_MS ? life : FS_LOOK_MS;
}

bool act_fs(char *const *argv, mode_t mask, struct guest_fail *f)
{
    struct fs_args a;
    struct fs fs = {.a = &a, .f = f, .root = -1, .deadline_ms = guest_now_ms() + look_ms()};
    bool ok = fs_args_parse(argv, &a, f);
    if (ok) {
        (void)umask(mask);
        (void)signal(SIGXFSZ, SIG_IGN); /* the call says EFBIG */
        allow_descriptors();
        ok = acts[a.op] ? (!a.path || fs_confine(&fs)) && acts[a.op](&fs)
                        : fs_refused(&fs, ENOSYS, "not there");
        fs_close(fs.root);
    }
    fs_args_free(&a);
    return ok;
}
