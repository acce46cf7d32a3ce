#include "routes/process_act.h"

#include "base/json.h"
#include "routes/ended.h"

#include <string.h>

enum sg_code process_id(const struct exchange *ex, struct sg_error *e)
{
    if (sg_wire_id_valid(ex->params[1], strlen(ex->params[1])) && !sg_wire_id_own(ex->params[1]))
        return SG_OK;
    return sg_fail(e, SG_E_PROCESS_NOT_FOUND, SG_NOT_SENT, "no process can have this id");
}

enum sg_code process_take_resume(struct exchange *ex, struct sg_error *e)
{
    bool resume = false;
    enum sg_code rc = sg_json_bool(ex->body, "", "resume", &resume, e);
    if (!rc)
        (void)json_object_del(ex->body, "resume"); /* it may not be there */
    return rc;
}

bool process_ended_or_retried(struct act *a, const struct sg_error *e)
{
    if (!e)
        return false;
    if (!act_retry(a, e))
        a->fail(a, e);
    return true;
}

bool process_needs_root(const struct sg_error *e)
{
    return e && (e->code == SG_E_PERMISSION_DENIED || strcmp(e->errno_name, "EPERM") == 0 ||
                 strcmp(e->errno_name, "EACCES") == 0);
}

static void send_step(struct act *a);

static void on_done(void *arg, const struct sg_error *e)
{
    struct process_act *p = arg;
    if (process_needs_root(e) && !p->sudo && p->act.ex) {
        p->sudo = true;
        send_step(&p->act);
        return;
    }
    if (process_ended_or_retried(&p->act, e))
        return;
    if (++p->step < p->steps && p->act.ex) {
        send_step(&p->act);
        return;
    }
    if (act_settled(&p->act))
        ex_answer_empty(p->act.ex, p->status);
    act_free(&p->act);
}

static void send_step(struct act *a)
{
    struct process_act *p = (struct process_act *)a;
    struct sg_error e;
    struct process_target t = {.session = act_session(a), .id = a->ex->params[1], .sudo = p->sudo};
    if (p->send(p, &t, on_done, &e))
        a->fail(a, &e);
}

void process_act_begin(struct exchange *ex, const struct process_act *what)
{
    struct process_act *p = act_new(ex, sizeof *p, send_step, act_fail);
    if (!p)
        return;
    struct act act = p->act;
    *p = *what;
    p->act = act;
    ended_refuse(&p->act);
    act_begin(&p->act);
}
