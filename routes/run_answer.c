#include "routes/run_answer.h"

#include "base/buf.h"
#include "base/core/b64.h"
#include "base/ws_codec.h"
#include "routes/process_json.h"
#include "routes/run_encode.h"
#include "routes/spec.h"

#include <stdlib.h>
#include <string.h>

/* Escapes can make text six times as long: beyond what base64 could come to, base64 it is. */
enum { TEXT_MAX = 2 * SG_B64_LEN(SPEC_OUTPUT_MAX) };

/* {…,"stdout":" out[0] ","stderr":" out[1] "} */
static const char before[2][16] = {",\"stdout\":\"", "\",\"stderr\":\""};
static const char after[] = "\"}";

struct answer {
    struct ex_stream *stream;
    char *out[2];
    size_t len[2];
    bool base64;
    int at;     /* which of them is next; 2: the end */
    size_t pos; /* in it */
    char piece[RUN_PIECE_MAX];
};

bool run_answer_large(const struct run_result *r)
{
    return r->own[0] && r->own[1] && r->len[0] + r->len[1] >= RUN_ANSWER_LARGE;
}

static void answer_free(struct answer *a)
{
    free(a->out[0]);
    free(a->out[1]);
    free(a);
}

/* The next part of the document.  False: no memory. */
static bool next(struct answer *a)
{
    if (a->pos < a->len[a->at]) {
        size_t used;
        size_t n = run_encode(a->base64, a->out[a->at] + a->pos, a->len[a->at] - a->pos, a->piece, &used);
        a->pos += used;
        return ex_stream_write(a->stream, a->piece, n);
    }
    free(a->out[a->at]);
    a->out[a->at] = NULL;
    a->at++;
    a->pos = 0;
    const char *s = a->at < 2 ? before[a->at] : after;
    return ex_stream_write(a->stream, s, strlen(s));
}

static void produce(struct answer *a)
{
    while (a->at < 2 && ex_stream_queued(a->stream) < EX_STREAM_HIGH)
        if (!next(a)) {
            ex_stream_abort(a->stream);
            answer_free(a);
            return;
        }
    if (a->at < 2)
        return;
    ex_stream_end(a->stream);
    answer_free(a);
}

static void on_drain(void *arg)
{
    produce(arg);
}

static void on_gone(void *arg)
{
    answer_free(arg);
}

/* Everything before the output: the document without its closing brace. */
static char *head_of(const struct answer *a, const struct run_result *r, const char *session_id)
{
    json_t *o = run_head_json(r, session_id, a->base64 ? "base64" : "utf-8");
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text)
        text[strlen(text) - 1] = '\0';
    return text;
}

static void no_memory(struct exchange *ex)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
    ex_fail(ex, &e);
}

/* Takes the output, and decides how it is sent. */
static bool take(struct answer *a, const struct run_result *r)
{
    uint64_t text = 0;
    bool utf8 = true;
    for (int i = 0; i < 2; i++) {
        a->len[i] = r->len[i];
        if (!r->len[i])
            continue;
        size_t len;
        a->out[i] = sg_buf_take(r->own[i], &len);
        if (!a->out[i])
            return false;
        utf8 = utf8 && ws_codec_utf8(a->out[i], a->len[i]);
        text += utf8 ? run_text_length(a->out[i], a->len[i]) : 0;
    }
    a->base64 = !utf8 || text > TEXT_MAX;
    return true;
}

static uint64_t encoded_length(const struct answer *a, int i)
{
    return a->base64 ? SG_B64_LEN(a->len[i]) : run_text_length(a->out[i], a->len[i]);
}

void run_answer(struct exchange *ex, int status, const struct run_result *r, const char *session_id)
{
    struct answer *a = calloc(1, sizeof *a);
    char *head = a && take(a, r) ? head_of(a, r, session_id) : NULL;
    if (!head) {
        if (a)
            answer_free(a);
        no_memory(ex);
        return;
    }
    uint64_t length = strlen(head) + strlen(before[0]) + encoded_length(a, 0) + strlen(before[1]) +
                      encoded_length(a, 1) + strlen(after);
    a->stream = ex_stream_begin(ex, status, "application/json", (int64_t)length, on_drain, on_gone, a);
    if (!a->stream) {
        answer_free(a);
    } else if (!ex_stream_write(a->stream, head, strlen(head)) ||
               !ex_stream_write(a->stream, before[0], strlen(before[0]))) {
        ex_stream_abort(a->stream);
        answer_free(a);
    } else {
        produce(a);
    }
    free(head);
}
