/* Request targets: a strict percent decoder, path segments and the query.  Pure, no allocation; any thread.
 * Decoded text may hold any byte, NUL included, so lengths count and strings are only terminated for
 * convenience.
 */
#ifndef SG_SERVER_URI_H
#define SG_SERVER_URI_H

#include <stdbool.h>
#include <stddef.h>

enum { URI_MAX_SEGMENTS = 12, URI_MAX_QUERY = 32 };

struct uri_part {
    const char *at; /* NUL-terminated behind len bytes */
    size_t len;
};

struct uri_pair {
    struct uri_part key, value;
};

struct uri {
    struct uri_part segments[URI_MAX_SEGMENTS]; /* "/a/b" has two, "/" one empty segment */
    size_t nsegments;
    struct uri_pair query[URI_MAX_QUERY];
    size_t nquery;
};

enum uri_result {
    URI_OK,
    URI_MALFORMED, /* not a target this server serves, or a bad %XX, or too many query parameters */
    URI_TOO_DEEP,  /* more segments than any route has: nothing can match */
};

/* Length of the path in an origin-form or absolute-form ("http://host/path?query") target, and where it
 * starts.  False when there is none. */
bool uri_path(const char *raw, struct uri_part *path);

/* Splits and decodes `raw` into out; the decoded text goes to `space`, which must hold 2 * strlen(raw) + 2
 * bytes and live as long as out. */
enum uri_result uri_parse(const char *raw, char *space, struct uri *out);

/* The first pair of this key; NULL when absent. */
const struct uri_pair *uri_query(const struct uri *u, const char *key);

/* True for a query key that looks like it carries a credential. */
bool uri_key_is_credential(const struct uri_part *key);

#endif
