/* Finds the subcommand. */
#include "server/cli.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", cli_serve}, {"dev", cli_dev},     {"check", cli_check}, {"check-config", cli_check_config},
    {"token", cli_token}, {"prune", cli_prune},
};

int main(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage("a command is missing: serve, dev, check, check-config, prune or token; see --help");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        cli_print_version();
        return fflush(stdout) ? EX_IOERR : EX_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return cli_print_help();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        for (int a = 2; a < argc; a++)
            if (strcmp(argv[a], "--help") == 0)
                return cli_print_help();
        return commands[i].run(argc - 1, argv + 1);
    }
    return cli_usage("unknown command \"%.40s\"; see --help", name);
}
