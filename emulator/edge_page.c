/* Answers of the edge itself, in the manner of the real one: plain text, the code also in a header. */
#include "emulator/edge_internal.h"

#include <string.h>

static const char *reason(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 410:
        return "Gone";
    case 421:
        return "Misdirected Request";
    case 422:
        return "Unprocessable Entity";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Status";
    }
}

static void answer(struct sg_buf *out, int status, const char *code, const char *type, const char *body,
                   bool head)
{
    sg_buf_addf(out,
                "HTTP/1.1 %d %s\r\nServer: sandgate-emulator\r\nX-Vercel-Error: %s\r\n"
                "Content-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                "Connection: close\r\n\r\n",
                status, reason(status), code, type, strlen(body));
    if (!head)
        sg_buf_adds(out, body);
}

void edge_page(struct sg_buf *out, int status, const char *code, const char *text, bool head)
{
    struct sg_buf body;
    sg_buf_init(&body, 1024);
    sg_buf_addf(&body, "%s\n\n%s\n", text, code);
    answer(out, status, code, "text/plain; charset=utf-8", body.data ? body.data : "", head);
    sg_buf_free(&body);
}

void edge_page_verdict(struct sg_buf *out, enum edge_verdict v, bool head)
{
    switch (v) {
    case EDGE_STOPPED:
        edge_page(out, 410, "SANDBOX_STOPPED", "This sandbox has stopped.", head);
        return;
    case EDGE_STOPPING:
        edge_page(out, 422, "SANDBOX_STOPPING", "This sandbox is stopping.", head);
        return;
    case EDGE_SNAPSHOTTING:
        edge_page(out, 422, "SANDBOX_SNAPSHOTTING", "A snapshot of this sandbox is being made.", head);
        return;
    case EDGE_NOT_LISTENING:
        edge_page(out, 502, "SANDBOX_NOT_LISTENING", "Nothing listens on this port of the sandbox.", head);
        return;
    case EDGE_NO_MEANS:
        edge_page(out, 503, "EDGE_OVERLOADED", "The emulator has no descriptors left.", head);
        return;
    case EDGE_NOT_FOUND:
    case EDGE_ROUTED:
    default:
        edge_page(out, 404, "SANDBOX_NOT_FOUND", "There is no sandbox at this address.", head);
        return;
    }
}

void edge_page_refusal(struct sg_buf *out, int status)
{
    const char *code = "INVALID_REQUEST", *text = "This is no valid HTTP/1.1 request.";
    if (status == 431) {
        code = "REQUEST_HEADER_TOO_LARGE";
        text = "The request head has more than 16 KiB.";
    } else if (status == 408) {
        code = "REQUEST_TIMEOUT";
        text = "The request head did not come in time.";
    } else if (status == 421) {
        code = "MISDIRECTED_REQUEST";
        text = "The request is for another host than its TLS connection.";
    } else if (status == 405) {
        code = "INVALID_REQUEST_METHOD";
        text = "CONNECT is not served here.";
    } else if (status == 501) {
        code = "INVALID_TRANSFER_ENCODING";
        text = "chunked is the only transfer encoding that is served here.";
    } else if (status == 505) {
        code = "INVALID_HTTP_VERSION";
        text = "HTTP/1.0 and HTTP/1.1 are served here.";
    }
    edge_page(out, status, code, text, false);
}

void edge_page_fault(struct sg_buf *out, const struct fault_action *a, bool head)
{
    const char *body = json_string_value(json_object_get(a->own, "body"));
    if (body)
        answer(out, a->status, "INJECTED_FAULT", a->type, body, head);
    else if (a->status == 502)
        edge_page_verdict(out, EDGE_NOT_LISTENING, head);
    else
        edge_page(out, a->status, "INJECTED_FAULT", "A fault rule of the emulator answers this.", head);
}
