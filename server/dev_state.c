#include "server/dev_state.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *home(void)
{
    const char *h = getenv("HOME");
    if (h && *h == '/')
        return h;
    const struct passwd *p = getpwuid(getuid());
    return p && p->pw_dir && *p->pw_dir == '/' ? p->pw_dir : NULL;
}

static bool fits(int n, size_t cap)
{
    return n > 0 && (size_t)n < cap;
}

bool dev_default_state(char *out, size_t cap)
{
    const char *xdg = getenv("XDG_STATE_HOME");
    if (xdg && *xdg == '/')
        return fits(snprintf(out, cap, "%s/sandgate", xdg), cap);
    const char *h = home();
    return h && fits(snprintf(out, cap, "%s/.local/state/sandgate", h), cap);
}

int dev_make_state(const char *dir)
{
    char path[4096];
    if (!*dir || !fits(snprintf(path, sizeof path, "%s", dir), sizeof path))
        return *dir ? ENAMETOOLONG : ENOENT;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0755) && errno != EEXIST && errno != EROFS && errno != EACCES)
            return errno;
        *p = '/'; /* what could not be made but is there shows below */
    }
    if (mkdir(path, 0700) && errno != EEXIST)
        return errno;
    struct stat st;
    if (stat(path, &st))
        return errno;
    if (!S_ISDIR(st.st_mode))
        return ENOTDIR;
    return access(path, R_OK | W_OK | X_OK) ? errno : 0;
}

bool dev_has_base(const char *state)
{
    char path[4096];
    if (!fits(snprintf(path, sizeof path, "%s/base", state), sizeof path))
        return false;
    DIR *d = opendir(path);
    bool found = false;
    struct dirent *entry;
    while (d && !found && (entry = readdir(d)) != NULL)
        found = entry->d_name[0] != '.'; /* an import in progress has a name with a dot */
    if (d)
        (void)closedir(d);
    return found;
}

bool dev_default_base(char *out, size_t cap)
{
    const char *h = home();
    if (fits(snprintf(out, cap, "/var/cache/sandgate/base.tar"), cap) && access(out, R_OK) == 0)
        return true;
    return h && fits(snprintf(out, cap, "%s/.cache/sandgate/base.tar", h), cap) && access(out, R_OK) == 0;
}
