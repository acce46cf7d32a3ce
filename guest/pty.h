/* A terminal for a program.  The monitor keeps both ends while the program lives: without one of its own on the
 * program's side the kernel would report a hangup whenever the program closes its descriptors for a moment. */
#ifndef SG_GUEST_PTY_H
#define SG_GUEST_PTY_H

#include <stdbool.h>
#include <stdint.h>

/* Makes a terminal of the size; *master does not block, both are closed on exec.  It belongs to the calling user.
 * False with errno. */
bool pty_open(uint16_t cols, uint16_t rows, int *master, int *slave);
/* In the program's process, which leads its session: makes the terminal the controlling one and its three standard
 * descriptors.  False with errno. */
bool pty_adopt(int slave);
/* Sets the size; what runs in the foreground gets SIGWINCH, also when the size was the same (it shall redraw). */
bool pty_resize(int master, uint16_t cols, uint16_t rows);
/* True when a line reader is at the other end; *eof is the character that tells it of the end of its input. */
bool pty_is_canonical(int master, unsigned char *eof);

#endif
