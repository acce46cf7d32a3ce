#include "emulator/edge_setup.h"
#include "base/buf.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void edge_setup_init(struct edge_setup *s)
{
    memset(s, 0, sizeof *s);
    s->config.plain_fd = s->config.tls_fd = -1;
}

/* The port of "http://host:port". */
static const char *port_of_url(const char *url)
{
    const char *colon = strrchr(url, ':');
    return colon ? colon + 1 : "";
}

/* Everything but the subdomain is known from here on. */
static char *fill_template(const char *t, const struct edge_setup *s)
{
    static const char edge[] = "{edge-port}", edge_tls[] = "{edge-tls-port}";
    struct sg_buf out;
    size_t len;
    sg_buf_init(&out, 4096);
    while (*t) {
        size_t n = strcspn(t + 1, "{") + 1; /* up to the next brace */
        if (!strncmp(t, edge, sizeof edge - 1)) {
            sg_buf_adds(&out, port_of_url(s->url));
            t += sizeof edge - 1;
        } else if (!strncmp(t, edge_tls, sizeof edge_tls - 1)) {
            sg_buf_adds(&out, port_of_url(s->tls_url));
            t += sizeof edge_tls - 1;
        } else {
            sg_buf_add(&out, t, n);
            t += n;
        }
    }
    if (!out.failed)
        return sg_buf_take(&out, &len);
    sg_buf_free(&out);
    return NULL;
}

static char *make_route_url(const struct options *o, const struct edge_setup *s)
{
    char plain[EDGE_SUFFIX_MAX + 32];
    snprintf(plain, sizeof plain, "https://{subdomain}.%s", o->edge_suffix);
    return fill_template(o->route_url ? o->route_url : plain, s);
}

static bool split_hosts(struct edge_setup *s, const char *list)
{
    s->api_hosts = strdup(list);
    for (char *p = s->api_hosts; p && *p;) {
        size_t n = strcspn(p, ",");
        bool last = !p[n];
        if (s->config.n_api_hosts == EDGE_API_HOSTS_MAX)
            return false;
        p[n] = '\0';
        s->config.api_hosts[s->config.n_api_hosts++] = p;
        p += last ? n : n + 1;
    }
    return s->api_hosts != NULL;
}

/* Where the API is reached from this very host. */
static void find_api(struct edge_config *c, int api_fd)
{
    struct sockaddr *sa = (struct sockaddr *)&c->api;
    c->api_len = sizeof c->api;
    if (getsockname(api_fd, sa, &c->api_len))
        c->api_len = 0;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&c->api;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&c->api;
    if (sa->sa_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY))
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
        v6->sin6_addr = in6addr_loopback;
}

int edge_setup_prepare(struct edge_setup *s, const struct options *o, int api_fd, char err[256])
{
    char dir[512];
    s->config.suffix = o->edge_suffix;
    s->config.late_routes = !o->late_ports_wait;
    find_api(&s->config, api_fd);
    s->route_url = make_route_url(o, s);
    if (!s->route_url || !split_hosts(s, o->edge_api_hosts)) {
        snprintf(err, 256, "no memory, or more than %d hosts in --edge-api-hosts", EDGE_API_HOSTS_MAX);
        return -1;
    }
    snprintf(dir, sizeof dir, "%s/ca", o->state_dir);
    if (s->config.tls_fd >= 0 && ca_open(dir, &s->ca, err))
        return -1;
    s->config.ca = s->ca;
    return 0;
}

bool edge_setup_start(struct edge_setup *s, struct emulator *emu)
{
    if (s->config.plain_fd < 0 && s->config.tls_fd < 0)
        return true;
    emu->edge = edge_start(emu, &s->config);
    s->config.plain_fd = s->config.tls_fd = -1; /* the edge's */
    return emu->edge != NULL;
}

void edge_setup_free(struct edge_setup *s)
{
    if (s->config.plain_fd >= 0)
        close(s->config.plain_fd);
    if (s->config.tls_fd >= 0)
        close(s->config.tls_fd);
    ca_free(s->ca);
    free(s->api_hosts);
    free(s->route_url);
}
