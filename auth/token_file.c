/* The token file: read whole, replaced whole.  Writers exclude each other by a lock on a file beside it, since
 * the file itself changes its inode with every write. */
#include "auth/internal.h"

#include "base/clock.h"
#include "base/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void fill_id(const struct stat *st, struct token_file_id *id)
{
    id->exists = true;
    id->dev = (uint64_t)st->st_dev;
    id->ino = (uint64_t)st->st_ino;
    id->size = (uint64_t)st->st_size;
    id->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    id->ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

int token_file_stat(const char *path, struct token_file_id *id)
{
    struct stat st;
    memset(id, 0, sizeof *id);
    if (stat(path, &st) == 0)
        fill_id(&st, id);
    else if (errno != ENOENT)
        return -errno;
    return 0;
}

static int read_all(int fd, struct sg_buf *b)
{
    for (;;) {
        char *p = sg_buf_reserve(b, 4096);
        if (!p)
            return b->len + 4096 > b->max ? -EFBIG : -ENOMEM;
        ssize_t n = read(fd, p, 4096);
        if (n == 0)
            return 0;
        if (n > 0)
            b->len += (size_t)n;
        else if (errno != EINTR)
            return -errno;
    }
}

int token_file_read(const char *path, struct sg_buf *b, struct token_file_id *id)
{
    sg_buf_init(b, TOKEN_FILE_MAX);
    memset(id, 0, sizeof *id);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    struct stat st;
    int rc = fstat(fd, &st) ? -errno : 0;
    if (!rc && !S_ISREG(st.st_mode))
        rc = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    if (!rc) {
        fill_id(&st, id);
        rc = read_all(fd, b);
    }
    (void)close(fd);
    return rc;
}

static enum sg_code file_error(struct sg_error *e, const char *act, const char *path, int err)
{
    enum sg_code code = sg_fail(e, SG_E_FILE_ERROR, SG_NOT_SENT, "cannot %s %.150s: %s", act, path,
                                err == EFBIG ? "it is too large" : strerror(err));
    if (e)
        (void)snprintf(e->errno_name, sizeof e->errno_name, "%s", sg_errno_name(err));
    return code;
}

static enum sg_code out_of_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "out of memory");
}

/* ---- replacing ---- */

struct edit {
    char *path; /* where the file really is, links resolved */
    int lock;
    bool existed;
    uid_t uid;
    gid_t gid;
    struct sg_buf old, new;
};

static void edit_end(struct edit *ed)
{
    if (ed->lock >= 0)
        (void)close(ed->lock); /* unlocks */
    sg_buf_free(&ed->old);
    sg_buf_free(&ed->new);
    free(ed->path);
}

static enum sg_code edit_lock(struct edit *ed, struct sg_error *e)
{
    struct sg_buf name;
    sg_buf_init(&name, 8192);
    if (!sg_buf_addf(&name, "%s.lock", ed->path))
        return out_of_memory(e);
    enum sg_code code = SG_OK;
    ed->lock = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = ed->lock < 0 ? -1 : 0;
    while (!rc && (rc = flock(ed->lock, LOCK_EX)) && errno == EINTR)
        rc = 0;
    if (rc)
        code = file_error(e, "lock", name.data, errno);
    sg_buf_free(&name);
    return code;
}

static enum sg_code edit_begin(struct edit *ed, const char *path, struct sg_error *e)
{
    memset(ed, 0, sizeof *ed);
    ed->lock = -1;
    sg_buf_init(&ed->old, TOKEN_FILE_MAX);
    sg_buf_init(&ed->new, TOKEN_FILE_MAX - 4096); /* so that a reader's buffer holds it too */
    ed->path = realpath(path, NULL);
    if (!ed->path && errno == ENOENT)
        ed->path = strdup(path);
    if (!ed->path)
        return file_error(e, "open", path, errno);
    enum sg_code code = edit_lock(ed, e);
    if (code)
        return code;
    struct stat st;
    if (stat(ed->path, &st) == 0) {
        ed->existed = true;
        ed->uid = st.st_uid;
        ed->gid = st.st_gid;
    }
    struct token_file_id id;
    int rc = token_file_read(ed->path, &ed->old, &id);
    return rc ? file_error(e, "read", path, -rc) : SG_OK;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno != EINTR)
            return -1;
        if (w > 0) {
            p += w;
            n -= (size_t)w;
        }
    }
    return 0;
}

static void sync_directory(const char *path)
{
    char *copy = strdup(path);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd); /* the rename itself is done; this only makes it durable */
        (void)close(fd);
    }
    free(copy);
}

static enum sg_code edit_commit(struct edit *ed, struct sg_error *e)
{
    struct sg_buf tmp;
    sg_buf_init(&tmp, 8192);
    if (!sg_buf_addf(&tmp, "%s.XXXXXX", ed->path))
        return out_of_memory(e);
    enum sg_code code = SG_OK;
    int fd = mkostemp(tmp.data, O_CLOEXEC); /* 0600 */
    if (fd < 0) {
        code = file_error(e, "write beside", ed->path, errno);
        sg_buf_free(&tmp);
        return code;
    }
    /* root editing the file of a service must not lock the service out */
    int rc = ed->existed && geteuid() == 0 ? fchown(fd, ed->uid, ed->gid) : 0;
    if (!rc)
        rc = write_all(fd, ed->new.data ? ed->new.data : "", ed->new.len);
    if (!rc)
        rc = fsync(fd);
    int err = errno;
    if (close(fd) && !rc) {
        rc = -1;
        err = errno;
    }
    if (!rc && rename(tmp.data, ed->path)) {
        rc = -1;
        err = errno;
    }
    if (rc) {
        (void)unlink(tmp.data);
        code = file_error(e, "write", ed->path, err);
    } else {
        sync_directory(ed->path);
    }
    sg_buf_free(&tmp);
    return code;
}

/* ---- the acts ---- */

static const char *next_line(const struct sg_buf *b, size_t *pos, size_t *len)
{
    if (*pos >= b->len)
        return NULL;
    const char *line = b->data + *pos;
    const char *nl = memchr(line, '\n', b->len - *pos);
    *len = nl ? (size_t)(nl - line) : b->len - *pos;
    *pos += *len + 1;
    return line;
}

enum sg_code token_file_create(const char *path, const char *name, int64_t expires_at, const char *files_root,
                               char token[TOKEN_TEXT], struct sg_error *e)
{
    if (!files_root)
        files_root = "";
    if (!token_name_valid(name))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/name",
                             "a token's name is 1 to 63 bytes without control characters");
    if (files_root[0] && !token_root_valid(files_root))
        return sg_fail_field(
            e, SG_E_INVALID_FIELD, "/files_root",
            "the root of files is an absolute path below \"/\" of at most %d bytes, without \".\", "
            "\"..\", \"//\", control characters or a slash at its end",
            TOKEN_ROOT_MAX);
    struct token_entry entry = {.created_at = sg_wall_ms()};
    enum sg_code code = token_generate(token, e);
    if (code)
        return code;
    memcpy(entry.who.id, token + 4, TOKEN_ID_LEN);
    (void)snprintf(entry.who.name, sizeof entry.who.name, "%s", name);
    entry.who.expires_at = expires_at;
    memcpy(entry.who.files_root, files_root, strlen(files_root) + 1);
    sg_sha256(token, strlen(token), entry.hash);

    struct edit ed;
    code = edit_begin(&ed, path, e);
    if (!code) {
        /* what stands there stays as it is, lines that nobody understands included */
        bool ok = sg_buf_add(&ed.new, ed.old.data ? ed.old.data : "", ed.old.len);
        if (ok && ed.old.len && ed.old.data[ed.old.len - 1] != '\n')
            ok = sg_buf_adds(&ed.new, "\n");
        ok = ok && token_line_add(&ed.new, &entry);
        code = ok ? edit_commit(&ed, e) : file_error(e, "add to", path, EFBIG);
    }
    edit_end(&ed);
    if (code)
        explicit_bzero(token, TOKEN_TEXT);
    return code;
}

enum sg_code token_file_revoke(const char *path, const char *id, struct sg_error *e)
{
    struct edit ed;
    enum sg_code code = edit_begin(&ed, path, e);
    bool found = false;
    size_t pos = 0;
    size_t len;
    const char *line;
    while (!code && (line = next_line(&ed.old, &pos, &len)) != NULL) {
        struct token_entry entry;
        if (token_line_parse(line, len, &entry) && strcmp(entry.who.id, id) == 0)
            found = true;
        else if (!sg_buf_add(&ed.new, line, len) || !sg_buf_adds(&ed.new, "\n"))
            code = file_error(e, "rewrite", path, EFBIG);
    }
    if (!code && !found)
        code =
            sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "no token with the id \"%.20s\" in %.150s", id, path);
    if (!code)
        code = edit_commit(&ed, e);
    edit_end(&ed);
    return code;
}

enum sg_code token_file_each(const char *path, token_each_fn *fn, void *arg, struct sg_error *e)
{
    struct sg_buf b;
    struct token_file_id id;
    int rc = token_file_read(path, &b, &id);
    size_t pos = 0;
    size_t len;
    const char *line;
    while (!rc && (line = next_line(&b, &pos, &len)) != NULL) {
        struct token_entry entry;
        if (token_line_parse(line, len, &entry))
            fn(arg, &entry.who, entry.created_at);
    }
    sg_buf_free(&b);
    return rc ? file_error(e, "read", path, -rc) : SG_OK;
}
