#include "server/dev_child.h"

#include "base/buf.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE = 8192 };

struct dev_child {
    uv_process_t process;
    uv_pipe_t out, in; /* in: its control */
    int open;          /* handles that libuv still knows; the last one to close frees the memory */
    bool running, freed;
    const struct dev_child_events *ev;
    void *arg;
    struct sg_buf line;
    bool line_done;
    char chunk[1024];
};

static void on_closed(uv_handle_t *handle)
{
    struct dev_child *c = handle->data;
    if (--c->open)
        return;
    sg_buf_wipe(&c->line);
    explicit_bzero(c, sizeof *c); /* the line holds the emulator's token */
    free(c);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

static void on_process_exit(uv_process_t *process, int64_t status, int number)
{
    struct dev_child *c = process->data;
    c->running = false;
    if (!c->freed)
        c->ev->on_exit(c->arg, (int)status, number);
}

static void give_chunk(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct dev_child *c = handle->data;
    *buf = uv_buf_init(c->chunk, sizeof c->chunk);
}

/* Later lines are read and dropped, so that the child never blocks. */
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct dev_child *c = stream->data;
    if (n < 0) {
        close_handle((uv_handle_t *)&c->out);
        return;
    }
    if (c->line_done || n == 0)
        return;
    const char *lf = memchr(buf->base, '\n', (size_t)n);
    bool fits = sg_buf_add(&c->line, buf->base, lf ? (size_t)(lf - buf->base) : (size_t)n);
    if (!lf && fits)
        return;
    c->line_done = true;
    if (!c->freed)
        c->ev->on_line(c->arg, fits && c->line.data ? c->line.data : "");
}

static int spawn(struct dev_child *c, struct sg_loop *loop, char *const *argv)
{
    bool piped = c->ev->on_line != NULL;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD}, {.flags = UV_INHERIT_FD}};
    stdio[1].data.fd = STDERR_FILENO;
    stdio[2].data.fd = STDERR_FILENO;
    if (piped) {
        stdio[1].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
        stdio[1].data.stream = (uv_stream_t *)&c->out;
    }
    if (c->ev->control) {
        stdio[0].flags = UV_CREATE_PIPE | UV_READABLE_PIPE;
        stdio[0].data.stream = (uv_stream_t *)&c->in;
    }
    uv_process_options_t options = {
        .exit_cb = on_process_exit,
        .file = argv[0],
        .args = (char **)(uintptr_t)argv, /* libuv's type lacks the const; it does not write */
        .flags = UV_PROCESS_DETACHED,
        .stdio_count = 3,
        .stdio = stdio,
    };
    int rc = uv_spawn(sg_loop_uv(loop), &c->process, &options);
    if (rc == 0 && piped)
        rc = uv_read_start((uv_stream_t *)&c->out, give_chunk, on_read);
    return rc;
}

struct dev_child *dev_child_start(struct sg_loop *loop, char *const *argv, const struct dev_child_events *ev,
                                  void *arg, int *err)
{
    struct dev_child *c = calloc(1, sizeof *c);
    *err = -ENOMEM;
    if (!c)
        return NULL;
    c->ev = ev;
    c->arg = arg;
    sg_buf_init(&c->line, MAX_LINE);
    *err = uv_pipe_init(sg_loop_uv(loop), &c->out, 0);
    if (*err) {
        free(c);
        return NULL;
    }
    (void)uv_pipe_init(sg_loop_uv(loop), &c->in, 0); /* with the same loop and flags it cannot fail alone */
    c->out.data = c;
    c->in.data = c;
    c->process.data = c;
    c->open = 3; /* uv_spawn makes a handle of the process even when it fails */
    *err = spawn(c, loop, argv);
    if (*err) {
        dev_child_free(c);
        return NULL;
    }
    c->running = true;
    return c;
}

void dev_child_signal(struct dev_child *c, int number)
{
    if (!c->running)
        return;
    char word = number == SIGKILL ? 'K' : 'T';
    uv_buf_t buf = uv_buf_init(&word, 1);
    bool told = c->ev->control && uv_try_write((uv_stream_t *)&c->in, &buf, 1) == 1;
    if (!told || number == SIGKILL)
        (void)uv_process_kill(&c->process, number);
}

void dev_child_free(struct dev_child *c)
{
    if (!c || c->freed)
        return;
    c->freed = true;
    close_handle((uv_handle_t *)&c->out);
    close_handle((uv_handle_t *)&c->in);
    close_handle((uv_handle_t *)&c->process);
}

/* ---- where the program is ---- */

static const char name[] = "sandgate-emulator";

static bool try_path(char *out, size_t cap, const char *dir, size_t dir_len, const char *middle)
{
    int n = snprintf(out, cap, "%.*s/%s%s", (int)dir_len, dir, middle, name);
    return n > 0 && (size_t)n < cap && access(out, X_OK) == 0;
}

bool dev_find_emulator(char *out, size_t cap)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = '\0';
        size_t dir = (size_t)(strrchr(self, '/') - self);
        if (try_path(out, cap, self, dir, "") || try_path(out, cap, self, dir, "../emulator/"))
            return true;
    }
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t len = strcspn(path, ":");
        if (len && try_path(out, cap, path, len, ""))
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}
