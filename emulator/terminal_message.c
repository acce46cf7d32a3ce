#include "emulator/terminal_message.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_COLS = 80, DEFAULT_ROWS = 24, SIZE_MAX_CELLS = 10000 };

/* False when the member is there but is no size. */
static bool read_size(const json_t *o, const char *key, unsigned short *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return true;
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1 || n > SIZE_MAX_CELLS)
        return false;
    *out = (unsigned short)n;
    return true;
}

static bool all_strings(const json_t *list)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
    {
        if (!json_is_string(v))
            return false;
    }
    return true;
}

/* "K=V" strings into an object: a later one wins, as in a real environment that is built from such a list. */
static const char *read_env(const json_t *list, json_t *env)
{
    size_t i;
    json_t *v;
    if (!list || json_is_null(list))
        return NULL;
    if (!json_is_array(list) || !all_strings(list))
        return "env should be an array of strings";
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
    {
        const char *s = json_string_value(v), *eq = strchr(s, '=');
        if (!eq || eq == s)
            return "env should have KEY=value strings";
        char *key = strndup(s, (size_t)(eq - s));
        int err = key ? json_object_set_new(env, key, json_string(eq + 1)) : -1;
        free(key);
        if (err)
            return "no memory";
    }
    return NULL;
}

/* `sudo PROGRAM ARGS` runs PROGRAM as root, as the API's own sudo does; with options or variables it is left to
 * the program of that name. */
static const char *read_program(struct terminal_message *m)
{
    const json_t *command = json_object_get(m->json, "command");
    const json_t *args = json_object_get(m->json, "args");
    if (!json_is_string(command) || !json_string_length(command))
        return "command should be a string";
    if (args && !json_is_null(args) && (!json_is_array(args) || !all_strings(args)))
        return "args should be an array of strings";
    m->program = json_string_value(command);
    const char *first = json_string_value(json_array_get(args, 0));
    m->sudo = !strcmp(m->program, "sudo") && first && *first && *first != '-' && !strchr(first, '=');
    if (m->sudo)
        m->program = first;
    for (size_t i = m->sudo; i < json_array_size(args); i++)
        if (json_array_append(m->args, json_array_get(args, i)))
            return "no memory";
    return NULL;
}

static const char *read_start(struct terminal_message *m)
{
    const json_t *cwd = json_object_get(m->json, "cwd");
    m->cols = DEFAULT_COLS;
    m->rows = DEFAULT_ROWS;
    m->args = json_array();
    m->env = json_object();
    if (!m->args || !m->env)
        return "no memory";
    if (cwd && !json_is_null(cwd) && !json_is_string(cwd))
        return "cwd should be a string";
    m->cwd = json_string_value(cwd);
    if (!read_size(m->json, "cols", &m->cols) || !read_size(m->json, "rows", &m->rows))
        return "cols and rows should be positive integers";
    const char *error = read_program(m);
    return error ? error : read_env(json_object_get(m->json, "env"), m->env);
}

void terminal_message_parse(const char *text, size_t len, struct terminal_message *out)
{
    *out = (struct terminal_message){.kind = TERMINAL_OTHER};
    out->json = json_loadb(text, len, 0, NULL);
    const char *type = json_string_value(json_object_get(out->json, "type"));
    if (!type)
        return;
    if (!strcmp(type, "start")) {
        out->error = read_start(out);
        out->kind = out->error ? TERMINAL_BAD_START : TERMINAL_START;
    } else if (!strcmp(type, "resize")) {
        if (read_size(out->json, "cols", &out->cols) && read_size(out->json, "rows", &out->rows) &&
            out->cols && out->rows)
            out->kind = TERMINAL_RESIZE;
    }
}

void terminal_message_free(struct terminal_message *m)
{
    json_decref(m->args);
    json_decref(m->env);
    json_decref(m->json);
    *m = (struct terminal_message){0};
}
