/* Asking for a terminal, and the WebSocket handshake of who has asked. */
#include "base/core/b64.h"
#include "emulator/api.h"
#include "emulator/lifecycle.h"
#include "emulator/terminal.h"
#include "emulator/validate.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int api_session_interactive(struct request *rq, struct reply *rp)
{
    static const char *const members[] = {NULL};
    char origin[320], token[TERMINAL_TOKEN];
    const json_t *body = request_json(rq);
    if (!body || validate_only(body, members, &rq->err) || !request_origin(rq, origin))
        return -1;
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    int rc = session_check(s, &rq->err);
    if (!rc && !terminals_token(rq->emu->terminals, s->id, token))
        rc = api_fail(&rq->err, 500, "internal_server_error", "the system has no random numbers");
    if (!rc) /* http://host is ws://host, https://host is wss://host */
        sg_buf_addf(&rp->body, "{\"url\":\"ws%s/ws/interactive\",\"token\":\"%s\"}", origin + strlen("http"),
                    token);
    session_unref(s);
    return rc;
}

/* ---- the handshake ---- */

/* Whether the comma list has the word. */
static bool list_has(const char *list, const char *word)
{
    size_t len = strlen(word);
    while (list && *list) {
        list += strspn(list, ", \t");
        size_t n = strcspn(list, ", \t");
        if (n == len && !strncasecmp(list, word, n))
            return true;
        list += n;
    }
    return false;
}

static const char *header(struct request *rq, const char *name)
{
    return MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, name);
}

static bool make_accept(const char *key, char out[32])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    enum { KEY_LEN = 24, SHA1_LEN = 20 };
    char text[KEY_LEN + sizeof guid];
    unsigned char nonce[KEY_LEN], sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!key || strlen(key) != KEY_LEN || sg_b64_decode(nonce, key, KEY_LEN) != 16)
        return false;
    snprintf(text, sizeof text, "%s%s", key, guid);
    if (EVP_Digest(text, strlen(text), sum, &n, EVP_sha1(), NULL) != 1 || n != SHA1_LEN)
        return false;
    out[sg_b64_encode(out, sum, SHA1_LEN)] = '\0';
    return true;
}

static int check_handshake(struct request *rq)
{
    if (!list_has(header(rq, MHD_HTTP_HEADER_UPGRADE), "websocket") ||
        !list_has(header(rq, MHD_HTTP_HEADER_CONNECTION), "upgrade"))
        return api_fail(&rq->err, 426, "bad_request", "This address speaks WebSocket only.");
    const char *version = header(rq, "Sec-WebSocket-Version");
    if (!version || strcmp(version, "13") != 0)
        return api_fail(&rq->err, 426, "bad_request", "Sec-WebSocket-Version should be 13.");
    if (!make_accept(header(rq, "Sec-WebSocket-Key"), rq->upgrade.accept))
        return api_fail(&rq->err, 400, "bad_request", "Sec-WebSocket-Key should be base64 of 16 bytes.");
    return 0;
}

static void take(void *arg, int fd, int peer, const void *early, size_t n, void (*done)(void *),
                 void *done_arg)
{
    const struct terminal_socket socket = {
        .fd = fd, .peer = peer, .early = early, .n_early = n, .done = done, .done_arg = done_arg};
    terminal_start(arg, &socket);
}

static void drop(void *arg)
{
    terminal_drop(arg);
}

int api_terminal_socket(struct request *rq, struct reply *rp)
{
    char id[ID_TEXT];
    struct terminal_fault fault = {-1, -1};
    if (check_handshake(rq))
        return -1;
    if (!terminals_redeem(rq->emu->terminals, request_query(rq, "token"), id))
        return api_fail(&rq->err, 401, "unauthorized", "The token is not valid, or has been used already.");
    struct session *s = state_session(rq->emu->state, id);
    if (!s)
        return api_fail(&rq->err, 401, "unauthorized", "The session of this token does not exist any more.");
    if (rq->fault.set) {
        fault.cut_after_bytes = rq->fault.cut_after_bytes;
        fault.cut_after_ms = rq->fault.cut_after_ms;
    }
    struct terminal *t = terminal_new(rq->emu, s, &fault, &rq->err);
    session_unref(s);
    if (!t)
        return -1;
    rq->upgrade.arg = t;
    rq->upgrade.take = take;
    rq->upgrade.drop = drop;
    rp->status = 101;
    rp->type = NULL;
    return 0;
}
