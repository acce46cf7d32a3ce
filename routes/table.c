#include "routes/table.h"

#include "routes/handlers.h"

/* clang-format off */
const struct route routes[] = {
    {"GET",    "/healthz",    ROUTE_LOOP,   AUTH_NONE,  BODY_NONE, route_healthz},
    {"GET",    "/readyz",     ROUTE_LOOP,   AUTH_NONE,  BODY_NONE, route_readyz},
    {"GET",    "/v1/version", ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_version},
    {"GET",    "/v1/limits",  ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_limits},

    {"GET",    "/v1/operations/{id}", ROUTE_LOOP, AUTH_TOKEN, BODY_NONE, route_operation},

    {"POST",   "/v1/prune",   ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_prune, AGAIN_SAFE},

    {"POST",   "/v1/sandboxes",               ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_sandbox_create, AGAIN_NONCE},
    {"GET",    "/v1/sandboxes",               ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_sandbox_list},
    {"GET",    "/v1/sandboxes/{name}",        ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_sandbox_get},
    {"PATCH",  "/v1/sandboxes/{name}",        ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_sandbox_patch},
    {"DELETE", "/v1/sandboxes/{name}",        ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_sandbox_destroy},
    {"POST",   "/v1/sandboxes/{name}/resume", ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_sandbox_resume, AGAIN_SAFE},
    {"POST",   "/v1/sandboxes/{name}/stop",   ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_sandbox_stop, AGAIN_SAFE},
    {"POST",   "/v1/sandboxes/{name}/extend", ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_sandbox_extend},

    {"POST",   "/v1/sandboxes/{name}/lease",  ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_lease_put, AGAIN_SAFE},
    {"GET",    "/v1/sandboxes/{name}/lease",  ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_lease_get},
    {"DELETE", "/v1/sandboxes/{name}/lease",  ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_lease_release},

    {"POST",   "/v1/sandboxes/{name}/apply-template", ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_template_apply, AGAIN_NONCE},

    {"GET",    "/v1/templates",                ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_template_list},
    {"PUT",    "/v1/templates/{name}",         ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_template_put},
    {"GET",    "/v1/templates/{name}",         ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_template_get},
    {"DELETE", "/v1/templates/{name}",         ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_template_delete},
    {"POST",   "/v1/templates/{name}/prepare", ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_template_prepare, AGAIN_SAFE, ROUTE_LASTS},
    {"GET",    "/v1/templates/{name}/log",     ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_template_log},
    {"GET",    "/v1/sandboxes/{name}/sessions",  ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_sandbox_sessions},
    {"GET",    "/v1/sandboxes/{name}/snapshots", ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_sandbox_snapshots},
    {"POST",   "/v1/sandboxes/{name}/snapshots", ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_sandbox_capture, AGAIN_LOST},
    {"GET",    "/v1/snapshots",                  ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_snapshot_list},
    {"GET",    "/v1/snapshots/{id}",             ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_snapshot_get},
    {"DELETE", "/v1/snapshots/{id}",             ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_snapshot_delete},
    {"POST",   "/v1/sandboxes/{name}/fork",      ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_sandbox_fork, AGAIN_NONCE},
    {"POST",   "/v1/checkpoints",                ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_checkpoint_make, AGAIN_LOST},
    {"GET",    "/v1/checkpoints",                ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_checkpoint_list},
    {"PUT",    "/v1/checkpoints/default",        ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_checkpoint_default},
    {"GET",    "/v1/checkpoints/{name}",         ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_checkpoint_get},
    {"DELETE", "/v1/checkpoints/{name}",         ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_checkpoint_delete},

    {"GET",    "/v1/drives",             ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_drive_list},
    {"GET",    "/v1/drives/{name}",      ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_drive_get},
    {"PUT",    "/v1/drives/{name}",      ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_drive_put},
    {"DELETE", "/v1/drives/{name}",      ROUTE_WORKER, AUTH_TOKEN, BODY_NONE, route_drive_delete},
    {"POST",   "/v1/drives/{name}/fork", ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_drive_fork, AGAIN_LOST},

    {"POST",   "/v1/sandboxes/{name}/run",    ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_run, AGAIN_BUILD},

    {"POST",   "/v1/sandboxes/{name}/processes",             ROUTE_LOOP,    AUTH_TOKEN, BODY_JSON, route_process_start, AGAIN_NONCE, ROUTE_LASTS},
    {"GET",    "/v1/sandboxes/{name}/processes",             ROUTE_LOOP,    AUTH_TOKEN, BODY_NONE, route_process_list},
    {"GET",    "/v1/sandboxes/{name}/processes/{id}",        ROUTE_LOOP,    AUTH_TOKEN, BODY_NONE, route_process_get},
    {"DELETE", "/v1/sandboxes/{name}/processes/{id}",        ROUTE_LOOP,    AUTH_TOKEN, BODY_NONE, route_process_remove, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/processes/{id}/signal", ROUTE_LOOP,    AUTH_TOKEN, BODY_JSON, route_process_signal, AGAIN_LOST, ROUTE_LASTS},
    {"PATCH",  "/v1/sandboxes/{name}/processes/{id}",        ROUTE_LOOP,    AUTH_TOKEN, BODY_JSON, route_process_patch, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/processes/{id}/cancel", ROUTE_LOOP,    AUTH_TOKEN, BODY_JSON, route_process_cancel, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/processes/{id}/resize", ROUTE_LOOP,    AUTH_TOKEN, BODY_JSON, route_process_resize, AGAIN_SAFE, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/processes/{id}/ack",    ROUTE_LOOP,    AUTH_TOKEN, BODY_JSON, route_process_ack, AGAIN_SAFE, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/processes/{id}/stdin",  ROUTE_UPLOAD,  AUTH_TOKEN, BODY_RAW,  route_process_stdin},
    {"GET",    "/v1/sandboxes/{name}/processes/{id}/output", ROUTE_LOOP,    AUTH_TOKEN, BODY_NONE, route_process_output},
    {"GET",    "/v1/sandboxes/{name}/processes/{id}/events", ROUTE_LOOP,    AUTH_TOKEN, BODY_NONE, route_process_events},
    {"GET",    "/v1/sandboxes/{name}/processes/{id}/attach", ROUTE_UPGRADE, AUTH_TOKEN, BODY_NONE, route_process_attach},
    {"GET",    "/v1/sandboxes/{name}/exec",                  ROUTE_UPGRADE, AUTH_TOKEN, BODY_NONE, route_exec},

    {"GET",    "/v1/sandboxes/{name}/files/content", ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_read},
    {"PUT",    "/v1/sandboxes/{name}/files/content", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW,  route_file_write},

    {"POST",   "/v1/sandboxes/{name}/files/append",  ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW,  route_file_append},
    {"GET",    "/v1/sandboxes/{name}/files",         ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_list},
    {"DELETE", "/v1/sandboxes/{name}/files",         ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_remove, AGAIN_LOST, ROUTE_LASTS},
    {"DELETE", "/v1/sandboxes/{name}/files/content", ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_delete, AGAIN_LOST, ROUTE_LASTS},
    {"GET",    "/v1/sandboxes/{name}/files/stat",    ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_stat},
    {"GET",    "/v1/sandboxes/{name}/files/readlink",           ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_readlink},
    {"GET",    "/v1/sandboxes/{name}/files/realpath", ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_realpath},
    {"GET",    "/v1/sandboxes/{name}/files/exists",  ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_exists},
    {"GET",    "/v1/sandboxes/{name}/files/access",  ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_access},
    {"GET",    "/v1/sandboxes/{name}/files/glob",    ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_glob},
    {"GET",    "/v1/sandboxes/{name}/files/grep",    ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_grep},
    {"GET",    "/v1/sandboxes/{name}/files/text",    ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_text},
    {"GET",    "/v1/sandboxes/{name}/files/watch",   ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_file_watch},
    {"POST",   "/v1/sandboxes/{name}/files/mkdir",   ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_mkdir, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/move",    ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_move, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/copy",    ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_copy, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/symlink", ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_symlink, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/link",    ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_link, AGAIN_LOST, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/chmod",   ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_chmod, AGAIN_SAFE, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/chown",   ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_chown, AGAIN_SAFE, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/truncate", ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_truncate, AGAIN_SAFE, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/utimes",  ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_utimes, AGAIN_SAFE, ROUTE_LASTS},
    {"POST",   "/v1/sandboxes/{name}/files/mktemp",  ROUTE_LOOP,   AUTH_TOKEN, BODY_JSON, route_file_mktemp, AGAIN_LOST, ROUTE_LASTS},
    {"GET",    "/v1/sandboxes/{name}/files/operations/{id}", ROUTE_LOOP, AUTH_TOKEN, BODY_NONE, route_file_operation},

    {"POST",   "/v1/sandboxes/{name}/files/uploads",      ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW,  route_upload_create},
    {"HEAD",   "/v1/sandboxes/{name}/files/uploads/{id}", ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_upload_tell},
    {"PATCH",  "/v1/sandboxes/{name}/files/uploads/{id}", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW,  route_upload_append},
    {"DELETE", "/v1/sandboxes/{name}/files/uploads/{id}", ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_upload_remove},
    {"GET",    "/v1/sandboxes/{name}/files/archive",      ROUTE_LOOP,   AUTH_TOKEN, BODY_NONE, route_archive_read},
    {"PUT",    "/v1/sandboxes/{name}/files/archive",      ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW,  route_archive_write},
};
/* clang-format on */
const size_t routes_count = sizeof routes / sizeof *routes;
