#include "emulator/account.h"
#include "emulator/api.h"
#include "emulator/jsontext.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What the CLI asks about the account: one user, one team of the free plan that he owns, and the projects that
 * were made.  Sandboxes take any team and project: these answers are for clients that must find theirs. */

int api_user_get(struct request *rq, struct reply *rp)
{
    (void)rq;
    sg_buf_adds(&rp->body,
                "{\"user\":{\"id\":\"" ACCOUNT_USER "\",\"username\":\"" ACCOUNT_USER
                "\",\"email\":\"local@emulator.invalid\",\"name\":\"Local\",\"defaultTeamId\":\"" ACCOUNT_TEAM
                "\"}}");
    return 0;
}

static const char team[] =
    "{\"id\":\"" ACCOUNT_TEAM "\",\"slug\":\"" ACCOUNT_SLUG
    "\",\"name\":\"Local\",\"createdAt\":0,\"updatedAt\":0,"
    "\"membership\":{\"role\":\"OWNER\",\"confirmed\":true},\"billing\":{\"plan\":\"hobby\"}}";

int api_team_list(struct request *rq, struct reply *rp)
{
    (void)rq;
    sg_buf_adds(&rp->body, "{\"teams\":[");
    sg_buf_adds(&rp->body, team);
    sg_buf_adds(&rp->body, "],\"pagination\":{\"count\":1,\"next\":null,\"prev\":null}}");
    return 0;
}

int api_team_get(struct request *rq, struct reply *rp)
{
    if (strcmp(rq->param[0], ACCOUNT_TEAM) != 0 && strcmp(rq->param[0], ACCOUNT_SLUG) != 0)
        return api_fail(&rq->err, 404, "not_found", "Team not found");
    sg_buf_adds(&rp->body, team);
    return 0;
}

static void render_project(struct sg_buf *out, const struct account_project *p)
{
    sg_buf_adds(out, "{\"id\":");
    jsontext_adds(out, p->id);
    sg_buf_adds(out, ",\"name\":");
    jsontext_adds(out, p->name);
    sg_buf_addf(out,
                ",\"accountId\":\"" ACCOUNT_TEAM "\",\"createdAt\":%" PRId64 ",\"updatedAt\":%" PRId64 "}",
                p->created_ms, p->created_ms);
}

int api_project_get(struct request *rq, struct reply *rp)
{
    struct account_project p;
    if (!account_project(rq->emu->account, rq->param[0], &p))
        return api_fail(&rq->err, 404, "not_found", "Project not found.");
    render_project(&rp->body, &p);
    return 0;
}

static bool project_name_ok(const char *s)
{
    size_t n = s ? strlen(s) : 0;
    return n > 0 && n <= 100 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n &&
           !strstr(s, "---");
}

int api_project_create(struct request *rq, struct reply *rp)
{
    struct account_project p;
    const json_t *body = request_json(rq);
    if (!body)
        return -1;
    const char *name = json_string_value(json_object_get(body, "name"));
    if (!project_name_ok(name))
        return api_invalid(&rq->err,
                           "`name` should have up to 100 lower-case letters, digits, '.', '_', '-'.");
    int rc = account_project_add(rq->emu->account, name, &p);
    if (rc == EEXIST)
        return api_fail(&rq->err, 409, "conflict", "Project \"%s\" already exists, please use a new name.",
                        name);
    if (rc)
        return api_fail(&rq->err, 500, "internal_error", "The project could not be stored.");
    render_project(&rp->body, &p);
    return 0;
}

/* What the OIDC refresh of the SDK asks for.  Any project will do: sandboxes take any. */
int api_project_token(struct request *rq, struct reply *rp)
{
    const char *team_id = request_query(rq, "teamId");
    char *jwt = NULL;
    if (strlen(rq->param[0]) < ACCOUNT_NAME_TEXT && strlen(team_id) < ACCOUNT_NAME_TEXT)
        jwt = account_jwt(rq->emu->account, *team_id ? team_id : ACCOUNT_TEAM, rq->param[0]);
    if (!jwt)
        return api_fail(&rq->err, 400, "bad_request", "No token can be made for this project.");
    sg_buf_adds(&rp->body, "{\"token\":");
    jsontext_adds(&rp->body, jwt);
    sg_buf_adds(&rp->body, "}");
    free(jwt);
    return 0;
}

/* Takes what the CLI tells about its use, and keeps nothing of it. */
int api_telemetry(struct request *rq, struct reply *rp)
{
    (void)rq;
    sg_buf_adds(&rp->body, "{}");
    return 0;
}

/* The probe that clients make before they open a terminal. */
int api_health(struct request *rq, struct reply *rp)
{
    (void)rq;
    sg_buf_adds(&rp->body, "{\"status\":\"ok\"}");
    return 0;
}
