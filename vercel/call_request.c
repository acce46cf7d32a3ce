#include "vercel/call.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the copy ---- */

static char *header_line(const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 1;
    char *s = malloc(n);
    if (s)
        (void)snprintf(s, n, "%s%s", name, value);
    return s;
}

static bool copy_headers(struct vercel_call *call, const struct vercel_request *r)
{
    call->auth = vercel_auth_ref(call->client->auth);
    call->content_type =
        header_line("Content-Type: ", r->content_type ? r->content_type : "application/json");
    if (!call->content_type)
        return false;
    call->headers[0] = (struct curl_slist){call->content_type, call->auth->list};
    call->header_list = &call->headers[0];
    if (r->extra_header) {
        call->extra_header = strdup(r->extra_header);
        if (!call->extra_header)
            return false;
        call->headers[1] = (struct curl_slist){call->extra_header, call->header_list};
        call->header_list = &call->headers[1];
    }
    return true;
}

static bool copy_body(struct vercel_call *call, const struct vercel_request *r)
{
    if (!r->body)
        return true;
    call->body = malloc(r->body_len + 1);
    if (!call->body)
        return false;
    memcpy(call->body, r->body, r->body_len);
    call->body[r->body_len] = '\0';
    call->body_len = r->body_len;
    return true;
}

static bool build_url(struct vercel_call *call, const struct vercel_request *r)
{
    const struct vercel_client *c = call->client;
    sg_buf_init(&call->url, VERCEL_URL_MAX);
    bool ok = sg_buf_adds(&call->url, c->base_url) && sg_buf_adds(&call->url, r->path);
    if (ok && c->team_query)
        ok = sg_buf_adds(&call->url, "?") && sg_buf_adds(&call->url, c->team_query);
    if (ok && r->query && *r->query)
        ok = sg_buf_adds(&call->url, c->team_query ? "&" : "?") && sg_buf_adds(&call->url, r->query);
    return ok;
}

bool call_request_copy(struct vercel_call *call, const struct vercel_request *r)
{
    return build_url(call, r) && copy_headers(call, r) && copy_body(call, r);
}

void call_request_free(struct vercel_call *call)
{
    sg_buf_free(&call->url);
    free(call->content_type);
    free(call->extra_header);
    if (call->body) {
        explicit_bzero(call->body, call->body_len); /* environments travel in it */
        free(call->body);
    }
}

/* ---- for libcurl ---- */

static bool set_body(struct vercel_call *call, CURL *h)
{
    bool get = !strcmp(call->method, "GET");
    bool post = !strcmp(call->method, "POST");
    bool has_body = call->body || call->read || post;
    bool ok = true;
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_CUSTOMREQUEST, get || post ? NULL : call->method);
    if (has_body) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, call->read ? NULL : call->body ? call->body : "");
        SET(CURLOPT_POSTFIELDSIZE_LARGE,
            call->read ? (curl_off_t)call->read_size : (curl_off_t)call->body_len);
    } else {
        SET(CURLOPT_POSTFIELDS, NULL);
        SET(CURLOPT_HTTPGET, 1L);
    }
#undef SET
    return ok;
}

bool call_request_set(struct vercel_call *call, CURL *h)
{
    long left = 0;
    if (call->deadline) {
        int64_t ms = call->deadline - sg_mono_ms();
        left = ms > 1 ? (long)ms : 1;
    }
    if (call->auth != call->client->auth) { /* it was renewed meanwhile */
        vercel_auth_unref(call->auth);
        call->auth = vercel_auth_ref(call->client->auth);
        call->headers[0].next = call->auth->list;
    }
    bool ok = set_body(call, h);
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_URL, call->url.data);
    SET(CURLOPT_HTTPHEADER, call->header_list);
    SET(CURLOPT_TIMEOUT_MS, left);
    SET(CURLOPT_FRESH_CONNECT, call->attempts > 0 ? 1L : 0L); /* the kept ones may all be dead */
#undef SET
    return ok;
}
