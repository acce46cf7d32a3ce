/* The edge as the command line wants it: addresses, certificate authority, what answers say of it. */
#ifndef SG_EMULATOR_EDGE_SETUP_H
#define SG_EMULATOR_EDGE_SETUP_H

#include "emulator/edge.h"
#include "emulator/options.h"

struct edge_setup {
    struct edge_config config;   /* plain_fd and tls_fd: listening, by whoever opens sockets */
    char url[320], tls_url[320]; /* "": none */
    struct ca *ca;
    char *api_hosts, *route_url; /* own memory */
};

/* No sockets yet. */
void edge_setup_init(struct edge_setup *s);
/* What can fail before anything is served: the authority and the texts.  0, or -1 with one sentence. */
int edge_setup_prepare(struct edge_setup *s, const struct options *o, int api_fd, char err[256]);
/* Starts emu->edge if there is a listener.  False when there is no memory or no thread. */
bool edge_setup_start(struct edge_setup *s, struct emulator *emu);
void edge_setup_free(struct edge_setup *s);

#endif
