/* A server with its own routes on a thread of its own, and raw-socket clients. */
#ifndef SG_TESTS_SERVER_HARNESS_H
#define SG_TESTS_SERVER_HARNESS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/loop.h"
#include "server/http.h"

#include <jansson.h>

struct harness;
/* cfg may be NULL; listen and routes are filled in when empty. */
struct harness *harness_start(const struct http_server_config *cfg, const struct route *list, size_t count);
/* Asserts that nothing is left behind. */
void harness_stop(struct harness *h);
/* fn(arg) at the end, when the server is gone and its loop is not. */
void harness_at_end(struct harness *h, void (*fn)(void *arg), void *arg);
struct gateway *harness_gateway(struct harness *h);
int harness_port(struct harness *h);
/* Runs fn(arg) on the loop and waits for it. */
void harness_on_loop(struct harness *h, void (*fn)(void *arg), void *arg);
struct http_server *harness_server(struct harness *h);
/* Waits (bounded) until cond(arg) is true on the loop; fails the test otherwise. */
void harness_wait(struct harness *h, bool (*cond)(void *arg), void *arg);

/* Clients; every read is bounded by a timeout that fails the test. */
int client_connect(struct harness *h);
void client_send(int fd, const void *data, size_t len);
void client_puts(int fd, const char *text);
/* Reads exactly one answer (head and Content-Length or chunked body). */
struct reply {
    int status;
    char head[8192];
    struct sg_buf body;
    bool closed; /* the server ended the connection inside or after it */
    bool cut;    /* … before the body was complete */
};
/* head_only: the answer to HEAD. */
void client_reply(int fd, struct reply *r, bool head_only);
void reply_free(struct reply *r);
/* Header value of a reply into a static buffer; NULL when absent. */
const char *reply_header(const struct reply *r, const char *name);
/* The body as JSON object; the caller decrefs. */
json_t *reply_json(const struct reply *r);
/* One request, one reply, on a fresh connection. */
void exchange_once(struct harness *h, const char *request, struct reply *r);
/* Asserts a problem document of this status and code. */
void assert_problem(const struct reply *r, int status, const char *code);
/* True when the server closes the connection within a few seconds (reading what is left). */
bool client_sees_end(int fd);

#define TOKEN "good-token"
#define AUTH  "Authorization: Bearer " TOKEN "\r\n"
#define HOST  "Host: test\r\n"

#endif
