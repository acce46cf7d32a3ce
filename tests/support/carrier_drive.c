/* Brings its standard input to a program in a session over carriers, one after the other until all is there, as an owner
 * of carriers does: what was not acknowledged goes again on the next one.
 *
 *     carrier_drive URL SESSION ID stdin|interactive|type PROGRAM [ARGUMENT]… <data       (the token is in SG_TOKEN)
 *
 * SG_CA and SG_PROXY name a CA file and a proxy; SG_ROOT starts the program as root.
 *
 * `type` sends one byte at a time and waits until the program has said it back.  Prints what the program wrote, then
 * on standard error "carriers N by_socket N accepted N", and in the `type` mode the slowest and the median echo.
 */
#include "guestlink/carrier.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/core/carrier.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 64 * 1024 * 1024, CARRIERS_MAX = 1000, ECHOES_MAX = 4096, PAUSE_MS = 30 };

struct drive {
    struct sg_loop *loop;
    struct guestlink *g;
    struct vercel_client *client;
    const char *session, *id;
    bool interactive, type, root;
    struct sg_buf data;

    struct carrier *carrier;
    struct sg_timer *again;
    uint64_t sent, room_to; /* of the program's input, on this carrier; and how far it may go */
    uint64_t accepted;
    bool open, said_close;
    struct sg_buf frames; /* encoded, not yet taken by the carrier */
    int carriers, by_socket;
    bool done, failed;

    bool ended;           /* a guest call */
    struct sg_buf output; /* what the program wrote */
    int64_t typed_at, echoes[ECHOES_MAX];
    size_t nechoes, echoed;
};

static void die(const char *what, const struct sg_error *e)
{
    fprintf(stderr, "carrier_drive: %s: %s\n", what, e ? e->detail : "");
    exit(1);
}

/* ---- calls to the guest ---- */

static bool on_guest_line(void *arg, const struct sg_wire_line *line)
{
    struct drive *d = arg;
    if (line->kind == SG_WIRE_DATA && line->offset == d->output.len)
        sg_buf_add(&d->output, line->data, line->len);
    return true;
}

static void on_guest_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct drive *d = arg;
    (void)hello;
    if (!line)
        die("the guest", e);
    if (line->kind == SG_WIRE_ERROR) {
        fprintf(stderr, "carrier_drive: the guest: %s %s\n", sg_wire_fail_name(line->fail), line->text);
        exit(1);
    }
    d->ended = true;
}

static struct guest_call *guest(struct drive *d, const char *const *args)
{
    static const struct guest_events ev = {.on_line = on_guest_line, .on_end = on_guest_end};
    const struct guest_args a = {.session_id = d->session, .args = args, .sudo = d->root};
    struct sg_error e;
    d->ended = false;
    struct guest_call *call = guest_call_start(d->g, &a, &ev, d, &e);
    if (!call)
        die("a call to the guest", &e);
    return call;
}

static void guest_and_wait(struct drive *d, const char *const *args)
{
    guest(d, args);
    while (!d->ended)
        uv_run(sg_loop_uv(d->loop), UV_RUN_ONCE);
}

/* ---- carriers ---- */

static void frame(struct drive *d, const struct sg_carrier_frame *f, const void *data)
{
    unsigned char head[SG_CARRIER_HEAD_MAX];
    sg_buf_add(&d->frames, head, sg_carrier_encode(head, f));
    if (f->len)
        sg_buf_add(&d->frames, data, f->len);
}

/* As much as the program has room for, and the carrier. */
static void bring(struct drive *d)
{
    size_t limit = d->type && d->echoed < d->data.len ? d->echoed + 1 : d->data.len;
    for (;;) {
        size_t n = carrier_send(d->carrier, d->frames.data, d->frames.len);
        sg_buf_consume(&d->frames, n);
        if (d->frames.len)
            return;
        uint64_t to = d->room_to < limit ? d->room_to : limit;
        uint64_t len = d->sent < to ? to - d->sent : 0;
        len = len < SG_CARRIER_DATA_MAX ? len : SG_CARRIER_DATA_MAX;
        struct sg_carrier_frame f = {.kind = SG_CARRIER_DATA, .offset = d->sent, .len = (uint32_t)len};
        if (len) {
            frame(d, &f, d->data.data + d->sent);
            if (d->type)
                d->typed_at = sg_mono_ns();
        } else if (d->sent == d->data.len && !d->said_close && (!d->type || d->echoed == d->data.len)) {
            f.kind = SG_CARRIER_CLOSE;
            frame(d, &f, NULL);
            d->said_close = true;
        } else {
            return;
        }
        d->sent += len;
    }
}

static void on_line(void *arg, const struct sg_wire_line *line, bool interactive)
{
    struct drive *d = arg;
    if (line->kind == SG_WIRE_CARRIER) {
        d->sent = line->accepted;
        d->open = true;
        d->by_socket += interactive;
    }
    d->accepted = line->accepted;
    d->room_to = line->accepted + line->room;
    if (line->kind == SG_WIRE_ACCEPTED && line->closed) {
        d->done = true;
        return;
    }
    bring(d);
}

static void on_room(void *arg)
{
    bring(arg);
}

static void on_end(void *arg, const struct sg_wire_line *line, const struct sg_error *e)
{
    struct drive *d = arg;
    d->carrier = NULL;
    d->open = false;
    if (line && line->kind == SG_WIRE_ERROR && (line->fail == SG_WF_FINISHED || line->fail == SG_WF_NO_INPUT))
        d->done = true; /* its input was closed, and the answer lost */
    if (getenv("SG_VERBOSE"))
        fprintf(stderr, "carrier %d ended at %llu: %c %s\n", d->carriers, (unsigned long long)d->accepted,
                line ? (char)line->kind : '-',
                e      ? e->detail
                : line ? line->text
                       : "");
    sg_timer_start(d->again, PAUSE_MS);
}

static void on_again(void *arg)
{
    static const struct carrier_events ev = {on_line, on_room, on_end};
    struct drive *d = arg;
    const struct carrier_spec s = {
        .session_id = d->session, .id = d->id, .interactive = d->interactive, .sudo = d->root};
    struct sg_error e;
    if (d->done || ++d->carriers > CARRIERS_MAX)
        return;
    sg_buf_free(&d->frames);
    d->said_close = false;
    d->room_to = 0;
    d->carrier = carrier_open(d->g, &s, &ev, d, &e);
    if (!d->carrier)
        sg_timer_start(d->again, PAUSE_MS);
}

/* ---- echoes ---- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void look_for_echo(struct drive *d)
{
    if (!d->type || d->output.len <= d->echoed)
        return;
    if (d->nechoes < ECHOES_MAX)
        d->echoes[d->nechoes++] = sg_mono_ns() - d->typed_at;
    d->echoed = d->output.len;
    if (d->open)
        bring(d);
}

static void carry(struct drive *d)
{
    const char *const follow[] = {"follow", "--session", d->session, "--id", d->id, NULL};
    struct guest_call *reader = d->type ? guest(d, follow) : NULL;
    on_again(d);
    while (!d->done && d->carriers <= CARRIERS_MAX) {
        uv_run(sg_loop_uv(d->loop), UV_RUN_ONCE);
        look_for_echo(d);
    }
    if (d->carrier)
        carrier_finish(d->carrier);
    while (d->carrier)
        uv_run(sg_loop_uv(d->loop), UV_RUN_ONCE);
    if (reader && !d->ended)
        guest_cancel(reader);
}

static void read_input(struct drive *d)
{
    char buf[65536];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, stdin)) > 0)
        if (!sg_buf_add(&d->data, buf, n))
            die("too much input", NULL);
}

static void start(struct drive *d, char **program)
{
    const char *args[32] = {"start",  "--session", d->session,     "--id", d->id,
                            "--spec", "h",         "--input-open", "--"};
    size_t n = 9;
    for (; *program && n < 31; program++)
        args[n++] = *program;
    args[n] = NULL;
    guest_and_wait(d, args);
}

int main(int argc, char **argv)
{
    struct sg_error e;
    const char *token = getenv("SG_TOKEN");
    if (argc < 6 || !token)
        return 64;
    struct drive d = {.session = argv[2], .id = argv[3], .type = !strcmp(argv[4], "type")};
    d.root = getenv("SG_ROOT") != NULL;
    d.interactive = d.type || !strcmp(argv[4], "interactive");
    sg_buf_init(&d.data, INPUT_MAX);
    sg_buf_init(&d.frames, 2 * SG_CARRIER_DATA_MAX);
    sg_buf_init(&d.output, INPUT_MAX);
    read_input(&d);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    d.loop = sg_loop_new();
    const struct vercel_config config = {
        .base_url = argv[1],
        .team_id = "team_local",
        .ca_bundle = getenv("SG_CA"),
        .proxy = getenv("SG_PROXY"),
        .token = sg_secret_new(token, strlen(token)),
        .retries = -1,
    };
    if (vercel_client_new(d.loop, &config, &d.client, &e) != SG_OK)
        die("the client", &e);
    d.g = guestlink_new(d.loop, d.client);
    d.again = sg_timer_new(d.loop, on_again, &d);

    start(&d, argv + 5);
    carry(&d);
    const char *const follow[] = {"follow", "--session", d.session, "--id", d.id, NULL};
    guest_and_wait(&d, follow);

    fwrite(d.output.data, 1, d.output.len, stdout);
    fprintf(stderr, "carriers %d by_socket %d accepted %llu\n", d.carriers, d.by_socket,
            (unsigned long long)d.accepted);
    if (d.nechoes) {
        qsort(d.echoes, d.nechoes, sizeof *d.echoes, by_size);
        fprintf(stderr, "echo median_us %lld slowest_us %lld\n", (long long)d.echoes[d.nechoes / 2] / 1000,
                (long long)d.echoes[d.nechoes - 1] / 1000);
    }
    sg_timer_free(d.again);
    guestlink_free(d.g);
    vercel_client_free(d.client);
    sg_loop_free(d.loop);
    sg_buf_free(&d.data);
    sg_buf_free(&d.frames);
    sg_buf_free(&d.output);
    curl_global_cleanup();
    return d.done ? 0 : 1;
}
