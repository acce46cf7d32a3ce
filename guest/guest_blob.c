#include "guest/guest_blob.h"

#include <pthread.h>
#include <string.h>

extern const unsigned char sg_guest_x86_64[], sg_guest_x86_64_end[];
extern const char sg_guest_x86_64_hash[17];
#ifdef SG_GUEST_ARM64
extern const unsigned char sg_guest_aarch64[], sg_guest_aarch64_end[];
extern const char sg_guest_aarch64_hash[17];
#endif

static struct guest_blob blobs[2];
static size_t count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void add(const char *arch, const unsigned char *data, const unsigned char *end, const char *hash)
{
    struct guest_blob *b = &blobs[count++];
    b->arch = arch;
    b->data = data;
    b->len = (size_t)(end - data);
    memcpy(b->hash, hash, sizeof b->hash);
}

static void fill(void)
{
    add("amd64", sg_guest_x86_64, sg_guest_x86_64_end, sg_guest_x86_64_hash);
#ifdef SG_GUEST_ARM64
    add("arm64", sg_guest_aarch64, sg_guest_aarch64_end, sg_guest_aarch64_hash);
#endif
}

const struct guest_blob *guest_blob_for(const char *arch)
{
    pthread_once(&once, fill);
    for (size_t i = 0; i < count; i++)
        if (strcmp(blobs[i].arch, arch) == 0)
            return &blobs[i];
    return NULL;
}
