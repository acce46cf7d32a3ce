/* The helper binaries that the gateway carries.  Constant data; any thread. */
#ifndef SG_GUEST_BLOB_H
#define SG_GUEST_BLOB_H

#include <stddef.h>

struct guest_blob {
    const char *arch; /* "amd64", "arm64" */
    const unsigned char *data;
    size_t len;
    char hash[17]; /* first 16 hexadecimal digits of the SHA-256 of data */
};

/* NULL when this build carries none for the architecture. */
const struct guest_blob *guest_blob_for(const char *arch);

#endif
