/* Commands that the gateway itself runs in a sandbox: init, on_start, the preparation of templates, checks of images.  Each is a
 * recorded process, run as any other, exactly once by its id.
 */
#ifndef SG_CONTROL_STEPS_H
#define SG_CONTROL_STEPS_H

#include "control/sandboxes.h"

enum { STEPS_MAX = 64, STEP_TIMEOUT_MS = 10 * 60 * 1000, STEP_TIMEOUT_MAX_MS = 60 * 60 * 1000 };

/* Checks an array of steps, each {argv | shell, cwd?, env?, env_mode?, user?, sudo?, timeout_ms?, name?, background?}, as the
 * body of `run` is checked; `base` is the array's pointer ("/init").  background: the next step begins once it runs, and how
 * it ends is nobody's matter.  Pure. */
SG_MUST_CHECK enum sg_code steps_check(const json_t *steps, const char *base, struct sg_error *e);

struct step_session { /* borrowed */
    const char *sandbox, *session_id, *cwd, *arch;
};
struct step_result {
    int exit_code; /* -1: ended by `signal` */
    int signal;
    bool timed_out;
};
/* Output as it comes, on the thread that runs the step; it may block, the process waits then.  With len 0 now and then
 * while nothing comes. */
typedef void step_output_fn(void *arg, int stream, const void *data, size_t len);

/* How steps are run: given from above (relay/), for control/ knows no processes.  Blocking; any thread but the loop's.
 * DRAINING once the gateway shuts down: the process goes on, and is found again by its id. */
struct step_runner {
    /* step: checked by steps_check.  id: the process id; the same id again is the same run, whose end is waited for and
     * whose output comes again.  background: returns once it runs, without output.  STALE_SESSION and what relay/ says;
     * that a program failed is a success here, told by *res. */
    enum sg_code (*run)(void *arg, const struct step_session *s, const json_t *step, const char *id,
                        bool background, step_output_fn *output, void *output_arg, struct step_result *res,
                        struct sg_error *e);
    void *arg;
};
void control_set_step_runner(struct control *c, const struct step_runner *r);

/* The step at `place` (from 0), as steps_run. */
SG_MUST_CHECK enum sg_code steps_run_one(struct control *c, const struct step_session *s, const json_t *step,
                                         size_t place, const char *id, step_output_fn *output,
                                         void *output_arg, struct sg_error *e);

enum { STEP_ID_BASE_MAX = 56 };
/* All of them in order; steps may be NULL, and output too. the ids are made of `id_base` (STEP_ID_BASE_MAX characters) and their place, so that going on after a gateway died runs none
 * twice.  The first that does not end with 0 ends it: STEP_FAILED names it by its place and name, with its exit code and the
 * last line of its stderr in the detail. */
SG_MUST_CHECK enum sg_code steps_run(struct control *c, const struct step_session *s, const json_t *steps,
                                     const char *id_base, step_output_fn *output, void *output_arg,
                                     struct sg_error *e);

/* The base check: whether the image has what programs and the gateway's own calls need.  IMAGE_UNSUITABLE names what is
 * missing.  A session that passed is not checked again. */
SG_MUST_CHECK enum sg_code steps_base_check(struct control *c, const struct step_session *s,
                                            struct sg_error *e);
/* The same, also of a session that passed before. */
SG_MUST_CHECK enum sg_code steps_base_check_again(struct control *c, const struct step_session *s,
                                                  struct sg_error *e);

#endif
