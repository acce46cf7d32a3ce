#include "emulator/options.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "emulator/account.h"
#include "emulator/api.h"
#include "emulator/box.h"
#include "emulator/edge_setup.h"
#include "emulator/faults.h"
#include "emulator/hosts.h"
#include "emulator/journal.h"
#include "emulator/layers.h"
#include "emulator/lifecycle.h"
#include "emulator/persist.h"
#include "emulator/source.h"
#include "emulator/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_MAX = 512 };

static int fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int fail(int code, const char *fmt, ...)
{
    va_list ap;
    fputs("sandgate-emulator: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return code;
}

/* ---- the parent ---- */

static int follow_parent(const struct options *o)
{
    if (!o->die_with_parent)
        return 0;
    pid_t before = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGTERM))
        return fail(EXIT_INTERNAL, "cannot follow the parent: %s", strerror(errno));
    /* it may have ended before the kernel knew that we care */
    if (getppid() != before || (o->parent_pid && getppid() != o->parent_pid))
        return fail(EXIT_UNAVAILABLE, "the parent process has ended already");
    return 0;
}

/* ---- the token ---- */

static int read_token_file(const char *path, char out[TOKEN_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, TOKEN_MAX - 1) : -1;
    int err = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return fail(EXIT_USAGE, "cannot read the token file %s: %s", path, strerror(err));
    out[n] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    if (!*out)
        return fail(EXIT_USAGE, "the token file %s is empty", path);
    return 0;
}

static int get_token(const struct options *o, char out[TOKEN_MAX], bool *made)
{
    const char *env = getenv("SANDGATE_EMULATOR_TOKEN");
    *made = false;
    if (o->token_file)
        return read_token_file(o->token_file, out);
    if (env && *env) {
        if (strlen(env) >= TOKEN_MAX)
            return fail(EXIT_USAGE, "SANDGATE_EMULATOR_TOKEN is too long");
        snprintf(out, TOKEN_MAX, "%s", env);
        unsetenv("SANDGATE_EMULATOR_TOKEN");
        return 0;
    }
    *made = true;
    return sg_random_id(out, "emu_", 40) ? 0 : fail(EXIT_INTERNAL, "the system has no random numbers");
}

/* ---- the socket ---- */

static int listen_on(const struct options_address *o, const char *scheme, int *out, char url[320])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    int g = getaddrinfo(o->host, o->port, &hints, &list), fd = -1, err = 0;
    if (g)
        return fail(EXIT_PORT, "cannot listen on %s:%s: %s", o->host, o->port, gai_strerror(g));
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int on = 1;
        if (fd < 0) {
            err = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1024)) {
            err = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return fail(EXIT_PORT, "cannot listen on %s:%s: %s", o->host, o->port, strerror(err));
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    char port[16] = "0";
    if (!getsockname(fd, (struct sockaddr *)&sa, &len))
        getnameinfo((struct sockaddr *)&sa, len, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    bool v6 = strchr(o->host, ':') != NULL;
    snprintf(url, 320, "%s://%s%s%s:%s", scheme, v6 ? "[" : "", o->host, v6 ? "]" : "", port);
    *out = fd;
    return 0;
}

/* ---- an end that is told by standard input ---- */

/* For a parent that may not send us signals. */
static void *watch_input(void *arg)
{
    (void)arg;
    char c = 0;
    ssize_t n = 1;
    while (n > 0 || (n < 0 && errno == EINTR)) {
        n = read(STDIN_FILENO, &c, 1);
        if (n > 0 && c == 'K')
            _exit(128 + SIGKILL);
        if (n > 0 && c == 'T')
            kill(getpid(), SIGTERM);
    }
    kill(getpid(), SIGTERM);
    return NULL;
}

static bool follow_input(const struct options *o)
{
    pthread_t t;
    if (!o->stop_on_eof)
        return true;
    if (pthread_create(&t, NULL, watch_input, NULL))
        return false;
    pthread_detach(t);
    return true;
}

/* ---- serving ---- */

struct shutdown_job {
    struct emulator *emu;
    struct http_server *http;
};

static void *shut_down(void *arg)
{
    struct shutdown_job *job = arg;
    http_stop_accepting(job->http);
    lifecycle_shutdown(job->emu);
    terminals_stop(job->emu->terminals);
    http_stop(job->http);
    kill(getpid(), SIGUSR1); /* wakes main, which waits for signals */
    return NULL;
}

enum { SAME_SIGNAL_MS = 500 };

/* Returns when everything has stopped; a second signal does not wait for that.  A terminal and a parent may
 * both tell us of the same Ctrl-C, so what comes at once after the first is no second one. */
static void wait_for_signals(struct emulator *emu, struct http_server *http, const sigset_t *set)
{
    struct shutdown_job job = {.emu = emu, .http = http};
    pthread_t t;
    int sig;
    while (sigwait(set, &sig) || sig == SIGUSR1)
        continue;
    int64_t first = sg_mono_ms();
    if (pthread_create(&t, NULL, shut_down, &job))
        _exit(EXIT_INTERNAL);
    while (sigwait(set, &sig) || sig != SIGUSR1)
        if ((sig == SIGTERM || sig == SIGINT) && sg_mono_ms() - first > SAME_SIGNAL_MS)
            _exit(128 + sig);
    pthread_join(t, NULL);
}

static bool token_is_plain(const char *t)
{
    for (; *t; t++)
        if (*t <= ' ' || *t > '~' || *t == '"' || *t == '\\')
            return false;
    return true;
}

/* Sessions hold several descriptors each. */
static void raise_limits(void)
{
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl))
        return;
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
}

static int open_layers(const struct options *o, struct box_host *host, struct layers **out)
{
    char err[BOX_TEXT] = "";
    if (layers_open(o->state_dir, host, out, err))
        return fail(EXIT_STATE, "%s", err);
    if (o->base_from && layers_share_bases(*out, o->base_from, err))
        return fail(EXIT_NO_BASE, "%s", err);
    return 0;
}

/* What the sockets of the server are; closed by whoever took them over. */
struct sockets {
    int plain, tls; /* tls -1: none */
    char url[320], tls_url[320];
    char *cert, *key;
    struct edge_setup edge;
};

static char *read_pem(const char *path)
{
    enum { PEM_MAX = 256 << 10 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? calloc(1, PEM_MAX) : NULL;
    ssize_t n = 0;
    for (size_t have = 0; text && (n = read(fd, text + have, PEM_MAX - 1 - have)) > 0;)
        have += (size_t)n;
    if (text && n < 0) {
        free(text);
        text = NULL;
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static int open_edge(const struct options *o, struct sockets *s)
{
    char err[256];
    int rc = 0;
    if (*o->edge.host)
        rc = listen_on(&o->edge, "http", &s->edge.config.plain_fd, s->edge.url);
    if (!rc && *o->edge_tls.host)
        rc = listen_on(&o->edge_tls, "https", &s->edge.config.tls_fd, s->edge.tls_url);
    if (!rc && edge_setup_prepare(&s->edge, o, s->plain, err))
        rc = fail(EXIT_STATE, "%s", err);
    return rc;
}

static int open_sockets(const struct options *o, struct sockets *s)
{
    int rc = listen_on(&o->listen, "http", &s->plain, s->url);
    if (!rc)
        rc = open_edge(o, s);
    if (rc || !*o->tls.host)
        return rc;
    if (!(s->cert = read_pem(o->tls_cert)))
        return fail(EXIT_USAGE, "cannot read the certificate %s: %s", o->tls_cert, strerror(errno));
    if (!(s->key = read_pem(o->tls_key)))
        return fail(EXIT_USAGE, "cannot read the key %s: %s", o->tls_key, strerror(errno));
    return listen_on(&o->tls, "https", &s->tls, s->tls_url);
}

static void close_sockets(struct sockets *s)
{
    if (s->plain >= 0)
        close(s->plain);
    if (s->tls >= 0)
        close(s->tls);
    free(s->cert);
    if (s->key)
        OPENSSL_cleanse(s->key, strlen(s->key));
    free(s->key);
    edge_setup_free(&s->edge);
}

/* The sockets are the server's when it serves. */
static struct http_server *start_http(struct emulator *emu, struct sockets *s)
{
    struct http_server *h = http_start(emu, s->plain);
    if (!h)
        return NULL;
    s->plain = -1;
    if (s->tls < 0)
        return h;
    if (!http_start_tls(h, emu, s->tls, s->cert, s->key)) {
        http_stop(h);
        return NULL;
    }
    s->tls = -1;
    return h;
}

static void say_ready(const struct options *o, const struct emulator *emu, const struct sockets *s, bool made)
{
    enum box_tier tier = box_host_tier(emu->host);
    fprintf(stderr, "sandgate-emulator: isolation %s: %s\n", box_tier_name(tier), box_tier_note(tier));
    if (*box_host_advice(emu->host))
        fprintf(stderr, "sandgate-emulator: %s\n", box_host_advice(emu->host));
    fprintf(stderr, "sandgate-emulator: sandboxes %s%s\n",
            tier == BOX_TIER_PLAIN ? "share this host's network" : "have no network but loopback yet",
            emu->record_only ? "; policies are recorded and have no effect" : "");
    if (o->approve_logins)
        fprintf(stderr, "sandgate-emulator: logins are approved by themselves: whoever reaches %s gets in\n",
                s->url);
    bool tls = *s->tls_url;
    if (s->edge.ca)
        fprintf(stderr, "sandgate-emulator: the edge's certificates are signed by %s\n",
                ca_pem_path(s->edge.ca));
    if (o->json)
        printf("{\"url\":\"%s\",\"edge\":\"%s\",\"edge_tls\":\"%s\",\"edge_ca\":\"%s\",%s%s%s\"token\":\"%"
               "s\",\"tier\":\"%s\"}\n",
               s->url, s->edge.url, s->edge.tls_url, s->edge.ca ? ca_pem_path(s->edge.ca) : "",
               tls ? "\"tls_url\":\"" : "", s->tls_url, tls ? "\"," : "", emu->token, box_tier_name(tier));
    else
        printf("serving %s%s%s\ntoken   %s\n", s->url, tls ? " and " : "", s->tls_url,
               made ? emu->token : "(as configured)");
    fflush(stdout);
}

static int run_server(const struct options *o, struct emulator *emu, struct sockets *s, bool made)
{
    sigset_t set;
    char err[256] = "";
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* threads inherit it; main alone waits for signals */
    signal(SIGPIPE, SIG_IGN);
    emu->state = state_new(o->state_dir, err);
    if (emu->state)
        emu->account = account_open(o->state_dir, o->approve_logins, err);
    if (!emu->account || !persist_load(emu->state, err))
        return fail(EXIT_STATE, "the state directory %s cannot be used: %s", o->state_dir, err);
    lifecycle_recover(emu);
    source_recover(emu);
    if (!follow_input(o))
        return fail(EXIT_INTERNAL, "cannot start a thread");
    if (!edge_setup_start(&s->edge, emu))
        return fail(EXIT_INTERNAL, "cannot start the edge: %s", strerror(errno));
    struct http_server *http = lifecycle_start_timer(emu) ? start_http(emu, s) : NULL;
    int rc = EXIT_OK;
    if (http) {
        say_ready(o, emu, s, made);
        wait_for_signals(emu, http, &set);
    } else {
        rc = fail(s->plain < 0 ? EXIT_USAGE : EXIT_INTERNAL, "cannot start the server: %s",
                  s->plain < 0 ? "the TLS certificate or key is no good" : strerror(errno));
        lifecycle_shutdown(emu); /* the timer runs already, and uses what is freed now */
    }
    edge_stop(emu->edge);
    return rc;
}

static int make_faults(const struct options *o, struct faults **out)
{
    char err[FAULTS_ERR];
    if (!o->admin && !o->faults)
        return 0;
    if (!(*out = faults_new()))
        return fail(EXIT_INTERNAL, "no memory");
    return o->faults && !faults_load(*out, o->faults, err) ? fail(EXIT_USAGE, "%s", err) : 0;
}

static int serve(const struct options *o, struct box_host *host)
{
    struct host_names hosts = {.listen = {o->listen.host, o->tls.host, o->edge.host, o->edge_tls.host},
                               .lists = {o->edge_api_hosts, o->host_names}};
    struct emulator emu = {.host = host, .state_dir = o->state_dir, .hosts = &hosts};
    struct sockets sockets = {.plain = -1, .tls = -1};
    edge_setup_init(&sockets.edge);
    char token[TOKEN_MAX] = "";
    bool made = false;
    atomic_init(&emu.closing, false);
    int rc = get_token(o, token, &made);
    if (!rc && !token_is_plain(token))
        rc = fail(EXIT_USAGE, "the token may only have printable ASCII characters without quotes");
    if (!rc)
        rc = make_faults(o, &emu.faults);
    if (!rc)
        rc = open_layers(o, host, &emu.layers);
    if (!rc && !layers_has_base(emu.layers, o->base_name))
        rc = fail(EXIT_NO_BASE,
                  "no base '%s' has been imported; do: sandgate-emulator import-base --state %s SOURCE",
                  o->base_name, o->state_dir);
    if (!rc)
        rc = open_sockets(o, &sockets);
    if (!rc) {
        emu.token = token;
        emu.record_only = o->record_only;
        emu.plan = o->plan;
        emu.allow_private_sources = o->private_sources;
        emu.allow_file_sources = o->file_sources;
        emu.route_domain = sockets.edge.route_url;
        snprintf(emu.base, sizeof emu.base, "%s", o->base_name);
        emu.journal = o->admin ? journal_new() : NULL;
        emu.terminals = terminals_new();
        raise_limits();
        bool memory = emu.terminals && (!o->admin || emu.journal);
        rc = memory ? run_server(o, &emu, &sockets, made) : fail(EXIT_INTERNAL, "no memory");
    }
    close_sockets(&sockets);
    account_free(emu.account);
    terminals_free(emu.terminals);
    state_free(emu.state);
    journal_free(emu.journal);
    faults_free(emu.faults);
    if (emu.layers)
        layers_close(emu.layers);
    return rc;
}

/* ---- import ---- */

static void show_progress(void *arg, uint64_t files, uint64_t bytes)
{
    (void)arg;
    fprintf(stderr, "sandgate-emulator: importing: %llu files, %llu MiB\n", (unsigned long long)files,
            (unsigned long long)(bytes >> 20));
}

static int import_base(const struct options *o, struct box_host *host)
{
    struct layers *layers = NULL;
    char err[BOX_TEXT] = "";
    int rc = open_layers(o, host, &layers);
    if (!rc && layers_import_base(layers, o->base_name, o->source, o->force, show_progress, NULL, err))
        rc = fail(EXIT_NO_BASE, "%s", err);
    if (!rc)
        fprintf(stderr, "sandgate-emulator: base '%s' is ready\n", o->base_name);
    if (layers)
        layers_close(layers);
    return rc;
}

/* ---- routes ---- */

static void print_route(void *arg, const char *method, int version, const char *pattern)
{
    (void)arg;
    if (version)
        printf("%s /v%d/%s\n", method, version, pattern);
    else
        printf("%s /%s\n", method, pattern);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct box_host *host = NULL;
    char err[BOX_TEXT] = "";
    int rc = options_parse(argc, argv, &o);
    if (rc || o.command == OPTIONS_DONE)
        return rc;
    if (o.command == OPTIONS_ROUTES) {
        router_print(print_route, NULL);
        return fflush(stdout) ? EXIT_INTERNAL : EXIT_OK;
    }
    rc = follow_parent(&o);
    if (rc)
        return rc;
    /* before any thread or secret: the spawner is forked in here */
    if (box_host_start(o.plain, &host, err))
        return fail(EXIT_UNAVAILABLE, "%s", err);
    rc = o.command == OPTIONS_IMPORT ? import_base(&o, host) : serve(&o, host);
    box_host_stop(host);
    return rc;
}
