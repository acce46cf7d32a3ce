/* Any bytes as a configuration file, and what is left of them as credentials. */
#include "config/config.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        (void)clearenv();
        sg_log_set_level(SG_LOG_ERROR);
        fd = memfd_create("ini", MFD_CLOEXEC);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
        return 0;
    struct config *c;
    struct sg_error e;
    if (config_load(path, NULL, 0, &c, &e) == SG_OK) {
        (void)!config_resolve_credentials(c, &e);
        config_free(c);
    }
    return 0;
}
