/* Lines of an NDJSON stream.  Pure; any thread.
 *
 * The splitter turns bytes cut anywhere into lines; the decoder turns a line into what the command and log
 * endpoints say.  Almost every line is {"stream":"stdout","data":"…"}: that form is decoded by hand, in place;
 * everything else goes through jansson.
 */
#ifndef SG_VERCEL_NDJSON_H
#define SG_VERCEL_NDJSON_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { NDJSON_LINE_MAX = 1024 * 1024 };

struct ndjson {
    struct sg_buf line; /* a line that is not complete yet, or the one just returned */
    bool returned;      /* `line` was returned and is to be dropped */
};

void ndjson_init(struct ndjson *n);
void ndjson_free(struct ndjson *n);

enum ndjson_step {
    NDJSON_LINE,    /* *line is a complete line */
    NDJSON_MORE,    /* all input was taken, no further line is complete */
    NDJSON_TOO_LONG /* a line exceeds NDJSON_LINE_MAX, or memory ran out */
};
/* Takes input from *data (advancing both) until a line is complete.  Line ends are LF or CR LF; empty lines are
 * skipped.  *line is writable and NUL-terminated, valid until the next call. */
enum ndjson_step ndjson_next(struct ndjson *n, const char **data, size_t *len, char **line, size_t *line_len);
/* At the end of the input: a last line without its line end, else false. */
bool ndjson_rest(struct ndjson *n, char **line, size_t *line_len);

enum ndjson_kind {
    NDJSON_STDOUT,
    NDJSON_STDERR,
    NDJSON_COMMAND, /* doc.command is an object */
    NDJSON_ERROR,   /* doc.data is an object, or missing */
    NDJSON_OTHER,   /* an object of a kind unknown here */
    NDJSON_BAD      /* not JSON, not an object, or the wrong types inside */
};

struct ndjson_value {
    enum ndjson_kind kind;
    char *text; /* stdout, stderr: may hold NUL; inside the line, or inside doc */
    size_t len;
    json_t *doc; /* to be released by ndjson_value_clear; NULL when decoded in place */
};

/* Decodes a line, overwriting it.  Text is passed on as it is: bytes that are not UTF-8 stay, a lone surrogate
 * escape becomes U+FFFD. */
void ndjson_decode(char *line, size_t len, struct ndjson_value *out);
void ndjson_value_clear(struct ndjson_value *v);

/* The two halves of ndjson_decode, apart for comparing them. */
bool ndjson_decode_fast(char *line, size_t len, struct ndjson_value *out); /* false: the line is untouched */
void ndjson_decode_slow(const char *line, size_t len, struct ndjson_value *out);

#endif
