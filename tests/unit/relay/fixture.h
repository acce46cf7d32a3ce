/* A relay over the guestlink made of memory: what every test program of relay/ starts with. */
#ifndef SG_TESTS_RELAY_FIXTURE_H
#define SG_TESTS_RELAY_FIXTURE_H

#include "relay/relay.h"
#include "tests/support/fake_files.h"
#include "tests/support/fake_guestlink.h"

extern struct sg_loop *loop;
extern struct fake fake;
extern struct relay *relay;

/* 0 when all three stand; with these limits. */
int fixture_open(const struct relay_limits *limits);
/* Frees them; the number of calls that neither ended nor were cancelled. */
int fixture_close(void **state);
/* Frees a process of the fake, so that its place can be used again. */
void fixture_forget(struct fake_proc *p);

#endif
