#include "emulator/api.h"
#include "base/core/num.h"
#include "emulator/box.h"
#include "emulator/faults.h"
#include "emulator/journal.h"
#include "emulator/jsontext.h"
#include "emulator/layers.h"

#include <stdlib.h>
#include <string.h>

/* Calls about the emulator itself, for tests. Health is always there, the rest only with --admin. */

int api_admin_health(struct request *rq, struct reply *rp)
{
    struct emulator *emu = rq->emu;
    enum box_tier tier = box_host_tier(emu->host);
    sg_buf_adds(&rp->body, "{\"tier\":");
    jsontext_adds(&rp->body, box_tier_name(tier));
    sg_buf_adds(&rp->body, ",\"note\":");
    jsontext_adds(&rp->body, box_tier_note(tier));
    sg_buf_adds(&rp->body, ",\"version\":\"" EMULATOR_VERSION "\",\"base\":");
    jsontext_adds(&rp->body, emu->base);
    sg_buf_adds(&rp->body, "}");
    return 0;
}

static int need_admin(struct request *rq)
{
    return rq->emu->journal
               ? 0
               : api_fail(&rq->err, 404, "not_found", "Start the emulator with --admin for this.");
}

int api_admin_journal(struct request *rq, struct reply *rp)
{
    const char *after = request_query(rq, "after");
    uint64_t seq = 0;
    if (need_admin(rq))
        return -1;
    if (*after && !sg_parse_u64(after, strlen(after), UINT64_MAX - 1, &seq))
        return api_invalid(&rq->err, "`after` should be integer.");
    journal_render(rq->emu->journal, seq, &rp->body);
    return 0;
}

int api_admin_journal_clear(struct request *rq, struct reply *rp)
{
    if (need_admin(rq))
        return -1;
    journal_clear(rq->emu->journal);
    sg_buf_adds(&rp->body, "{}");
    return 0;
}

/* The body is a list of rules, one rule, or {"rules":[…]}. */
int api_admin_faults_add(struct request *rq, struct reply *rp)
{
    if (need_admin(rq))
        return -1;
    if (rq->body.failed)
        return api_fail(&rq->err, 413, "bad_request", "The request body is too large.");
    json_error_t je;
    json_t *v = json_loadb(rq->body.data ? rq->body.data : "", rq->body.len, JSON_REJECT_DUPLICATES, &je);
    if (!v)
        return api_fail(&rq->err, 400, "bad_request", "Invalid JSON: line %d column %d: %.100s", je.line,
                        je.column, je.text);
    int rc = faults_add(rq->emu->faults, v, &rq->err);
    json_decref(v);
    if (!rc)
        sg_buf_adds(&rp->body, "{}");
    return rc;
}

int api_admin_faults_list(struct request *rq, struct reply *rp)
{
    if (need_admin(rq))
        return -1;
    json_t *a = faults_list(rq->emu->faults);
    char *text = json_dumps(a, JSON_COMPACT);
    json_decref(a);
    sg_buf_adds(&rp->body, "{\"rules\":");
    sg_buf_adds(&rp->body, text ? text : "[]");
    sg_buf_adds(&rp->body, "}");
    free(text);
    return 0;
}

int api_admin_faults_clear(struct request *rq, struct reply *rp)
{
    if (need_admin(rq))
        return -1;
    faults_clear(rq->emu->faults);
    sg_buf_adds(&rp->body, "{}");
    return 0;
}
