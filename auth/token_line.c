/* The text of a token, and its line in the file. */
#include "auth/internal.h"

#include "base/crypto.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool alphanumeric(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z')))
            return false;
    return true;
}

bool token_format_valid(const char *token)
{
    if (strlen(token) != TOKEN_TEXT - 1 || memcmp(token, "sgt_", 4) != 0)
        return false;
    const char *id = token + 4;
    return alphanumeric(id, TOKEN_ID_LEN) && id[TOKEN_ID_LEN] == '_' &&
           alphanumeric(id + TOKEN_ID_LEN + 1, TOKEN_SECRET_LEN);
}

/* 1..max bytes of UTF-8 without control characters. */
static bool is_text(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);
    if (len == 0 || len > max)
        return false;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return false;
    json_t *s = json_string(text); /* refuses what is not UTF-8 */
    json_decref(s);
    return s != NULL;
}

bool token_name_valid(const char *name)
{
    return is_text(name, sizeof((struct principal *)0)->name - 1);
}

bool token_root_valid(const char *root)
{
    if (!is_text(root, TOKEN_ROOT_MAX) || root[0] != '/')
        return false;
    for (const char *p = root; *p;) { /* at a slash */
        size_t n = strcspn(++p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
    }
    return true;
}

static bool random_alphanumeric(char *out, size_t n)
{
    static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned char b[64];
    for (size_t i = 0; i < n;) {
        if (!sg_random(b, sizeof b))
            return false;
        for (size_t j = 0; j < sizeof b && i < n; j++)
            if (b[j] < 248) /* 248 = 4 * 62: no modulo bias */
                out[i++] = alphabet[b[j] % 62];
    }
    explicit_bzero(b, sizeof b);
    return true;
}

enum sg_code token_generate(char out[TOKEN_TEXT], struct sg_error *e)
{
    out[0] = 's';
    out[1] = 'g';
    out[2] = 't';
    out[3] = '_';
    char *secret = out + 4 + TOKEN_ID_LEN + 1;
    if (!random_alphanumeric(out + 4, TOKEN_ID_LEN) || !random_alphanumeric(secret, TOKEN_SECRET_LEN))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "the system has no random bytes to give");
    secret[-1] = '_';
    secret[TOKEN_SECRET_LEN] = '\0';
    return SG_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hash(const char *hex, unsigned char out[TOKEN_HASH_LEN])
{
    if (!hex || strlen(hex) != 2 * (size_t)TOKEN_HASH_LEN)
        return false;
    for (size_t i = 0; i < TOKEN_HASH_LEN; i++) {
        int hi = hex_digit(hex[2 * i]);
        int lo = hex_digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (unsigned char)(hi * 16 + lo);
    }
    return true;
}

/* A time in milliseconds; absent leaves *out where that is allowed. */
static bool parse_time(const json_t *o, const char *key, bool required, int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        return !required;
    if (!json_is_integer(v) || json_integer_value(v) <= 0)
        return false;
    *out = json_integer_value(v);
    return true;
}

/* A root that cannot be read must not become none. */
static bool parse_root(const json_t *o, char out[TOKEN_ROOT_MAX + 1])
{
    const json_t *v = json_object_get(o, "files_root");
    if (!v)
        return true;
    const char *root = json_string_value(v);
    if (!root || !token_root_valid(root))
        return false;
    memcpy(out, root, strlen(root) + 1);
    return true;
}

bool token_line_parse(const char *line, size_t len, struct token_entry *out)
{
    if (len > TOKEN_LINE_MAX)
        return false;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    memset(out, 0, sizeof *out);
    const char *id = json_string_value(json_object_get(o, "id"));
    const char *name = json_string_value(json_object_get(o, "name"));
    bool ok = id && strlen(id) == TOKEN_ID_LEN && alphanumeric(id, TOKEN_ID_LEN) && name &&
              token_name_valid(name) &&
              parse_hash(json_string_value(json_object_get(o, "hash")), out->hash) &&
              parse_time(o, "created_at", true, &out->created_at) &&
              parse_time(o, "expires_at", false, &out->who.expires_at) && parse_root(o, out->who.files_root);
    if (ok) {
        memcpy(out->who.id, id, TOKEN_ID_LEN + 1);
        (void)snprintf(out->who.name, sizeof out->who.name, "%s", name);
    }
    json_decref(o);
    return ok;
}

bool token_line_add(struct sg_buf *b, const struct token_entry *entry)
{
    char hex[2 * TOKEN_HASH_LEN + 1];
    sg_hex(hex, entry->hash, TOKEN_HASH_LEN);
    json_t *o = json_pack("{s:s, s:s, s:s, s:I}", "id", entry->who.id, "hash", hex, "name", entry->who.name,
                          "created_at", (json_int_t)entry->created_at);
    bool ok = o && (!entry->who.expires_at ||
                    json_object_set_new(o, "expires_at", json_integer(entry->who.expires_at)) == 0);
    ok = ok && (!entry->who.files_root[0] ||
                json_object_set_new(o, "files_root", json_string(entry->who.files_root)) == 0);
    char *text = ok ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    ok = text && sg_buf_adds(b, text) && sg_buf_adds(b, "\n");
    free(text);
    json_decref(o);
    return ok;
}
