/* Starting a program exactly once. */
#ifndef SG_GUEST_START_H
#define SG_GUEST_START_H

#include "guest/monitor.h"

enum start_result {
    START_NEW,    /* started by this call */
    START_OLD,    /* started earlier, with the same spec */
    START_FAILED, /* *f */
};

/* Unless it failed, *dir is the record, opened. */
enum start_result start_program(const struct guest_root *root, int session, const char *id, const char *spec,
                                const struct monitor_spec *m, int *dir, struct guest_fail *f);
/* Claims id so that nothing can start under it; true also when it was taken (*won says which). */
bool start_settle(const struct guest_root *root, int session, const char *id, bool *won,
                  struct guest_fail *f);

#endif
