/* An upstream that takes files, made of memory: what fake_guestlink.h is for calls.  Linked where nothing else says
 * what vercel_file_write_start does. */
#ifndef FAKE_FILES_H
#define FAKE_FILES_H

#include "vercel/commands.h"

struct fake_files {
    int writes, cancelled;
    char session_id[64], path[256]; /* of the last one */
    unsigned mode;
    unsigned char *data; /* its bytes; freed by fake_files_reset */
    uint64_t size;
    enum sg_code fail; /* the next ones end with it, outcome unknown */
    bool refuse;       /* the next ones do not begin */
    bool hang;         /* the next ones never end */
};
extern struct fake_files fake_files;
/* Forgets everything; before the loop is freed. */
void fake_files_reset(void);

#endif
