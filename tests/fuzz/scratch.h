/* A directory for fuzz targets that touch files: what happens in it must stay in it.
 *
 *   TOP/in        where the code under test works; emptied after each input
 *   TOP/outside   beside it, open to everybody: nothing may ever change here
 *
 * As root, files are made with the file-system id of nobody, so that what would escape cannot harm this machine. */
#ifndef SG_FUZZ_SCRATCH_H
#define SG_FUZZ_SCRATCH_H

#include <stdbool.h>

/* Makes the directory; removed when the process ends. */
void scratch_make(void);
/* Steps into TOP/in (a descriptor of it, borrowed), with little room for files; and back. */
int scratch_enter(void);
void scratch_leave(void);
/* Ends the process when anything is outside that was not there, or changed.  Then empties TOP/in, where there may be
 * files, directories and symbolic links, and nothing else. */
void scratch_check(void);
/* Whether what fd refers to lies in TOP/in. */
bool scratch_holds(int fd);

#endif
