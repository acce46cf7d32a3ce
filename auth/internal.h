/* What the files of auth/ share: one line of the token file, and the format of a token. */
#ifndef SG_AUTH_INTERNAL_H
#define SG_AUTH_INTERNAL_H

#include "auth/tokens.h"
#include "base/buf.h"

enum { TOKEN_HASH_LEN = 32, TOKEN_SECRET_LEN = 43, TOKEN_FILE_MAX = 4 * 1024 * 1024, TOKEN_LINE_MAX = 8192 };

struct token_entry {
    struct principal who;
    int64_t created_at; /* wall ms */
    unsigned char hash[TOKEN_HASH_LEN];
};

/* True for `sgt_<id>_<secret>`.  Pure. */
bool token_format_valid(const char *token);
/* Non-empty, at most 63 bytes of printable UTF-8 or ASCII without control characters.  Pure. */
bool token_name_valid(const char *name);
/* What struct principal.files_root may hold, but for "".  UTF-8 without control characters, since the list shows it.
 * Pure. */
bool token_root_valid(const char *root);
/* Reads one line of the file (without its LF).  False when it is malformed in any way.  Pure. */
bool token_line_parse(const char *line, size_t len, struct token_entry *out);
/* Appends the line of an entry, LF included; false when out of memory. */
bool token_line_add(struct sg_buf *b, const struct token_entry *entry);

struct token_file_id { /* says whether a file is still the same */
    bool exists;
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
};
/* Reads the file whole; a missing one is empty.  -errno, or 0. */
int token_file_read(const char *path, struct sg_buf *b, struct token_file_id *id);
int token_file_stat(const char *path, struct token_file_id *id);

#endif
