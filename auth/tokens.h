/* Gateway tokens: random, kept only as SHA-256 hashes, compared in constant time.
 *
 * A token is `sgt_<id>_<secret>`: id 12 and secret 43 characters of [0-9A-Za-z]; no dot, so that no client
 * takes it for a JWT.  The token file holds one JSON object per line:
 * {"id","hash","name","created_at","expires_at"?,"files_root"?}; it is written by replacing it whole, mode 0600, and read
 * again when it changes (looked at most every 500 ms).
 */
#ifndef SG_AUTH_TOKENS_H
#define SG_AUTH_TOKENS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TOKEN_ID_LEN = 12, TOKEN_TEXT = 4 + TOKEN_ID_LEN + 1 + 43 + 1, TOKEN_ROOT_MAX = 1023 };

struct principal {
    char id[TOKEN_ID_LEN + 1];
    char name[64];
    int64_t expires_at; /* wall ms; 0: never */
    /* A directory in the sandbox that file requests must not leave; absolute, without "." or ".." or a slash at its
     * end.  "": all files. */
    char files_root[TOKEN_ROOT_MAX + 1];
};

struct token_table;
/* Opens the table of a file; a missing file is an empty table.  Any thread afterwards. */
SG_MUST_CHECK enum sg_code token_table_open(const char *path, struct token_table **out, struct sg_error *e);
void token_table_free(struct token_table *t);
/* Adds a token that lives in memory only (`sandgate dev`). */
SG_MUST_CHECK enum sg_code token_table_add_memory(struct token_table *t, const char *token, const char *name,
                                                  struct sg_error *e);
/* Checks the value of an Authorization header ("Bearer …", scheme in any case) or, from a WebSocket
 * subprotocol, the token alone.  UNAUTHENTICATED or TOKEN_EXPIRED; *out is a copy.  Takes the same time for
 * every wrong token. */
SG_MUST_CHECK enum sg_code token_check_header(struct token_table *t, const char *authorization,
                                              struct principal *out, struct sg_error *e);
SG_MUST_CHECK enum sg_code token_check(struct token_table *t, const char *token, struct principal *out,
                                       struct sg_error *e);

/* Makes a token text; the caller wipes it. */
SG_MUST_CHECK enum sg_code token_generate(char out[TOKEN_TEXT], struct sg_error *e);
/* Command line: create (prints the token once), list, revoke on the file.  files_root: as in struct principal; NULL
 * and "": none. */
SG_MUST_CHECK enum sg_code token_file_create(const char *path, const char *name, int64_t expires_at,
                                             const char *files_root, char token[TOKEN_TEXT],
                                             struct sg_error *e);
SG_MUST_CHECK enum sg_code token_file_revoke(const char *path, const char *id, struct sg_error *e);
typedef void token_each_fn(void *arg, const struct principal *p, int64_t created_at);
SG_MUST_CHECK enum sg_code token_file_each(const char *path, token_each_fn *fn, void *arg,
                                           struct sg_error *e);

#endif
