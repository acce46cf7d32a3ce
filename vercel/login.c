#include "vercel/login.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 * 1024, URL_MAX = 2048, FORM_MAX = 32 * 1024 };

static enum sg_code bad_answer(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN, "the login could not be renewed: %s",
                   what);
}

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to renew the login");
}

/* ---- one exchange ---- */

static size_t on_write(char *p, size_t size, size_t n, void *arg)
{
    return sg_buf_add(arg, p, size * n) ? size * n : 0;
}

static enum sg_code explain(CURLcode result, struct sg_error *e)
{
    if (result == CURLE_OUT_OF_MEMORY)
        return no_memory(e);
    if (result == CURLE_OPERATION_TIMEDOUT)
        return sg_fail(e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN,
                       "the issuer of the login did not answer in time");
    if (result == CURLE_WRITE_ERROR)
        return bad_answer(e, "too long an answer");
    return sg_fail(e, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN,
                   "the issuer of the login cannot be reached: %s", curl_easy_strerror(result));
}

/* GET, or POST of a form.  *doc: the JSON object it answered, whatever the status. */
static enum sg_code ask(const struct vercel_login *l, const char *url, const char *form, int64_t until,
                        json_t **doc, struct sg_error *e)
{
    CURL *h = curl_easy_init();
    struct sg_buf body;
    int64_t left = until - sg_mono_ms();
    *doc = NULL;
    if (!h)
        return no_memory(e);
    sg_buf_init(&body, ANSWER_MAX);
    bool ok = sg_buf_reserve(&body, ANSWER_MAX / 2) != NULL; /* at once: growing would leave copies behind */
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, l->proxy ? l->proxy : "");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TIMEOUT_MS, left > 1 ? (long)left : 1L);
    SET(CURLOPT_WRITEFUNCTION, on_write);
    SET(CURLOPT_WRITEDATA, &body);
    if (l->ca_bundle)
        SET(CURLOPT_CAINFO, l->ca_bundle);
    if (form)
        SET(CURLOPT_POSTFIELDS, form);
#undef SET
    CURLcode result = ok ? curl_easy_perform(h) : CURLE_OUT_OF_MEMORY;
    curl_easy_cleanup(h);
    enum sg_code code = result ? explain(result, e) : SG_OK;
    if (!code) {
        *doc = json_loadb(body.data, body.len, 0, NULL);
        if (!json_is_object(*doc)) {
            json_decref(*doc);
            *doc = NULL;
            code = bad_answer(e, "the issuer answered something that is not its protocol");
        }
    }
    sg_buf_wipe(&body);
    return code;
}

/* ---- where ---- */

static bool has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* A refresh token goes to nobody else than over TLS, or to where the configuration points. */
static bool place_fits(const struct vercel_login *l, const char *endpoint)
{
    size_t n = strlen(l->issuer);
    return has_prefix(endpoint, "https://") || (has_prefix(endpoint, l->issuer) && endpoint[n] == '/');
}

static enum sg_code discover(const struct vercel_login *l, int64_t until, char endpoint[URL_MAX],
                             struct sg_error *e)
{
    char url[URL_MAX];
    json_t *doc = NULL;
    int n = snprintf(url, sizeof url, "%s/.well-known/openid-configuration", l->issuer);
    if (n < 0 || (size_t)n >= sizeof url)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "the issuer's URL is too long");
    enum sg_code code = ask(l, url, NULL, until, &doc, e);
    if (code) {
        e->outcome = SG_NOT_SENT;
        return code;
    }
    const char *at = sg_jget_str(doc, "token_endpoint", NULL);
    n = at ? snprintf(endpoint, URL_MAX, "%s", at) : -1;
    if (n < 0 || n >= URL_MAX || !place_fits(l, endpoint)) {
        code = bad_answer(e, "the issuer names no usable token endpoint");
        e->outcome = SG_NOT_SENT;
    }
    json_decref(doc);
    return code;
}

/* ---- the grant ---- */

static void wipe_json(json_t *doc)
{
    static const char *const secret[] = {"access_token", "refresh_token", "id_token", NULL};
    for (size_t i = 0; secret[i]; i++) {
        const json_t *v = json_object_get(doc, secret[i]);
        if (json_is_string(v))
            explicit_bzero((char *)(uintptr_t)json_string_value(v), json_string_length(v));
    }
    json_decref(doc);
}

static struct sg_secret *secret_of(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    return json_is_string(v) && json_string_length(v)
               ? sg_secret_new(json_string_value(v), json_string_length(v))
               : NULL;
}

static enum sg_code take(const json_t *doc, struct vercel_tokens *out, struct sg_error *e)
{
    if (json_object_get(doc, "error"))
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_STARTED,
                       "the login was not renewed: log in with Vercel's CLI again");
    if (!json_is_string(json_object_get(doc, "access_token")))
        return bad_answer(e, "there is no access token in the answer");
    double seconds = json_number_value(json_object_get(doc, "expires_in"));
    out->expires_ms = seconds >= 1 && seconds < 315360000.0 ? sg_wall_ms() + (int64_t)seconds * 1000 : 0;
    out->access = secret_of(doc, "access_token");
    out->refresh = secret_of(doc, "refresh_token");
    return out->access ? SG_OK : no_memory(e);
}

enum sg_code vercel_login_renew(const struct vercel_login *l, struct vercel_tokens *out, struct sg_error *e)
{
    char endpoint[URL_MAX];
    int64_t until = sg_mono_ms() + VERCEL_LOGIN_MS;
    *out = (struct vercel_tokens){0};
    enum sg_code code = discover(l, until, endpoint, e);
    if (code)
        return code;
    struct sg_buf form;
    json_t *doc = NULL;
    sg_buf_init(&form, FORM_MAX);
    bool ok = sg_buf_reserve(&form, FORM_MAX / 2) &&
              sg_buf_adds(&form, "grant_type=refresh_token&client_id=") &&
              sg_buf_add_urlenc(&form, l->client_id) && sg_buf_adds(&form, "&refresh_token=") &&
              sg_buf_add_urlenc(&form, sg_secret_bytes(l->refresh_token));
    code = ok ? ask(l, endpoint, form.data, until, &doc, e) : no_memory(e);
    sg_buf_wipe(&form);
    if (!code)
        code = take(doc, out, e);
    wipe_json(doc);
    return code;
}
