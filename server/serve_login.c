#include "server/serve_login.h"

#include "base/clock.h"
#include "base/log.h"
#include "vercel/login.h"

#include <string.h>

static bool same(const struct sg_secret *a, const struct sg_secret *b)
{
    return a && b && sg_secret_len(a) == sg_secret_len(b) &&
           memcmp(sg_secret_bytes(a), sg_secret_bytes(b), sg_secret_len(a)) == 0;
}

static bool good(const struct config_login *l, const struct sg_secret *refused)
{
    bool lasts = !l->expires_ms || l->expires_ms - LOGIN_AHEAD_MS > sg_wall_ms();
    return l->access && lasts && !same(l->access, refused);
}

static enum sg_code cannot(struct sg_error *e, const char *why)
{
    return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "the CLI's login is not renewed: %s", why);
}

/* Under the lock. */
static enum sg_code renew(const struct config *c, const struct config_login *old, struct sg_error *e)
{
    if (!old->refresh)
        return cannot(e, "it has no refresh token; log in with Vercel's CLI again");
    const struct vercel_login how = {.issuer = c->cli_issuer,
                                     .client_id = c->cli_client_id,
                                     .proxy = c->proxy,
                                     .ca_bundle = c->ca_bundle,
                                     .refresh_token = old->refresh};
    struct vercel_tokens t;
    enum sg_code code = vercel_login_renew(&how, &t, e);
    if (code)
        return code;
    struct config_login fresh = {t.access, t.refresh, t.expires_ms};
    code = config_login_write(c, &fresh, e);
    config_login_clear(&fresh);
    sg_log(code ? SG_LOG_ERROR : SG_LOG_INFO, code ? "cli_login_lost" : "cli_login_renewed", NULL);
    return code;
}

enum sg_code login_keep(const struct config *c, const struct sg_secret *refused, int stop, struct sg_error *e)
{
    struct config_login l;
    enum sg_code code = config_login_read(c, &l, e);
    bool enough = !code && good(&l, refused);
    config_login_clear(&l);
    if (code || enough)
        return code;
    int lock = config_login_lock(c, stop);
    if (lock < 0)
        return cannot(e, "its directory cannot be written, or another process holds it");
    code = config_login_read(c, &l, e); /* somebody else may have renewed it meanwhile */
    if (!code && !good(&l, refused))
        code = renew(c, &l, e);
    config_login_clear(&l);
    config_login_unlock(lock);
    return code;
}
