#include "guest/sweep.h"

#include "base/core/num.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOKED_AT_MAX = 20000, /* entries of one sweep */
    REMOVED_MAX = 1000,
    HOUR_S = 3600,
    DAY_S = 24 * HOUR_S,
};

/* 0: it stays. */
static time_t lifetime(const char *name)
{
    static const struct {
        const char *prefix;
        time_t seconds;
    } rules[] = {
        {".down-", HOUR_S},
        {".up-p", HOUR_S},
        {".up-r", DAY_S},
        {".um-", DAY_S},
        {".up-", GUEST_STALE_UPLOAD_S},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strncmp(name, rules[i].prefix, strlen(rules[i].prefix)) == 0)
            return rules[i].seconds;
    return 0;
}

static time_t wall_clock(void)
{
    time_t now = time(NULL);
#ifdef SG_GUEST_TEST /* nobody can set a ctime */
    const char *env = getenv("SANDGATE_GUEST_AHEAD_S");
    uint64_t ahead;
    if (env && sg_parse_u64(env, strlen(env), INT32_MAX, &ahead))
        now += (time_t)ahead;
#endif
    return now;
}

void sweep_stale(const struct guest_root *root)
{
    int fd = dir_open(root->fd, ".");
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    time_t now = wall_clock();
    unsigned looked_at = 0, removed = 0;
    for (struct dirent *e; d && looked_at < LOOKED_AT_MAX && removed < REMOVED_MAX && (e = readdir(d));
         looked_at++) {
        struct stat st;
        time_t most = lifetime(e->d_name);
        /* Not by mtime: whoever uploads may set that. */
        if (most && fstatat(root->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
            now - st.st_ctim.tv_sec > most)
            removed += unlinkat(root->fd, e->d_name, 0) == 0;
    }
    if (d)
        closedir(d);
}
