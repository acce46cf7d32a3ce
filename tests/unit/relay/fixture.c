#include "tests/unit/relay/fixture.h"

#include "relay/feed.h"

#include <stdlib.h>
#include <string.h>

struct sg_loop *loop;
struct fake fake;
struct relay *relay;

int fixture_open(const struct relay_limits *limits)
{
    loop = sg_loop_new();
    fake_init(&fake, loop);
    relay = relay_new(loop, fake_link(&fake));
    relay_set_limits(relay, limits);
    return !loop || !relay;
}

int fixture_close(void **state)
{
    (void)state;
    relay_free(relay);
    fake_turns(&fake, 4);
    fake_files_reset();
    int left = fake.live;
    sg_loop_free(loop);
    fake_free(&fake);
    return left;
}

void fixture_forget(struct fake_proc *p)
{
    feed_forget(relay, "sess-1", p->id); /* the next one may have its id */
    free(p->content[0]);
    free(p->content[1]);
    memset(p, 0, sizeof *p);
}
