/* Inside of the command module: what command.c asks of a session's pump thread. */
#ifndef SG_EMULATOR_PUMP_H
#define SG_EMULATOR_PUMP_H

#include "emulator/command.h"

/* Hands a started command over; the pump takes its own reference. False when it cannot be watched. */
bool pump_add(struct pump *p, struct command *c);
/* Something ended or a deadline came closer. */
void pump_wake(struct pump *p);

#endif
