#include "control/create_spec.h"

#include "base/json.h"
#include "control/fields.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { IMAGE_MAX = 255, SNAPSHOT_ID_MAX = 64, URL_MAX = 2048, REVISION_MAX = 255, CREDENTIAL_MAX = 4096 };

static const char *const runtimes[] = {"node22", "node24", "node26", "python3.13", NULL};

/* Printable ASCII without blanks, not empty. */
static bool is_token(const json_t *value)
{
    const char *p = json_string_value(value);
    if (!p || !*p || field_has_nul(value))
        return false;
    for (; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return false;
    return true;
}

/* ---- source ---- */

static enum sg_code source_text(const json_t *source, const char *at, const char *key, size_t max,
                                const char **out, struct sg_error *e)
{
    char ptr[128];
    enum sg_code rc = sg_json_str(source, at, key, max, out, e);
    sg_json_pointer(ptr, sizeof ptr, at, key);
    if (!rc && *out && !is_token(json_object_get(source, key)))
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "printable ASCII without blanks");
    return rc;
}

/* An address with a host; credentials in it would come back in records and logs. */
static enum sg_code source_url(const json_t *source, const char *at, const char **url, struct sg_error *e)
{
    char ptr[128];
    enum sg_code rc = source_text(source, at, "url", URL_MAX, url, e);
    if (rc)
        return rc;
    sg_json_pointer(ptr, sizeof ptr, at, "url");
    if (!*url)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "required");
    const char *rest = strstr(*url, "://");
    if (!rest || rest == *url ||
        (strncasecmp(*url, "https://", 8) != 0 && strncasecmp(*url, "http://", 7) != 0 &&
         strncasecmp(*url, "git://", 6) != 0 && strncasecmp(*url, "file://", 7) != 0))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be an http or https URL");
    rest += 3;
    size_t host = strcspn(rest, "/?#");
    if (memchr(rest, '@', host))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "credentials belong into username and password");
    return SG_OK;
}

static enum sg_code parse_git(const json_t *source, const char *at, json_t *out, struct sg_error *e)
{
    static const char *const fields[] = {"type", "url", "depth", "revision", "username", "password", NULL};
    const char *url = NULL, *revision = NULL, *username = NULL, *password = NULL;
    int64_t depth = 0;
    char ptr[128];
    enum sg_code rc = sg_json_only(source, at, fields, e);
    if (!rc)
        rc = source_url(source, at, &url, e);
    if (!rc)
        rc = sg_json_int(source, at, "depth", 1, INT32_MAX, &depth, e);
    if (!rc)
        rc = source_text(source, at, "revision", REVISION_MAX, &revision, e);
    if (!rc)
        rc = source_text(source, at, "username", CREDENTIAL_MAX, &username, e);
    if (!rc)
        rc = source_text(source, at, "password", CREDENTIAL_MAX, &password, e);
    if (rc)
        return rc;
    if (!username != !password) {
        sg_json_pointer(ptr, sizeof ptr, at, username ? "password" : "username");
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "username and password go together");
    }
    if (revision && *revision == '-') {
        sg_json_pointer(ptr, sizeof ptr, at, "revision");
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a commit, branch or tag");
    }
    json_t *git = json_pack("{ssssss*ss*ss*}", "type", "git", "url", url, "revision", revision, "username",
                            username, "password", password);
    if (git && depth && json_object_set_new(git, "depth", json_integer(depth))) {
        json_decref(git);
        git = NULL;
    }
    return field_put(out, "source", git, e);
}

static enum sg_code parse_tarball(const json_t *source, const char *at, json_t *out, struct sg_error *e)
{
    static const char *const fields[] = {"type", "url", NULL};
    const char *url = NULL;
    enum sg_code rc = sg_json_only(source, at, fields, e);
    if (!rc)
        rc = source_url(source, at, &url, e);
    return rc ? rc : field_put(out, "source", json_pack("{ssss}", "type", "tarball", "url", url), e);
}

static enum sg_code parse_snapshot(const json_t *source, const char *at, json_t *out, struct sg_error *e)
{
    static const char *const fields[] = {"type", "snapshot_id", NULL};
    const char *id = NULL;
    char ptr[128];
    enum sg_code rc = sg_json_only(source, at, fields, e);
    if (!rc)
        rc = sg_json_str(source, at, "snapshot_id", SNAPSHOT_ID_MAX, &id, e);
    if (rc)
        return rc;
    sg_json_pointer(ptr, sizeof ptr, at, "snapshot_id");
    if (!id || !field_is_name(id, SNAPSHOT_ID_MAX))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be a snapshot id");
    return field_put(out, "source", json_pack("{ssss}", "type", "snapshot", "snapshotId", id), e);
}

static enum sg_code parse_source(const json_t *obj, const char *base, json_t *out, bool *snapshot,
                                 struct sg_error *e)
{
    json_t *source = NULL;
    const char *type = NULL;
    char at[128], ptr[128];
    sg_json_pointer(at, sizeof at, base, "source");
    enum sg_code rc = sg_json_object(obj, base, "source", &source, e);
    if (!rc)
        rc = sg_json_str(source, at, "type", 32, &type, e);
    if (rc)
        return rc;
    sg_json_pointer(ptr, sizeof ptr, at, "type");
    if (!type)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "required");
    if (!strcmp(type, "git"))
        return parse_git(source, at, out, e);
    if (!strcmp(type, "tarball"))
        return parse_tarball(source, at, out, e);
    *snapshot = !strcmp(type, "snapshot");
    if (*snapshot)
        return parse_snapshot(source, at, out, e);
    return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be \"git\", \"tarball\" or \"snapshot\"");
}

static enum sg_code parse_image(const json_t *obj, const char *base, json_t *out, struct sg_error *e)
{
    const json_t *image = json_object_get(obj, "image");
    char ptr[128];
    sg_json_pointer(ptr, sizeof ptr, base, "image");
    if (!is_token(image) || json_string_length(image) > IMAGE_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be an image reference of at most %d bytes",
                             IMAGE_MAX);
    return field_put(out, "image", json_string(json_string_value(image)), e);
}

static enum sg_code parse_runtime(const json_t *obj, const char *base, json_t *out, struct sg_error *e)
{
    const char *runtime = NULL;
    char ptr[128];
    enum sg_code rc = sg_json_str(obj, base, "runtime", 32, &runtime, e);
    if (rc)
        return rc;
    sg_json_pointer(ptr, sizeof ptr, base, "runtime");
    if (!field_listed(runtimes, runtime))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "must be one of node22, node24, node26, python3.13");
    return field_put(out, "runtime", json_string(runtime), e);
}

/* Of these members at most one may be there, but that something is cloned or unpacked into an image or a runtime. */
static enum sg_code check_single(const json_t *obj, const char *base, struct sg_error *e)
{
    static const char *const keys[] = {"image", "runtime", "source", "template", "checkpoint", NULL};
    const char *first = NULL;
    for (size_t i = 0; keys[i]; i++) {
        const json_t *v = json_object_get(obj, keys[i]);
        const char *type = sg_jget_str(v, "type", "");
        bool fills = !strcmp(keys[i], "source") && (!strcmp(type, "git") || !strcmp(type, "tarball"));
        if (!v)
            continue;
        if (first && !fills) {
            char ptr[128];
            sg_json_pointer(ptr, sizeof ptr, base, keys[i]);
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "not together with %s", first);
        }
        first = keys[i];
    }
    return SG_OK;
}

enum sg_code create_source_parse(const json_t *obj, const char *base, json_t *out, bool *snapshot,
                                 struct sg_error *e)
{
    *snapshot = false;
    enum sg_code rc = check_single(obj, base, e);
    if (!rc && json_object_get(obj, "image"))
        rc = parse_image(obj, base, out, e);
    if (!rc && json_object_get(obj, "runtime"))
        rc = parse_runtime(obj, base, out, e);
    if (!rc && json_object_get(obj, "source"))
        rc = parse_source(obj, base, out, snapshot, e);
    return rc;
}

/* ---- templates, checkpoints, architecture ---- */

static enum sg_code parse_checkpoint(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    static const char *const fields[] = {"name", "on_missing", NULL};
    json_t *checkpoint = NULL;
    const char *on_missing = "fail";
    enum sg_code rc = sg_json_object(body, "", "checkpoint", &checkpoint, e);
    if (rc || !checkpoint)
        return rc;
    rc = sg_json_only(checkpoint, "/checkpoint", fields, e);
    if (!rc)
        rc = sg_json_str(checkpoint, "/checkpoint", "name", 256, &out->checkpoint_name, e);
    if (!rc)
        rc = sg_json_str(checkpoint, "/checkpoint", "on_missing", 16, &on_missing, e);
    if (rc)
        return rc;
    if (out->checkpoint_name && !field_is_name(out->checkpoint_name, CREATE_NAME_MAX))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/checkpoint/name", "must be a checkpoint's name");
    if (strcmp(on_missing, "fail") != 0 && strcmp(on_missing, "base") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/checkpoint/on_missing", "must be \"fail\" or \"base\"");
    out->or_base = !strcmp(on_missing, "base");
    out->checkpoint = true;
    return SG_OK;
}

static enum sg_code parse_template(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    enum sg_code rc = sg_json_str(body, "", "template", 256, &out->template_name, e);
    if (!rc && out->template_name && !field_is_name(out->template_name, CREATE_NAME_MAX))
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/template", "must be a template's name");
    return rc;
}

static enum sg_code parse_architecture(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    const char *arch = NULL;
    enum sg_code rc = sg_json_str(body, "", "architecture", 16, &arch, e);
    if (rc || !arch)
        return rc;
    if (strcmp(arch, "amd64") != 0 && strcmp(arch, "arm64") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/architecture", "must be \"amd64\" or \"arm64\"");
    if (!strcmp(arch, "arm64") && json_object_get(body, "runtime"))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/architecture", "a runtime is amd64 only");
    return field_put(out->upstream, "architecture", json_string(arch), e);
}

enum sg_code create_origin_parse(const json_t *body, struct create_spec *out, struct sg_error *e)
{
    bool snapshot = false;
    enum sg_code rc = create_source_parse(body, "", out->upstream, &snapshot, e);
    if (!rc)
        rc = parse_template(body, out, e);
    if (!rc)
        rc = parse_checkpoint(body, out, e);
    if (!rc)
        rc = parse_architecture(body, out, e);
    out->shared = snapshot || out->template_name || out->checkpoint;
    return rc;
}
