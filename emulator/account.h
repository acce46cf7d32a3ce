/* The one user of the emulator: his team, his projects, and the logins that were approved.
 *
 * Tokens are kept as hashes; projects and logins live in STATE/account.json, which is replaced atomically.  A
 * login that waits for its approval lives in memory only.  Everything is bounded: when a table is full, its
 * oldest entry goes.  Any thread; what changes the file blocks on the disk, with no lock that a reader needs.
 */
#ifndef SG_EMULATOR_ACCOUNT_H
#define SG_EMULATOR_ACCOUNT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ACCOUNT_USER "local"
#define ACCOUNT_TEAM "team_local"
#define ACCOUNT_SLUG "local"

enum {
    ACCOUNT_CODE_TEXT = 48,
    ACCOUNT_NAME_TEXT = 129,
    ACCOUNT_TOKEN_S = 8 * 3600,     /* an access token */
    ACCOUNT_DEVICE_S = 15 * 60,     /* a login that waits */
    ACCOUNT_JWT_S = 12 * 3600,      /* an OIDC token */
    ACCOUNT_POLL_S = 1,             /* how often a login may ask */
    ACCOUNT_REFRESH_S = 30 * 86400, /* a refresh token */
};

struct account;
/* NULL with a sentence when the file is there and makes no sense, or without memory or randomness.
 * approve: every login is approved as it begins. */
struct account *account_open(const char *state_dir, bool approve, char err[256]);
void account_free(struct account *a);

enum account_answer {
    ACCOUNT_DONE,
    ACCOUNT_PENDING,
    ACCOUNT_SLOW_DOWN,
    ACCOUNT_DENIED,
    ACCOUNT_EXPIRED,
    ACCOUNT_UNKNOWN, /* no such code or token */
    ACCOUNT_FAILED,  /* memory, randomness, disk */
};

struct account_tokens {
    char access[ACCOUNT_CODE_TEXT], refresh[ACCOUNT_CODE_TEXT];
};

bool account_device_begin(struct account *a, char device_code[ACCOUNT_CODE_TEXT], char user_code[16]);
/* Approves or denies; false when no login with that code waits. */
bool account_device_decide(struct account *a, const char *user_code, bool approve);
/* What a polling login is told; with DONE its tokens, once. */
enum account_answer account_device_poll(struct account *a, const char *device_code,
                                        struct account_tokens *out);
enum account_answer account_refresh(struct account *a, const char *refresh, struct account_tokens *out);
/* Ends the login that an access or refresh token belongs to; unknown ones are fine. */
void account_revoke(struct account *a, const char *token);

/* Whether a bearer token was issued here and is still good.  For an OIDC token also the project that it
 * speaks for ("" otherwise). */
bool account_token_ok(struct account *a, const char *token, char project[ACCOUNT_NAME_TEXT]);
/* A signed OIDC token for a project; NULL without memory.  Free it. */
char *account_jwt(const struct account *a, const char *team, const char *project);

struct account_project {
    char id[32], name[ACCOUNT_NAME_TEXT];
    int64_t created_ms;
};
/* By id or name. */
bool account_project(struct account *a, const char *id_or_name, struct account_project *out);
/* 0, EEXIST, or another errno. */
int account_project_add(struct account *a, const char *name, struct account_project *out);

#endif
