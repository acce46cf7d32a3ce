/* Id maps of user namespaces. */
#include "emulator/spawner.h"
#include "base/core/num.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST_IDS = 2000 }; /* fewer would not even hold the sandbox user */

static const char *const UID_HELPERS[] = {"/usr/bin/newuidmap", "/bin/newuidmap", "/usr/local/bin/newuidmap"};
static const char *const GID_HELPERS[] = {"/usr/bin/newgidmap", "/bin/newgidmap", "/usr/local/bin/newgidmap"};

static const char *find_helper(const char *const paths[3])
{
    for (int i = 0; i < 3; i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    return NULL;
}

/* One line of /etc/subuid: name-or-number:start:count. */
static bool parse_range(char *line, const char *name, const char *number, unsigned long *start,
                        unsigned long *count)
{
    char *save = NULL;
    const char *who = strtok_r(line, ":", &save);
    const char *a = strtok_r(NULL, ":", &save);
    const char *b = strtok_r(NULL, ":\n", &save);
    uint64_t s = 0;
    uint64_t n = 0;
    if (who == NULL || a == NULL || b == NULL || (strcmp(who, name) != 0 && strcmp(who, number) != 0))
        return false;
    if (!sg_parse_u64(a, strlen(a), UINT32_MAX, &s) || !sg_parse_u64(b, strlen(b), UINT32_MAX, &n) ||
        n < LEAST_IDS)
        return false;
    *start = (unsigned long)s;
    *count = (unsigned long)(n < ID_COUNT ? n : ID_COUNT - 1);
    return true;
}

static bool find_range(const char *path, unsigned long *start, unsigned long *count)
{
    char number[24];
    char name[128] = "";
    char line[256];
    snprintf(number, sizeof number, "%lu", (unsigned long)geteuid());
    const struct passwd *pw = getpwuid(geteuid());
    if (pw != NULL)
        snprintf(name, sizeof name, "%s", pw->pw_name);
    FILE *f = fopen(path, "re");
    bool found = false;
    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = parse_range(line, name, number, start, count);
    fclose(f);
    return found;
}

bool id_map_subids(struct id_map *map)
{
    map->how = MAP_SUBIDS;
    return find_helper(UID_HELPERS) != NULL && find_helper(GID_HELPERS) != NULL &&
           find_range("/etc/subuid", &map->uid_start, &map->uid_count) &&
           find_range("/etc/subgid", &map->gid_start, &map->gid_count);
}

const char *id_map_advice(void)
{
    unsigned long start;
    unsigned long count;
    if (find_helper(UID_HELPERS) == NULL || find_helper(GID_HELPERS) == NULL)
        return "newuidmap or newgidmap is missing: install the package uidmap for users and sudo in "
               "sandboxes.";
    if (!find_range("/etc/subuid", &start, &count) || !find_range("/etc/subgid", &start, &count))
        return "This user has no range of ids: add one to /etc/subuid and /etc/subgid (usermod "
               "--add-subuids, "
               "--add-subgids) for users and sudo in sandboxes.";
    return "newuidmap or newgidmap failed: they must be set-uid root or have file capabilities, on a file "
           "system "
           "that is not mounted with nosuid.";
}

static int write_proc(pid_t pid, const char *file, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    size_t n = strlen(text);
    ssize_t w = write(fd, text, n);
    int e = w < 0 ? errno : (size_t)w != n ? EIO : 0;
    close(fd);
    return e;
}

/* newuidmap PID 0 <self> 1 1 <start> <count> */
static int run_helper(const char *helper, pid_t pid, unsigned long self, unsigned long start,
                      unsigned long count)
{
    char text[4][24];
    if (helper == NULL)
        return ENOENT;
    snprintf(text[0], sizeof text[0], "%ld", (long)pid);
    snprintf(text[1], sizeof text[1], "%lu", self);
    snprintf(text[2], sizeof text[2], "%lu", start);
    snprintf(text[3], sizeof text[3], "%lu", count);
    char zero[] = "0";
    char one[] = "1";
    char name[] = "newidmap";
    char *argv[] = {name, text[0], zero, text[1], one, one, text[2], text[3], NULL};
    char *env[] = {NULL};
    pid_t child = fork();
    if (child == 0) {
        execve(helper, argv, env);
        _exit(127);
    }
    if (child < 0)
        return errno;
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EPERM;
}

int id_map_write(const struct id_map *map, pid_t pid)
{
    char text[64];
    int e;
    switch (map->how) {
    case MAP_SHIFTED:
        snprintf(text, sizeof text, "0 %d %d\n", ID_BASE, ID_COUNT);
        e = write_proc(pid, "uid_map", text);
        return e != 0 ? e : write_proc(pid, "gid_map", text);
    case MAP_SUBIDS:
        e = run_helper(find_helper(UID_HELPERS), pid, geteuid(), map->uid_start, map->uid_count);
        return e != 0 ? e
                      : run_helper(find_helper(GID_HELPERS), pid, getegid(), map->gid_start, map->gid_count);
    case MAP_SINGLE:
    default:
        snprintf(text, sizeof text, "0 %lu 1\n", (unsigned long)geteuid());
        if ((e = write_proc(pid, "setgroups", "deny")) != 0 || (e = write_proc(pid, "uid_map", text)) != 0)
            return e;
        snprintf(text, sizeof text, "0 %lu 1\n", (unsigned long)getegid());
        return write_proc(pid, "gid_map", text);
    }
}
