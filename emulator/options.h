/* The command line of sandgate-emulator.  Pure but for messages on stderr and help on stdout. */
#ifndef SG_EMULATOR_OPTIONS_H
#define SG_EMULATOR_OPTIONS_H

#include <stdbool.h>

/* Exit codes, after sysexits. */
enum {
    EXIT_OK = 0,
    EXIT_USAGE = 64,
    EXIT_NO_BASE = 66,
    EXIT_UNAVAILABLE = 69,
    EXIT_INTERNAL = 70,
    EXIT_STATE = 73,
    EXIT_PORT = 75,
};

enum options_command { OPTIONS_SERVE, OPTIONS_IMPORT, OPTIONS_ROUTES, OPTIONS_DONE };

struct options_address {
    char host[256];
    char port[8];
};

struct plan;
struct options {
    enum options_command command;
    struct options_address listen, tls;    /* tls.host "": not wanted */
    const char *tls_cert, *tls_key;        /* PEM files; both or none */
    struct options_address edge, edge_tls; /* host "": not wanted */
    const char *edge_suffix;               /* "vercel.run" */
    const char *edge_api_hosts;            /* "a,b"; "" */
    const char *route_url;                 /* NULL: https://{subdomain}.SUFFIX */
    bool late_ports_wait;
    const char *state_dir;
    const char *base_from;  /* NULL: none */
    const char *base_name;  /* "default" */
    const char *source;     /* import-base */
    const char *token_file; /* NULL: none */
    const char *faults;     /* a plan in a file; NULL: none */
    const char *host_names; /* further names that callers may use, "a,b"; "" */
    bool stop_on_eof;
    bool approve_logins;
    const struct plan *plan; /* never NULL */
    bool private_sources, file_sources;
    bool force, admin, record_only, plain, json, die_with_parent;
    long parent_pid; /* 0: whoever it is */
};

/* OPTIONS_DONE in command: help or version was printed.  0 or the exit code, with one sentence on stderr. */
int options_parse(int argc, char **argv, struct options *out);

#endif
