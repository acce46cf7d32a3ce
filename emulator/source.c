#include "emulator/source.h"
#include "emulator/box.h"
#include "emulator/lifecycle.h"
#include "emulator/render.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file without a name. */
static int scratch(struct emulator *emu, struct api_error *e)
{
    char path[600];
    int n = snprintf(path, sizeof path, "%s/source-XXXXXX", emu->state_dir);
    int fd = n > 0 && (size_t)n < sizeof path ? mkostemp(path, O_CLOEXEC) : -1;
    if (fd < 0)
        return api_fail(e, 500, "internal_server_error", "cannot make a file for the source: %s",
                        strerror(errno));
    unlink(path);
    return fd;
}

int source_fetch(struct emulator *emu, const struct source_request *rq, struct source_files *out,
                 struct api_error *e)
{
    out->fd = -1;
    out->name[0] = '\0';
    if (rq->kind != SOURCE_GIT && rq->kind != SOURCE_TARBALL)
        return 0;
    int fd = scratch(emu, e);
    if (fd < 0)
        return -1;
    int rc = rq->kind == SOURCE_GIT ? source_clone(emu, rq, fd, e) : source_download(emu, rq->url, fd, e);
    if (!rc && lseek(fd, 0, SEEK_SET) < 0)
        rc = api_fail(e, 500, "internal_server_error", "cannot read the source: %s", strerror(errno));
    if (rc) {
        close(fd);
        return -1;
    }
    if (rq->kind == SOURCE_GIT)
        source_repository_name(rq->url, out->name);
    out->fd = fd;
    return 0;
}

int source_unpack(struct source_files *files, struct session *s, bool in_place, struct api_error *e)
{
    char cwd[256], text[BOX_TEXT] = "";
    bool nested = *files->name && !in_place;
    snprintf(cwd, sizeof cwd, "%s%s%s", EMULATOR_CWD, nested ? "/" : "", nested ? files->name : "");
    if (session_enter(s, e))
        return -1;
    int err = nested ? box_mkdir(s->box, EMULATOR_CWD, files->name, true) : 0;
    if (err) {
        snprintf(text, sizeof text, "%s", strerror(err));
    } else {
        err = box_untar(s->box, cwd, files->fd, text);
        files->fd = -1;
    }
    session_leave(s);
    return err ? api_fail(e, 400, "bad_request", "The source could not be unpacked: %s", text) : 0;
}

void source_files_close(struct source_files *files)
{
    if (files->fd >= 0)
        close(files->fd);
    files->fd = -1;
}

void source_recover(struct emulator *emu)
{
    source_git_recover(emu);
}
