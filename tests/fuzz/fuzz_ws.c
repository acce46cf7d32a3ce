/* The WebSocket codec against wslay: both must understand the same of any bytes. */
#include "tests/unit/server/ws_oracle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || size > 16 * 1024)
        return 0;
    uint32_t seed;
    memcpy(&seed, data, 4);
    if (!oracle_agrees(data + 4, size - 4, 1000, seed))
        abort();
    return 0;
}
