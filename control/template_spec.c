#include "control/template_spec.h"

#include "base/core/b64.h"
#include "base/crypto.h"
#include "base/json.h"
#include "control/create_spec.h"
#include "control/fields.h"
#include "control/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 4096, MODE_MAX = 5 };

void template_spec_clear(struct template_spec *s)
{
    json_decref(s->asked);
    json_decref(s->create);
    *s = (struct template_spec){0};
}

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the template");
}

/* ---- files ---- */

static bool mode_ok(const char *mode)
{
    size_t n = strlen(mode);
    return n >= 3 && n <= MODE_MAX && strspn(mode, "01234567") == n;
}

enum sg_code template_file(const json_t *file, const char *base, char **data, size_t *len, struct sg_error *e)
{
    const json_t *text = json_object_get(file, "content");
    const char *b64 = NULL;
    char ptr[128];
    *data = NULL;
    sg_json_pointer(ptr, sizeof ptr, base, text ? "content" : "content_base64");
    enum sg_code rc = sg_json_str(file, base, "content_base64", SIZE_MAX, &b64, e);
    if (rc)
        return rc;
    if (!text == !b64)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "content or content_base64, one of them");
    if (text && !json_is_string(text))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a string");
    size_t n = text ? json_string_length(text) : strlen(b64);
    *data = malloc(n + 1);
    if (!*data)
        return no_memory(e);
    if (text) {
        memcpy(*data, json_string_value(text), n);
        *len = n;
        return SG_OK;
    }
    ssize_t got = sg_b64_decode((unsigned char *)*data, b64, n);
    if (got >= 0) {
        *len = (size_t)got;
        return SG_OK;
    }
    free(*data);
    *data = NULL;
    return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be base64 with its padding");
}

static enum sg_code check_file(const json_t *file, const char *base, struct sg_error *e)
{
    static const char *const fields[] = {"path", "content", "content_base64", "mode", "sudo", NULL};
    const char *path = NULL, *mode = "644";
    char *data = NULL, ptr[128];
    size_t len;
    bool sudo = false;
    if (!json_is_object(file))
        return sg_fail_field(e, SG_E_INVALID_FIELD, base, "must be an object");
    enum sg_code rc = sg_json_only(file, base, fields, e);
    if (!rc)
        rc = sg_json_str(file, base, "path", FIELD_PATH_MAX, &path, e);
    if (!rc)
        rc = sg_json_str(file, base, "mode", MODE_MAX, &mode, e);
    if (!rc)
        rc = sg_json_bool(file, base, "sudo", &sudo, e);
    if (!rc)
        rc = template_file(file, base, &data, &len, e);
    free(data);
    if (rc)
        return rc;
    sg_json_pointer(ptr, sizeof ptr, base, "path");
    if (!path || !*path || path[strlen(path) - 1] == '/' || field_has_nul(json_object_get(file, "path")))
        return sg_fail_field(e, SG_E_INVALID_PATH, ptr, "must be the path of a file");
    sg_json_pointer(ptr, sizeof ptr, base, "mode");
    return mode_ok(mode) ? SG_OK : sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "three to five octal digits");
}

static enum sg_code check_files(const json_t *files, struct sg_error *e)
{
    size_t n = json_array_size(files);
    if (n > TEMPLATE_FILES_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/files", "at most %d files", TEMPLATE_FILES_MAX);
    enum sg_code rc = SG_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        char ptr[64];
        (void)snprintf(ptr, sizeof ptr, "/files/%zu", i);
        rc = check_file(json_array_get(files, i), ptr, e);
    }
    return rc;
}

json_t *template_files_told(const json_t *files)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i);
        unsigned char digest[32];
        char *data = NULL, hex[65];
        size_t len = 0;
        struct sg_error e;
        if (template_file(f, "", &data, &len, &e)) {
            json_decref(out);
            return NULL;
        }
        sg_sha256(data, len, digest);
        sg_hex(hex, digest, sizeof digest);
        free(data);
        json_t *one = json_pack("{sssssbsIss}", "path", sg_jget_str(f, "path", ""), "mode",
                                sg_jget_str(f, "mode", "644"), "sudo", sg_jget_bool(f, "sudo", false), "size",
                                (json_int_t)len, "sha256", hex);
        if (json_array_append_new(out, one)) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* ---- what it is made from ---- */

static enum sg_code check_inputs(const json_t *inputs, struct sg_error *e)
{
    const char *key;
    json_t *value;
    if (json_object_size(inputs) > TEMPLATE_INPUTS_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/inputs", "at most %d", TEMPLATE_INPUTS_MAX);
    json_object_foreach((json_t *)(uintptr_t)inputs, key, value)
    {
        char ptr[128];
        sg_json_pointer(ptr, sizeof ptr, "/inputs", key);
        if (!json_is_string(value) || json_string_length(value) > INPUT_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a string of at most %d bytes",
                                 INPUT_MAX);
    }
    return SG_OK;
}

static enum sg_code parse_from(const json_t *body, struct template_spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"image", "runtime", "source", NULL};
    bool snapshot = false;
    enum sg_code rc = sg_json_object(body, "", "from", &out->from, e);
    if (rc || !out->from)
        return rc;
    rc = sg_json_only(out->from, "/from", fields, e);
    if (!rc)
        rc = create_source_parse(out->from, "/from", out->create, &snapshot, e);
    if (rc)
        return rc;
    const json_t *source = json_object_get(out->from, "source");
    if (json_object_get(source, "password"))
        return sg_fail_field(e, SG_E_UNSUPPORTED, "/from/source/password",
                             "templates keep no credentials; clone in a step, or from a public address");
    out->builds = out->builds || (source && !snapshot);
    return SG_OK;
}

static enum sg_code parse_architecture(const json_t *body, struct template_spec *out, struct sg_error *e)
{
    const char *arch = NULL;
    enum sg_code rc = sg_json_str(body, "", "architecture", 16, &arch, e);
    if (rc || !arch)
        return rc;
    if (strcmp(arch, "amd64") != 0 && strcmp(arch, "arm64") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/architecture", "must be \"amd64\" or \"arm64\"");
    return field_put(out->create, "architecture", json_string(arch), e);
}

/* Everything that what is prepared depends on, as one text that is the same however it was written down. */
static enum sg_code fingerprint(struct template_spec *s, struct sg_error *e)
{
    const json_t *inputs = json_object_get(s->asked, "inputs");
    unsigned char digest[32];
    json_t *all = json_pack("{sisOsO?sO?sO?}", "v", 1, "create", s->create, "steps", s->steps, "files",
                            s->files, "inputs", inputs);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(all);
    if (!text)
        return no_memory(e);
    sg_sha256(text, strlen(text), digest);
    sg_hex(s->fingerprint, digest, sizeof digest);
    free(text);
    return SG_OK;
}

static enum sg_code parse_inside(const json_t *body, struct template_spec *out, struct sg_error *e)
{
    json_t *steps = NULL, *files = NULL, *inputs = NULL;
    enum sg_code rc = sg_json_array(body, "", "steps", &steps, e);
    if (!rc && steps)
        rc = steps_check(steps, "/steps", e);
    if (!rc)
        rc = sg_json_array(body, "", "files", &files, e);
    if (!rc)
        rc = check_files(files, e);
    if (!rc)
        rc = sg_json_object(body, "", "inputs", &inputs, e);
    if (!rc)
        rc = check_inputs(inputs, e);
    out->steps = steps;
    out->files = files;
    out->builds = json_array_size(steps) || json_array_size(files);
    return rc;
}

enum sg_code template_spec_parse(json_t *body, struct template_spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"from",   "steps",        "files",      "vcpus",  "env",
                                         "region", "architecture", "timeout_ms", "inputs", NULL};
    *out = (struct template_spec){
        .asked = json_incref(body), .create = json_object(), .timeout_ms = TEMPLATE_TIMEOUT_MS};
    enum sg_code rc = out->create ? sg_json_only(body, "", fields, e) : no_memory(e);
    if (!rc)
        rc = parse_inside(body, out, e);
    if (!rc)
        rc = parse_from(body, out, e);
    if (!rc)
        rc = field_vcpus(body, out->create, e);
    if (!rc)
        rc = field_env(body, out->create, e);
    if (!rc)
        rc = field_region(body, out->create, e);
    if (!rc)
        rc = parse_architecture(body, out, e);
    if (!rc)
        rc = sg_json_int(body, "", "timeout_ms", TEMPLATE_TIMEOUT_MIN_MS, TEMPLATE_TIMEOUT_MAX_MS,
                         &out->timeout_ms, e);
    if (!rc)
        rc = fingerprint(out, e);
    if (rc)
        template_spec_clear(out);
    return rc;
}
