#include "guest/user.h"

#include "base/core/num.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* name:password:uid:… */
static bool line_is(const char *line, const char *name, uint64_t uid)
{
    size_t n = strlen(name);
    uint64_t v;
    if (strncmp(line, name, n) != 0 || line[n] != ':')
        return false;
    const char *at = strchr(line + n + 1, ':');
    const char *end = at ? strchr(at + 1, ':') : NULL;
    return end && sg_parse_u64(at + 1, (size_t)(end - at - 1), UINT32_MAX, &v) && v == uid;
}

bool user_is(const char *name)
{
    char line[1024];
    bool found = false, whole = true; /* the last piece that was read ended a line */
    FILE *f = fopen("/etc/passwd", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        found = whole && line_is(line, name, geteuid());
        whole = strchr(line, '\n') != NULL;
    }
    if (f)
        (void)fclose(f);
    return found;
}
