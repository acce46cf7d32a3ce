/* What the files of config/ share: the table with types and places. */
#ifndef SG_CONFIG_INTERNAL_H
#define SG_CONFIG_INTERNAL_H

#include "base/buf.h"
#include "config/config.h"

#include <jansson.h>

enum option_type {
    OPTION_INT,
    OPTION_STR,
    OPTION_PATH,
    OPTION_LISTEN,
    OPTION_URL,
    OPTION_WORD,
    OPTION_SECRET,
    OPTION_FILE
};

struct option_def {
    enum option_type type;
    size_t offset; /* of the member in struct config */
    int64_t min, max;
    const char *words; /* WORD: the choices, separated by blanks */
};

enum {
#define X(section, key, type, dflt, min, max, words, help) OPT_##section##_##key,
#include "config/options.def"
#undef X
    OPTION_COUNT
};

extern const struct config_option option_list[OPTION_COUNT];
extern const struct option_def option_defs[OPTION_COUNT];

/* Index of an option, -1 when there is none. */
int option_find(const char *section, const char *key);
bool option_section_known(const char *section);
/* The known name nearest to a misspelt one, NULL when none is near.  section NULL: among the sections. */
const char *option_nearest(const char *section, const char *name);
/* The option that a `…_file` option fills. */
int option_file_target(int index);

/* Sets one option from text; *e says what is wrong without the name of the option and never quotes a value
 * that may hold a secret. */
SG_MUST_CHECK enum sg_code option_set(struct config *c, int index, const char *value, struct sg_error *e);
bool option_is_set(const struct config *c, int index);

/* Reads a whole regular file or pipe (`<(…)` of a shell), at most max bytes; others may read it when *open_to_all.  errno
 * tells why not.  The buffer is the caller's to wipe either way. */
bool config_read_file(const char *path, size_t max, struct sg_buf *b, bool *open_to_all);

enum { CONFIG_ID_MAX = 128, CONFIG_TOKEN_FILE_MAX = 64 * 1024, CONFIG_PATH_TEXT = 4200 };

struct token_claims {
    bool is_jwt;
    char owner_id[CONFIG_ID_MAX + 1], project_id[CONFIG_ID_MAX + 1]; /* "": not there */
    int64_t exp;                                                     /* seconds; 0: none */
};
/* A number of seconds since 1970; 0 where it is none, or no time that can be. */
int64_t config_seconds(const json_t *value);
/* Reads the claims without checking the signature: only the upstream can do that.  Anything that is not a JWT is an opaque
 * token. */
struct token_claims config_token_claims(const char *token);
/* A file of the CLI's; false: there is no directory for it. */
bool config_cli_path(const struct config *c, const char *name, char out[CONFIG_PATH_TEXT]);
/* The team that the CLI works with, into *team; NULL when it says none. */
SG_MUST_CHECK enum sg_code config_cli_team(const struct config *c, char **team, struct sg_error *e);

#endif
