/* Any header: what is taken is a digest of the right length, and written back it is the same. */
#include "routes/digest.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct digest d = {0};
    enum digest_fit fit = digest_parse(text, &d);
    char option[DIGEST_OPTION];
    digest_option(&d, option);
    if (strlen(option) != DIGEST_OPTION - 1 || (fit == DIGEST_FINE && !d.given && !d.given_512) ||
        (d.given && !strstr(text, "sha-256=:")))
        abort();
    free(text);
    return 0;
}
