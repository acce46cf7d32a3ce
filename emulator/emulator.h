/* The emulator's one context: what every handler may use.  Set up by main, constant afterwards. */
#ifndef SG_EMULATOR_EMULATOR_H
#define SG_EMULATOR_EMULATOR_H

#include <stdatomic.h>
#include <stdbool.h>

struct box_host;
struct layers;
struct state;
struct journal;
struct faults;
struct account;
struct terminals;
struct plan;
struct edge;
struct host_names;

struct emulator {
    struct box_host *host;
    struct layers *layers;
    struct state *state;
    struct journal *journal; /* NULL without --admin */
    struct faults *faults;   /* NULL without --admin */
    struct account *account;
    struct terminals *terminals;
    const char *token;
    const struct host_names *hosts; /* that callers may name */
    const char *state_dir;
    const char *route_domain;                       /* of a route's url: "https://{subdomain}.vercel.run" */
    struct edge *edge;                              /* NULL without --edge and --edge-tls */
    char base[64];                                  /* the base tree of the default image */
    const struct plan *plan;                        /* limits to enforce; never NULL */
    bool allow_file_sources, allow_private_sources; /* sources from files, from addresses of this network */
    bool record_only;                               /* accept network policies and only remember them */
    atomic_bool closing;                            /* streams end, nothing new begins */
};

#endif
