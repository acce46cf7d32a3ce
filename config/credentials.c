/* Which credentials are in force, and whether they can be any good. */
#include "config/internal.h"

#include "base/clock.h"
#include "base/core/b64.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JWT_PAYLOAD = 16 * 1024, MAX_ID = CONFIG_ID_MAX };

/* The text between the two dots of a JWT, as padded base64. */
static char *payload_base64(const char *token, size_t *len)
{
    const char *first = strchr(token, '.');
    const char *second = first ? strchr(first + 1, '.') : NULL;
    if (!second || strchr(second + 1, '.') || second == first + 1)
        return NULL;
    size_t n = (size_t)(second - first - 1);
    if (n > MAX_JWT_PAYLOAD)
        return NULL;
    char *b = malloc(n + 4);
    if (!b)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        char c = first[1 + i];
        b[i] = c; /* base64url to base64 */
        if (c == '-')
            b[i] = '+';
        else if (c == '_')
            b[i] = '/';
    }
    while (n % 4)
        b[n++] = '=';
    *len = n;
    return b;
}

static void copy_claim(const json_t *o, const char *key, char out[MAX_ID + 1])
{
    const json_t *v = json_object_get(o, key);
    if (json_is_string(v) && json_string_length(v) <= MAX_ID)
        (void)snprintf(out, MAX_ID + 1, "%s", json_string_value(v));
}

int64_t config_seconds(const json_t *value)
{
    double at = json_number_value(value);
    return at >= 1 && at < 253402300800.0 ? (int64_t)at : 0; /* year 10000: beyond that it is no time */
}

struct token_claims config_token_claims(const char *token)
{
    struct token_claims c = {0};
    size_t n;
    char *b = payload_base64(token, &n);
    if (!b)
        return c;
    ssize_t len = sg_b64_decode(b, b, n);
    json_t *o = len > 0 ? json_loadb(b, (size_t)len, 0, NULL) : NULL;
    if (json_is_object(o)) {
        c.is_jwt = true;
        copy_claim(o, "owner_id", c.owner_id);
        copy_claim(o, "project_id", c.project_id);
        c.exp = config_seconds(json_object_get(o, "exp"));
    }
    json_decref(o);
    explicit_bzero(b, n);
    free(b);
    return c;
}

/* The variable's value without blanks around it; NULL when blank or unset. */
static const char *variable(const char *name, size_t *len)
{
    const char *v = getenv(name);
    if (!v)
        return NULL;
    v += strspn(v, " \t\r\n");
    size_t n = strlen(v);
    while (n && isspace((unsigned char)v[n - 1]))
        n--;
    *len = n;
    return n ? v : NULL;
}

static enum sg_code out_of_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
}

static enum sg_code take_token(struct config *c, const char *const *names, const char **source,
                               struct sg_error *e)
{
    for (; !c->token && *names; names++) {
        size_t len = 0;
        const char *v = variable(*names, &len);
        if (!v)
            continue;
        for (size_t i = 0; i < len; i++)
            if (!isgraph((unsigned char)v[i]))
                return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                               "%s holds a blank or another character that no token has", *names);
        if (!(c->token = sg_secret_new(v, len)))
            return out_of_memory(e);
        *source = *names;
    }
    return SG_OK;
}

static enum sg_code take_id(char **place, const char *const *names, struct sg_error *e)
{
    for (; !*place && *names; names++) {
        size_t len = 0;
        const char *v = variable(*names, &len);
        if (!v)
            continue;
        for (size_t i = 0; i < len; i++)
            if (len > MAX_ID || !isgraph((unsigned char)v[i]))
                return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%s is not an id", *names);
        if (!(*place = strndup(v, len)))
            return out_of_memory(e);
    }
    return SG_OK;
}

static enum sg_code take_environment(struct config *c, const char **source, struct sg_error *e)
{
    static const char *const tokens[] = {"VERCEL_OIDC_TOKEN", "VERCEL_TOKEN", NULL};
    static const char *const teams[] = {"VERCEL_TEAM_ID", "VERCEL_ORG_ID", NULL};
    static const char *const projects[] = {"VERCEL_PROJECT_ID", NULL};
    enum sg_code code = take_token(c, tokens, source, e);
    if (!code)
        code = take_id(&c->team_id, teams, e);
    if (!code)
        code = take_id(&c->project_id, projects, e);
    return code;
}

static enum sg_code take_source(struct config *c, enum config_token_kind kind, const char **source,
                                struct sg_error *e)
{
    static const char *const team[] = {"VERCEL_TEAM_ID", NULL};
    struct config_token t;
    enum sg_code code = config_fetch_token(c, -1, &t, e);
    if (code)
        return code;
    c->token = t.token;
    c->token_expires_ms = t.expires_ms;
    *source = kind == CONFIG_TOKEN_CLI ? "the stored login" : "the token that token_command printed";
    if (kind != CONFIG_TOKEN_CLI)
        return SG_OK;
    code = take_id(&c->team_id, team, e);
    return code || c->team_id ? code : config_cli_team(c, &c->team_id, e);
}

static enum sg_code no_token(bool env, struct sg_error *e)
{
    size_t len;
    if (env)
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                       "no upstream token: set token_file in [upstream] (SANDGATE_UPSTREAM_TOKEN_FILE), "
                       "VERCEL_OIDC_TOKEN or VERCEL_TOKEN");
    if (variable("VERCEL_OIDC_TOKEN", &len) || variable("VERCEL_TOKEN", &len))
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                       "no upstream token: set token_file in [upstream] (SANDGATE_UPSTREAM_TOKEN_FILE), or "
                       "credentials = env to use the VERCEL_ variables that are set");
    return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                   "no upstream token: set token_file in [upstream] or SANDGATE_UPSTREAM_TOKEN_FILE, with "
                   "team_id and project_id; or token_command, or credentials = env or cli");
}

static enum sg_code no_id(const char *key, const char *variables, bool env, struct sg_error *e)
{
    char name[48];
    (void)snprintf(name, sizeof name, "SANDGATE_UPSTREAM_%s", key);
    for (char *p = name; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                   "no upstream %s, and the token does not name one: set %s in [upstream], %s%s%s", key, key,
                   name, env ? ", or " : "", env ? variables : "");
}

static enum sg_code fill_from_claim(char **place, const char *claim, struct sg_error *e)
{
    if (*place || !*claim)
        return SG_OK;
    *place = strdup(claim);
    return *place ? SG_OK : out_of_memory(e);
}

enum sg_code config_resolve_credentials(struct config *c, struct sg_error *e)
{
    bool env = strcmp(c->credentials, "env") == 0;
    const char *source = "the upstream token";
    enum config_token_kind kind = config_token_source(c);
    enum sg_code code = env ? take_environment(c, &source, e) : SG_OK;
    if (!code && !c->token && (kind == CONFIG_TOKEN_COMMAND || kind == CONFIG_TOKEN_CLI))
        code = take_source(c, kind, &source, e);
    if (code)
        return code;
    if (!c->token)
        return no_token(env, e);
    struct token_claims claims = config_token_claims(sg_secret_bytes(c->token));
    if (claims.exp)
        c->token_expires_ms = claims.exp * 1000;
    if (c->token_expires_ms && c->token_expires_ms <= sg_wall_ms()) {
        char when[SG_TIME_TEXT];
        sg_time_format(c->token_expires_ms, when);
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "%s expired at %s; get a new one", source, when);
    }
    code = fill_from_claim(&c->team_id, claims.owner_id, e);
    if (!code)
        code = fill_from_claim(&c->project_id, claims.project_id, e);
    if (code)
        return code;
    if (!c->team_id)
        return no_id("team_id", "VERCEL_TEAM_ID or VERCEL_ORG_ID", env, e);
    if (!c->project_id)
        return no_id("project_id", "VERCEL_PROJECT_ID", env, e);
    return SG_OK;
}
