/* Terminals: the agent opens the master of a pair, the program's process takes the other end as its controlling
 * terminal. */
#include "emulator/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

int agent_pty_open(const struct agent_identity *id, uint64_t size, int *master)
{
    /* In a box the instance of its own.  Not blocking, because that is how the master is used, and because root
     * of the box might find a way to put something else there. */
    const char *path = id->plain_root >= 0 ? "/dev/ptmx" : "/dev/pts/ptmx";
    struct winsize ws = {.ws_row = (unsigned short)(size >> 16 & 0xffff),
                         .ws_col = (unsigned short)(size & 0xffff)};
    int locked = 0;
    int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return box_errno();
    if (ioctl(fd, TIOCSPTLCK, &locked) != 0 || ioctl(fd, TIOCSWINSZ, &ws) != 0) {
        int e = box_errno();
        close(fd);
        return e;
    }
    *master = fd;
    return 0;
}

int agent_pty_take(const struct agent_identity *id, int master, uint32_t uid)
{
    struct termios t;
    int e = 0;
    int tty = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (tty < 0)
        return box_errno();
    /* A terminal belongs to who works at it. */
    if (id->plain_root < 0 && !id->single_id && fchown(tty, uid, (gid_t)-1) != 0)
        e = box_errno();
    if (e == 0 && tcgetattr(tty, &t) == 0) {
        t.c_iflag |= IUTF8; /* one backspace erases one character */
        (void)tcsetattr(tty, TCSANOW, &t);
    }
    if (e == 0 && ioctl(tty, TIOCSCTTY, 0) != 0)
        e = box_errno();
    for (int i = 0; i < 3 && e == 0; i++)
        if (dup2(tty, i) < 0)
            e = box_errno();
    close(tty); /* above 2: the agent keeps 0, 1, 2 open */
    return e;
}
