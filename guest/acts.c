#include "guest/acts.h"

#include "base/core/b64.h"
#include "base/core/carrier.h"
#include "guest/ctl.h"
#include "guest/files.h"
#include "guest/follow.h"
#include "guest/libc.h"
#include "guest/out.h"
#include "guest/start.h"
#include "guest/tree.h"
#include "guest/user.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_WAIT_MS = 10000, /* for another call's start of the same id to be decided */
    REMOVE_WAIT_MS = 5000, /* for a killed process's monitor to finish its record */
    ORPHAN_LOOK_MS = 20,
};

static bool no_record(struct guest_fail *f)
{
    return guest_failed(f, SG_WF_NO_RECORD, 0, "no process of this id in this session");
}

static int session_for(const struct guest_root *root, const struct guest_args *a, bool create,
                       struct guest_fail *f)
{
    int fd = session_open(root, a->session, create);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT && !create)
        no_record(f);
    else
        guest_failed(f, errno == ENOSPC || errno == EDQUOT ? SG_WF_NO_SPACE : SG_WF_INTERNAL, errno,
                     "session directory");
    return -1;
}

/* Opens the record that the arguments name; -1 with *f. */
static int record_for(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    int session = session_for(root, a, false, f);
    if (session < 0)
        return -1;
    int dir = dir_open(session, a->id);
    int err = errno;
    close(session);
    if (dir < 0 && err == ENOENT)
        no_record(f);
    else if (dir < 0)
        guest_failed(f, SG_WF_INTERNAL, err, "opening the record");
    return dir;
}

/* The variables that the program gets: all of ours, or the named ones.  NULL when out of memory. */
static char **program_env(const struct guest_args *a)
{
    if (!a->clear_env && a->keep_env_count == 0)
        return environ;
    char **env = calloc(a->keep_env_count + 1, sizeof *env);
    size_t n = 0;
    for (size_t k = 0; env && k < a->keep_env_count; k++) {
        size_t len = strlen(a->keep_env[k]);
        bool twice = false;
        for (size_t j = 0; j < k; j++)
            twice |= strcmp(a->keep_env[j], a->keep_env[k]) == 0;
        for (char **e = environ; !twice && e && *e; e++)
            if (strncmp(*e, a->keep_env[k], len) == 0 && (*e)[len] == '=') {
                env[n++] = *e;
                break;
            }
    }
    return env;
}

/* The program: the one that was asked for, or we ourselves.  NULL when out of memory. */
static char *const *program_argv(const struct guest_args *a, char ***owned)
{
    static char self[] = "/proc/self/exe";
    size_t n = 0;
    if (!a->own)
        return a->argv;
    while (a->argv[n])
        n++;
    char **argv = *owned = calloc(n + 2, sizeof *argv);
    if (!argv)
        return NULL;
    argv[0] = self;
    memcpy(argv + 1, a->argv, n * sizeof *argv);
    return argv;
}

static bool start_and_show(const struct guest_root *root, int session, const struct guest_args *a,
                           struct monitor_spec *m, int bell, struct guest_fail *f)
{
    int dir = -1;
    struct record rec;
    enum start_result res = start_program(root, session, a->id, a->spec, m, &dir, f);
    if (m->bell >= 0)
        close(m->bell);
    if (a->input_file)
        (void)unlinkat(root->fd, a->input_file, 0);
    bool ok = res != START_FAILED;
    if (ok && (res == START_OLD || a->command == CMD_START)) {
        ok = record_wait(dir, a->id, false, guest_now_ms() + START_WAIT_MS, &rec, f);
        if (ok && rec.tomb) {
            *f = rec.why;
            ok = false;
        }
    }
    if (ok && a->command == CMD_START) {
        out_hello(&rec.p);
        out_kind(SG_WIRE_OK, NULL);
    } else if (ok) {
        struct follow_spec fs = {.max_output = a->max_output,
                                 .attend = a->unattended_ms > 0,
                                 .bell = res == START_NEW ? bell : -1};
        ok = follow_run(dir, a->id, &fs, f);
    }
    if (dir >= 0)
        close(dir);
    return ok;
}

/* What the program reads first.  An upload stays where it is until the record is placed, so that whoever asks again
 * finds one of both; it is not needed any more when the record is there. */
static bool first_input(const struct guest_root *root, int session, const struct guest_args *a,
                        unsigned char **data, size_t *len, struct guest_fail *f)
{
    if (a->data) {
        size_t n = strlen(a->data);
        *data = malloc(n);
        if (!*data)
            return guest_failed(f, SG_WF_INTERNAL, ENOMEM, "no memory");
        *len = (size_t)sg_b64_decode(*data, a->data, n); /* args_parse has seen that it can be */
        return true;
    }
    if (!a->input_file || upload_read(root, a->input_file, SG_CARRIER_SPOOL, data, len, f))
        return true;
    return f->code == SG_WF_FILE && libc_exists(session, a->id);
}

bool act_start(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    if (a->user && !user_is(a->user))
        return guest_failed(f, SG_WF_USER, 0,
                            "programs run as the sandbox's default user, or as root; not as this one");
    int session = session_for(root, a, true, f);
    if (session < 0)
        return false;
    char **env = program_env(a), **own = NULL;
    char *const *argv = program_argv(a, &own);
    int bell[2] = {-1, -1};
    unsigned char *input = NULL;
    size_t input_len = 0;
    bool ok = (env && argv) || guest_failed(f, SG_WF_INTERNAL, ENOMEM, "no memory");
    ok = ok && first_input(root, session, a, &input, &input_len, f);
    if (ok && a->command == CMD_RUN && pipe2(bell, O_CLOEXEC | O_NONBLOCK))
        ok = guest_failed(f, SG_WF_INTERNAL, errno, "pipe");
    if (ok) {
        struct monitor_spec m = {.root = root,
                                 .cwd = a->cwd,
                                 .timeout_ms = a->timeout_ms,
                                 .retain = a->retain,
                                 .argv = argv,
                                 .env = env,
                                 .bell = bell[1],
                                 .cols = (uint16_t)a->cols,
                                 .rows = (uint16_t)a->rows,
                                 .input_open = a->input_open,
                                 .input = input,
                                 .input_len = input_len,
                                 .lossless = a->lossless,
                                 .lease_ms = a->lease_ms,
                                 .unattended_ms = a->unattended_ms,
                                 .own_id = a->own ? a->id : NULL};
        ok = start_and_show(root, session, a, &m, bell[0], f);
    }
    free(input);
    free(own);
    if (bell[0] >= 0)
        close(bell[0]);
    close(session);
    if (env != environ)
        free(env);
    return ok;
}

bool act_follow(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    int dir = record_for(root, a, f);
    if (dir < 0)
        return false;
    struct follow_spec fs = {
        .offset = {a->offset[0], a->offset[1]},
        .from_tail = a->has_tail,
        .tail = a->tail,
        .attend = a->attend,
        .read = a->has_limit || a->has_wait || a->only,
        .only = (unsigned)a->only,
        .limit = a->has_limit ? a->limit : GUEST_FOLLOW_BYTES,
        .wait_ms = a->wait_ms < GUEST_WAIT_MAX_MS ? a->wait_ms : GUEST_WAIT_MAX_MS,
        .max_output = INT64_MAX,
        .bell = -1,
    };
    bool ok = follow_run(dir, a->id, &fs, f);
    close(dir);
    return ok;
}

bool act_status(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    int dir = record_for(root, a, f);
    if (dir < 0)
        return false;
    struct record rec;
    uint64_t wait = a->wait_ms < GUEST_WAIT_MAX_MS ? a->wait_ms : GUEST_WAIT_MAX_MS;
    bool ok = record_wait(dir, a->id, true, guest_now_ms() + wait, &rec, f);
    close(dir);
    if (!ok)
        return false;
    if (rec.tomb == TOMB_REMOVED)
        return no_record(f);
    out_process(&rec.p);
    out_kind(SG_WIRE_OK, NULL);
    return true;
}

/* ---- list ---- */

static int by_start(const void *a, const void *b)
{
    const struct sg_wire_process *x = a, *y = b;
    if (x->started_ms != y->started_ms)
        return x->started_ms < y->started_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

bool act_list(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    struct sg_wire_process *list = NULL;
    size_t n = 0, cap = 0;
    int session = session_open(root, a->session, false);
    DIR *d = session < 0 ? NULL : fdopendir(session);
    if (!d && errno != ENOENT)
        return guest_failed(f, SG_WF_INTERNAL, errno, "session directory");
    bool ok = true;
    for (struct dirent *e; d && ok && n < GUEST_LIST_MAX && (e = readdir(d));) {
        struct record rec;
        bool shown = sg_wire_id_valid(e->d_name, strlen(e->d_name)) && !sg_wire_id_own(e->d_name);
        int dir = shown ? dir_open(session, e->d_name) : -1;
        if (dir < 0)
            continue;
        bool loaded = record_load(dir, e->d_name, &rec, f);
        close(dir);
        if (!loaded || rec.tomb)
            continue;
        if (n == cap) {
            cap = cap ? cap * 2 : 64;
            struct sg_wire_process *more = realloc(list, cap * sizeof *list);
            if (!more) {
                ok = guest_failed(f, SG_WF_INTERNAL, ENOMEM, "no memory");
                break;
            }
            list = more;
        }
        list[n++] = rec.p;
    }
    if (d)
        closedir(d);
    if (ok && n)
        qsort(list, n, sizeof *list, by_start);
    for (size_t i = 0; ok && list && i < n; i++)
        out_process(&list[i]);
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    free(list);
    return ok;
}

/* ---- signals ---- */

static bool finished(struct guest_fail *f)
{
    return guest_failed(f, SG_WF_FINISHED, 0, "the process has ended");
}

/* The root of what is left of the process: its monitor, or (the monitor was killed) the program itself. */
static bool signal_tree(const struct record *rec, int sig, struct guest_fail *f)
{
    struct tree_result res = {0};
    if (rec->alive && !rec->monitor_start)
        return guest_failed(f, SG_WF_INTERNAL, ENOSYS, "no usable /proc, so no safe way to signal");
    if (rec->alive) {
        (void)tree_signal(rec->monitor, rec->monitor_start, sig, &res);
    } else if (rec->p.state == SG_PS_UNKNOWN && rec->program_start) {
        (void)tree_signal((pid_t)rec->p.pid, rec->program_start, sig, &res);
        if (tree_signal_one((pid_t)rec->p.pid, rec->program_start, sig))
            res.signalled++;
        else if (errno == EPERM)
            res.denied++;
    }
    if (res.denied)
        return guest_failed(f, SG_WF_INTERNAL, EPERM, "a process of another user is in the tree");
    return res.signalled || finished(f);
}

static bool record_live(int dir, const char *id, struct record *rec, struct guest_fail *f)
{
    if (!record_wait(dir, id, false, guest_now_ms() + START_WAIT_MS, rec, f))
        return false;
    if (rec->tomb == TOMB_REMOVED)
        return no_record(f);
    if (rec->tomb) {
        *f = rec->why;
        return false;
    }
    return true;
}

static bool signal_program(const struct record *rec, int sig, struct guest_fail *f)
{
    bool running = rec->p.state == SG_PS_RUNNING || rec->p.state == SG_PS_UNKNOWN;
    if (running && rec->program_start && tree_signal_one((pid_t)rec->p.pid, rec->program_start, sig))
        return true;
    if (running && errno == EPERM)
        return guest_failed(f, SG_WF_INTERNAL, EPERM, "the process belongs to another user");
    return finished(f);
}

bool act_signal(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    int dir = record_for(root, a, f);
    if (dir < 0)
        return false;
    struct record rec;
    bool ok = record_live(dir, a->id, &rec, f) && (a->only_program ? signal_program(&rec, (int)a->signal, f)
                                                                   : signal_tree(&rec, (int)a->signal, f));
    close(dir);
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    return ok;
}

/* ---- controls ---- */

int act_record(const struct guest_root *root, const struct guest_args *a, struct record *rec,
               struct guest_fail *f)
{
    int dir = record_for(root, a, f);
    if (dir < 0 || record_live(dir, a->id, rec, f))
        return dir;
    close(dir);
    return -1;
}

void act_why(int dir, const char *id, struct guest_fail *f)
{
    struct record rec;
    struct guest_fail unread;
    if (f->code != SG_WF_FINISHED && record_load(dir, id, &rec, &unread) && !rec.alive)
        (void)finished(f);
}

static bool control(int dir, const struct guest_args *a, struct sg_wire_line *answer, struct guest_fail *f)
{
    switch ((int)a->command) {
    case CMD_WRITE:
        return ctl_act(dir, answer, f, "W %" PRIu64 " %s", a->at, a->data);
    case CMD_CLOSE:
        return ctl_act(dir, answer, f, "C %" PRIu64, a->at);
    case CMD_RESIZE:
        return ctl_act(dir, answer, f, "R %" PRIu64 " %" PRIu64, a->cols, a->rows);
    case CMD_CANCEL:
        return ctl_act(dir, answer, f, "T %" PRIu64 " %" PRIu64, a->signal, a->grace_ms);
    case CMD_ACK:
        return ctl_act(dir, answer, f, "K %" PRIu64 " %" PRIu64, a->offset[0], a->offset[1]);
    case CMD_LEASE:
        return ctl_act(dir, answer, f, "L %" PRIu64, a->lease_ms);
    default:
        return ctl_act(dir, answer, f, "U %" PRIu64, a->unattended_ms);
    }
}

/* Of a program whose monitor was killed, so that nobody but us can wait for the grace to pass. */
static bool cancel_orphan(const struct record *rec, const struct guest_args *a, struct guest_fail *f)
{
    uint64_t grace = a->grace_ms < GUEST_WAIT_MAX_MS ? a->grace_ms : GUEST_WAIT_MAX_MS;
    uint64_t end = guest_now_ms() + grace;
    if (!signal_tree(rec, (int)a->signal, f))
        return false;
    while (guest_now_ms() < end && proc_start_time((pid_t)rec->p.pid) == rec->program_start)
        (void)poll(NULL, 0, ORPHAN_LOOK_MS);
    struct guest_fail rest;
    if (signal_tree(rec, SIGKILL, &rest) || rest.code == SG_WF_FINISHED)
        return true;
    *f = rest;
    return false;
}

bool act_control(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    struct record rec;
    struct sg_wire_line answer;
    int dir = act_record(root, a, &rec, f);
    if (dir < 0)
        return false;
    bool ok = control(dir, a, &answer, f);
    if (ok && answer.kind == SG_WIRE_ACCEPTED)
        out_line(&answer);
    if (!ok)
        act_why(dir, a->id, f);
    if (!ok && a->command == CMD_CANCEL && f->code == SG_WF_FINISHED && rec.p.state == SG_PS_UNKNOWN)
        ok = cancel_orphan(&rec, a, f);
    close(dir);
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    return ok;
}

bool act_settle(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    int session = session_for(root, a, true, f);
    bool won;
    if (session < 0)
        return false;
    if (!start_settle(root, session, a->id, &won, f)) {
        close(session);
        return false;
    }
    int dir = dir_open(session, a->id);
    close(session);
    if (dir < 0)
        return guest_failed(f, SG_WF_INTERNAL, errno, "opening the record");
    struct record rec;
    bool ok = record_wait(dir, a->id, false, guest_now_ms() + START_WAIT_MS, &rec, f);
    close(dir);
    if (!ok)
        return false;
    out_hello(&rec.p);
    out_kind(SG_WIRE_OK, won ? "settled" : NULL);
    return true;
}

/* Kills what runs and waits for the monitor to let go of the record. */
static bool end_process(int dir, const char *id, struct guest_fail *f)
{
    struct record rec;
    struct guest_fail killed = {.code = SG_WF_FINISHED};
    if (!record_load(dir, id, &rec, f))
        return false;
    if ((rec.alive || rec.p.state == SG_PS_UNKNOWN) && !signal_tree(&rec, SIGKILL, &killed) &&
        killed.code != SG_WF_FINISHED) {
        *f = killed;
        return false;
    }
    for (uint64_t end = guest_now_ms() + REMOVE_WAIT_MS; rec.alive;) {
        if (guest_now_ms() >= end)
            return guest_failed(f, SG_WF_INTERNAL, ETIMEDOUT, "the process does not end");
        record_pause(dir, end);
        if (!record_load(dir, id, &rec, f))
            return false;
    }
    return true;
}

bool act_remove(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    int dir = record_for(root, a, f);
    if (dir < 0)
        return false;
    struct record rec;
    bool ok = record_live(dir, a->id, &rec, f);
    if (!ok && f->code != SG_WF_NO_RECORD && rec.tomb)
        ok = true; /* nothing ran: only the tombstone's text changes */
    ok = ok && end_process(dir, a->id, f);
    if (ok && !tomb_put(root, dir, TOMB_REMOVED, 0, ""))
        ok = guest_failed(f, errno == ENOSPC ? SG_WF_NO_SPACE : SG_WF_INTERNAL, errno,
                          "writing the tombstone");
    if (ok)
        record_clear(dir);
    close(dir);
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    return ok;
}
