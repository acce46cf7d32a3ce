#include "routes/state.h"

#include "base/buf.h"
#include "control/record.h"
#include "routes/exchange.h"

#include <stdio.h>

enum { LOCATION_MAX = 512 };

enum sg_code state_match_of(struct exchange *ex, struct state_match *m, struct sg_error *e)
{
    struct conditions all;
    enum sg_code rc = conditions_of(ex, &all, e);
    m->match = all.match;
    m->none_match = all.none_match;
    return rc;
}

bool state_fits(const struct state_match *m, const char *etag)
{
    return !m->match.given || condition_tags_match(&m->match, etag);
}

bool state_had(const struct state_match *m, const char *etag)
{
    return m->none_match.given && condition_tags_match(&m->none_match, etag);
}

void state_set_etag(struct exchange *ex, const char *etag)
{
    char quoted[CONTROL_ETAG_LEN + 3];
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", etag);
    ex_set_header(ex, "ETag", quoted);
}

void state_set_etag_of(struct exchange *ex, const json_t *record)
{
    char etag[CONTROL_ETAG_LEN + 1];
    if (record && control_record_etag(record, etag))
        state_set_etag(ex, etag);
}

void state_set_location(struct exchange *ex, const char *base, const char *name)
{
    struct sg_buf b;
    sg_buf_init(&b, LOCATION_MAX);
    (void)sg_buf_adds(&b, base);
    (void)sg_buf_add_urlenc(&b, name);
    if (!b.failed)
        ex_set_header(ex, "Location", b.data);
    sg_buf_free(&b);
}

bool state_is_gone(void *ex)
{
    return ex_is_gone(ex);
}
