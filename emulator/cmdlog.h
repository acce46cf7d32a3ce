/* What one command printed, as the NDJSON lines that readers get.  One writer appends whole lines; any number
 * of readers follow from any offset.  The first 64 KiB stay in memory, the rest goes to an unlinked file in
 * the state directory; beyond 4 GiB, or when the disk is full, output is dropped and `lost` says so.
 *
 * append/end: the writer's thread.  read: any thread, blocks until something comes, the end, or the deadline.
 */
#ifndef SG_EMULATOR_CMDLOG_H
#define SG_EMULATOR_CMDLOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cmdlog {
    pthread_mutex_t lock;
    pthread_cond_t more;
    char *mem;
    size_t mem_len, mem_cap;
    uint64_t end; /* bytes, memory and file together */
    int fd;       /* the spill file; -1 until needed */
    bool ended;
    bool lost;
    const char *dir; /* where the spill file is made; outlives the log */
};

enum { CMDLOG_END = 0, CMDLOG_AGAIN = -2, CMDLOG_FAILED = -1 };

int cmdlog_init(struct cmdlog *l, const char *spill_dir);
void cmdlog_free(struct cmdlog *l);
void cmdlog_append(struct cmdlog *l, const char *lines, size_t len);
void cmdlog_end(struct cmdlog *l);
bool cmdlog_lost(struct cmdlog *l);
/* Bytes from `offset`, at most max (> 0, better >= 64 KiB): whole lines where they fit, and never a divided
 * character. CMDLOG_END at the end, CMDLOG_AGAIN when the monotonic deadline passed, CMDLOG_FAILED. */
ssize_t cmdlog_read(struct cmdlog *l, uint64_t offset, char *buf, size_t max, int64_t deadline_ms);
/* Waits for the end; false when the deadline passed. */
bool cmdlog_wait_end(struct cmdlog *l, int64_t deadline_ms);

#endif
