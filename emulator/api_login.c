#include "base/crypto.h"
#include "emulator/account.h"
#include "emulator/api.h"
#include "emulator/jsontext.h"

#include <string.h>

/* Logging in by the OAuth device flow (RFC 8628): the client asks for a code, a person approves it on the page
 * of this server with the emulator's token, and the polling client is given tokens of its own. */

/* ---- form bodies ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes n bytes of form text; false when that is malformed, holds a NUL, or does not fit. */
static bool form_decode(char *out, size_t cap, const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i] == '+' ? ' ' : p[i];
        if (c == '%') {
            int hi = n - i > 2 ? hex_digit(p[i + 1]) : -1;
            int lo = hi >= 0 ? hex_digit(p[i + 2]) : -1;
            if (lo < 0)
                return false;
            c = (char)(hi * 16 + lo);
            i += 2;
        }
        if (!c || k + 1 >= cap)
            return false;
        out[k++] = c;
    }
    out[k] = '\0';
    return true;
}

/* The value of a form field; "" when it is not there or makes no sense. */
static void form_get(const struct request *rq, const char *key, char *out, size_t cap)
{
    const char *p = rq->body.data, *end = p + rq->body.len;
    size_t want = strlen(key);
    *out = '\0';
    if (rq->body.failed)
        return;
    while (p && p < end) {
        const char *amp = memchr(p, '&', (size_t)(end - p));
        const char *stop = amp ? amp : end;
        size_t n = (size_t)(stop - p);
        if (n > want && p[want] == '=' && !memcmp(p, key, want)) {
            if (!form_decode(out, cap, p + want + 1, n - want - 1))
                *out = '\0';
            return;
        }
        p = amp ? amp + 1 : end;
    }
}

/* ---- the endpoints ---- */

static void add_url(struct sg_buf *out, const char *key, const char *origin, const char *path)
{
    sg_buf_addf(out, ",\"%s\":", key);
    char url[400];
    snprintf(url, sizeof url, "%s%s", origin, path);
    jsontext_adds(out, url);
}

int api_oauth_discovery(struct request *rq, struct reply *rp)
{
    char origin[320];
    if (!request_origin(rq, origin))
        return -1;
    sg_buf_adds(&rp->body, "{\"issuer\":");
    jsontext_adds(&rp->body, origin);
    add_url(&rp->body, "device_authorization_endpoint", origin, "/api/login/oauth/device-authorization");
    add_url(&rp->body, "token_endpoint", origin, "/api/login/oauth/token");
    add_url(&rp->body, "revocation_endpoint", origin, "/api/login/oauth/token/revoke");
    add_url(&rp->body, "introspection_endpoint", origin, "/api/login/oauth/token/introspect");
    add_url(&rp->body, "jwks_uri", origin, "/api/login/oauth/jwks");
    sg_buf_adds(
        &rp->body,
        ",\"grant_types_supported\":[\"urn:ietf:params:oauth:grant-type:device_code\",\"refresh_token\"],"
        "\"scopes_supported\":[\"openid\",\"offline_access\"],"
        "\"token_endpoint_auth_methods_supported\":[\"none\"]}");
    return 0;
}

/* OAuth's own form of an error. */
static int oauth_error(struct reply *rp, const char *code)
{
    rp->status = 400;
    sg_buf_addf(&rp->body, "{\"error\":\"%s\"}", code);
    return 0;
}

int api_oauth_device(struct request *rq, struct reply *rp)
{
    char origin[320], code[ACCOUNT_CODE_TEXT], user[16], client[128], complete[64];
    form_get(rq, "client_id", client, sizeof client);
    if (!*client)
        return oauth_error(rp, "invalid_client");
    if (!request_origin(rq, origin))
        return -1;
    if (!account_device_begin(rq->emu->account, code, user))
        return oauth_error(rp, "server_error");
    snprintf(complete, sizeof complete, "/login/device?user_code=%s", user);
    sg_buf_addf(&rp->body, "{\"device_code\":\"%s\",\"user_code\":\"%s\",\"expires_in\":%d,\"interval\":%d",
                code, user, (int)ACCOUNT_DEVICE_S, (int)ACCOUNT_POLL_S);
    add_url(&rp->body, "verification_uri", origin, "/login/device");
    add_url(&rp->body, "verification_uri_complete", origin, complete);
    sg_buf_adds(&rp->body, "}");
    return 0;
}

static const char *error_code(enum account_answer a)
{
    switch (a) {
    case ACCOUNT_PENDING:
        return "authorization_pending";
    case ACCOUNT_SLOW_DOWN:
        return "slow_down";
    case ACCOUNT_DENIED:
        return "access_denied";
    case ACCOUNT_EXPIRED:
        return "expired_token";
    case ACCOUNT_UNKNOWN:
        return "invalid_grant";
    case ACCOUNT_DONE:
    case ACCOUNT_FAILED:
        break;
    }
    return "server_error";
}

int api_oauth_token(struct request *rq, struct reply *rp)
{
    char grant[64], secret[128];
    struct account_tokens t;
    enum account_answer answer;
    form_get(rq, "grant_type", grant, sizeof grant);
    if (!strcmp(grant, "urn:ietf:params:oauth:grant-type:device_code")) {
        form_get(rq, "device_code", secret, sizeof secret);
        answer = account_device_poll(rq->emu->account, secret, &t);
    } else if (!strcmp(grant, "refresh_token")) {
        form_get(rq, "refresh_token", secret, sizeof secret);
        answer = account_refresh(rq->emu->account, secret, &t);
    } else {
        return oauth_error(rp, *grant ? "unsupported_grant_type" : "invalid_request");
    }
    if (answer != ACCOUNT_DONE)
        return oauth_error(rp, error_code(answer));
    sg_buf_addf(
        &rp->body,
        "{\"access_token\":\"%s\",\"token_type\":\"Bearer\",\"expires_in\":%d,\"refresh_token\":\"%s\","
        "\"scope\":\"openid offline_access\"}",
        t.access, (int)ACCOUNT_TOKEN_S, t.refresh);
    return 0;
}

int api_oauth_revoke(struct request *rq, struct reply *rp)
{
    char token[128];
    form_get(rq, "token", token, sizeof token);
    account_revoke(rq->emu->account, token);
    sg_buf_adds(&rp->body, "{}");
    return 0;
}

int api_oauth_introspect(struct request *rq, struct reply *rp)
{
    char token[128], project[ACCOUNT_NAME_TEXT];
    form_get(rq, "token", token, sizeof token);
    bool ok = account_token_ok(rq->emu->account, token, project);
    sg_buf_adds(&rp->body, ok ? "{\"active\":true,\"client_id\":\"local\",\"session_id\":\"local\"}"
                              : "{\"active\":false}");
    return 0;
}

/* OIDC tokens are signed with a key that never leaves here, so there is none to publish. */
int api_oauth_jwks(struct request *rq, struct reply *rp)
{
    (void)rq;
    sg_buf_adds(&rp->body, "{\"keys\":[]}");
    return 0;
}

/* ---- the page ---- */

static bool user_code_ok(const char *s)
{
    return strlen(s) == 9 && strspn(s, "BCDFGHJKLMNPQRSTVWXZ-") == 9;
}

static int page(struct reply *rp, int status, const char *text, const char *code)
{
    rp->status = status;
    rp->type = "text/html; charset=utf-8";
    sg_buf_addf(
        &rp->body,
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Emulator login</title></head>"
        "<body><h1>Log in to the emulator</h1><p>%s</p>",
        text);
    if (code)
        sg_buf_addf(&rp->body,
                    "<form method=\"post\" action=\"/login/device\">"
                    "<p><label>Code <input name=\"user_code\" value=\"%s\"></label></p>"
                    "<p><label>Token of the emulator <input name=\"token\" type=\"password\"></label></p>"
                    "<p><button name=\"action\" value=\"approve\">Approve</button> "
                    "<button name=\"action\" value=\"deny\">Deny</button></p></form>",
                    code);
    sg_buf_adds(&rp->body, "</body></html>\n");
    return 0;
}

int api_device_page(struct request *rq, struct reply *rp)
{
    const char *code = request_query(rq, "user_code");
    return page(rp, 200, "Compare the code with the one that the command line shows.",
                user_code_ok(code) ? code : "");
}

int api_device_decide(struct request *rq, struct reply *rp)
{
    char code[16], token[513], action[16];
    unsigned char a[32], b[32];
    form_get(rq, "user_code", code, sizeof code);
    form_get(rq, "token", token, sizeof token);
    form_get(rq, "action", action, sizeof action);
    sg_sha256(token, strlen(token), a);
    sg_sha256(rq->emu->token, strlen(rq->emu->token), b);
    if (!sg_equal_ct(a, b, sizeof a))
        return page(rp, 403, "That is not the token of this emulator.", user_code_ok(code) ? code : "");
    bool deny = !strcmp(action, "deny");
    if (!user_code_ok(code) || !account_device_decide(rq->emu->account, code, !deny))
        return page(rp, 404, "No login with this code is waiting.", "");
    return page(rp, 200, deny ? "Denied." : "Done: you can close this page.", NULL);
}
