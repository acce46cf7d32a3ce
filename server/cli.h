/* The program `sandgate`: what its subcommands share.  Everything here runs on the main thread. */
#ifndef SG_SERVER_CLI_H
#define SG_SERVER_CLI_H

#include "base/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <sysexits.h>

enum { CLI_MAX_OVERRIDES = 64, CLI_NOT_AN_OPTION = -1 };

/* What --config and --set said. */
struct cli_settings {
    const char *path;
    struct config_override overrides[CLI_MAX_OVERRIDES];
    size_t n;
};

/* Subcommands: argv[0] is the subcommand's name; the result is the exit code. */
int cli_serve(int argc, char **argv);
int cli_dev(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_check_config(int argc, char **argv);
int cli_prune(int argc, char **argv);
int cli_token(int argc, char **argv);
void cli_print_version(void);
int cli_print_help(void);

/* One sentence on stderr: "sandgate: …". */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, and then EX_USAGE. */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The exit code for an error that stopped a command before it did anything. */
int cli_exit_code(const struct sg_error *e);

/* "0.1.0 (commit …)". */
const char *cli_version(void);

/* Keeps one --set value (changes the text: key and value are parted); false when it has no '=' or there are
 * too many. */
bool cli_add_set(struct cli_settings *s, char *text);
bool cli_add_override(struct cli_settings *s, const char *key, const char *value);
/* Loads the configuration and sets the log up; an error has been said.  EX_OK or the exit code. */
int cli_load(const struct cli_settings *s, struct config **out);

/* Can this address be listened on?  An error has been said.  EX_OK or the exit code. */
int cli_probe_listen(const char *address);
/* No core dumps (they would hold secrets), all descriptors the hard limit allows, no SIGPIPE; libcurl. */
int cli_prepare_process(void);

#endif
