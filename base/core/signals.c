#include "base/core/signals.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { KERNEL_SIGNALS = 64 };

void sg_signals_default(void)
{
    /* The kernel's struct sigaction is laid out differently from machine to machine, and all zeros is SIG_DFL in
     * every one. */
    static const unsigned long zeros[8];
    for (int s = 1; s <= KERNEL_SIGNALS; s++)
        (void)syscall(SYS_rt_sigaction, s, zeros, NULL,
                      KERNEL_SIGNALS / 8); /* KILL and STOP refuse, rightly */
}
