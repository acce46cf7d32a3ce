/* Any JSON body is accepted or refused with an error that says so. */
#include "emulator/faults.h"
#include "emulator/policy.h"
#include "emulator/validate.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void consistent(int rc, const struct api_error *e)
{
    if ((rc != 0) != (e->status != 0) || (rc && (!e->message[0] || !e->code[0])))
        __builtin_trap();
}

/* What is accepted can be mounted: absolute, never one below another, never where the system is.  (E9) */
static void mountable(const struct sandbox_request *rq)
{
    for (unsigned i = 0; i < rq->nmounts; i++) {
        const char *a = rq->mounts[i].path;
        size_t n = strlen(a);
        if (*a != '/' || n < 2 || a[n - 1] == '/' || strstr(a, "//") || strstr(a, "/../") ||
            !strncmp(a, "/proc/", 6) || !valid_drive_name(rq->mounts[i].drive))
            __builtin_trap();
        for (unsigned j = 0; j < rq->nmounts; j++)
            if (j != i && !strncmp(rq->mounts[j].path, a, n) &&
                (rq->mounts[j].path[n] == '/' || !rq->mounts[j].path[n]))
                __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *o = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(o)) {
        json_decref(o);
        return 0;
    }
    struct sandbox_request sandbox;
    struct command_body command;
    struct stdin_body in;
    struct path_body path;
    char *text = NULL;
    for (int version = 2; version <= 4; version++) {
        struct api_error e = {0};
        int rc = validate_create(o, version, &sandbox, &e);
        consistent(rc, &e);
        if (!rc)
            mountable(&sandbox);
    }
    struct api_error e[8] = {0};
    consistent(validate_patch(o, &sandbox, &e[0]), &e[0]);
    consistent(validate_command(o, &command, &e[1]), &e[1]);
    consistent(validate_stdin(o, &in, &e[2]), &e[2]);
    consistent(validate_path(o, true, &path, &e[3]), &e[3]);
    consistent(policy_response(o, true, &text, &e[4]), &e[4]);
    consistent(validate_fork(o, 2, &sandbox, &e[6]), &e[6]);
    consistent(validate_fork(o, 3, &sandbox, &e[7]), &e[7]);
    free(text);
    struct faults *f = faults_new();
    consistent(faults_add(f, o, &e[5]), &e[5]);
    struct fault_action a = {0};
    faults_match(f, "GET", "/v2/sandboxes", &a);
    fault_action_free(&a);
    faults_free(f);
    json_decref(o);
    return 0;
}
