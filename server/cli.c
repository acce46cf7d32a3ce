#include "server/cli.h"

#include "base/buf.h"
#include "base/log.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void say(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

static void say(const char *fmt, va_list ap)
{
    char text[1024];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    (void)fprintf(stderr, "sandgate: %s\n", text);
}

void cli_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

int cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return EX_USAGE;
}

int cli_exit_code(const struct sg_error *e)
{
    return e->code == SG_E_OUT_OF_MEMORY || e->code == SG_E_INTERNAL ? EX_SOFTWARE : EX_CONFIG;
}

static const char help_head[] =
    "sandgate - an HTTP gateway in front of Vercel Sandboxes\n"
    "\n"
    "sandgate serve [--config FILE] [--set SECTION.KEY=VALUE]... [--listen HOST:PORT]\n"
    "    Serves the configured upstream.  SIGTERM or Ctrl-C drains and ends; a second one ends at once.\n"
    "sandgate dev [--listen HOST:PORT] [--state DIR] [--base TAR|DIR] [--json] [--emulator-arg ARG]...\n"
    "    Gateway and emulator on this machine, without an account.  --base is imported once; --json prints "
    "one\n"
    "    line {\"url\",\"token\",\"emulator_url\",\"tier\"} when ready.  DIR is $XDG_STATE_HOME/sandgate or\n"
    "    ~/.local/state/sandgate unless given.\n"
    "sandgate check [--config FILE] [--set SECTION.KEY=VALUE]...\n"
    "    Says whether the upstream's URL and the credentials work, and what to change if not.\n"
    "sandgate check-config [--config FILE] [--set SECTION.KEY=VALUE]... [--example]\n"
    "    Says whether the configuration is valid; --example prints a file with every option.\n"
    "sandgate prune [--config FILE] [--set SECTION.KEY=VALUE]... [--older-than MINUTES] [--apply] [--json]\n"
    "    Lists the gateway's sandboxes that its store does not know, and what the store keeps of sandboxes "
    "that "
    "are\n"
    "    gone; what is younger than 10 minutes is left alone.  --apply takes both away.\n"
    "sandgate token create --name NAME [--expires DAYS] [--files-root PATH]\n"
    "                      [--tokens FILE | --config FILE]\n"
    "sandgate token list [--tokens FILE | --config FILE]\n"
    "sandgate token revoke ID [--tokens FILE | --config FILE]\n"
    "    Tokens that clients send.  A new one is printed once, on standard output; only its hash is kept.\n"
    "    With --files-root the file requests of its holder stay below that directory of the sandbox, "
    "whatever\n"
    "    links lead out of it.  Programs that the holder runs are not confined.\n"
    "sandgate --version | --help\n"
    "\n"
    "Exit codes; every failure says one sentence on standard error:\n"
    "   0  done, or ended by a signal after draining\n"
    "  64  wrong usage: an unknown command, option or argument\n"
    "  66  dev: there is no base file system yet, or it cannot be read\n"
    "  69  unavailable: the upstream cannot be reached, namespaces are not permitted, the emulator ended\n"
    "  70, 71  a fault of the program or the system, or no memory\n"
    "  73  dev: the state directory cannot be made or written, or is in use; token: the file cannot be "
    "written\n"
    "  74  standard output cannot be written\n"
    "  75  try again: the port is in use, or the upstream limits the rate\n"
    "  77  upstream credentials are missing, expired or refused; a port that needs privileges\n"
    "  78  the configuration is wrong: the sentence says where\n"
    " 130, 143  dev: interrupted by SIGINT or SIGTERM before it was ready\n"
    "\n"
    "Options, with their defaults.  Each is set in the --config file, by the environment variable\n"
    "SANDGATE_<SECTION>_<KEY>, or by --set; the later of these goes first.  Without --config no file is "
    "read.\n";

int cli_print_help(void)
{
    struct sg_buf b;
    sg_buf_init(&b, CONFIG_TEXT_MAX);
    sg_buf_adds(&b, help_head);
    int code = EX_SOFTWARE;
    if (config_describe_help(&b))
        code = fputs(b.data, stdout) < 0 || fflush(stdout) ? EX_IOERR : EX_OK;
    sg_buf_free(&b);
    return code;
}

bool cli_add_override(struct cli_settings *s, const char *key, const char *value)
{
    if (s->n == CLI_MAX_OVERRIDES)
        return false;
    s->overrides[s->n].key = key;
    s->overrides[s->n].value = value;
    s->n++;
    return true;
}

bool cli_add_set(struct cli_settings *s, char *text)
{
    char *eq = strchr(text, '=');
    if (!eq)
        return false;
    *eq = '\0';
    return cli_add_override(s, text, eq + 1);
}

static void set_log(const struct config *c)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    for (int i = 0; i < 4; i++)
        if (strcmp(c->log_level, levels[i]) == 0)
            sg_log_set_level((enum sg_log_level)i);
    sg_log_set_human(strcmp(c->log_format, "text") == 0);
}

int cli_load(const struct cli_settings *s, struct config **out)
{
    struct sg_error e;
    if (config_load(s->path, s->overrides, s->n, out, &e)) {
        cli_say("%s", e.detail);
        return cli_exit_code(&e);
    }
    set_log(*out);
    return EX_OK;
}

int cli_prepare_process(void)
{
    if (prctl(PR_SET_DUMPABLE, 0)) { /* secrets in memory: no core, no tracer of the same user */
        cli_say("cannot switch core dumps off: %s", strerror(errno));
        return EX_OSERR;
    }
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r); /* fewer connections then, said by the limit when it is reached */
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        cli_say("libcurl cannot be initialised");
        return EX_SOFTWARE;
    }
    return EX_OK;
}
