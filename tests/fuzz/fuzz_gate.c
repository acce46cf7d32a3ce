/* The gate and the target decoder on arbitrary heads, laid out in memory as the HTTP library leaves them. */
#include "server/gate.h"
#include "server/uri.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Splits `text` in place the way a lenient parser does: request line, then name and value per line. */
static size_t split(char *text, size_t len, struct gate_layout *l, struct gate_header *h, size_t max)
{
    static const char nothing[] = "";
    l->start = text;
    l->len = len;
    l->uri = l->version = nothing;
    size_t n = 0;
    char *p = text, *end = text + len;
    char *sp = memchr(p, ' ', len);
    if (sp) {
        *sp = '\0';
        l->uri = sp + 1;
    }
    for (bool first = true; p < end; first = false) {
        char *lf = memchr(p, '\n', (size_t)(end - p));
        if (!lf)
            break;
        *lf = '\0';
        if (lf > p && lf[-1] == '\r')
            lf[-1] = '\0';
        if (first) {
            char *last = memrchr(p, ' ', (size_t)(lf - p));
            if (last && last > p) {
                *last = '\0';
                l->version = last + 1;
            }
        } else if (n < max && *p) {
            char *colon = strchr(p, ':');
            if (colon && colon < lf) {
                *colon++ = '\0';
                colon += strspn(colon, " \t");
                h[n++] = (struct gate_header){p, strlen(p), colon, strlen(colon)};
            }
        }
        p = lf + 1;
    }
    return n;
}

static void check_uri(const char *raw)
{
    size_t len = strlen(raw);
    char *space = malloc(2 * len + 2); /* exactly what is promised to suffice */
    if (!space)
        return;
    struct uri u;
    if (uri_parse(raw, space, &u) == URI_OK) {
        for (size_t i = 0; i < u.nsegments; i++)
            if (u.segments[i].at[u.segments[i].len] != '\0')
                abort();
        for (size_t i = 0; i < u.nquery; i++) {
            (void)uri_key_is_credential(&u.query[i].key);
            if (u.query[i].value.at[u.query[i].value.len] != '\0')
                abort();
        }
        (void)uri_query(&u, "path");
    }
    free(space);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_uri(text);
    struct gate_layout l;
    struct gate_header h[GATE_MAX_HEADERS];
    size_t n = split(text, size, &l, h, GATE_MAX_HEADERS);
    char *target = strdup(l.uri);
    if (target) {
        l.target = target;
        struct gate_head head = {l.version, h, n};
        struct gate_verdict v;
        struct sg_error e;
        enum sg_code rc = gate_check(&head, &v, &e);
        if (rc == SG_OK && ((v.chunked && v.content_length >= 0) || v.content_length < -1))
            abort();
        if (gate_check_layout(&l, &head, &e) == SG_OK && rc == SG_OK) {
            /* What passed both has its pieces back to back: no byte of the head is unaccounted for. */
            size_t sum = (size_t)(l.version - l.start) + strlen(l.version) + 4;
            for (size_t i = 0; i < n; i++)
                sum += (size_t)(h[i].value - h[i].name) + h[i].value_len + 2;
            if (sum != size)
                abort();
        }
        free(target);
    }
    free(text);
    return 0;
}
