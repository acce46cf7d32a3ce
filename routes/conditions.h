/* Conditional requests on the content of a file (RFC 9110 section 13): lists of entity tags and dates.
 *
 * Of the tags only those that could be ours are kept (base/core/file_tag.h), as the guest takes them: all others cannot
 * match, so a list that was given and is empty afterwards matches nothing.
 */
#ifndef SG_ROUTES_CONDITIONS_H
#define SG_ROUTES_CONDITIONS_H

#include "base/core/file_tag.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- conditions.c: pure; any thread ---- */

enum { CONDITION_DATE_TEXT = 30 };

struct condition_tags {
    bool given;
    bool any;                                            /* "*" */
    char list[SG_FILE_TAGS_MAX * (SG_FILE_TAG_LEN + 1)]; /* "TAG,TAG"; "": none could be ours */
};

enum condition_fit {
    CONDITION_FINE,
    CONDITION_MALFORMED,
    CONDITION_TOO_MANY, /* more than SG_FILE_TAGS_MAX of ours */
};

/* Adds the tags of one header line to *t, which was zeroed before.  weak: weak ones count, too (If-None-Match); else they
 * match nothing (If-Match). */
enum condition_fit condition_tags_add(struct condition_tags *t, const char *header, bool weak);
/* Whether the condition names this tag, of a file that is there. */
bool condition_tags_match(const struct condition_tags *t, const char *tag);
/* A single tag, compared strongly. */
bool condition_tag_is(const char *header, const char *tag);

/* The three forms of an HTTP date; now_s says which century a year of two digits is in.  Seconds since the epoch; false
 * where it is none: then there is no such condition. */
bool condition_date_parse(const char *text, int64_t now_s, int64_t *s);
/* "Mon, 30 Nov 2026 12:00:00 GMT"; years beyond 1970–9999 are made the nearest. */
void condition_date_format(int64_t s, char out[CONDITION_DATE_TEXT]);

struct conditions {
    struct condition_tags match, none_match;
    bool has_modified_since, has_unmodified_since;
    int64_t modified_since, unmodified_since; /* seconds since the epoch */
};

enum condition_result {
    CONDITION_GO,
    CONDITION_NOT_MODIFIED, /* 304; only of reads */
    CONDITION_FAILED,       /* 412 */
};
/* In the order of RFC 9110 section 13.2.2.  file NULL: nothing is there. */
enum condition_result conditions_judge(const struct conditions *c, const struct sg_wire_file *file,
                                       bool reads);
/* If-Match was given and no tag of ours is in it: it fails whatever is there, so nothing need be asked. */
bool conditions_impossible(const struct conditions *c);

/* ---- conditions_headers.c: what a request says; loop thread ---- */

struct exchange;
/* If-Match, If-None-Match, If-Unmodified-Since, and of GET and HEAD If-Modified-Since.  Fills *c, whatever was in it.
 * INVALID_FIELD for lists of tags that are none or too long. */
SG_MUST_CHECK enum sg_code conditions_of(struct exchange *ex, struct conditions *c, struct sg_error *e);

#endif
