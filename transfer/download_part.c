#include "transfer/download_impl.h"

#include <stdio.h>

/* Not what was put aside: somebody has written to it, or it is gone.  It is put aside once more. */
static void damaged(struct download *d, const struct sg_error *e)
{
    if (!download_repeats(d, d->part.from) ||
        !download_later(d, e, &d->read_tries, DOWNLOAD_TRIES, &d->call_later)) {
        download_end(d, e);
        return;
    }
    download_rewind(d);
    download_step(d);
}

static void wrong_length(struct download *d)
{
    struct sg_error e;
    if (d->read)
        vercel_call_cancel(d->read);
    d->read = NULL;
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                  "what the helper put aside in the sandbox has another length now");
    damaged(d, &e);
}

static void on_head(void *arg, int status, const char *content_type, int64_t content_length)
{
    struct download *d = arg;
    (void)status;
    (void)content_type;
    if (content_length >= 0 && (uint64_t)content_length != d->part.bytes)
        wrong_length(d);
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct download *d = arg;
    if (len > d->part.bytes - d->read_at) {
        wrong_length(d);
        return false;
    }
    if (!download_deliver(d, d->part.from + d->read_at, data, len)) {
        d->read_waits = !d->gone;
        return false;
    }
    d->read_at += len;
    return true;
}

static void vanished(struct download *d)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_UNAVAILABLE, SG_FINISHED,
                  "what the helper put aside in the sandbox is gone");
    damaged(d, &e);
}

/* Only this part is read again. */
void download_read_failed(struct download *d, const struct sg_error *e)
{
    if (e->code == SG_E_FILE_NOT_FOUND)
        vanished(d);
    else if (download_later(d, e, &d->read_tries, DOWNLOAD_TRIES, &d->read_later))
        download_step(d);
    else
        download_end(d, e);
}

static void on_done(void *arg, const struct sg_error *e)
{
    struct download *d = arg;
    d->read = NULL;
    if (d->read_at == d->part.bytes) {
        download_part_drop(d, &d->part);
        download_step(d);
    } else if (e) {
        download_read_failed(d, e);
    } else {
        wrong_length(d);
    }
}

enum sg_code download_read_start(struct download *d, struct sg_error *e)
{
    static const struct vercel_events ev = {.on_head = on_head, .on_data = on_data, .on_done = on_done};
    char path[sizeof GUEST_ROOT + DOWNLOAD_NAME], name[DOWNLOAD_NAME];
    download_name(d, d->part.n, name);
    (void)snprintf(path, sizeof path, "%s/%s", GUEST_ROOT, name);
    d->read_at = 0;
    d->read_waits = false;
    d->read = vercel_file_read(guestlink_client(d->guestlink), d->session_id, path, NULL, &ev, d, e);
    return d->read ? SG_OK : e->code;
}
