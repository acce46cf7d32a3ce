/* Any upload (tar, plain or gzip) is unpacked or refused with a sentence, and nothing of it lands elsewhere: not by
 * names, not by links that it brings or that are there.  (P33, P34) */
#include "emulator/agent.h"
#include "scratch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int upload = -1;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    scratch_make();
    upload = memfd_create("upload", MFD_CLOEXEC);
    return upload < 0;
}

/* Headers with the right checksums, or hardly any change of theirs would come through. */
static void mend(uint8_t *tar, size_t size)
{
    enum { BLOCK = 512, SIZE_AT = 124, SUM_AT = 148, FIELD = 8 };
    for (size_t at = 0; at + BLOCK <= size;) {
        uint8_t *h = tar + at;
        unsigned sum = 0;
        size_t length = 0;
        char text[FIELD];
        memset(h + SUM_AT, ' ', FIELD);
        for (size_t i = 0; i < BLOCK; i++)
            sum += h[i];
        (void)snprintf(text, sizeof text, "%06o", sum & 0777777);
        memcpy(h + SUM_AT, text, FIELD - 1);
        for (size_t i = 0; i < 11 && h[SIZE_AT + i] >= '0' && h[SIZE_AT + i] <= '7'; i++)
            length = length * 8 + (size_t)(h[SIZE_AT + i] - '0');
        if (length > size)
            return;
        at += BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK;
    }
}

static void put(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        __builtin_trap();
    if (size)
        memcpy(copy, data, size);
    if (size < 2 || copy[0] != 0x1f || copy[1] != 0x8b)
        mend(copy, size);
    if (ftruncate(upload, 0) != 0 || pwrite(upload, copy, size, 0) != (ssize_t)size ||
        lseek(upload, 0, SEEK_SET) != 0)
        __builtin_trap();
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct agent_tar tar = {0};
    put(data, size);
    int in = scratch_enter();
    /* as programs in a sandbox may have prepared it */
    if (symlinkat("../outside", in, "out") != 0 || symlinkat("/", in, "root") != 0 ||
        symlinkat("../outside/canary", in, "file") != 0 || mkdirat(in, "dir", 0755) != 0)
        __builtin_trap();
    int e = agent_untar(&tar, upload);
    scratch_leave();
    if (e < 0 || (e != 0 && tar.err[0] == '\0') || memchr(tar.err, '\0', sizeof tar.err) == NULL)
        __builtin_trap();
    scratch_check();
    return 0;
}
