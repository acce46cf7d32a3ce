#include "emulator/options.h"
#include "base/core/num.h"
#include "emulator/places.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "sandgate-emulator stands in for Vercel's Sandbox API on this machine.\n"
    "\n"
    "  sandgate-emulator [serve] --listen HOST:PORT --state DIR [options]\n"
    "  sandgate-emulator import-base --state DIR [--name NAME] [--force] SOURCE\n"
    "  sandgate-emulator routes\n"
    "\n"
    "serve\n"
    "  --listen HOST:PORT    address to serve on (default 127.0.0.1:8799; port 0: any free one)\n"
    "  --state DIR           where sandboxes live; created when missing, never shared by two emulators\n"
    "  --base-from DIR       use the base trees of another state directory (read only)\n"
    "  --base NAME           base tree of the default image (default: default)\n"
    "  --token-file FILE     bearer token that callers must send; or SANDGATE_EMULATOR_TOKEN in the\n"
    "                        environment; a random one is made and printed otherwise\n"
    "  --policy=record-only  accept network policies and only remember them: nothing is enforced\n"
    "  --plan=hobby|pro      enforce that plan's session time, vCPUs and concurrency (default: the largest)\n"
    "  --allow-private-sources  let git and tarball sources come from this machine and its network\n"
    "  --allow-file-sources  and from file:// URLs, read with the emulator's rights\n"
    "  --isolation=none      run programs as plain child processes; never chosen by itself\n"
    "  --tls-listen HOST:PORT  serve the same with TLS on a second address\n"
    "  --tls-cert FILE, --tls-key FILE\n"
    "                        its certificate (chain) and private key, PEM\n"
    "  --edge HOST:PORT      carry requests for http://SUBDOMAIN.SUFFIX (by their Host) to the port inside\n"
    "  --edge-tls HOST:PORT  the same with TLS, by a certificate authority of its own: trust DIR/ca/ca.pem\n"
    "  --edge-suffix SUFFIX  of those names (default vercel.run; SUBDOMAIN.localhost is always right, too)\n"
    "  --edge-api-hosts A,B  these hosts on the edge lead to the API (vercel.com,api.vercel.com)\n"
    "  --route-url-template URL\n"
    "                        what answers say as a route's url, with {subdomain}, {edge-port} and\n"
    "                        {edge-tls-port} filled in (default https://{subdomain}.SUFFIX)\n"
    "  --late-ports=route|502-until-resume\n"
    "                        ports added while the sandbox runs: reachable at once (default), or 502 until\n"
    "                        its next session\n"
    "  --approve-logins      approve every login of the CLI as it begins: whoever reaches the address gets "
    "in\n"
    "  --host NAME[,NAME]    serve the API under these names, too: a request for a name that is none of "
    "this\n"
    "                        machine's own is refused, since a web page may have led it here\n"
    "  --faults FILE         a plan of what goes wrong, as POST /_emulator/faults takes it\n"
    "  --admin               serve /_emulator/journal and /_emulator/faults (for tests)\n"
    "  --json                when ready, print one line {\"url\",\"token\",\"tier\"} on stdout\n"
    "  --die-with-parent[=PID]  stop when the parent process ends\n"
    "  --stop-on-eof         stop as by SIGTERM when standard input ends or says T, and at once on a K: for "
    "a\n"
    "                        parent that may not send signals\n"
    "\n"
    "import-base             takes a tar archive (plain, gzip, xz, zstd) or a directory as a base tree\n"
    "  --name NAME           its name (default: default)\n"
    "  --force               replace one of that name\n"
    "\n"
    "routes                  print the method and path of every endpoint\n"
    "\n"
    "  --help, --version\n"
    "\n"
    "SIGTERM or SIGINT stops every session, keeps persistent ones as snapshots, and exits 0; a second\n"
    "signal, more than half a second later, exits at once.\n"
    "\n"
    "Exit codes, each with one sentence on stderr:\n"
    "   0  done, or stopped by a signal\n"
    "  64  wrong usage: \"sandgate-emulator: …\" names the option\n"
    "  66  no base tree: \"no base 'NAME' has been imported\"; or the source of import-base is unusable\n"
    "  69  unavailable: the kernel or the container does not permit namespaces, and what to change\n"
    "  70  internal: no memory, threads or descriptors\n"
    "  73  \"cannot use the state directory DIR: …\": not writable, in use, or an unsuitable file system\n"
    "  75  the address cannot be bound: \"cannot listen on HOST:PORT: …\"\n";

static int usage(const char *what, const char *value)
{
    if (value)
        fprintf(stderr, "sandgate-emulator: %s '%s'; see --help\n", what, value);
    else
        fprintf(stderr, "sandgate-emulator: %s; see --help\n", what);
    return EXIT_USAGE;
}

/* HOST:PORT, [V6]:PORT */
static bool parse_listen(const char *s, struct options_address *out)
{
    const char *colon = strrchr(s, ':');
    uint64_t port;
    if (!colon || !sg_parse_u64(colon + 1, strlen(colon + 1), 65535, &port))
        return false;
    size_t n = (size_t)(colon - s);
    if (n >= 2 && s[0] == '[' && s[n - 1] == ']') {
        s++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof out->host)
        return false;
    memcpy(out->host, s, n);
    out->host[n] = '\0';
    snprintf(out->port, sizeof out->port, "%u", (unsigned)port);
    return true;
}

enum {
    O_LISTEN = 256,
    O_TLS_LISTEN,
    O_TLS_CERT,
    O_TLS_KEY,
    O_EDGE,
    O_EDGE_TLS,
    O_EDGE_SUFFIX,
    O_EDGE_API_HOSTS,
    O_ROUTE_URL,
    O_LATE_PORTS,
    O_APPROVE,
    O_STATE,
    O_BASE_FROM,
    O_BASE,
    O_TOKEN_FILE,
    O_POLICY,
    O_ISOLATION,
    O_PLAN,
    O_PRIVATE_SOURCES,
    O_FILE_SOURCES,
    O_ADMIN,
    O_FAULTS,
    O_HOST,
    O_STOP_ON_EOF,
    O_JSON,
    O_DIE,
    O_FORCE,
    O_HELP,
    O_VERSION,
};

static const struct option table[] = {
    {"listen", required_argument, NULL, O_LISTEN},
    {"tls-listen", required_argument, NULL, O_TLS_LISTEN},
    {"tls-cert", required_argument, NULL, O_TLS_CERT},
    {"tls-key", required_argument, NULL, O_TLS_KEY},
    {"edge", required_argument, NULL, O_EDGE},
    {"edge-tls", required_argument, NULL, O_EDGE_TLS},
    {"edge-suffix", required_argument, NULL, O_EDGE_SUFFIX},
    {"edge-api-hosts", required_argument, NULL, O_EDGE_API_HOSTS},
    {"route-url-template", required_argument, NULL, O_ROUTE_URL},
    {"late-ports", required_argument, NULL, O_LATE_PORTS},
    {"approve-logins", no_argument, NULL, O_APPROVE},
    {"state", required_argument, NULL, O_STATE},
    {"base-from", required_argument, NULL, O_BASE_FROM},
    {"base", required_argument, NULL, O_BASE},
    {"name", required_argument, NULL, O_BASE},
    {"token-file", required_argument, NULL, O_TOKEN_FILE},
    {"policy", required_argument, NULL, O_POLICY},
    {"isolation", required_argument, NULL, O_ISOLATION},
    {"plan", required_argument, NULL, O_PLAN},
    {"allow-private-sources", no_argument, NULL, O_PRIVATE_SOURCES},
    {"allow-file-sources", no_argument, NULL, O_FILE_SOURCES},
    {"admin", no_argument, NULL, O_ADMIN},
    {"faults", required_argument, NULL, O_FAULTS},
    {"host", required_argument, NULL, O_HOST},
    {"stop-on-eof", no_argument, NULL, O_STOP_ON_EOF},
    {"json", no_argument, NULL, O_JSON},
    {"die-with-parent", optional_argument, NULL, O_DIE},
    {"force", no_argument, NULL, O_FORCE},
    {"help", no_argument, NULL, O_HELP},
    {"version", no_argument, NULL, O_VERSION},
    {NULL, 0, NULL, 0},
};

static int print_and_done(const char *text, struct options *out)
{
    fputs(text, stdout);
    out->command = OPTIONS_DONE;
    return 0;
}

static int parse_parent(const char *arg, struct options *out)
{
    uint64_t pid = 0;
    if (arg && (!sg_parse_u64(arg, strlen(arg), 1 << 30, &pid) || !pid))
        return usage("--die-with-parent wants a process id, not", arg);
    out->die_with_parent = true;
    out->parent_pid = (long)pid;
    return 0;
}

/* Lower-case host names, divided by commas where `many`. */
static bool are_names(const char *s, bool many)
{
    size_t n = 0;
    for (;; s++) {
        bool end = !*s || (many && *s == ',');
        if (end && (!n || n > 253 || s[-1] == '.' || s[-1] == '-'))
            return false;
        if (!*s)
            return true;
        bool ok = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') ||
                  (n && (*s == '-' || (*s == '.' && s[-1] != '.')));
        if (!end && !ok)
            return false;
        n = end ? 0 : n + 1;
    }
}

static bool is_url_template(const char *s)
{
    for (const char *c = s; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return false;
    return strlen(s) < 512 && strstr(s, "{subdomain}") &&
           (!strncmp(s, "http://", 7) || !strncmp(s, "https://", 8));
}

static int take_edge(int c, struct options *out)
{
    switch (c) {
    case O_EDGE:
        return parse_listen(optarg, &out->edge) ? 0 : usage("--edge wants HOST:PORT, not", optarg);
    case O_EDGE_TLS:
        return parse_listen(optarg, &out->edge_tls) ? 0 : usage("--edge-tls wants HOST:PORT, not", optarg);
    case O_EDGE_SUFFIX:
        out->edge_suffix = optarg;
        return are_names(optarg, false) ? 0
                                        : usage("--edge-suffix wants a host name in lower case, not", optarg);
    case O_EDGE_API_HOSTS:
        out->edge_api_hosts = optarg;
        return are_names(optarg, true) ? 0
                                       : usage("--edge-api-hosts wants HOST,HOST in lower case, not", optarg);
    case O_ROUTE_URL:
        out->route_url = optarg;
        return is_url_template(optarg)
                   ? 0
                   : usage("--route-url-template wants an http(s) URL with {subdomain}, not", optarg);
    default: /* O_LATE_PORTS */
        out->late_ports_wait = !strcmp(optarg, "502-until-resume");
        return out->late_ports_wait || !strcmp(optarg, "route")
                   ? 0
                   : usage("--late-ports wants route or 502-until-resume, not", optarg);
    }
}

static int take(int c, const char *current, struct options *out)
{
    switch (c) {
    case O_LISTEN:
        return parse_listen(optarg, &out->listen) ? 0 : usage("--listen wants HOST:PORT, not", optarg);
    case O_TLS_LISTEN:
        return parse_listen(optarg, &out->tls) ? 0 : usage("--tls-listen wants HOST:PORT, not", optarg);
    case O_EDGE:
    case O_EDGE_TLS:
    case O_EDGE_SUFFIX:
    case O_EDGE_API_HOSTS:
    case O_ROUTE_URL:
    case O_LATE_PORTS:
        return take_edge(c, out);
    case O_TLS_CERT:
        out->tls_cert = optarg;
        return 0;
    case O_TLS_KEY:
        out->tls_key = optarg;
        return 0;
    case O_APPROVE:
        out->approve_logins = true;
        return 0;
    case O_STATE:
        out->state_dir = optarg;
        return 0;
    case O_BASE_FROM:
        out->base_from = optarg;
        return 0;
    case O_BASE:
        if (!*optarg || strlen(optarg) > 63 ||
            strspn(optarg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
                strlen(optarg))
            return usage("a base name has up to 63 letters, digits, '-' and '_', unlike", optarg);
        out->base_name = optarg;
        return 0;
    case O_TOKEN_FILE:
        out->token_file = optarg;
        return 0;
    case O_POLICY:
        out->record_only = true;
        return strcmp(optarg, "record-only") ? usage("--policy knows only record-only, not", optarg) : 0;
    case O_ISOLATION:
        out->plain = true;
        return strcmp(optarg, "none") ? usage("--isolation knows only none, not", optarg) : 0;
    case O_PLAN:
        out->plan = plan_find(optarg);
        return out->plan ? 0 : usage("--plan knows hobby and pro, not", optarg);
    case O_PRIVATE_SOURCES:
        out->private_sources = true;
        return 0;
    case O_FILE_SOURCES:
        out->file_sources = true;
        return 0;
    case O_FAULTS:
        out->faults = optarg;
        return 0;
    case O_HOST:
        out->host_names = optarg;
        return are_names(optarg, true) ? 0 : usage("--host wants NAME,NAME in lower case, not", optarg);
    case O_STOP_ON_EOF:
        out->stop_on_eof = true;
        return 0;
    case O_ADMIN:
        out->admin = true;
        return 0;
    case O_JSON:
        out->json = true;
        return 0;
    case O_FORCE:
        out->force = true;
        return 0;
    case O_DIE:
        return parse_parent(optarg, out);
    case O_HELP:
        return print_and_done(help, out);
    case O_VERSION:
        return print_and_done("sandgate-emulator " EMULATOR_VERSION "\n", out);
    default:
        return usage("there is no such option, or it wants a value:", current);
    }
}

int options_parse(int argc, char **argv, struct options *out)
{
    memset(out, 0, sizeof *out);
    out->base_name = "default";
    out->plan = plan_find(NULL);
    parse_listen("127.0.0.1:8799", &out->listen);
    out->edge_suffix = "vercel.run";
    out->edge_api_hosts = out->host_names = "";
    if (argc > 1 && argv[1][0] != '-') {
        if (!strcmp(argv[1], "import-base"))
            out->command = OPTIONS_IMPORT;
        else if (!strcmp(argv[1], "routes"))
            out->command = OPTIONS_ROUTES;
        else if (strcmp(argv[1], "serve") != 0)
            return usage("there is no command", argv[1]);
        argv++;
        argc--;
    }
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        int rc = take(c, argv[optind - 1], out);
        if (rc || out->command == OPTIONS_DONE)
            return rc;
    }
    if (out->command == OPTIONS_ROUTES)
        return optind < argc ? usage("there is something superfluous:", argv[optind]) : 0;
    if (!!*out->tls.host != !!out->tls_cert || !!out->tls_cert != !!out->tls_key)
        return usage("--tls-listen, --tls-cert and --tls-key go together", NULL);
    if (!out->state_dir)
        return usage("--state DIR is needed", NULL);
    if (out->command == OPTIONS_IMPORT) {
        if (optind + 1 != argc)
            return usage("import-base wants one SOURCE", NULL);
        out->source = argv[optind];
    } else if (optind < argc) {
        return usage("there is something superfluous:", argv[optind]);
    }
    return 0;
}
