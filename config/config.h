/* Configuration: one option table fills one plain struct.  Order: defaults, file (INI), environment
 * (SANDGATE_<SECTION>_<KEY>), command line.  Unknown sections and keys are refused with file, line and the
 * nearest known name.  A value of `…_file` keys is read at load time.  Nobody but main includes this.
 */
#ifndef SG_CONFIG_H
#define SG_CONFIG_H

#include "base/crypto.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct config {
    /* [server] */
    char *listen; /* HOST:PORT or [V6]:PORT */
    int64_t max_connections;
    int64_t max_websockets;
    int64_t max_json_body;
    int64_t workers;
    int64_t idle_timeout_ms; /* of a keep-alive connection */
    int64_t drain_timeout_ms;
    int64_t ping_ms;       /* to WebSocket clients */
    int64_t proxy_idle_ms; /* after which proxies in front cut; 0: none does */
    char *log_level;
    char *log_format; /* json, text */
    /* [auth] */
    char *tokens_file;
    /* [upstream] */
    char *url;
    char *credentials; /* explicit, env, cli */
    char *token_command;
    char *cli_issuer;
    char *cli_client_id;
    char *cli_dir;            /* NULL: where the CLI keeps its login */
    int64_t token_expires_ms; /* no option: of the token in force, wall clock; 0: not known */
    struct sg_secret *token;
    char *token_file;
    char *team_id;
    char *team_id_file;
    char *project_id;
    char *project_id_file;
    char *proxy;
    char *ca_bundle;
    int64_t connect_timeout_ms;
    int64_t timeout_ms;
    int64_t create_timeout_ms; /* of a call that allocates */
    int64_t retries;
    int64_t retry_budget_ms;
    char *plan; /* unknown, hobby, pro, enterprise */
    int64_t plan_percent;
    int64_t breaker_failures;
    /* [relay] */
    int64_t retain_bytes;
    int64_t run_max_output;
    int64_t keepalive_ms;
    int64_t slow_reader_ms;
    int64_t quiet_ms;
    int64_t ring_bytes;
    /* [files] */
    int64_t download_part_bytes;
    int64_t upload_part_bytes;
    int64_t buffer_bytes; /* of all uploads together */
    int64_t unpack_free_bytes;
    int64_t watch_grace_ms;
    int64_t watch_retain_bytes;
    /* [lifecycle] */
    int64_t lease_grace_ms;
    int64_t prepare_silence_ms;
    char *keep_alive; /* attached, off */
    int64_t keep_alive_lead_ms;
    int64_t keep_alive_step_ms;
    int64_t keep_alive_max_ms;
    int64_t sweep_ms;
    /* [store] */
    char *state_file;               /* NULL: in memory */
    struct sg_secret *database_url; /* NULL: state_file counts */
    char *database_url_file;
    int64_t connections;
    int64_t busy_ms;
    int64_t output_keep_ms;
    int64_t output_max_bytes;
    int64_t save_before_ms;
    int64_t key_keep_ms; /* of requests with an Idempotency-Key */
    int64_t key_silence_ms;
    int64_t key_max_bytes;
};

struct config_override { /* from the command line: "server.listen", "127.0.0.1:0" */
    const char *key, *value;
};

/* Loads defaults, then `path` (NULL: none), then the environment, then overrides.  On failure detail says
 * where
 * ("sandgate.ini:12: unknown key \"lisen\" in [server]; did you mean \"listen\"?").  *out is freed by
 * config_free. */
SG_MUST_CHECK enum sg_code config_load(const char *path, const struct config_override *overrides, size_t n,
                                       struct config **out, struct sg_error *e);
void config_free(struct config *c);

/* Credentials in force: explicit values, or with credentials = env the documented order (token option,
 * VERCEL_OIDC_TOKEN, VERCEL_TOKEN; team_id, VERCEL_TEAM_ID, VERCEL_ORG_ID; project_id, VERCEL_PROJECT_ID;
 * blanks count as unset; a JWT alone gives team and project from its claims; an expired one is refused naming
 * the expiry). Moves what it found into c->token, team_id, project_id.  Missing ones: a sentence naming what
 * to set. */
SG_MUST_CHECK enum sg_code config_resolve_credentials(struct config *c, struct sg_error *e);

/* Where a newer token comes from while the gateway runs. */
enum config_token_kind { CONFIG_TOKEN_FIXED, CONFIG_TOKEN_FILE, CONFIG_TOKEN_COMMAND, CONFIG_TOKEN_CLI };
enum config_token_kind config_token_source(const struct config *c);
struct config_token {
    struct sg_secret *token;             /* the caller's */
    int64_t expires_ms;                  /* wall clock; 0: not known */
    char owner_id[129], project_id[129]; /* what the token says itself; "": nothing */
};
/* Reads the file or the login, or runs the command (CONFIG_COMMAND_MS at most).  Blocking, any thread, while nobody changes
 * c.  UNAUTHENTICATED: there is none, or it has expired.  The detail never holds what was read.  The command and all it
 * started in its process group are ended when it takes too long, and when `stop` (-1: none) becomes readable or hangs up. */
enum { CONFIG_COMMAND_MS = 30000 };
SG_MUST_CHECK enum sg_code config_fetch_token(const struct config *c, int stop, struct config_token *out,
                                              struct sg_error *e);
/* True when the file or login is another one than *stamp says (0 at first), which then says this one.  Blocking. */
bool config_token_moved(const struct config *c, uint64_t *stamp);

/* The CLI's login as it is kept, good or not.  UNAUTHENTICATED: there is none. */
struct config_login {
    struct sg_secret *access, *refresh; /* NULL: not there */
    int64_t expires_ms;                 /* wall clock; 0: not known */
};
void config_login_clear(struct config_login *l);
SG_MUST_CHECK enum sg_code config_login_read(const struct config *c, struct config_login *out,
                                             struct sg_error *e);
/* Who renews it holds this, among all processes that do: a descriptor, or -1 when the directory cannot be written, others hold it
 * for too long, or `stop` becomes readable or hangs up.  Blocking. */
int config_login_lock(const struct config *c, int stop);
void config_login_unlock(int lock);
/* Under the lock: the new one takes the place of the old one, in one step; what else the CLI keeps there stays. */
SG_MUST_CHECK enum sg_code config_login_write(const struct config *c, const struct config_login *l,
                                              struct sg_error *e);

/* For --help, docs and the example file: every option with section, key, type, default, one line. */
struct config_option {
    const char *section, *key, *dflt, *help;
    bool secret;
};
const struct config_option *config_options(size_t *n);
/* The example file and the list in --help, both made from the table.  False when out of memory. */
struct sg_buf;
enum { CONFIG_TEXT_MAX = 64 * 1024 }; /* both fit into this */
bool config_describe_example(struct sg_buf *b);
bool config_describe_help(struct sg_buf *b);

#endif
