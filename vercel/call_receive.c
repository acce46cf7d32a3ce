#include "vercel/answer.h"
#include "vercel/call.h"

#include <string.h>
#include <strings.h>

enum { DISCARD_MAX = 1 << 20 /* of an unsuccessful answer's body beyond what is kept */ };

bool call_ok_status(const struct vercel_call *call)
{
    return call->status >= 200 && call->status <= 299;
}

static bool type_fits(const char *have, const char *want)
{
    size_t n = strlen(want);
    return have && !strncasecmp(have, want, n) && (have[n] == '\0' || have[n] == ';' || have[n] == ' ');
}

/* The blank line after a head.  False ends the attempt. */
static bool head_complete(struct vercel_call *call)
{
    long status = 0;
    char *type = NULL;
    curl_off_t length = -1;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || call->status) /* 1xx; or trailers after the body */
        return true;
    call->status = (int)status;
    if (status < 500)
        call_heard(call, true);
    if (!call_ok_status(call))
        return true;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_CONTENT_TYPE, &type);
    if (call->expect_type[0] && !type_fits(type, call->expect_type)) {
        call->stop = STOP_TYPE;
        return false;
    }
    if (call->collect_done)
        return true;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    call->told_head = true;
    if (call->ev.on_head)
        call->ev.on_head(call->arg, call->status, type, length);
    return call->state != CALL_DEAD;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    static const char name[] = "x-vercel-id:";
    struct vercel_call *call = arg;
    size_t len = size * n;
    if (call->state == CALL_DEAD)
        return 0;
    if (len > sizeof name && !strncasecmp(p, name, sizeof name - 1)) {
        const char *v = p + sizeof name - 1;
        const char *end = p + len;
        while (v < end && (*v == ' ' || *v == '\t'))
            v++;
        while (end > v && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
            end--;
        vercel_keep_request_id(call->request_id, v, (size_t)(end - v));
    }
    bool blank = (len == 2 && p[0] == '\r' && p[1] == '\n') || (len == 1 && p[0] == '\n');
    return !blank || head_complete(call) ? len : 0;
}

/* The body of an unsuccessful answer: its beginning is kept for the error. */
static bool keep_refusal(struct vercel_call *call, const char *p, size_t len)
{
    if (call->discarded || call->in.len + len > VERCEL_ERROR_BODY_MAX) {
        call->discarded += len;
        return call->discarded <= DISCARD_MAX;
    }
    return sg_buf_add(&call->in, p, len);
}

static size_t on_write(char *p, size_t size, size_t n, void *arg)
{
    struct vercel_call *call = arg;
    size_t len = size * n;
    if (call->state == CALL_DEAD)
        return 0;
    if (len == 0)
        return 0;
    if (!call_ok_status(call))
        return keep_refusal(call, p, len) ? len : 0;
    if (call->collect_done) {
        if (sg_buf_add(&call->in, p, len))
            return len;
        call->stop = STOP_TOO_BIG;
        return 0;
    }
    call->told_head = true;
    if (call->ev.on_data && !call->ev.on_data(call->arg, p, len))
        return call->state == CALL_DEAD ? 0 : (size_t)CURL_WRITEFUNC_PAUSE;
    return call->state == CALL_DEAD ? 0 : len;
}

static size_t on_read(char *buf, size_t size, size_t n, void *arg)
{
    struct vercel_call *call = arg;
    size_t cap = size * n;
    if (call->state == CALL_DEAD || !call->read)
        return CURL_READFUNC_ABORT;
    size_t got = call->read(call->arg, buf, cap);
    if (call->state == CALL_DEAD)
        return CURL_READFUNC_ABORT;
    if (got == VERCEL_READ_PAUSE)
        return CURL_READFUNC_PAUSE;
    bool sized = call->read_size >= 0;
    uint64_t left = sized ? (uint64_t)call->read_size - call->read_total : UINT64_MAX;
    if (got == VERCEL_READ_ABORT || got > cap || got > left || (got == 0 && sized && left)) {
        call->stop = STOP_SOURCE;
        return CURL_READFUNC_ABORT;
    }
    call->read_total += got;
    return got;
}

/* Called each time before libcurl sends the request on a connection.  It would send it again by itself when a
 * kept-alive connection died before the first byte of the answer: not once a byte may have arrived. */
static int on_prereq(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    (void)ip;
    (void)local_ip;
    (void)port;
    (void)local_port;
    struct vercel_call *call = arg;
    curl_off_t size = 0;
    long request_size = 0;
    if (call->state == CALL_DEAD)
        return CURL_PREREQFUNC_ABORT;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_REQUEST_SIZE, &request_size);
    size = request_size;
    if (call->sends++ == 0) {
        call->sent_before = size;
        atomic_fetch_add(&call->client->attempts, 1);
        return CURL_PREREQFUNC_OK;
    }
    if (size == call->sent_before && !call->read)
        return CURL_PREREQFUNC_OK;
    call->stop = STOP_RESEND;
    return CURL_PREREQFUNC_ABORT;
}

bool call_receive_set(struct vercel_call *call, CURL *h)
{
    bool ok = true;
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, call);
    SET(CURLOPT_WRITEFUNCTION, on_write);
    SET(CURLOPT_WRITEDATA, call);
    SET(CURLOPT_READFUNCTION, on_read);
    SET(CURLOPT_READDATA, call);
    SET(CURLOPT_PREREQFUNCTION, on_prereq);
    SET(CURLOPT_PREREQDATA, call);
#undef SET
    return ok;
}
