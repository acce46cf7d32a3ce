#include "guest/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* By the master's own ioctl where there is one: the path may lie in another mount namespace. */
static int slave_open(int master)
{
    int fd = -1;
#ifdef TIOCGPTPEER
    fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
#endif
    const char *path = fd < 0 ? ptsname(master) : NULL;
    return path ? open(path, O_RDWR | O_NOCTTY | O_CLOEXEC) : fd;
}

static bool size_set(int fd, uint16_t cols, uint16_t rows)
{
    struct winsize w = {.ws_col = cols, .ws_row = rows};
    return ioctl(fd, TIOCSWINSZ, &w) == 0;
}

bool pty_open(uint16_t cols, uint16_t rows, int *master, int *slave)
{
    struct termios t;
    *slave = -1;
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    bool ok = *master >= 0 && fcntl(*master, F_SETFD, FD_CLOEXEC) == 0 && grantpt(*master) == 0 &&
              unlockpt(*master) == 0;
    if (ok)
        *slave = slave_open(*master);
    ok = ok && *slave >= 0 && size_set(*master, cols, rows) &&
         fcntl(*master, F_SETFL, O_RDWR | O_NONBLOCK) == 0;
    /* Erasing takes back whole characters; everything else is what the kernel begins with. */
    if (ok && tcgetattr(*slave, &t) == 0) {
        t.c_iflag |= IUTF8;
        (void)tcsetattr(*slave, TCSANOW, &t);
    }
    if (ok)
        return true;
    int err = errno;
    if (*master >= 0)
        close(*master);
    *master = -1;
    errno = err;
    return false;
}

bool pty_adopt(int slave)
{
    return ioctl(slave, TIOCSCTTY, 0) == 0 && dup2(slave, STDIN_FILENO) >= 0 &&
           dup2(slave, STDOUT_FILENO) >= 0 && dup2(slave, STDERR_FILENO) >= 0;
}

bool pty_resize(int master, uint16_t cols, uint16_t rows)
{
    struct winsize w;
    /* The kernel signals a change only, and a signal of our own might hit a group that is new under an old number:
     * so there is a change. */
    if (ioctl(master, TIOCGWINSZ, &w) == 0 && w.ws_col == cols && w.ws_row == rows)
        (void)size_set(master, cols, rows == UINT16_MAX ? rows - 1 : rows + 1);
    return size_set(master, cols, rows);
}

bool pty_is_canonical(int master, unsigned char *eof)
{
    struct termios t;
    if (tcgetattr(master, &t) || !(t.c_lflag & ICANON))
        return false;
    *eof = t.c_cc[VEOF];
    return true;
}
