#include "transfer/fs_call.h"

#include "base/core/b64.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take_arg(struct fs_request *r, char *arg)
{
    if (!arg || r->n == FS_ARGS_MAX) {
        r->failed = true;
        free(arg);
        return;
    }
    r->args[r->n++] = arg;
}

static void add(struct fs_request *r, const char *arg)
{
    take_arg(r, strdup(arg));
}

void fs_request_begin(struct fs_request *r, const char *op)
{
    add(r, "fs");
    add(r, "--op");
    add(r, op);
}

void fs_request_flag(struct fs_request *r, const char *option)
{
    add(r, option);
}

void fs_request_text(struct fs_request *r, const char *option, const char *text)
{
    add(r, option);
    add(r, text);
}

void fs_request_bytes(struct fs_request *r, const char *option, const void *data, size_t len)
{
    char *text = malloc(SG_B64_LEN(len) + 1);
    if (text)
        text[sg_b64_encode(text, data, len)] = '\0';
    add(r, option);
    take_arg(r, text);
}

void fs_request_number(struct fs_request *r, const char *option, int64_t n)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, n);
    fs_request_text(r, option, text);
}

void fs_request_octal(struct fs_request *r, const char *option, unsigned n)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%o", n);
    fs_request_text(r, option, text);
}

void fs_request_free(struct fs_request *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->args[i]);
    *r = (struct fs_request){0};
}
