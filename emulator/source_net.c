#include "emulator/source.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses ---- */

static bool v4_public(uint32_t a)
{
    static const struct {
        uint32_t net;
        unsigned bits;
    } closed[] = {
        {0x00000000, 8},  /* this network */
        {0x0A000000, 8},  /* private */
        {0x64400000, 10}, /* shared by carriers */
        {0x7F000000, 8},  /* loopback */
        {0xA9FE0000, 16}, /* link-local, where clouds keep their metadata */
        {0xAC100000, 12}, /* private */
        {0xC0000000, 24}, /* protocol assignments */
        {0xC0A80000, 16}, /* private */
        {0xC6120000, 15}, /* benchmarks */
        {0xE0000000, 4},  /* multicast */
        {0xF0000000, 4},  /* reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        if (!((a ^ closed[i].net) >> (32 - closed[i].bits)))
            return false;
    return true;
}

static uint32_t embedded(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool v6_public(const unsigned char a[16])
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    static const unsigned char nat64[12] = {0, 0x64, 0xFF, 0x9B};
    if (!memcmp(a, mapped, 12) || !memcmp(a, nat64, 12))
        return v4_public(embedded(a + 12));
    if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
        return v4_public(embedded(a + 2));
    return (a[0] & 0xE0) == 0x20; /* global unicast; all else is local, mapped or multicast */
}

bool source_address_public(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        return v4_public(ntohl(in.sin_addr.s_addr));
    }
    if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, sa, sizeof in);
        return v6_public(in.sin6_addr.s6_addr);
    }
    return false;
}

/* ---- URLs ---- */

bool source_url_host(const char *url, char host[256], char port[8])
{
    bool tls = !strncmp(url, "https://", 8);
    if (!tls && strncmp(url, "http://", 7) != 0)
        return false;
    const char *p = url + (tls ? 8 : 7);
    size_t n = *p == '[' ? strcspn(p, "]") + 1 : strcspn(p, ":/?#");
    if (n < (*p == '[' ? 3 : 1) || n >= 256)
        return false;
    bool v6 = *p == '[';
    size_t brackets = v6 ? 2 : 0;
    memcpy(host, p + brackets / 2, n - brackets);
    host[n - brackets] = '\0';
    p += n;
    snprintf(port, 8, "%s", tls ? "443" : "80");
    if (*p == ':') {
        size_t k = strspn(p + 1, "0123456789");
        if (!k || k > 5)
            return false;
        memcpy(port, p + 1, k);
        port[k] = '\0';
        p += k + 1;
    }
    return !*p || strchr("/?#", *p);
}

void source_repository_name(const char *url, char out[80])
{
    const char *p = strstr(url, "://");
    p = p ? p + 3 : url;
    p += strcspn(p, "/?#"); /* the host is no name of a repository */
    size_t n = strcspn(p, "?#");
    while (n && p[n - 1] == '/')
        n--;
    if (n > 4 && !memcmp(p + n - 4, ".git", 4))
        n -= 4;
    size_t from = n;
    while (from && p[from - 1] != '/')
        from--;
    size_t k = 0;
    for (size_t i = from; i < n && k < 79; i++)
        out[k++] =
            strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", p[i]) ? p[i] : '_';
    out[k] = '\0';
    if (!*out || !strcmp(out, ".") || !strcmp(out, "..") || !strcmp(out, ".git"))
        snprintf(out, 80, "repository");
}

/* ---- download ---- */

struct download {
    struct emulator *emu;
    int fd;
    uint64_t bytes;
    const char *why; /* of our own refusal */
    char text[160];
};

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
    struct download *d = arg;
    n *= size;
    if (n > SOURCE_BYTES_MAX - d->bytes) {
        d->why = "it is larger than this emulator takes";
        return 0;
    }
    for (size_t done = 0; done < n;) {
        ssize_t k = write(d->fd, p + done, n - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            snprintf(d->text, sizeof d->text, "it cannot be stored: %s", strerror(errno));
            d->why = d->text;
            return 0;
        }
        done += (size_t)k;
    }
    d->bytes += n;
    return n;
}

/* The address that is really dialled, also after a redirect or another answer of the name server. */
static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct download *d = arg;
    (void)purpose;
    if (!d->emu->allow_private_sources && !source_address_public(&a->addr)) {
        d->why = "its address is private; --allow-private-sources permits that";
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return atomic_load(&((struct download *)arg)->emu->closing);
}

static CURLcode set_up(CURL *h, struct download *d, const char *url, char text[CURL_ERROR_SIZE])
{
    const char *protocols = d->emu->allow_file_sources ? "http,https,file" : "http,https";
    CURLcode rc = curl_easy_setopt(h, CURLOPT_URL, url);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, protocols);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    if (!rc) /* a proxy would dial for us, wherever it likes */
        rc = curl_easy_setopt(h, CURLOPT_PROXY, "");
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, d);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_WRITEDATA, d);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
    if (!rc)
        rc = curl_easy_setopt(h, CURLOPT_XFERINFODATA, d);
    curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, 15000L);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)SOURCE_TIMEOUT_MS);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 10L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "sandgate-emulator");
    return rc;
}

int source_download(struct emulator *emu, const char *url, int fd, struct api_error *e)
{
    char text[CURL_ERROR_SIZE] = "";
    struct download d = {.emu = emu, .fd = fd};
    CURL *h = curl_easy_init();
    if (!h)
        return api_fail(e, 500, "internal_server_error", "no memory");
    CURLcode rc = set_up(h, &d, url, text);
    if (!rc)
        rc = curl_easy_perform(h);
    curl_easy_cleanup(h);
    if (!rc)
        return 0;
    return api_fail(e, 400, "bad_request", "The tarball could not be fetched: %s",
                    d.why   ? d.why
                    : *text ? text
                            : curl_easy_strerror(rc));
}
