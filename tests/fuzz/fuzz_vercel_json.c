/* Foreign JSON: a sandbox's description and an error's body, any bytes at any status. */
#include "vercel/answer.h"
#include "vercel/snapshots.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_error(int status, const char *body, size_t len)
{
    static const char *const types[] = {NULL, "application/json", "text/html"};
    const struct vercel_answer a = {
        .status = status,
        .content_type = types[status % 3],
        .body = body,
        .len = len,
        .complete = status % 2,
        .retry_after_ms = -1,
        .request_id = "id",
        .means = {.on_400 = SG_E_FILE_ERROR},
    };
    struct sg_error e;
    enum sg_code code = vercel_answer_error(&a, &e);
    if (code == SG_OK || e.code != code || !sg_error_row(code))
        abort();
    for (const char *p = e.detail; *p; p++)
        if ((unsigned char)*p < 0x20)
            abort();
    const char *lt = strchr(e.detail, '<');
    if (lt && ((lt[1] >= 'a' && lt[1] <= 'z') || lt[1] == '!'))
        abort(); /* markup */
    if (status < 500 && e.outcome != SG_NOT_STARTED)
        abort();
}

static char *copy(const char *text, size_t len)
{
    char *p = malloc(len + 1);
    if (!p)
        abort();
    memcpy(p, text, len);
    p[len] = '\0';
    return p;
}

static void check_snapshot(const struct vercel_snapshot *s)
{
    size_t n = 0;
    while (s->regions[n])
        n++;
    if (!s->id || !*s->id || strpbrk(s->id, "/?# ") || s->created_at < 0 || s->size_bytes < -1 ||
        s->expires_at < -1 || n > VERCEL_SNAPSHOT_REGIONS)
        abort();
}

static void snapshots(const char *text, size_t len)
{
    struct vercel_snapshot s;
    struct vercel_snapshot_page page;
    struct vercel_session_page sessions;
    struct sg_error e;
    if (vercel_snapshot_parse(copy(text, len), len, &s, &e) == SG_OK)
        check_snapshot(&s);
    else if (s.doc.text)
        abort();
    vercel_snapshot_clear(&s);
    if (vercel_snapshot_page_parse(copy(text, len), len, &page, &e) == SG_OK)
        for (size_t i = 0; i < page.n; i++)
            check_snapshot(&page.items[i]);
    else if (page.doc.text || page.items)
        abort();
    vercel_snapshot_page_clear(&page);
    if (vercel_session_page_parse(copy(text, len), len, &sessions, &e) == SG_OK) {
        for (size_t i = 0; i < sessions.n; i++)
            if (!sessions.items[i].id || strpbrk(sessions.items[i].id, "/?# "))
                abort();
    } else if (sessions.doc.text || sessions.items) {
        abort();
    }
    vercel_session_page_clear(&sessions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t len = size - 2;
    as_error(300 + (data[0] << 8 | data[1]) % 300, text, len);
    snapshots(text, len);
    struct vercel_sandbox s;
    struct vercel_page page;
    struct sg_error e;
    if (vercel_sandbox_parse(copy(text, len), len, &s, &e) == SG_OK) {
        if (!s.name || !*s.name)
            abort();
        vercel_sandbox_clear(&s);
    } else if (s.doc.text || s.routes) {
        abort();
    }
    if (vercel_page_parse(copy(text, len), len, &page, &e) == SG_OK)
        vercel_page_clear(&page);
    else if (page.doc.text || page.items)
        abort();
    return 0;
}
