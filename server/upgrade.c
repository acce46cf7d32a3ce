/* The WebSocket handshake and the handover of the socket. */
#include "server/internal.h"

#include "base/core/b64.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

enum { KEY_LEN = 24, ACCEPT_LEN = 28, RETRY_MS = 1000 };

static const char bearer_prefix[] = "sandgate.bearer.";

/* Calls fn for each element of the comma lists in all headers of this name, until it returns true. */
static bool each_element(const struct request *r, const char *name,
                         bool (*fn)(void *arg, const char *s, size_t len), void *arg)
{
    for (size_t i = 0; i < r->nheaders; i++) {
        if (strcasecmp(r->headers[i].name, name) != 0)
            continue;
        const char *p = r->headers[i].value;
        while (*p) {
            p += strspn(p, ", \t");
            size_t n = strcspn(p, ","), len = n;
            while (len > 0 && (p[len - 1] == ' ' || p[len - 1] == '\t'))
                len--;
            if (len && fn(arg, p, len))
                return true;
            p += n;
        }
    }
    return false;
}

static bool same_nocase(void *arg, const char *s, size_t len)
{
    const char *want = arg;
    return strlen(want) == len && strncasecmp(s, want, len) == 0;
}

static bool same(void *arg, const char *s, size_t len)
{
    const char *want = *(const char **)arg;
    return strlen(want) == len && memcmp(s, want, len) == 0;
}

bool ex_ws_offers(struct exchange *ex, const char *protocol)
{
    return each_element((struct request *)ex, "Sec-WebSocket-Protocol", same, &protocol);
}

struct bearer {
    char *out;
    size_t cap;
};

static bool take_bearer(void *arg, const char *s, size_t len)
{
    struct bearer *b = arg;
    size_t skip = strlen(bearer_prefix);
    if (len <= skip || strncmp(s, bearer_prefix, skip) != 0)
        return false;
    s += skip;
    len -= skip;
    char text[REQUEST_TOKEN_MAX * 2];
    if (len + 3 > sizeof text)
        return false;
    size_t n = 0;
    for (; n < len; n++)
        text[n] = s[n] == '-' ? '+' : s[n] == '_' ? '/' : s[n];
    while (n % 4)
        text[n++] = '=';
    ssize_t got = n / 4 * 3 < b->cap ? sg_b64_decode(b->out, text, n) : -1;
    explicit_bzero(text, sizeof text);
    if (got < 0)
        return false;
    b->out[got] = '\0'; /* a NUL inside only makes it a wrong token */
    return true;
}

bool upgrade_bearer(struct request *r, char *out, size_t cap)
{
    struct bearer b = {out, cap};
    return each_element(r, "Sec-WebSocket-Protocol", take_bearer, &b);
}

static bool key_valid(const char *key)
{
    unsigned char raw[KEY_LEN / 4 * 3];
    return key && strlen(key) == KEY_LEN && sg_b64_decode(raw, key, KEY_LEN) == 16;
}

bool upgrade_check(struct request *r)
{
    static char websocket[] = "websocket", upgrade[] = "upgrade";
    struct sg_error e;
    enum sg_code rc = SG_OK;
    const char *version = ex_header(&r->ex, "Sec-WebSocket-Version");
    if (r->http10 || !each_element(r, "Upgrade", same_nocase, websocket) ||
        !each_element(r, "Connection", same_nocase, upgrade))
        rc = sg_fail(&e, SG_E_UPGRADE_REQUIRED, SG_NOT_SENT, "this path takes WebSocket handshakes only");
    else if (!version || strcmp(version, "13") != 0)
        rc = sg_fail(&e, SG_E_UPGRADE_REQUIRED, SG_NOT_SENT, "only WebSocket version 13 is spoken here");
    else if (!key_valid(ex_header(&r->ex, "Sec-WebSocket-Key")))
        rc = sg_fail(&e, SG_E_BAD_REQUEST, SG_NOT_SENT, "Sec-WebSocket-Key is not 16 bytes of base64");
    else if (r->verdict.chunked || r->verdict.content_length > 0)
        rc = sg_fail(&e, SG_E_BAD_REQUEST, SG_NOT_SENT, "a WebSocket handshake has no body");
    else if (r->srv->draining)
        rc = sg_fail(&e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
    else if (r->srv->ws.count >= r->srv->ws.max)
        rc = sg_fail(&e, SG_E_OVERLOADED, SG_NOT_SENT, "all %zu WebSocket places are taken", r->srv->ws.max);
    if (!rc)
        return true;
    if (rc == SG_E_UPGRADE_REQUIRED) {
        (void)response_header_set(r, "Upgrade", "websocket");
        (void)response_header_set(r, "Sec-WebSocket-Version", "13");
    }
    if (rc == SG_E_OVERLOADED || rc == SG_E_DRAINING)
        e.retry_after_ms = RETRY_MS;
    ex_fail(&r->ex, &e);
    return false;
}

/* RFC 6455 section 4.2.2: what proves that we understood. */
static bool accept_value(const char *key, char out[ACCEPT_LEN + 1])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[KEY_LEN + sizeof guid];
    memcpy(text, key, KEY_LEN);
    memcpy(text + KEY_LEN, guid, sizeof guid);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!EVP_Digest(text, sizeof text - 1, digest, &len, EVP_sha1(), NULL) || len != 20)
        return false;
    out[sg_b64_encode(out, digest, len)] = '\0';
    return true;
}

void ex_upgrade(struct exchange *ex, const char *protocol, const struct ws_events *ev, void *arg)
{
    struct request *r = (struct request *)ex;
    const char *key = ex_header(ex, "Sec-WebSocket-Key");
    char accept[ACCEPT_LEN + 1];
    if (r->ws)
        ws_set_events(r->ws, ev, arg);
    bool ok = r->ws && r->answer.kind == ANSWER_NONE && key_valid(key) && accept_value(key, accept) &&
              response_header_set(r, "Upgrade", "websocket") &&
              response_header_set(r, "Sec-WebSocket-Accept", accept) &&
              (!protocol || response_header_set(r, "Sec-WebSocket-Protocol", protocol));
    if (!ok) {
        bool nobody = !r->ws; /* otherwise the end of the request tells on_closed */
        struct sg_error e;
        sg_fail(&e, SG_E_INTERNAL, SG_NOT_SENT, "the WebSocket could not be set up");
        ex_fail(ex, &e);
        if (nobody)
            ev->on_closed(arg);
        return;
    }
    r->answer = (struct answer){ANSWER_UPGRADE, 101, NULL, NULL, 0, SG_OK};
    request_answered(r);
}

/* The library has sent the 101 and hands over the socket: keep a duplicate, give its handle (and with it the
 * connection's memory) back at once. */
static void on_upgraded(void *cls, struct MHD_Connection *mhd, void *req_cls, const char *extra,
                        size_t extra_len, MHD_socket sock, struct MHD_UpgradeResponseHandle *urh)
{
    (void)mhd;
    (void)req_cls;
    struct request *r = cls;
    struct http_server *srv = r->srv;
    struct ws *ws = r->ws;
    r->ws = NULL;
    int fd = fcntl(sock, F_DUPFD_CLOEXEC, 3);
    if (r->conn->watched) {
        /* The registration belongs to the open file, which lives on in the duplicate. */
        epoll_ctl(srv->gone_ep, EPOLL_CTL_DEL, sock, NULL);
        r->conn->watched = false;
    }
    MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
    srv->run_mhd = true; /* to bury its connection */
    ws_start(ws, fd, extra, extra_len);
}

struct MHD_Response *upgrade_response(struct request *r)
{
    return MHD_create_response_for_upgrade(on_upgraded, r);
}
