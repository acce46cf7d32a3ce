/* sandgate token create | list | revoke */
#include "server/cli.h"

#include "auth/tokens.h"
#include "base/clock.h"
#include "base/core/num.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DAYS = 36500 };
static const int64_t day_ms = 24LL * 3600 * 1000;

struct token_args {
    const char *name, *file, *days, *root;
    struct cli_settings settings;
};

static int parse(int argc, char **argv, struct token_args *a)
{
    static const struct option options[] = {
        {"name", required_argument, NULL, 'n'},
        {"expires", required_argument, NULL, 'e'},
        {"tokens", required_argument, NULL, 't'},
        {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 's'},
        {"files-root", required_argument, NULL, 'r'},
        {0},
    };
    int o;
    optind = 1;
    opterr = 0;
    while ((o = getopt_long(argc, argv, ":", options, NULL)) != CLI_NOT_AN_OPTION) {
        if (o == 'n')
            a->name = optarg;
        else if (o == 'e')
            a->days = optarg;
        else if (o == 't')
            a->file = optarg;
        else if (o == 'r')
            a->root = optarg;
        else if (o == 'c')
            a->settings.path = optarg;
        else if (o == 's' && cli_add_set(&a->settings, optarg))
            continue;
        else
            return cli_usage("token: %.60s is not an option, or lacks its value; see --help",
                             argv[optind - 1]);
    }
    return EX_OK;
}

static int fail(const struct sg_error *e)
{
    cli_say("%s", e->detail);
    if (e->code == SG_E_FILE_ERROR)
        return EX_CANTCREAT;
    return e->code == SG_E_INVALID_FIELD ? EX_USAGE : EX_SOFTWARE;
}

static int create(const struct token_args *a, const char *file)
{
    uint64_t days = 0;
    if (!a->name)
        return cli_usage("token create: --name is missing; it tells tokens apart in the list");
    if (a->days && (!sg_parse_u64(a->days, strlen(a->days), MAX_DAYS, &days) || days == 0))
        return cli_usage("token create: --expires is a number of days from 1 to %d", MAX_DAYS);
    if (a->root && !a->root[0])
        return cli_usage("token create: --files-root is empty; leave it out for all files");
    char token[TOKEN_TEXT];
    struct sg_error e;
    if (token_file_create(file, a->name, days ? sg_wall_ms() + (int64_t)days * day_ms : 0, a->root, token,
                          &e))
        return fail(&e);
    int bad = printf("%s\n", token) < 0 || fflush(stdout);
    explicit_bzero(token, sizeof token);
    if (bad) {
        cli_say("the token could not be printed; revoke it: its name is in the list");
        return EX_IOERR;
    }
    return EX_OK;
}

static void print_one(void *arg, const struct principal *p, int64_t created_at)
{
    (void)arg;
    char created[SG_TIME_TEXT], expires[SG_TIME_TEXT] = "never";
    sg_time_format(created_at, created);
    if (p->expires_at)
        sg_time_format(p->expires_at, expires);
    (void)printf("%-12s  %-24s  %-24s  %s", p->id, created, expires, p->name);
    if (p->files_root[0])
        (void)printf("  (files below %s)", p->files_root);
    (void)putchar('\n');
}

static int list(const char *file)
{
    struct sg_error e;
    (void)printf("%-12s  %-24s  %-24s  %s\n", "ID", "CREATED", "EXPIRES", "NAME");
    if (token_file_each(file, print_one, NULL, &e))
        return fail(&e);
    return fflush(stdout) ? EX_IOERR : EX_OK;
}

static int revoke(const char *file, const char *id)
{
    struct sg_error e;
    if (!id)
        return cli_usage("token revoke: the id is missing; `sandgate token list` shows it");
    if (token_file_revoke(file, id, &e))
        return fail(&e);
    return EX_OK;
}

int cli_token(int argc, char **argv)
{
    struct token_args a = {0};
    struct config *c = NULL;
    int code = parse(argc, argv, &a);
    const char *act = optind < argc ? argv[optind] : NULL;
    const char *id = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (code)
        return code;
    if (!act)
        return cli_usage("token: create, list or revoke is missing; see --help");
    bool revoking = strcmp(act, "revoke") == 0;
    if (argc - optind > (revoking ? 2 : 1))
        return cli_usage("token %.20s: unexpected argument \"%.60s\"", act, argv[argc - 1]);
    if (!a.file) {
        code = cli_load(&a.settings, &c);
        if (code)
            return code;
    }
    const char *file = a.file ? a.file : c->tokens_file;
    if (strcmp(act, "create") == 0)
        code = create(&a, file);
    else if (strcmp(act, "list") == 0)
        code = list(file);
    else if (revoking)
        code = revoke(file, id);
    else
        code = cli_usage("token: unknown action \"%.40s\"; create, list or revoke", act);
    config_free(c);
    return code;
}
