/* `input`: a carrier between the call's own standard input and output and the monitor of a process. */
#ifndef SG_GUEST_INPUT_H
#define SG_GUEST_INPUT_H

#include "guest/args.h"
#include "guest/record.h"

/* Before anything else is said: a terminal becomes a plain pipe in both directions (nothing is echoed, translated
 * or acted on; what was typed before is dropped), and the magic line is printed. */
void input_greet(void);
/* Bytes of standard input go to the monitor, its lines to standard output; neither waits for the other, and memory
 * is bounded: of several A lines that standard output does not take only the newest is kept, and while the monitor
 * does not take bytes none are read.  Prints all lines but E, which is left to the caller. */
bool act_input(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f);
/* After everything was said: the terminal is as it was. */
void input_leave(void);

#endif
