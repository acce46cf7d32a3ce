/* sandgate-guest: starts, records, follows and signals programs inside a sandbox, and puts uploads in their
 * place.  One command per call; the answer on standard output is lines of base/core/wire.h. */
#include "guest/acts.h"
#include "guest/fs.h"
#include "guest/input.h"
#include "guest/install.h"
#include "guest/libc.h"
#include "guest/out.h"
#include "guest/watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static bool act(const struct guest_root *root, const struct guest_args *a, mode_t mask, struct guest_fail *f)
{
    switch (a->command) {
    case CMD_RUN:
    case CMD_START:
        return act_start(root, a, f);
    case CMD_FOLLOW:
        return act_follow(root, a, f);
    case CMD_STATUS:
        return act_status(root, a, f);
    case CMD_LIST:
        return act_list(root, a, f);
    case CMD_SIGNAL:
        return act_signal(root, a, f);
    case CMD_SETTLE:
        return act_settle(root, a, f);
    case CMD_REMOVE:
        return act_remove(root, a, f);
    case CMD_VERSION:
        return install_version(f);
    case CMD_INPUT:
        return act_input(root, a, f);
    case CMD_WATCH:
        return act_watch(root, a, f);
    case CMD_FS:
        return act_fs(a->argv, mask, f);
    case CMD_WRITE:
    case CMD_CLOSE:
    case CMD_RESIZE:
    case CMD_CANCEL:
    case CMD_ACK:
    case CMD_LEASE:
    case CMD_UNATTENDED:
        return act_control(root, a, f);
    }
    return guest_failed(f, SG_WF_USAGE, 0, "unknown command");
}

/* Descriptors that our parent forgot to close must not live on in a program that outlives it, and ours must
 * not land on the standard ones. */
static bool tidy_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false;
    libc_close_from(3);
    return true;
}

int main(int argc, char **argv)
{
    struct guest_fail f = {.code = SG_WF_INTERNAL};
    struct guest_args a = {.install = NULL};
    struct guest_root root = {.fd = -1};
    mode_t mask = umask(077);
    signal(SIGPIPE, SIG_IGN);
    bool ok = tidy_descriptors() && args_parse(argc, argv, &a, &f);
    /* Also when its arguments are wrong: what is said before the greeting counts for nothing. */
    if (a.command == CMD_INPUT)
        input_greet();
    bool rootless = a.command == CMD_VERSION || a.command == CMD_FS;
    if (ok && (!rootless || a.install)) {
        bool creates = a.command == CMD_RUN || a.command == CMD_START || a.command == CMD_SETTLE;
        ok = root_open(&root, creates, &f) || (a.command == CMD_WATCH && f.code == SG_WF_NO_RECORD);
    }
    if (ok && a.install)
        ok = install_self(&root, a.install, &f);
    ok = ok && act(&root, &a, mask, &f);
    if (!ok)
        out_error(&f);
    (void)out_flush();
    if (a.command == CMD_INPUT)
        input_leave();
    if (root.fd >= 0)
        close(root.fd);
    args_free(&a);
    return ok ? 0 : f.code == SG_WF_USAGE ? 64 : 1;
}
