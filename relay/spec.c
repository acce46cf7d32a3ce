#include "relay/internal.h"

#include "base/core/b64.h"
#include "base/crypto.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the hash: a chain of digests over (tag, length, bytes), so that no two specs share an encoding ---- */

struct chain {
    unsigned char digest[32];
};

static void chain_add(struct chain *c, char tag, const void *data, size_t len)
{
    unsigned char block[32 + 1 + 8 + 32];
    memcpy(block, c->digest, 32);
    block[32] = (unsigned char)tag;
    for (int i = 0; i < 8; i++)
        block[33 + i] = (unsigned char)((uint64_t)len >> (56 - 8 * i));
    sg_sha256(data ? data : "", data ? len : 0, block + 41);
    sg_sha256(block, sizeof block, c->digest);
}

static void chain_number(struct chain *c, char tag, int64_t n)
{
    unsigned char be[8];
    for (int i = 0; i < 8; i++)
        be[i] = (unsigned char)((uint64_t)n >> (56 - 8 * i));
    chain_add(c, tag, be, sizeof be);
}

/* Nothing to read is the same as no input. */
static bool has_input(const struct process_spec *s)
{
    return s->input && s->input_len;
}

static bool spec_hash(const struct process_spec *s, char hex[65])
{
    struct chain c = {0};
    chain_add(&c, 'v', "process 1", 9);
    for (size_t i = 0; s->argv[i]; i++)
        chain_add(&c, 'a', s->argv[i], strlen(s->argv[i]));
    if (s->cwd)
        chain_add(&c, 'c', s->cwd, strlen(s->cwd));
    if (s->env && json_object_size(s->env)) { /* sorted: the order of members means nothing */
        char *env = json_dumps(s->env, JSON_COMPACT | JSON_SORT_KEYS);
        if (!env)
            return false;
        chain_add(&c, 'e', env, strlen(env));
        free(env);
    }
    chain_number(&c, 'f', (s->env_replace ? 1 : 0) | (s->sudo ? 2 : 0));
    chain_number(&c, 't', s->timeout_ms);
    chain_number(&c, 'r', s->retain_bytes);
    /* Each only where it is given, so that a spec without any of them keeps the hash it always had. */
    if (s->user)
        chain_add(&c, 'n', s->user, strlen(s->user));
    if (s->lossless)
        chain_number(&c, 'l', 1);
    if (s->cols || s->rows)
        chain_number(&c, 'p', (int64_t)s->cols << 16 | s->rows);
    if (s->input_open)
        chain_number(&c, 'o', 1);
    if (has_input(s))
        chain_add(&c, 'i', s->input, s->input_len);
    if (s->lease_ms)
        chain_number(&c, 's', s->lease_ms);
    if (s->unattended_ms)
        chain_number(&c, 'u', s->unattended_ms);
    if (s->own)
        chain_number(&c, 'w', 1);
    sg_hex(hex, c.digest, sizeof c.digest);
    return true;
}

void process_spec_hash(const struct process_spec *s, char hex[65])
{
    if (spec_hash(s, hex))
        return;
    unsigned char random[32] = {0}; /* without memory: a hash that equals no other */
    if (!sg_random(random, sizeof random))
        memset(random, 0xff, sizeof random);
    sg_hex(hex, random, sizeof random);
}

/* ---- checks and arguments ---- */

static enum sg_code check_env(const json_t *env, struct sg_error *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)env, name, value)
    {
        const char *wrong = NULL;
        if (!json_is_string(value))
            wrong = "must be a string";
        else if (strlen(json_string_value(value)) != json_string_length(value))
            wrong = "must not contain NUL";
        else if (!name[0] || strchr(name, '='))
            wrong = "the name of a variable is not empty and holds no '='";
        if (wrong) {
            char pointer[128];
            sg_json_pointer(pointer, sizeof pointer, "/env", name);
            return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "%s", wrong);
        }
    }
    return SG_OK;
}

static enum sg_code check(const struct process_spec *s, struct sg_error *e)
{
    if (!s->id || !sg_wire_id_valid(s->id, strlen(s->id)))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/id", "letters, digits, '.', '_' and '-', at most %d",
                             SG_WIRE_ID_MAX);
    if (s->own != sg_wire_id_own(s->id))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/id",
                             "ids that begin with \"" SG_WIRE_OWN "\" are the gateway's own");
    if (!s->argv || !s->argv[0] || !s->argv[0][0])
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/argv", "needs a program");
    if (s->env && !json_is_object(s->env))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/env", "must be an object");
    if (!s->cols != !s->rows || s->cols > PROCESS_SIDE_MAX || s->rows > PROCESS_SIDE_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/pty", "1 to %d columns and rows", PROCESS_SIDE_MAX);
    if (s->input_len > PROCESS_INPUT_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/stdin", "at most %d bytes", PROCESS_INPUT_MAX);
    return s->env ? check_env(s->env, e) : SG_OK;
}

/* The program's directory: absolute where the session's is known. */
static void add_cwd(struct relay_args *a, const struct process_spec *s)
{
    const char *base = s->session.cwd;
    if (!s->cwd && !base)
        return;
    args_add(a, "--cwd");
    if (!s->cwd) {
        args_add(a, base);
        return;
    }
    if (s->cwd[0] == '/' || !base) {
        args_add(a, s->cwd);
        return;
    }
    struct sg_buf path;
    sg_buf_init(&path, strlen(base) + strlen(s->cwd) + 1);
    if (sg_buf_adds(&path, base) && sg_buf_adds(&path, "/") && sg_buf_adds(&path, s->cwd))
        args_add(a, path.data);
    else
        a->failed = true;
    sg_buf_free(&path);
}

static void add_env(struct relay_args *a, const struct process_spec *s)
{
    if (!s->env_replace)
        return;
    args_add(a, "--clear-env");
    const char *name;
    json_t *value;
    json_object_foreach(s->env, name, value)
    {
        args_add(a, "--replace-env");
        args_add(a, name);
    }
}

static void add_number(struct relay_args *a, const char *option, int64_t n)
{
    if (n <= 0)
        return;
    args_add(a, option);
    args_addu(a, (uint64_t)n);
}

static void add_input(struct relay_args *a, const struct process_spec *s, const char *input_file)
{
    if (s->cols) {
        char size[24];
        (void)snprintf(size, sizeof size, "%ux%u", s->cols, s->rows);
        args_add(a, "--pty");
        args_add(a, size);
    }
    if (s->input_open)
        args_add(a, "--input-open");
    if (!has_input(s))
        return;
    if (input_file) {
        args_add(a, "--input-file");
        args_add(a, input_file);
        return;
    }
    args_add(a, "--input-data");
    char *text = malloc(SG_B64_LEN(s->input_len) + 1);
    if (text) {
        text[sg_b64_encode(text, s->input, s->input_len)] = '\0';
        args_add(a, text);
    } else {
        a->failed = true;
    }
    free(text);
}

bool stage_needed(const struct process_spec *s)
{
    return has_input(s) && s->input_len > PROCESS_WRITE_MAX;
}

enum sg_code start_args(const struct process_spec *s, const char *verb, int64_t max_output,
                        const char *input_file, struct relay_args *out, struct sg_error *e)
{
    char hash[65];
    *out = (struct relay_args){0};
    enum sg_code code = check(s, e);
    if (code)
        return code;
    out->failed = !spec_hash(s, hash);
    args_begin(out, verb, s->session.session_id, s->id);
    args_add(out, "--spec");
    args_add(out, hash);
    add_cwd(out, s);
    if (s->user) {
        args_add(out, "--user");
        args_add(out, s->user);
    }
    add_number(out, "--timeout-ms", s->timeout_ms);
    add_number(out, "--retain", s->retain_bytes);
    if (s->lossless)
        args_add(out, "--lossless");
    add_number(out, "--lease-ms", s->lease_ms);
    add_number(out, "--unattended-ms", s->unattended_ms);
    add_input(out, s, input_file);
    add_env(out, s);
    if (s->own)
        args_add(out, "--own");
    if (max_output >= 0) {
        args_add(out, "--max-output");
        args_addu(out, (uint64_t)max_output);
    }
    args_add(out, "--");
    for (size_t i = 0; s->argv[i]; i++)
        args_add(out, s->argv[i]);
    if (out->failed) {
        args_free(out);
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the arguments");
    }
    return SG_OK;
}
