/* Signal dispositions before a program is executed.  libc and the kernel only. */
#ifndef SG_CORE_SIGNALS_H
#define SG_CORE_SIGNALS_H

/* Every signal back to its default, also the two that the C library keeps for itself and would refuse to touch: a
 * parent that used posix_spawn (make, say) leaves those ignored, and a program would inherit it.  Async-signal-safe;
 * for a child between fork and exec. */
void sg_signals_default(void);

#endif
