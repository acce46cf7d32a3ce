#include "guest/args.h"

#include "base/core/b64.h"
#include "base/core/num.h"
#include "guest/ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(c) (1u << (c))
enum {
    STARTS = BIT(CMD_RUN) | BIT(CMD_START),
    CONTROLS = BIT(CMD_INPUT) | BIT(CMD_WRITE) | BIT(CMD_CLOSE) | BIT(CMD_RESIZE) | BIT(CMD_CANCEL) |
               BIT(CMD_ACK) | BIT(CMD_LEASE) | BIT(CMD_UNATTENDED),
    NAMED = STARTS | BIT(CMD_FOLLOW) | BIT(CMD_STATUS) | BIT(CMD_SIGNAL) | BIT(CMD_SETTLE) | BIT(CMD_REMOVE) |
            CONTROLS,
    IN_SESSION = NAMED | BIT(CMD_LIST) | BIT(CMD_WATCH),
    WAITS = BIT(CMD_FOLLOW) | BIT(CMD_STATUS),
    SIGNALS = BIT(CMD_SIGNAL) | BIT(CMD_CANCEL),
    PLACED = BIT(CMD_WRITE) | BIT(CMD_CLOSE),
    WITH_LIST = STARTS | BIT(CMD_WATCH),
};

static const char *const commands[] = {
    "run",   "start", "follow", "status", "list", "signal", "settle",     "remove", "version", "input",
    "write", "close", "resize", "cancel", "ack",  "lease",  "unattended", "watch",  "fs"};

enum kind { FLAG, NAME, PATH, NUMBER, POSITIVE, ENV_NAME, BASE64, UPLOAD, TERMINAL };

struct option {
    const char *name;
    enum kind kind;
    unsigned commands, needed; /* bits of those that take it, and of those that cannot do without */
    uint64_t max;
    size_t offset;       /* of its value in struct guest_args */
    size_t given_offset; /* of a bool that says it was given, 0 for none */
};

#define AT(field) offsetof(struct guest_args, field)

static const struct option options[] = {
    {"--session", NAME, IN_SESSION, IN_SESSION, 0, AT(session), 0},
    {"--id", NAME, NAMED, NAMED, 0, AT(id), 0},
    {"--spec", NAME, STARTS, STARTS, 0, AT(spec), 0},
    {"--cwd", PATH, STARTS, 0, 0, AT(cwd), 0},
    {"--user", NAME, STARTS, 0, 0, AT(user), 0},
    {"--timeout-ms", NUMBER, STARTS, 0, INT64_MAX / 2, AT(timeout_ms), 0},
    {"--retain", NUMBER, STARTS, 0, GUEST_RETAIN_MAX, AT(retain), 0},
    {"--replace-env", ENV_NAME, STARTS, 0, 0, AT(keep_env), 0},
    {"--clear-env", FLAG, STARTS, 0, 0, AT(clear_env), 0},
    {"--pty", TERMINAL, STARTS, 0, UINT16_MAX, AT(cols), 0},
    {"--input-open", FLAG, STARTS, 0, 0, AT(input_open), 0},
    {"--input-data", BASE64, STARTS, 0, 0, AT(data), 0},
    {"--input-file", UPLOAD, STARTS, 0, 0, AT(input_file), 0},
    {"--lossless", FLAG, STARTS, 0, 0, AT(lossless), 0},
    {"--lease-ms", NUMBER, STARTS, 0, INT64_MAX / 2, AT(lease_ms), 0},
    {"--unattended-ms", NUMBER, STARTS, 0, INT64_MAX / 2, AT(unattended_ms), 0},
    {"--own", FLAG, BIT(CMD_RUN), 0, 0, AT(own), 0},
    {"--max-output", NUMBER, BIT(CMD_RUN), 0, INT64_MAX, AT(max_output), 0},
    {"--stdout", NUMBER, BIT(CMD_FOLLOW) | BIT(CMD_ACK), BIT(CMD_ACK), INT64_MAX / 4, AT(offset[0]), 0},
    {"--stderr", NUMBER, BIT(CMD_FOLLOW) | BIT(CMD_ACK), BIT(CMD_ACK), INT64_MAX / 4, AT(offset[1]), 0},
    {"--only", POSITIVE, BIT(CMD_FOLLOW), 0, 2, AT(only), 0},
    {"--limit", NUMBER, BIT(CMD_FOLLOW), 0, INT64_MAX, AT(limit), AT(has_limit)},
    {"--tail", NUMBER, BIT(CMD_FOLLOW), 0, INT64_MAX, AT(tail), AT(has_tail)},
    {"--attend", FLAG, BIT(CMD_FOLLOW) | BIT(CMD_WATCH), 0, 0, AT(attend), 0},
    {"--wait-ms", NUMBER, WAITS, 0, INT64_MAX / 2, AT(wait_ms), AT(has_wait)},
    {"--signal", POSITIVE, SIGNALS, SIGNALS, 64, AT(signal), 0},
    {"--only-program", FLAG, BIT(CMD_SIGNAL), 0, 0, AT(only_program), 0},
    {"--grace-ms", NUMBER, BIT(CMD_CANCEL), BIT(CMD_CANCEL), INT64_MAX / 2, AT(grace_ms), 0},
    {"--offset", NUMBER, PLACED, PLACED, INT64_MAX / 4, AT(at), 0},
    {"--data", BASE64, BIT(CMD_WRITE), BIT(CMD_WRITE), 0, AT(data), 0},
    {"--cols", POSITIVE, BIT(CMD_RESIZE), BIT(CMD_RESIZE), UINT16_MAX, AT(cols), 0},
    {"--rows", POSITIVE, BIT(CMD_RESIZE), BIT(CMD_RESIZE), UINT16_MAX, AT(rows), 0},
    {"--ttl-ms", NUMBER, BIT(CMD_LEASE), BIT(CMD_LEASE), INT64_MAX / 2, AT(lease_ms), 0},
    {"--ms", NUMBER, BIT(CMD_UNATTENDED), BIT(CMD_UNATTENDED), INT64_MAX / 2, AT(unattended_ms), 0},
};
enum { OPTIONS = sizeof options / sizeof *options };

static bool misuse(struct guest_fail *f, const char *what, const char *name)
{
    char text[sizeof f->text];
    snprintf(text, sizeof text, "%s%.64s", what, name);
    return guest_failed(f, SG_WF_USAGE, 0, text);
}

/* COLSxROWS, both at least 1. */
static bool parse_terminal(const char *s, uint64_t max, struct guest_args *a)
{
    const char *x = strchr(s, 'x');
    return x && sg_parse_u64(s, (size_t)(x - s), max, &a->cols) &&
           sg_parse_u64(x + 1, strlen(x + 1), max, &a->rows) && a->cols > 0 && a->rows > 0;
}

/* What an upload for us is called. */
static bool is_upload(const char *s)
{
    return strncmp(s, ".up-", 4) == 0 && s[4] && strlen(s) < NAME_MAX &&
           strspn(s + 4, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(s + 4);
}

static bool is_base64(const char *s)
{
    size_t n = strlen(s);
    unsigned char *bytes = n && n <= SG_B64_LEN((size_t)GUEST_WRITE_MAX) ? malloc(n) : NULL;
    ssize_t len = bytes ? sg_b64_decode(bytes, s, n) : -1;
    free(bytes);
    return len > 0 && len <= GUEST_WRITE_MAX;
}

static bool store(struct guest_args *a, const struct option *o, const char *v)
{
    char *at = (char *)a + o->offset;
    uint64_t n;
    switch (o->kind) {
    case FLAG:
        *(bool *)at = true;
        return true;
    case NAME:
        /* Sessions stand beside the installed helpers and hidden files, so they may not look like them. */
        if (!sg_wire_id_valid(v, strlen(v)) || (o->offset == AT(session) && strncmp(v, "guest-", 6) == 0))
            return false;
        *(const char **)(void *)at = v;
        return true;
    case PATH:
        if (!*v || strlen(v) >= PATH_MAX)
            return false;
        *(const char **)(void *)at = v;
        return true;
    case NUMBER:
    case POSITIVE:
        if (!sg_parse_u64(v, strlen(v), o->max, &n))
            return false;
        *(uint64_t *)(void *)at = n;
        if (o->given_offset)
            *(bool *)((char *)a + o->given_offset) = true;
        return n > 0 || o->kind == NUMBER;
    case BASE64:
    case UPLOAD:
        *(const char **)(void *)at = v;
        return o->kind == UPLOAD ? is_upload(v) : is_base64(v);
    case TERMINAL:
        return parse_terminal(v, o->max, a);
    case ENV_NAME:
        if (!*v || strchr(v, '='))
            return false;
        a->keep_env[a->keep_env_count++] = v;
        return true;
    }
    return false;
}

static const struct option *find_option(const char *name)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

static bool parse_options(int argc, char *const *argv, int at, struct guest_args *a, struct guest_fail *f)
{
    unsigned bit = BIT(a->command);
    bool given[OPTIONS] = {false};
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        const struct option *o = find_option(argv[at]);
        if (!o || !(o->commands & bit))
            return misuse(f, "unknown option ", argv[at]);
        if (given[o - options] && o->kind != ENV_NAME)
            return misuse(f, "repeated ", o->name);
        given[o - options] = true;
        const char *value = "";
        if (o->kind != FLAG) {
            if (++at >= argc)
                return misuse(f, "no value for ", o->name);
            value = argv[at];
        }
        if (!store(a, o, value))
            return misuse(f, "bad value of ", o->name);
    }
    for (size_t i = 0; i < OPTIONS; i++)
        if ((options[i].needed & bit) && !given[i])
            return misuse(f, "missing ", options[i].name);
    if (at < argc)
        a->argv = argv + at + 1;
    bool program = a->argv && a->argv[0] && a->argv[0][0];
    if (((WITH_LIST & bit) != 0) != program || (a->argv && !program))
        return misuse(f, program ? "unexpected program" : "missing program", "");
    if ((STARTS & bit) && (a->own != sg_wire_id_own(a->id) || (a->own && strcmp(a->argv[0], "fs") != 0)))
        return misuse(f, "bad value of ", "--own");
    if (a->input_file && a->data)
        return misuse(f, "--input-data and ", "--input-file");
    if (a->has_tail && (a->offset[0] || a->offset[1]))
        return misuse(f, "--tail and ", "offsets");
    return true;
}

bool args_parse(int argc, char *const *argv, struct guest_args *a, struct guest_fail *f)
{
    *a = (struct guest_args){.command = CMD_VERSION, .retain = GUEST_RETAIN_DEFAULT, .max_output = INT64_MAX};
    int at = 1;
    if (at < argc && strcmp(argv[at], "--install") == 0) {
        if (argc < 4)
            return misuse(f, "no value for ", "--install");
        a->install = argv[at + 1];
        at += 2;
        if (strlen(a->install) != GUEST_HASH_CHARS ||
            strspn(a->install, "0123456789abcdef") != GUEST_HASH_CHARS)
            return misuse(f, "bad value of ", "--install");
    }
    if (at >= argc)
        return misuse(f, "missing command", "");
    size_t c = 0;
    while (c < sizeof commands / sizeof *commands && strcmp(commands[c], argv[at]) != 0)
        c++;
    if (c == sizeof commands / sizeof *commands)
        return misuse(f, "unknown command ", argv[at]);
    a->command = (enum guest_command)c;
    a->argv = argv + at + 1;
    if (a->command == CMD_FS) /* has options of its own: fs_args.h */
        return true;
    a->argv = NULL;
    a->keep_env = calloc((size_t)argc, sizeof *a->keep_env);
    if (!a->keep_env)
        return guest_failed(f, SG_WF_INTERNAL, ENOMEM, "no memory");
    return parse_options(argc, argv, at + 1, a, f);
}

void args_free(struct guest_args *a)
{
    free(a->keep_env);
    a->keep_env = NULL;
}
