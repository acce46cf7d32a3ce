#include "server/dev_user.h"

#include "base/core/num.h"
#include "base/log.h"
#include "server/cli.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOBODY = 65534 };

struct user {
    uid_t uid;
    gid_t gid;
};

static bool read_id(const char *name, uint32_t *out)
{
    const char *text = getenv(name);
    uint64_t v;
    if (!text || !sg_parse_u64(text, strlen(text), UINT32_MAX - 1, &v) || v == 0)
        return false;
    *out = (uint32_t)v;
    return true;
}

static struct user whom(void)
{
    struct user u;
    if (read_id("SUDO_UID", &u.uid) && read_id("SUDO_GID", &u.gid))
        return u;
    const struct passwd *p = getpwnam("nobody");
    if (p && p->pw_uid && p->pw_gid)
        return (struct user){p->pw_uid, p->pw_gid};
    return (struct user){NOBODY, NOBODY};
}

/* Whether our user namespace knows this id.  Unreadable maps: true, and what follows will say. */
static bool is_mapped(const char *map, uint32_t id)
{
    FILE *f = fopen(map, "re");
    char line[128];
    bool found = !f;
    while (!found && fgets(line, sizeof line, f)) {
        char *end = line;
        unsigned long long inside = strtoull(end, &end, 10);
        (void)strtoull(end, &end, 10);
        unsigned long long count = strtoull(end, &end, 10);
        found = id >= inside && id - inside < count;
    }
    if (f)
        (void)fclose(f);
    return found;
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &head, data))
        return true;
    return data[0].effective || data[0].permitted || data[1].effective || data[1].permitted;
}

/* Every way back is tried, not assumed away. */
static bool is_final(const struct user *u)
{
    uid_t r, e, s;
    gid_t gr, ge, gs;
    return !getresuid(&r, &e, &s) && !getresgid(&gr, &ge, &gs) && r == u->uid && e == u->uid && s == u->uid &&
           gr == u->gid && ge == u->gid && gs == u->gid && getgroups(0, NULL) == 0 && !has_capabilities() &&
           setuid(0) == -1 && setgid(0) == -1 && setgroups(0, NULL) == -1;
}

bool dev_user_drop(char err[DEV_USER_ERR])
{
    if (geteuid() != 0)
        return true;
    struct user u = whom();
    if (!is_mapped("/proc/self/uid_map", u.uid) || !is_mapped("/proc/self/gid_map", u.gid)) {
        cli_say("this root's user namespace has no user %" PRIu32 "; the gateway stays what it is",
                (uint32_t)u.uid);
        return true;
    }
    if (setgroups(0, NULL) || setresgid(u.gid, u.gid, u.gid) || setresuid(u.uid, u.uid, u.uid) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) {
        char reason[96];
        (void)snprintf(err, DEV_USER_ERR, "the gateway cannot become the user %" PRIu32 ": %s",
                       (uint32_t)u.uid, strerror_r(errno, reason, sizeof reason));
        return false;
    }
    if (!is_final(&u)) {
        (void)snprintf(err, DEV_USER_ERR, "the gateway became the user %" PRIu32 ", but could go back",
                       (uint32_t)u.uid);
        return false;
    }
    sg_log(SG_LOG_INFO, "user_changed", "uid", "i", (int64_t)u.uid, "gid", "i", (int64_t)u.gid, NULL);
    return true;
}
