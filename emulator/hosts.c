#include "emulator/hosts.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_LEN = 253 };

struct address {
    int family; /* 0: a name */
    unsigned char bytes[16];
};

static struct address parse_address(const char *s)
{
    struct address a = {0};
    if (inet_pton(AF_INET, s, a.bytes) == 1)
        a.family = AF_INET;
    else if (inet_pton(AF_INET6, s, a.bytes) == 1)
        a.family = AF_INET6;
    return a;
}

static bool same(const struct address *a, const struct address *b)
{
    return a->family == b->family && !memcmp(a->bytes, b->bytes, a->family == AF_INET ? 4 : 16);
}

static bool is_loopback(const struct address *a)
{
    static const struct address v6 = {AF_INET6, {[15] = 1}};
    return a->family == AF_INET ? a->bytes[0] == 127 : same(a, &v6);
}

/* Listening on all addresses: not all of them can be known, but no page's name is an address. */
static bool is_any(const struct address *a)
{
    static const unsigned char zero[16];
    return a->family && !memcmp(a->bytes, zero, sizeof zero);
}

static bool accept_address(const struct host_names *h, const struct address *a)
{
    if (is_loopback(a))
        return true;
    for (size_t i = 0; i < HOSTS_LISTEN; i++) {
        struct address own = parse_address(h->listen[i] ? h->listen[i] : "");
        if (own.family && (same(&own, a) || is_any(&own)))
            return true;
    }
    return false;
}

static bool listed(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list ? list : ""; *p;) {
        size_t n = strcspn(p, ",");
        if (n == len && !strncasecmp(p, name, n))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static bool accept_name(const struct host_names *h, const char *name)
{
    bool found = listed("localhost,vercel.com,api.vercel.com", name);
    for (size_t i = 0; i < HOSTS_LISTEN && !found; i++)
        found = h->listen[i] && !strcasecmp(h->listen[i], name);
    for (size_t i = 0; i < HOSTS_LISTS && !found; i++)
        found = listed(h->lists[i], name);
    return found;
}

/* The part before the port. */
static bool take_host(const char *header, char out[NAME_MAX_LEN + 1])
{
    bool v6 = *header == '[';
    size_t n = v6 ? strcspn(++header, "]") : strcspn(header, ":");
    const char *rest = header + n + (v6 && header[n]);
    if ((v6 && !header[n]) || !n || n > NAME_MAX_LEN ||
        (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")])))
        return false;
    memcpy(out, header, n);
    out[n] = '\0';
    return v6 == (strchr(out, ':') != NULL);
}

bool hosts_accept(const struct host_names *h, const char *header)
{
    char host[NAME_MAX_LEN + 1];
    if (!header || !take_host(header, host))
        return false;
    struct address a = parse_address(host);
    return *host && (a.family ? accept_address(h, &a) : accept_name(h, host));
}
