#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE = 16 * 1024, MAX_VALUE = 1024 };

static _Atomic int min_level = SG_LOG_INFO;
static _Atomic int human;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void sg_log_set_level(enum sg_log_level level)
{
    min_level = (int)level;
}

void sg_log_set_human(int on)
{
    human = on;
}

int sg_log_enabled(enum sg_log_level level)
{
    return (int)level >= min_level;
}

static void add_string(struct sg_buf *b, const char *s)
{
    if (!s) {
        sg_buf_adds(b, "null");
        return;
    }
    sg_buf_adds(b, "\"");
    for (size_t i = 0; s[i] && i < MAX_VALUE; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            sg_buf_addf(b, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f) /* also keeps broken UTF-8 out of the line */
            sg_buf_addf(b, "\\u%04x", c);
        else
            sg_buf_add(b, &s[i], 1);
    }
    sg_buf_adds(b, "\"");
}

static void add_key(struct sg_buf *b, const char *key)
{
    sg_buf_addf(b, human ? " %s=" : ",\"%s\":", key);
}

static void add_error(struct sg_buf *b, const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    add_key(b, "code");
    add_string(b, row ? row->code : "ok");
    add_key(b, "outcome");
    add_string(b, sg_outcome_name(e->outcome));
    add_key(b, "detail");
    add_string(b, e->detail);
    if (e->upstream_status) {
        add_key(b, "upstream_status");
        sg_buf_addf(b, "%d", e->upstream_status);
    }
    if (e->upstream_request_id[0]) {
        add_key(b, "upstream_request_id");
        add_string(b, e->upstream_request_id);
    }
}

static void add_fields(struct sg_buf *b, va_list ap)
{
    const char *key;
    while ((key = va_arg(ap, const char *)) != NULL) {
        const char *type = va_arg(ap, const char *);
        if (type[0] == 'e') {
            add_error(b, va_arg(ap, const struct sg_error *));
            continue;
        }
        add_key(b, key);
        if (type[0] == 's')
            add_string(b, va_arg(ap, const char *));
        else if (type[0] == 'i')
            sg_buf_addf(b, "%" PRId64, va_arg(ap, int64_t));
        else
            sg_buf_adds(b, va_arg(ap, int) ? "true" : "false");
    }
}

void sg_log(enum sg_log_level level, const char *event, ...)
{
    if (!sg_log_enabled(level))
        return;
    struct sg_buf b;
    sg_buf_init(&b, MAX_LINE);
    char when[SG_TIME_TEXT];
    sg_time_format(sg_wall_ms(), when);
    if (human)
        sg_buf_addf(&b, "%.8s %s %s", when + 11, level_names[level], event);
    else
        sg_buf_addf(&b, "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\"", when, level_names[level],
                    event);
    va_list ap;
    va_start(ap, event);
    add_fields(&b, ap);
    va_end(ap);
    b.max += 2; /* the end always fits */
    sg_buf_adds(&b, human ? "\n" : "}\n");
    if (b.data) {
        ssize_t w = write(STDERR_FILENO, b.data, b.len);
        (void)w; /* nowhere left to complain */
    }
    sg_buf_free(&b);
}
