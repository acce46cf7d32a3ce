#include "emulator/http.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "emulator/account.h"
#include "emulator/hosts.h"
#include "emulator/journal.h"
#include "emulator/snapshots.h"

#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The pool bounds what MHD writes at once, so it is what one write of a log stream can carry; it is mapped
 * memory that costs only what is touched. */
enum { POOL_SIZE = 160 << 10, BLOCK_SIZE = 128 << 10, STACK_SIZE = 1 << 20, CONNECTIONS_MAX = 4096 };
enum { LOOK_FOR_CLIENT_MS = 1000 };

struct http_server {
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *tls; /* NULL: plain only */
    int quiesced_fd, quiesced_tls_fd;
};

/* ---- the request object ---- */

static void *request_new(void *cls, const char *uri, struct MHD_Connection *conn)
{
    (void)conn;
    struct request *rq = calloc(1, sizeof *rq);
    if (!rq)
        return NULL;
    rq->emu = cls;
    rq->uri = strdup(uri);
    sg_buf_init(&rq->body, BODY_MAX);
    rq->err.bytes_written = -1;
    rq->fault.cut_after_bytes = rq->fault.cut_after_ms = -1;
    return rq;
}

static void request_free(struct request *rq)
{
    if (rq->sink_state && rq->route && rq->route->sink)
        rq->route->sink->abandon(rq);
    if (rq->upgrade.arg)
        rq->upgrade.drop(rq->upgrade.arg);
    EVP_MD_CTX_free(rq->digest);
    fault_action_free(&rq->fault);
    json_decref(rq->json);
    sg_buf_free(&rq->body);
    free(rq->shown_path);
    free(rq->path);
    free(rq->uri);
    free(rq);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **ctx,
                         enum MHD_RequestTerminationCode why)
{
    (void)cls;
    (void)conn;
    (void)why;
    if (*ctx)
        request_free(*ctx);
    *ctx = NULL;
}

const char *request_query(struct request *rq, const char *key)
{
    const char *v = MHD_lookup_connection_value(rq->conn, MHD_GET_ARGUMENT_KIND, key);
    return v ? v : "";
}

const char *request_project(struct request *rq)
{
    const char *v = request_query(rq, "projectId");
    if (!*v)
        v = request_query(rq, "project");
    return *v ? v : rq->token_project;
}

const json_t *request_json(struct request *rq)
{
    json_error_t je = {0};
    if (rq->json)
        return rq->json;
    if (rq->body.failed) {
        api_fail(&rq->err, 413, "bad_request", "The request body is too large.");
        return NULL;
    }
    if (rq->body.len == 0)
        rq->json = json_object();
    else
        rq->json = json_loadb(rq->body.data, rq->body.len, JSON_REJECT_DUPLICATES, &je);
    if (!rq->json) {
        api_fail(&rq->err, 400, "bad_request", "Invalid JSON: line %d column %d: %.100s", je.line, je.column,
                 je.text);
        return NULL;
    }
    if (!json_is_object(rq->json)) {
        api_invalid(&rq->err, "body should be object.");
        return NULL;
    }
    return rq->json;
}

bool request_is_tls(struct request *rq)
{
    return MHD_get_connection_info(rq->conn, MHD_CONNECTION_INFO_PROTOCOL) != NULL;
}

bool request_origin(struct request *rq, char out[320])
{
    static const char host_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    const char *host = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (!host || !*host || strlen(host) > 255 || strspn(host, host_chars) != strlen(host)) {
        api_invalid(&rq->err, "the Host header names no host.");
        return false;
    }
    /* the edge says so when it has taken TLS off */
    const char *edge = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, "X-Forwarded-Proto");
    bool tls = request_is_tls(rq) || (edge && !strcmp(edge, "https"));
    snprintf(out, 320, "%s://%s", tls ? "https" : "http", host);
    return true;
}

static int client_fd(struct request *rq)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(rq->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    return i ? i->connect_fd : -1;
}

bool request_client_gone(struct request *rq)
{
    struct pollfd p = {.fd = client_fd(rq), .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static void sleep_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&ts, &ts) && errno == EINTR)
        continue;
}

/* ---- streams ---- */

/* One answer on its way: from a stream or a finished body, with the faults of its request. */
struct outflow {
    struct request *rq; /* lives until the answer is over */
    struct stream stream;
    struct sg_buf body;
    size_t sent;
};

static ssize_t body_read(void *arg, char *buf, size_t max, int64_t deadline_ms)
{
    (void)deadline_ms;
    struct outflow *f = arg;
    size_t n = f->body.len - f->sent;
    if (!n)
        return STREAM_END;
    if (n > max)
        n = max;
    memcpy(buf, f->body.data + f->sent, n);
    return (ssize_t)n;
}

static size_t limit_by_faults(const struct outflow *f, size_t max)
{
    const struct fault_action *a = &f->rq->fault;
    if (a->drip_bytes && max > (size_t)a->drip_bytes)
        max = (size_t)a->drip_bytes;
    if (a->cut_after_bytes >= 0) {
        size_t left = (size_t)a->cut_after_bytes > f->sent ? (size_t)a->cut_after_bytes - f->sent : 0;
        if (max > left)
            max = left;
    }
    return max;
}

static ssize_t outflow_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    struct outflow *f = cls;
    struct request *rq = f->rq;
    max = limit_by_faults(f, max);
    if (rq->fault.drip_ms && f->sent)
        sleep_ms(rq->fault.drip_ms);
    if (max == 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    for (;;) {
        int64_t now = sg_mono_ms(), deadline = now + LOOK_FOR_CLIENT_MS;
        if (rq->fault_deadline && now >= rq->fault_deadline)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (rq->fault_deadline && deadline > rq->fault_deadline)
            deadline = rq->fault_deadline;
        ssize_t n = f->stream.read(f->stream.arg, buf, max, deadline);
        if (n > 0) {
            f->sent += (size_t)n;
            return n;
        }
        if (n == STREAM_END)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (n == STREAM_FAILED)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (atomic_load(&rq->emu->closing) || request_client_gone(rq))
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
}

static void outflow_free(void *cls)
{
    struct outflow *f = cls;
    if (f->stream.free)
        f->stream.free(f->stream.arg);
    sg_buf_free(&f->body);
    free(f);
}

/* ---- answering ---- */

static void reply_free(struct reply *rp)
{
    if (rp->stream.free)
        rp->stream.free(rp->stream.arg);
    if (rp->file_fd >= 0)
        close(rp->file_fd);
    sg_buf_free(&rp->body);
}

struct file_stream {
    int fd;
};

static ssize_t file_read(void *arg, char *buf, size_t max, int64_t deadline_ms)
{
    (void)deadline_ms;
    ssize_t n;
    do
        n = read(((struct file_stream *)arg)->fd, buf, max);
    while (n < 0 && errno == EINTR);
    return n < 0 ? STREAM_FAILED : n;
}

static void file_free(void *arg)
{
    close(((struct file_stream *)arg)->fd);
    free(arg);
}

/* A file that faults apply to goes through a stream like everything else. */
static bool file_to_stream(struct reply *rp)
{
    struct file_stream *fs = malloc(sizeof *fs);
    if (!fs)
        return false;
    fs->fd = rp->file_fd;
    rp->file_fd = -1;
    rp->stream = (struct stream){.read = file_read, .free = file_free, .arg = fs};
    return true;
}

static bool shaped(const struct fault_action *a)
{
    return a->cut_after_bytes >= 0 || a->cut_after_ms >= 0 || a->drip_bytes;
}

static struct MHD_Response *flow_response(struct request *rq, struct reply *rp, uint64_t size)
{
    struct outflow *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->rq = rq;
    f->stream = rp->stream;
    f->body = rp->body;
    if (!f->stream.read)
        f->stream = (struct stream){.read = body_read, .arg = f};
    memset(&rp->stream, 0, sizeof rp->stream);
    sg_buf_init(&rp->body, REPLY_MAX);
    if (rq->fault.set && rq->fault.cut_after_ms >= 0)
        rq->fault_deadline = sg_mono_ms() + rq->fault.cut_after_ms;
    struct MHD_Response *r =
        MHD_create_response_from_callback(size, BLOCK_SIZE, outflow_read, f, outflow_free);
    if (!r)
        outflow_free(f);
    return r;
}

static void close_upgraded(void *arg)
{
    MHD_upgrade_action(arg, MHD_UPGRADE_ACTION_CLOSE);
}

static void on_upgrade(void *cls, struct MHD_Connection *conn, void *con_cls, const char *early, size_t n,
                       MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    (void)conn;
    (void)con_cls;
    struct request *rq = cls; /* lives until this has returned */
    void *arg = rq->upgrade.arg;
    int peer = client_fd(rq); /* another one than fd behind the library's TLS */
    rq->upgrade.arg = NULL;
    rq->upgrade.take(arg, fd, peer != fd ? peer : -1, early, n, close_upgraded, handle);
}

static struct MHD_Response *upgrade_response(struct request *rq)
{
    struct MHD_Response *r = MHD_create_response_for_upgrade(on_upgrade, rq);
    if (!r)
        return NULL;
    MHD_add_response_header(r, MHD_HTTP_HEADER_UPGRADE, "websocket");
    MHD_add_response_header(r, "Sec-WebSocket-Accept", rq->upgrade.accept);
    return r;
}

static struct MHD_Response *make_response(struct request *rq, struct reply *rp)
{
    if (rp->status == 101)
        return upgrade_response(rq);
    bool faulty = rq->fault.set && shaped(&rq->fault);
    if (rp->file_fd >= 0 && !faulty) {
        struct MHD_Response *r = MHD_create_response_from_fd64(rp->file_size, rp->file_fd);
        if (r)
            rp->file_fd = -1; /* MHD closes it */
        return r;
    }
    if (rp->file_fd >= 0)
        return file_to_stream(rp) ? flow_response(rq, rp, rp->file_size) : NULL;
    if (rp->stream.read)
        return flow_response(rq, rp, MHD_SIZE_UNKNOWN);
    if (rp->body.failed)
        return NULL;
    if (faulty)
        return flow_response(rq, rp, rp->body.len);
    size_t len = 0;
    char *text = sg_buf_take(&rp->body, &len);
    struct MHD_Response *r = text ? MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!r)
        free(text);
    return r;
}

static void add_fault_headers(struct MHD_Response *r, const struct fault_action *a)
{
    const char *k;
    json_t *v;
    json_t *headers = json_object_get(a->own, "headers");
    json_object_foreach(headers, k, v)
    {
        MHD_add_response_header(r, k, json_string_value(v));
    }
}

static enum MHD_Result send_fault(struct request *rq);

static enum MHD_Result send_reply(struct request *rq, struct reply *rp)
{
    bool instead = rq->fault.set && rq->fault.do_it && !rq->answered;
    if (instead) { /* done; the journal says how it really went */
        if (rq->journal_seq)
            journal_status(rq->emu->journal, rq->journal_seq, rp->status);
        rq->journal_seq = 0;
        reply_free(rp);
        rq->answered = true;
        return send_fault(rq);
    }
    rq->answered = true;
    if (rq->journal_seq)
        journal_status(rq->emu->journal, rq->journal_seq, rq->fault.lose_answer ? 0 : rp->status);
    if (rq->fault.set && rq->fault.lose_answer) {
        reply_free(rp);
        return MHD_NO;
    }
    struct MHD_Response *r = make_response(rq, rp);
    reply_free(rp);
    if (!r)
        return MHD_NO;
    if (rp->type)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, rp->type);
    if (rq->emu->record_only) /* nobody shall take a remembered policy for an enforced one */
        MHD_add_response_header(r, "X-Sandgate-Policy", "record-only");
    if (rq->fault.set)
        add_fault_headers(r, &rq->fault);
    enum MHD_Result ok = MHD_queue_response(rq->conn, (unsigned)rp->status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result send_error(struct request *rq)
{
    struct reply rp = {.status = rq->err.status, .type = "application/json; charset=utf-8", .file_fd = -1};
    sg_buf_init(&rp.body, REPLY_MAX);
    api_error_render(&rp.body, &rq->err);
    return send_reply(rq, &rp);
}

/* An answer made up by a fault rule. */
static enum MHD_Result send_fault(struct request *rq)
{
    const struct fault_action *a = &rq->fault;
    struct reply rp = {.status = a->status ? a->status : 200, .type = a->type, .file_fd = -1};
    sg_buf_init(&rp.body, REPLY_MAX);
    const json_t *body = json_object_get(a->own, "body");
    if (json_is_string(body)) {
        sg_buf_add(&rp.body, json_string_value(body), json_string_length(body));
    } else if (body) {
        char *text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
        sg_buf_adds(&rp.body, text ? text : "");
        free(text);
    } else if (a->html) {
        sg_buf_addf(&rp.body,
                    "<!DOCTYPE html><html><head><title>%d</title></head><body><h1>%d</h1></body></html>\n",
                    rp.status, rp.status);
    } else if (a->malformed) {
        sg_buf_adds(&rp.body, "{\"sandbox\": {\"name\": \"bro");
    } else if (a->status) {
        sg_buf_addf(&rp.body, "{\"error\":{\"code\":\"fault_%d\",\"message\":\"A fault rule answered.\"}}",
                    a->status);
    }
    return send_reply(rq, &rp);
}

/* ---- taking a request in ---- */

static bool authorized(struct request *rq)
{
    const char *h = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!h || strncasecmp(h, "Bearer ", 7) != 0 || !h[7]) {
        api_fail(&rq->err, 401, "unauthorized", "The request is missing an authentication token");
        return false;
    }
    unsigned char a[32], b[32];
    sg_sha256(h + 7, strlen(h + 7), a); /* equal lengths for a comparison in constant time */
    sg_sha256(rq->emu->token, strlen(rq->emu->token), b);
    if (sg_equal_ct(a, b, sizeof a) || account_token_ok(rq->emu->account, h + 7, rq->token_project))
        return true;
    api_fail(&rq->err, 403, "forbidden", "Not authorized");
    return false;
}

static bool split_path(struct request *rq, const char *url)
{
    if (!strncmp(url, "/api/", 5))
        url += 4;
    if (!rq->uri || *url != '/' || !(rq->path = strdup(url + 1)) || !(rq->shown_path = strdup(url)))
        return false;
    if (strstr(rq->uri, "%00"))
        return false; /* decoding would have cut the text there */
    char *p = rq->path;
    for (;;) {
        if (rq->nsegments == SEGMENTS_MAX)
            return false;
        rq->segment[rq->nsegments++] = p;
        char *slash = strchr(p, '/');
        if (!slash)
            return true;
        *slash = '\0';
        p = slash + 1;
    }
}

static void enter_in_journal(struct request *rq)
{
    const char *q = rq->uri ? strchr(rq->uri, '?') : NULL;
    struct sg_buf shown;
    sg_buf_init(&shown, 16384);
    for (q = q ? q + 1 : ""; *q;) {
        size_t n = strcspn(q, "&");
        if (strncmp(q, "token=", 6) != 0) {
            if (shown.len)
                sg_buf_adds(&shown, "&");
            sg_buf_add(&shown, q, n);
        }
        q += n + (q[n] == '&');
    }
    rq->journal_seq = journal_begin(rq->emu->journal, rq->method, rq->shown_path ? rq->shown_path : "",
                                    shown.data ? shown.data : "");
    sg_buf_free(&shown);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1)
        rq->digest = ctx;
    else
        EVP_MD_CTX_free(ctx);
}

static bool instead_of_doing(const struct fault_action *a)
{
    return a->set && !a->do_it && (a->status || a->malformed);
}

/* Before all else: not even the health is a foreign page's to read. */
static bool named_rightly(struct request *rq)
{
    const char *host = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (hosts_accept(rq->emu->hosts, host))
        return true;
    api_fail(
        &rq->err, 421, "misdirected_request",
        "This server does not answer to the host '%.100s'; start the emulator with --host NAME if it should.",
        host ? host : "");
    return false;
}

static enum MHD_Result begin(struct request *rq, const char *url)
{
    rq->begun = true;
    if (!named_rightly(rq))
        return MHD_YES;
    bool ok = split_path(rq, url);
    rq->admin = rq->nsegments && !strcmp(rq->segment[0], "_emulator");
    if (rq->emu->journal && !rq->admin)
        enter_in_journal(rq);
    if (!ok) {
        api_fail(&rq->err, 400, "bad_request", "Invalid request: the path makes no sense.");
        return MHD_YES;
    }
    if (rq->emu->faults && !rq->admin)
        faults_match(rq->emu->faults, rq->method, rq->shown_path, &rq->fault);
    if (rq->fault.set && rq->fault.close_before) {
        if (rq->journal_seq)
            journal_status(rq->emu->journal, rq->journal_seq, 0);
        return MHD_NO;
    }
    if (instead_of_doing(&rq->fault))
        return MHD_YES;
    rq->route = router_find(rq);
    if (!(rq->route && rq->route->open) && !authorized(rq)) {
        rq->route = NULL;
        return MHD_YES;
    }
    if (rq->route && rq->route->sink && rq->route->sink->begin(rq))
        rq->route = NULL; /* the rest of the upload is read and dropped */
    return MHD_YES;
}

static void take_body(struct request *rq, const char *data, size_t n)
{
    rq->body_bytes += n;
    if (rq->digest)
        EVP_DigestUpdate(rq->digest, data, n);
    if (rq->route && rq->route->sink)
        rq->route->sink->data(rq, data, n);
    else if (rq->route && !rq->body.failed)
        sg_buf_add(&rq->body, data, n);
}

/* A rule's snapshot goes before the call that wants it. */
static void fault_before(struct request *rq)
{
    const struct fault_action *a = &rq->fault;
    char id[ID_TEXT] = "";
    if (!a->set || !a->evict_snapshot)
        return;
    struct sandbox *sb =
        a->evict_id || !rq->nparams ? NULL : state_sandbox(rq->emu->state, request_project(rq), rq->param[0]);
    if (a->evict_id)
        snprintf(id, sizeof id, "%s", a->evict_id);
    if (sb) {
        pthread_mutex_lock(&sb->lock);
        memcpy(id, sb->snapshot_id, sizeof id);
        pthread_mutex_unlock(&sb->lock);
        sandbox_unref(sb);
    }
    struct snapshot *sn = *id ? state_snapshot(rq->emu->state, id) : NULL;
    if (!sn)
        return;
    snapshots_evict(rq->emu, sn);
    snapshot_unref(sn);
}

static void fault_in_refusal(struct request *rq)
{
    if (rq->fault.set && rq->fault.name_conflict && rq->err.name_taken) {
        rq->err.status = rq->fault.name_conflict;
        snprintf(rq->err.code, sizeof rq->err.code, "%s", rq->err.status == 409 ? "conflict" : "bad_request");
    }
    if (rq->fault.set && rq->fault.no_stdin_offsets)
        rq->err.bytes_written = -1;
}

static void finish_digest(struct request *rq)
{
    unsigned char raw[32];
    char hex[65];
    if (!rq->digest || EVP_DigestFinal_ex(rq->digest, raw, NULL) != 1)
        return;
    sg_hex(hex, raw, sizeof raw);
    journal_body(rq->emu->journal, rq->journal_seq, hex, rq->body_bytes);
}

static enum MHD_Result finish(struct request *rq)
{
    finish_digest(rq);
    if (rq->fault.set && rq->fault.delay_ms)
        sleep_ms(rq->fault.delay_ms);
    if (instead_of_doing(&rq->fault))
        return send_fault(rq);
    if (!rq->route || rq->err.status)
        return send_error(rq);
    struct reply rp = {.status = 200, .type = "application/json; charset=utf-8", .file_fd = -1};
    sg_buf_init(&rp.body, REPLY_MAX);
    fault_before(rq);
    if (rq->route->handle(rq, &rp)) {
        fault_in_refusal(rq);
        reply_free(&rp);
        return send_error(rq);
    }
    return send_reply(rq, &rp);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **ctx)
{
    (void)cls;
    (void)version;
    struct request *rq = *ctx;
    if (!rq)
        return MHD_NO;
    if (!rq->begun) {
        rq->conn = conn;
        rq->method = method;
        return begin(rq, url);
    }
    if (*size) {
        take_body(rq, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return rq->answered ? MHD_YES : finish(rq);
}

static void on_mhd_error(void *cls, const char *fmt, va_list ap)
{
    (void)cls;
    (void)fmt;
    (void)ap; /* lost clients and cut answers are ordinary here */
}

/* With a certificate: behind TLS. */
static struct MHD_Daemon *start_daemon(struct emulator *emu, int listen_fd, const char *cert, const char *key)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                     MHD_USE_ERROR_LOG | MHD_USE_ITC | MHD_ALLOW_UPGRADE;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key},
                                   {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        cert ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, on_request, emu, MHD_OPTION_EXTERNAL_LOGGER,
        on_mhd_error, NULL, MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_URI_LOG_CALLBACK, request_new,
        emu, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_SIZE, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_SIZE, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_ARRAY, cert ? tls : tls + 2,
        MHD_OPTION_END);
}

struct http_server *http_start(struct emulator *emu, int listen_fd)
{
    struct http_server *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->quiesced_fd = h->quiesced_tls_fd = -1;
    h->daemon = start_daemon(emu, listen_fd, NULL, NULL);
    if (!h->daemon) {
        free(h);
        return NULL;
    }
    return h;
}

bool http_start_tls(struct http_server *h, struct emulator *emu, int listen_fd, const char *cert,
                    const char *key)
{
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return false;
    h->tls = start_daemon(emu, listen_fd, cert, key);
    return h->tls != NULL;
}

void http_stop_accepting(struct http_server *h)
{
    h->quiesced_fd = MHD_quiesce_daemon(h->daemon);
    if (h->tls)
        h->quiesced_tls_fd = MHD_quiesce_daemon(h->tls);
}

void http_stop(struct http_server *h)
{
    MHD_stop_daemon(h->daemon);
    if (h->tls)
        MHD_stop_daemon(h->tls);
    if (h->quiesced_fd >= 0)
        close(h->quiesced_fd);
    if (h->quiesced_tls_fd >= 0)
        close(h->quiesced_tls_fd);
    free(h);
}
