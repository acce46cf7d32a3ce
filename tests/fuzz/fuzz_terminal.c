/* Any text of an interactive client is a start that can be executed, a size, or nothing. */
#include "emulator/terminal_message.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct terminal_message m;
    terminal_message_parse((const char *)data, size, &m);
    bool start = m.kind == TERMINAL_START, resize = m.kind == TERMINAL_RESIZE;
    if ((start || resize) && (!m.cols || !m.rows))
        __builtin_trap();
    if (start && (!m.program || !*m.program || !json_is_array(m.args) || !json_is_object(m.env)))
        __builtin_trap();
    if ((m.kind == TERMINAL_BAD_START) != (m.error != NULL))
        __builtin_trap();
    const char *key;
    json_t *v;
    json_object_foreach(m.env, key, v)
    {
        if (!*key || !json_is_string(v))
            __builtin_trap();
    }
    terminal_message_free(&m);
    return 0;
}
