/* The text messages of an interactive client.  Pure; any thread. */
#ifndef SG_EMULATOR_TERMINAL_MESSAGE_H
#define SG_EMULATOR_TERMINAL_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum terminal_message_kind {
    TERMINAL_OTHER, /* JSON of a type nobody knows, or no JSON */
    TERMINAL_START,
    TERMINAL_BAD_START, /* `error` says why */
    TERMINAL_RESIZE,
};

struct terminal_message {
    enum terminal_message_kind kind;
    const char *error;         /* static */
    unsigned short cols, rows; /* 80 × 24 where a start names none */
    bool sudo;                 /* the command was `sudo` without options of its own */
    const char *program, *cwd; /* borrowed from json; cwd NULL: none */
    json_t *args;              /* array of strings */
    json_t *env;               /* object of strings */
    json_t *json;
};

void terminal_message_parse(const char *text, size_t len, struct terminal_message *out);
void terminal_message_free(struct terminal_message *m);

#endif
