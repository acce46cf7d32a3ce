/* The option table as text: the example file and the part of --help. */
#include "config/internal.h"

#include "base/buf.h"

#include <string.h>

static void add_range(struct sg_buf *b, int i)
{
    const struct option_def *d = &option_defs[i];
    if (d->type == OPTION_INT)
        sg_buf_addf(b, " (%lld to %lld)", (long long)d->min, (long long)d->max);
    else if (d->type == OPTION_WORD)
        sg_buf_addf(b, " (one of: %s)", d->words);
}

static bool begins_section(int i)
{
    return i == 0 || strcmp(option_list[i].section, option_list[i - 1].section) != 0;
}

bool config_describe_example(struct sg_buf *b)
{
    sg_buf_adds(
        b, "; Every option with its default.  Each can also be set by the environment, as\n"
           "; SANDGATE_<SECTION>_<KEY> (SANDGATE_SERVER_LISTEN), which goes before this file, and on the\n"
           "; command line by --set section.key=value, which goes before both.\n");
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct config_option *o = &option_list[i];
        if (begins_section(i))
            sg_buf_addf(b, "\n[%s]\n", o->section);
        sg_buf_addf(b, "; %s", o->help);
        add_range(b, i);
        sg_buf_addf(b, "\n;%s =%s%s\n", o->key, *o->dflt ? " " : "", o->dflt);
    }
    return !b->failed;
}

bool config_describe_help(struct sg_buf *b)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct config_option *o = &option_list[i];
        sg_buf_addf(b, "  %s.%s", o->section, o->key);
        if (*o->dflt)
            sg_buf_addf(b, " = %s", o->dflt);
        sg_buf_addf(b, "\n      %s", o->help);
        add_range(b, i);
        sg_buf_adds(b, "\n");
    }
    return !b->failed;
}
