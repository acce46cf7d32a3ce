/* Paths of the tier without isolation: whatever a caller names, and whatever links lie there, stays below the root of
 * the session.  Input: one byte that chooses, the directory, NUL, the path.  (P33) */
#include "emulator/agent.h"
#include "scratch.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    scratch_make();
    return 0;
}

static void prepare(int root)
{
    int fd = -1;
    if (mkdirat(root, "a", 0755) != 0 || mkdirat(root, "a/b", 0755) != 0 ||
        (fd = openat(root, "a/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) < 0 ||
        symlinkat("..", root, "up") != 0 || symlinkat("/", root, "root") != 0 ||
        symlinkat("../outside", root, "out") != 0 || symlinkat("loop", root, "loop") != 0 ||
        symlinkat("/proc/self/cwd", root, "cwd") != 0 || symlinkat("../../a/f", root, "a/b/l") != 0)
        __builtin_trap();
    close(fd);
}

static void look(int root, const char *path)
{
    int fd = agent_plain_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return;
    if (!scratch_holds(fd) || (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
        __builtin_trap();
    close(fd);
}

static void step(int root, const char *path)
{
    if (agent_plain_chdir(root, path) != 0)
        return;
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || !scratch_holds(fd))
        __builtin_trap();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char joined[PATH_MAX];
    if (size < 2 || size > 8192)
        return 0;
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    const char *nul = memchr(text, '\0', size - 1);
    const char *path = nul ? nul + 1 : text + size - 1;
    int root = scratch_enter();
    prepare(root);
    if (agent_plain_join(text, path, joined) == 0) {
        if (strlen(joined) >= PATH_MAX || (path[0] == '/' && strcmp(joined, path) != 0))
            __builtin_trap();
        if ((data[0] & 3) == 0)
            step(root, joined);
        else if ((data[0] & 3) == 1)
            look(root, joined);
        else if (agent_plain_mkdir(root, joined, (data[0] & 1) != 0) == 0)
            step(root, joined); /* it is there now */
    }
    scratch_leave();
    scratch_check();
    free(text);
    return 0;
}
