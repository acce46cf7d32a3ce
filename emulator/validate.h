/* Request bodies of sandboxes and commands, checked as the real service's schema does: unknown members are
 * refused (private ones that begin with "__" are tolerated), and so is what this emulator cannot do yet.
 * Pure; any thread.
 */
#ifndef SG_EMULATOR_VALIDATE_H
#define SG_EMULATOR_VALIDATE_H

#include "emulator/apierr.h"
#include "emulator/command.h"
#include "emulator/state.h"

/* Strings and objects are borrowed from the body. */
enum source_kind { SOURCE_NONE, SOURCE_SNAPSHOT, SOURCE_GIT, SOURCE_TARBALL };
struct source_request {
    enum source_kind kind;
    const char *url, *revision, *username, *password; /* NULL: not given */
    int64_t depth;                                    /* 0: all */
};

struct sandbox_request {
    const char *project, *name, *runtime, *image, *source_snapshot, *current_snapshot; /* NULL: not given */
    bool has_ports;
    unsigned nports;
    int ports[PORTS_MAX];
    int64_t timeout_ms;             /* -1: not given */
    int64_t snapshot_expiration_ms; /* -1: not given */
    int vcpus;                      /* 0: not given */
    int persistent;                 /* -1: not given */
    bool has_keep;                  /* keep.set false: null was given */
    struct keep_last keep;
    struct source_request source;
    int region; /* -1: not given */
    bool has_failover;
    unsigned nfailover;
    uint8_t failover[REGIONS];
    const char *network_id; /* NULL: not given; "": null was given */
    bool has_mounts;
    unsigned nmounts;
    struct mount_setting mounts[MOUNTS_MAX];
    const json_t *env, *tags, *policy; /* NULL: not given */
};

/* version: 2, 3 or 4, of the path. */
int validate_create(const json_t *body, int version, struct sandbox_request *out, struct api_error *e);
int validate_patch(const json_t *body, struct sandbox_request *out, struct api_error *e);
/* version: 2 or 3. */
int validate_fork(const json_t *body, int version, struct sandbox_request *out, struct api_error *e);
/* *out: -1 when it is not there. */
int validate_region(const json_t *body, int *out, struct api_error *e);
bool valid_drive_name(const char *s);

struct command_body {
    struct command_request request;
    bool wait, logs;
};
int validate_command(const json_t *body, struct command_body *out, struct api_error *e);

struct stdin_body {
    const char *data; /* base64; NULL: none */
    size_t data_len;
    int64_t offset; /* -1: append */
    bool close;
};
int validate_stdin(const json_t *body, struct stdin_body *out, struct api_error *e);

struct path_body {
    const char *path, *cwd;
    bool recursive;
};
int validate_path(const json_t *body, bool mkdir, struct path_body *out, struct api_error *e);

/* 0 (never) or one day to ten years. */
int validate_expiration(const char *what, const json_t *v, int64_t *out, struct api_error *e);
/* An integer within [min, max]. */
int validate_int(const char *what, const json_t *v, int64_t min, int64_t max, int64_t *out,
                 struct api_error *e);
/* Nothing but these members. */
int validate_only(const json_t *body, const char *const allowed[], struct api_error *e);
bool valid_name(const char *s);

#endif
