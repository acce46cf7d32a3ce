#include "guest/record.h"

#include "base/core/num.h"
#include "guest/libc.h"
#include "guest/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char tomb_settled[] = "settled", tomb_removed[] = "removed";

const char *guest_root_path(void)
{
#ifdef SG_GUEST_TEST
    const char *env = getenv("SANDGATE_GUEST_ROOT");
    if (env)
        return env;
#endif
    return GUEST_DEFAULT_ROOT;
}

int dir_open(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Who the root belongs to when root itself has to create it: the user behind sudo. */
static uid_t sudo_id(const char *name)
{
    const char *s = getenv(name);
    uint64_t v = 0;
    if (s)
        (void)sg_parse_u64(s, strlen(s), INT32_MAX, &v);
    return (uid_t)v;
}

bool root_open(struct guest_root *r, bool create, struct guest_fail *f)
{
    const char *path = guest_root_path();
    bool made = create && mkdir(path, 0700) == 0;
    r->fd = dir_open(AT_FDCWD, path);
    if (r->fd < 0) {
        if (errno == ENOENT && !create)
            return guest_failed(f, SG_WF_NO_RECORD, 0, "nothing was started here");
        bool full = errno == ENOSPC || errno == EDQUOT;
        return guest_failed(f, full ? SG_WF_NO_SPACE : SG_WF_INTERNAL, errno, "root directory");
    }
    struct stat st;
    if (fstat(r->fd, &st))
        return guest_failed(f, SG_WF_INTERNAL, errno, "root directory");
    r->uid = st.st_uid;
    r->gid = st.st_gid;
    uid_t me = geteuid();
    if (me == 0 && made) {
        r->uid = sudo_id("SUDO_UID");
        r->gid = (gid_t)sudo_id("SUDO_GID");
        if (r->uid != 0 && fchown(r->fd, r->uid, r->gid))
            return guest_failed(f, SG_WF_INTERNAL, errno, "root directory");
    }
    r->chown = me == 0 && r->uid != 0;
    if (me != 0 && st.st_uid != me)
        return guest_failed(f, SG_WF_INTERNAL, EPERM, "root directory belongs to another user");
    if ((st.st_mode & 07777) != 0700 && fchmod(r->fd, 0700))
        return guest_failed(f, SG_WF_INTERNAL, errno, "root directory");
    return true;
}

bool root_own(const struct guest_root *r, int fd)
{
    return !r->chown || fchown(fd, r->uid, r->gid) == 0;
}

bool file_put(const struct guest_root *r, int dir, const char *name, const void *data, size_t len)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = root_own(r, fd);
    if (ok && len) {
        ssize_t n = pwrite(fd, data, len, 0);
        ok = n == (ssize_t)len;
        if (n >= 0 && !ok)
            errno = ENOSPC;
    }
    int err = errno;
    close(fd);
    if (!ok)
        unlinkat(dir, name, 0);
    errno = err;
    return ok;
}

/* ---- deleting ---- */

void tree_delete(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || (errno != EISDIR && errno != EPERM))
        return;
    int fd = dir_open(dir, name);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e; depth > 0 && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            tree_delete(fd, e->d_name, depth - 1);
    closedir(d);
    unlinkat(dir, name, AT_REMOVEDIR);
}

/* A fresh directory stream of dir; its own offset, NULL on failure. */
static DIR *dir_stream(int dir)
{
    int fd = dir_open(dir, ".");
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    return d;
}

void record_clear(int dir)
{
    DIR *d = dir_stream(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, "tombstone") != 0)
            tree_delete(dir, e->d_name, 4);
    closedir(d);
}

/* True while somebody holds the lock.  Only ever taken exclusively before the record has its name, so our
 * momentary shared lock is in nobody's way. */
static bool lock_held(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static bool record_is_alive(int dir)
{
    int fd = guest_open_file(dir, STATE_NAME);
    if (fd < 0)
        return false;
    bool held = lock_held(fd);
    close(fd);
    return held;
}

static bool session_is_live(int session)
{
    DIR *d = dir_stream(session);
    bool live = false;
    for (struct dirent *e; d && !live && (e = readdir(d));) {
        int rec =
            e->d_name[0] == '.' && strncmp(e->d_name, ".new-", 5) != 0 ? -1 : dir_open(session, e->d_name);
        if (rec < 0)
            continue;
        live = record_is_alive(rec);
        close(rec);
    }
    if (d)
        closedir(d);
    return live;
}

static void other_sessions_delete(const struct guest_root *r, const char *mine)
{
    DIR *d = dir_stream(r->fd);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, mine) == 0)
            continue;
        int fd = dir_open(r->fd, e->d_name); /* skips the installed helpers, which are files */
        if (fd < 0)
            continue;
        bool live = session_is_live(fd);
        close(fd);
        if (!live)
            tree_delete(r->fd, e->d_name, 4);
    }
    closedir(d);
}

int session_open(const struct guest_root *r, const char *session, bool create)
{
    bool made = false;
    int fd = dir_open(r->fd, session);
    if (fd < 0 && errno == ENOENT && create) {
        made = mkdirat(r->fd, session, 0700) == 0;
        if (!made && errno != EEXIST)
            return -1;
        fd = dir_open(r->fd, session);
    }
    if (fd < 0)
        return -1;
    if (made) {
        if (!root_own(r, fd)) {
            int err = errno;
            close(fd);
            errno = err;
            return -1;
        }
        other_sessions_delete(r, session);
    }
    return fd;
}

/* ---- making ---- */

static size_t tomb_text(enum tomb_kind kind, int err, const char *text, char line[SG_WIRE_LINE_MAX])
{
    struct guest_fail f;
    guest_failed(&f, kind == TOMB_EXEC ? SG_WF_EXEC : SG_WF_NOT_STARTED, err,
                 kind == TOMB_SETTLED   ? tomb_settled
                 : kind == TOMB_REMOVED ? tomb_removed
                                        : text);
    struct sg_wire_line l = {.kind = SG_WIRE_ERROR, .fail = f.code};
    memcpy(l.errno_name, f.errno_name, sizeof f.errno_name);
    snprintf(l.text, sizeof l.text, "%s", f.text);
    return sg_wire_format(line, &l);
}

bool tomb_put(const struct guest_root *r, int dir, enum tomb_kind kind, int err, const char *text)
{
    char line[SG_WIRE_LINE_MAX];
    size_t n = tomb_text(kind, err, text, line);
    unlinkat(dir, "tombstone.new", 0);
    return file_put(r, dir, "tombstone.new", line, n) &&
           renameat(dir, "tombstone.new", dir, "tombstone") == 0;
}

static bool draft_fill(const struct guest_root *r, const char *spec, const struct state_facts *facts,
                       struct draft *d)
{
    if (!root_own(r, d->dir))
        return false;
    if (!spec) {
        char line[SG_WIRE_LINE_MAX];
        size_t n = tomb_text(TOMB_SETTLED, 0, "", line);
        return file_put(r, d->dir, "tombstone", line, n);
    }
    d->state = openat(d->dir, STATE_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return d->state >= 0 && root_own(r, d->state) && flock(d->state, LOCK_EX | LOCK_NB) == 0 &&
           state_create(d->state, spec, facts);
}

bool draft_make(const struct guest_root *r, int session, const char *spec, const struct state_facts *facts,
                struct draft *d, struct guest_fail *f)
{
    *d = (struct draft){.dir = -1, .state = -1};
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(d->name, sizeof d->name, ".new-%d-%lx", (int)getpid(), (unsigned long)t.tv_nsec);
    bool ok = mkdirat(session, d->name, 0700) == 0;
    if (ok) {
        d->dir = dir_open(session, d->name);
        ok = d->dir >= 0 && draft_fill(r, spec, facts, d);
    }
    if (ok)
        return true;
    int err = errno;
    bool full = err == ENOSPC || err == EDQUOT;
    draft_drop(session, d);
    return guest_failed(f, full ? SG_WF_NO_SPACE : SG_WF_INTERNAL, err, "making the record");
}

bool draft_place(int session, struct draft *d, const char *id)
{
    int rc = libc_rename_new(session, d->name, session, id);
    /* Where the flag is unknown a plain rename is as good: it cannot replace a record, which is never empty. */
    if (rc && (errno == EINVAL || errno == ENOSYS))
        rc = renameat(session, d->name, session, id);
    if (rc && errno == ENOTEMPTY)
        errno = EEXIST;
    if (rc == 0)
        d->name[0] = '\0';
    return rc == 0;
}

void draft_drop(int session, struct draft *d)
{
    if (d->name[0])
        tree_delete(session, d->name, 2);
    if (d->dir >= 0)
        close(d->dir);
    if (d->state >= 0)
        close(d->state);
    *d = (struct draft){.dir = -1, .state = -1};
}

/* ---- reading ---- */

/* The state file of the record and whether its lock is held.  The lock first: once it is free nobody writes any
 * more, so what is read after it is final. */
static bool state_load(int dir, struct state *s)
{
    int fd = guest_open_file(dir, STATE_NAME);
    bool alive = false;
    memset(s, 0, sizeof *s);
    if (fd >= 0) {
        alive = lock_held(fd);
        state_read(fd, s);
        close(fd);
    }
    return alive;
}

bool record_has_spec(int dir, const char *spec)
{
    struct state s;
    (void)state_load(dir, &s);
    return state_has_spec(&s, spec);
}

/* Reads a file that holds one wire line, LF included: a torn one never parses. */
static bool load_line(int dir, const char *name, struct sg_wire_line *l)
{
    char buf[512];
    unsigned char scratch[SG_WIRE_DATA_MAX];
    long n = guest_read_file(dir, name, buf, sizeof buf);
    if (n <= 0)
        return false;
    const char *lf = memchr(buf, '\n', (size_t)n);
    return lf && sg_wire_parse(buf, (size_t)(lf - buf), scratch, l);
}

static bool load_started(const struct state *s, struct record *rec)
{
    struct state_started st;
    if (!state_started(s, &st))
        return false;
    rec->p.pid = (uint64_t)st.program;
    rec->p.started_ms = st.wall_ms;
    rec->program_start = st.program_start;
    /* The monitor says who it is at the same time as its child starts: what is seen of that is the start. */
    return state_monitor(s, &rec->monitor, &rec->monitor_start) || !rec->alive;
}

static void load_facts(const struct state *s, struct record *rec)
{
    struct state_facts f;
    if (!state_facts(s, &f))
        return;
    rec->p.terminal = f.terminal;
    rec->p.lossless = f.lossless;
    rec->p.input = f.input;
    rec->p.takes_input = f.takes_input && rec->alive;
    rec->p.paused = f.paused && rec->alive;
    rec->p.ends_unattended = f.ends_unattended && rec->alive;
}

static bool load_tomb(int dir, struct record *rec)
{
    struct sg_wire_line l;
    struct stat st;
    if (fstatat(dir, "tombstone", &st, AT_SYMLINK_NOFOLLOW))
        return false;
    rec->tomb = TOMB_SETTLED; /* also when its text was tampered with */
    guest_failed(&rec->why, SG_WF_NOT_STARTED, 0, tomb_settled);
    if (!load_line(dir, "tombstone", &l) || l.kind != SG_WIRE_ERROR)
        return true;
    if (l.fail == SG_WF_EXEC)
        rec->tomb = TOMB_EXEC;
    else if (strcmp(l.text, tomb_removed) == 0)
        rec->tomb = TOMB_REMOVED;
    rec->why.code = l.fail == SG_WF_EXEC ? SG_WF_EXEC : SG_WF_NOT_STARTED;
    memcpy(rec->why.errno_name, l.errno_name, sizeof rec->why.errno_name);
    memcpy(rec->why.text, l.text, sizeof rec->why.text - 1);
    return true;
}

static void load_exit(const struct sg_wire_process *x, struct record *rec)
{
    rec->p.state = SG_PS_FINISHED;
    rec->p.takes_input = false;
    rec->p.how = x->how;
    rec->p.value = x->value;
    rec->p.duration_ms = x->duration_ms;
    rec->p.descendants_hold_output = x->descendants_hold_output && rec->alive;
    rec->p.paused &= rec->p.descendants_hold_output;
    rec->p.output_incomplete = x->output_incomplete;
    for (unsigned s = 0; s < 2; s++)
        if (rec->p.end[s] < x->end[s])
            rec->p.end[s] = x->end[s];
}

static bool load(int dir, const char *id, bool extents, struct record *rec, struct guest_fail *f)
{
    memset(rec, 0, sizeof *rec);
    snprintf(rec->p.id, sizeof rec->p.id, "%s", id);
    struct state s;
    rec->alive = state_load(dir, &s);
    rec->p.state = SG_PS_NOT_STARTED;
    if (load_tomb(dir, rec))
        return true;
    struct sg_wire_process end;
    bool started = load_started(&s, rec);
    bool ended = state_exit(&s, &end);
    load_facts(&s, rec);
    /* An exit says where the output ends; but descendants may have gone on. */
    bool look = extents || (ended ? end.descendants_hold_output : !rec->alive);
    if (look && !segments_extent(dir, rec->p.oldest, rec->p.end))
        return guest_failed(f, SG_WF_INTERNAL, errno, "reading the record");
    if (ended) {
        load_exit(&end, rec);
    } else if (started) {
        rec->p.state = rec->alive ? SG_PS_RUNNING : SG_PS_UNKNOWN;
        rec->p.how = rec->alive ? SG_HOW_NONE : SG_HOW_UNKNOWN;
        rec->p.output_incomplete = !rec->alive;
    } else if (rec->alive) {
        rec->p.state = SG_PS_STARTING;
    } else {
        rec->tomb = TOMB_SETTLED;
        guest_failed(&rec->why, SG_WF_NOT_STARTED, 0, "the start was cut short");
    }
    return true;
}

bool record_load(int dir, const char *id, struct record *rec, struct guest_fail *f)
{
    return load(dir, id, true, rec, f);
}

bool record_poll(int dir, const char *id, struct record *rec, struct guest_fail *f)
{
    return load(dir, id, false, rec, f);
}
