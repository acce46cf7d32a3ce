/* Heads and bodies as the edge reads them: never past the end, the same however the bytes are cut, and a
 * refused request stays refused when more comes. */
#include "emulator/edge_head.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static ptrdiff_t parse(const char *p, size_t n, struct edge_request *out)
{
    char *exact = malloc(n + 1); /* no byte more than there is */
    need(exact != NULL);
    memcpy(exact + 1, p, n);
    ptrdiff_t rc = edge_request_parse(exact + 1, n, out);
    if (rc > 0) {
        need((size_t)rc <= n && rc <= EDGE_HEAD_MAX && !memcmp(p + rc - 4, "\r\n\r\n", 4));
        need(out->target_len > 0 && out->method_len > 0 && strlen(out->host) < EDGE_HOST_TEXT);
        need(out->kind != EDGE_BODY_REST);
    }
    free(exact);
    return rc;
}

static void requests(const char *p, size_t n, size_t cut)
{
    struct edge_request whole, part;
    ptrdiff_t all = parse(p, n, &whole), some = parse(p, cut, &part);
    if (some > 0)
        need(all == some && !strcmp(whole.host, part.host) && whole.kind == part.kind);
    else if (some < 0 && some != -431)
        need(all == some);
    char label[EDGE_LABEL_TEXT];
    if (all > 0 && edge_host_label(whole.host, "vercel.run", label))
        need(strlen(label) + 11 == strlen(whole.host) || strlen(label) + 10 == strlen(whole.host));
}

static void responses(const char *p, size_t n)
{
    struct edge_response r;
    ptrdiff_t k = edge_response_parse(p, n, n & 1, &r);
    need(k <= (ptrdiff_t)n && (k <= 0 || (r.status >= 100 && r.status <= 999)));
}

/* In one piece and cut in two. */
static void bodies(enum edge_body_kind kind, const char *p, size_t n, size_t cut)
{
    struct edge_body a, b;
    edge_body_init(&a, kind, n / 2);
    edge_body_init(&b, kind, n / 2);
    ptrdiff_t whole = edge_body_feed(&a, p, n);
    ptrdiff_t first = edge_body_feed(&b, p, cut);
    if (first < 0) {
        need(whole < 0);
        return;
    }
    need((size_t)first <= cut && ((size_t)first == cut || b.done));
    ptrdiff_t second = edge_body_feed(&b, p + first, n - (size_t)first);
    need(second < 0 ? whole < 0 : whole == first + second && a.done == b.done);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *p = (const char *)data + 2;
    size_t n = size - 2, cut = n ? (size_t)(data[0] << 8 | data[1]) % (n + 1) : 0;
    requests(p, n, cut);
    responses(p, n);
    bodies(EDGE_BODY_CHUNKED, p, n, cut);
    bodies(EDGE_BODY_LENGTH, p, n, cut);
    return 0;
}
