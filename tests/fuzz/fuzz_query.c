/* Request targets: decoding never writes beyond its promise, and routing only captures clean segments. */
#include "server/router.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void nothing(struct exchange *ex)
{
    (void)ex;
}

static const struct route table[] = {
    {"GET", "/v1/{a}", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"POST", "/v1/{a}/x/{b}", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"GET", "/{a}/{b}/{c}", ROUTE_UPGRADE, AUTH_NONE, BODY_NONE, nothing},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *raw = malloc(size + 1);
    if (!raw)
        return 0;
    memcpy(raw, data, size);
    raw[size] = '\0';
    char *space = malloc(2 * strlen(raw) + 2);
    struct uri u;
    if (space && uri_parse(raw, space, &u) == URI_OK) {
        static const char *const methods[] = {"GET", "HEAD", "POST", "DELETE"};
        for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
            struct route_match m;
            if (router_find(table, sizeof table / sizeof *table, methods[i], &u, &m) != SG_OK)
                continue;
            for (size_t k = 0; k < m.nparams; k++)
                if (!m.params[k].len || strlen(m.params[k].at) != m.params[k].len ||
                    strchr(m.params[k].at, '/'))
                    abort();
        }
    }
    free(space);
    free(raw);
    return 0;
}
