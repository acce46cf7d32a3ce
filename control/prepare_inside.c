/* What a template puts into a session: its files, then its steps. */
#include "control/prepare.h"

#include "base/core/b64.h"
#include "base/core/wire.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 90 * 1024 /* of a file in one argument, before base64 */, SAY_MAX = 256 };

/* $1 path, $2 bytes, $3 mode or "" where more follows */
static const char first_script[] =
    "set -e\nd=$(dirname -- \"$1\")\n[ -d \"$d\" ] || mkdir -p -- \"$d\"\n"
    "printf %s \"$2\" | base64 -d > \"$1\"\n[ -z \"$3\" ] || chmod -- \"$3\" \"$1\"\n";
static const char next_script[] =
    "set -e\nprintf %s \"$2\" | base64 -d >> \"$1\"\n[ -z \"$3\" ] || chmod -- \"$3\" \"$1\"\n";

struct inside {
    struct control *c;
    const struct step_session *s;
    const char *id_base;
    step_output_fn *output;
    void *arg;
};

static void say(const struct inside *in, const char *text)
{
    if (in->output)
        in->output(in->arg, 0, text, strlen(text));
}

static enum sg_code failed(const char *path, struct sg_error *e)
{
    char why[sizeof e->detail];
    if (e->code != SG_E_STEP_FAILED)
        return e->code;
    (void)snprintf(why, sizeof why, "%s", e->detail);
    const char *words = strstr(why, ": ");
    return sg_fail(e, SG_E_STEP_FAILED, SG_FINISHED, "the file %.100s could not be written%s%.120s", path,
                   words ? ": " : "", words ? words + 2 : "");
}

static enum sg_code write_piece(const struct inside *in, const json_t *file, const char *id, const char *data,
                                size_t len, bool first, bool last, struct sg_error *e)
{
    char *text = malloc(SG_B64_LEN(len) + 1);
    if (!text)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for a file");
    text[sg_b64_encode(text, data, len)] = '\0';
    json_t *step =
        json_pack("{s[sssssss]sb}", "argv", "/bin/sh", "-c", first ? first_script : next_script, "write",
                  sg_jget_str(file, "path", ""), text, last ? sg_jget_str(file, "mode", "644") : "", "sudo",
                  sg_jget_bool(file, "sudo", false));
    free(text);
    if (!step)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for a file");
    enum sg_code rc = steps_run_one(in->c, in->s, step, 0, id, in->output, in->arg, e);
    json_decref(step);
    return rc;
}

/* Each piece is a step that runs exactly once, so appending is safe. */
static enum sg_code write_file(const struct inside *in, size_t place, const json_t *file, struct sg_error *e)
{
    char *data = NULL, line[SAY_MAX];
    size_t len = 0, at = 0;
    const char *path = sg_jget_str(file, "path", "");
    enum sg_code rc = template_file(file, "", &data, &len, e);
    (void)snprintf(line, sizeof line, "[sandgate] file %zu: %.200s\n", place + 1, path);
    say(in, line);
    for (unsigned n = 0; !rc && (at < len || !n); n++) {
        char id[SG_WIRE_ID_MAX + 1];
        size_t take = len - at < PIECE ? len - at : PIECE;
        (void)snprintf(id, sizeof id, "%.*s-f%u-%u", 48, in->id_base, (unsigned)(place % 1000U), n % 10000U);
        rc = write_piece(in, file, id, data + at, take, !n, at + take == len, e);
        at += take;
    }
    free(data);
    return rc ? failed(path, e) : SG_OK;
}

enum sg_code prepare_inside(struct control *c, const struct template_spec *spec, const struct step_session *s,
                            const char *id_base, step_output_fn *output, void *output_arg, struct sg_error *e)
{
    const struct inside in = {c, s, id_base, output, output_arg};
    enum sg_code rc = SG_OK;
    for (size_t i = 0; !rc && i < json_array_size(spec->files); i++)
        rc = write_file(&in, i, json_array_get(spec->files, i), e);
    for (size_t i = 0; !rc && i < json_array_size(spec->steps); i++) {
        const json_t *step = json_array_get(spec->steps, i);
        char id[SG_WIRE_ID_MAX + 1], line[SAY_MAX];
        const char *name = sg_jget_str(step, "name", NULL);
        (void)snprintf(line, sizeof line, "[sandgate] step %zu%s%.100s\n", i + 1, name ? ": " : "",
                       name ? name : "");
        say(&in, line);
        (void)snprintf(id, sizeof id, "%.*s-%u", STEP_ID_BASE_MAX, id_base, (unsigned)(i % 1000U) + 1U);
        rc = steps_run_one(c, s, step, i, id, output, output_arg, e);
    }
    return rc;
}
