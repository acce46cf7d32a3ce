#include "emulator/api.h"

#include <string.h>

/* Literal segments come before "{}": sessions, snapshots and drives are no sandbox names. */
static const struct route_entry routes[] = {
    {"POST", "sandboxes", api_sandbox_create, NULL},
    {"GET", "sandboxes", api_sandbox_list, NULL},

    {"GET", "sandboxes/sessions", api_session_list, NULL},
    {"GET", "sandboxes/sessions/{}", api_session_get, NULL},
    {"POST", "sandboxes/sessions/{}/stop", api_session_stop, NULL},
    {"POST", "sandboxes/sessions/{}/extend-timeout", api_session_extend, NULL},
    {"POST", "sandboxes/sessions/{}/network-policy", api_session_policy, NULL},
    {"POST", "sandboxes/sessions/{}/snapshot", api_session_snapshot, NULL},
    {"POST", "sandboxes/sessions/{}/interactive", api_session_interactive, NULL},
    {"POST", "sandboxes/sessions/{}/cmd", api_command_run, NULL},
    {"GET", "sandboxes/sessions/{}/cmd", api_command_list, NULL},
    {"GET", "sandboxes/sessions/{}/cmd/{}", api_command_get, NULL},
    {"POST", "sandboxes/sessions/{}/cmd/{}/kill", api_command_kill, NULL},
    {"GET", "sandboxes/sessions/{}/cmd/{}/logs", api_command_logs, NULL},
    {"POST", "sandboxes/sessions/{}/cmd/{}/stdin", api_command_stdin, NULL},
    {"POST", "sandboxes/sessions/{}/fs/mkdir", api_file_mkdir, NULL},
    {"POST", "sandboxes/sessions/{}/fs/write", api_file_write, &api_file_write_sink},
    {"POST", "sandboxes/sessions/{}/fs/read", api_file_read, NULL},

    {"GET", "sandboxes/snapshots", api_snapshot_list, NULL},
    {"GET", "sandboxes/snapshots/tree", api_snapshot_tree, NULL},
    {"GET", "sandboxes/snapshots/{}", api_snapshot_get, NULL},
    {"DELETE", "sandboxes/snapshots/{}", api_snapshot_delete, NULL},

    {"GET", "sandboxes/drives", api_drive_list, NULL},
    {"GET", "sandboxes/drives/{}", api_drive_get, NULL},
    {"POST", "sandboxes/drives/{}", api_drive_make, NULL},
    {"DELETE", "sandboxes/drives/{}", api_drive_delete, NULL},
    {"POST", "sandboxes/drives/{}/fork", api_drive_fork, NULL},
    {"GET", "drives", api_drive_list, NULL},
    {"GET", "drives/{}", api_drive_get, NULL},
    {"POST", "drives/{}", api_drive_make, NULL},
    {"DELETE", "drives/{}", api_drive_delete, NULL},
    {"POST", "drives/{}/fork", api_drive_fork, NULL},

    {"GET", "sandboxes/{}", api_sandbox_get, NULL},
    {"PATCH", "sandboxes/{}", api_sandbox_patch, NULL},
    {"DELETE", "sandboxes/{}", api_sandbox_delete, NULL},
    {"POST", "sandboxes/{}/fork", api_sandbox_fork, NULL},
};

/* Accounts: each path exists in one version only. */
static const struct route_entry account_routes[] = {
    {"GET", "v2/user", api_user_get, NULL},
    {"GET", "v2/teams", api_team_list, NULL},
    {"GET", "v2/teams/{}", api_team_get, NULL},
    {"GET", "v2/projects/{}", api_project_get, NULL},
    {"POST", "v11/projects", api_project_create, NULL},
    {"POST", "v1/projects/{}/token", api_project_token, NULL},
    {"GET", ".well-known/openid-configuration", api_oauth_discovery, NULL, true},
    {"POST", "login/oauth/device-authorization", api_oauth_device, NULL, true},
    {"POST", "login/oauth/token", api_oauth_token, NULL, true},
    {"POST", "login/oauth/token/revoke", api_oauth_revoke, NULL, true},
    {"POST", "login/oauth/token/introspect", api_oauth_introspect, NULL, true},
    {"GET", "login/oauth/jwks", api_oauth_jwks, NULL, true},
    {"GET", "login/device", api_device_page, NULL, true},
    {"POST", "login/device", api_device_decide, NULL, true},
    {"POST", "sandbox-cli/v1/events", api_telemetry, NULL, true},
    {"GET", "health", api_health, NULL, true},
    {"GET", "ws/interactive", api_terminal_socket, NULL, true}, /* with a token of its own */
};

static const struct route_entry admin_routes[] = {
    {"GET", "_emulator/health", api_admin_health, NULL, true},
    {"GET", "_emulator/journal", api_admin_journal, NULL},
    {"POST", "_emulator/journal/clear", api_admin_journal_clear, NULL},
    {"GET", "_emulator/faults", api_admin_faults_list, NULL},
    {"POST", "_emulator/faults", api_admin_faults_add, NULL},
    {"DELETE", "_emulator/faults", api_admin_faults_clear, NULL},
};

/* Whether the segments from `first` on match; fills the parameters. */
static bool match(struct request *rq, const char *pattern, unsigned first)
{
    unsigned i = first;
    rq->nparams = 0;
    for (const char *p = pattern;; i++) {
        size_t n = strcspn(p, "/");
        if (i >= rq->nsegments)
            return false;
        const char *seg = rq->segment[i];
        if (n == 2 && !memcmp(p, "{}", 2)) {
            if (!*seg)
                return false;
            rq->param[rq->nparams++] = seg;
        } else if (strlen(seg) != n || memcmp(seg, p, n) != 0) {
            return false;
        }
        if (!p[n])
            break;
        p += n + 1;
    }
    return i + 1 == rq->nsegments;
}

static const struct route_entry *find(struct request *rq, const struct route_entry *table, size_t n,
                                      unsigned first)
{
    bool other_method = false;
    for (size_t i = 0; i < n; i++) {
        if (!match(rq, table[i].pattern, first))
            continue;
        if (!strcmp(table[i].method, rq->method))
            return &table[i];
        other_method = true;
    }
    if (other_method)
        api_fail(&rq->err, 405, "method_not_allowed", "The method %s is not allowed here.", rq->method);
    else
        api_fail(&rq->err, 404, "not_found", "The requested path does not exist.");
    return NULL;
}

/* v4 exists for create alone, v3 for a few; v2 is the base of everything. */
static bool version_exists(int version, const struct route_entry *r)
{
    if (!strncmp(r->pattern, "drives", 6)) /* their newer place */
        return version == 1;
    if (version == 2)
        return true;
    if (r->handle == api_sandbox_create)
        return version == 3 || version == 4;
    return version == 3 && (r->handle == api_session_snapshot || r->handle == api_sandbox_fork);
}

const struct route_entry *router_find(struct request *rq)
{
    if (rq->admin)
        return find(rq, admin_routes, sizeof admin_routes / sizeof *admin_routes, 0);
    const struct route_entry *account =
        find(rq, account_routes, sizeof account_routes / sizeof *account_routes, 0);
    if (account || rq->err.status == 405)
        return account;
    rq->err.status = 0;
    const char *v = rq->segment[0];
    if (v[0] != 'v' || v[1] < '1' || v[1] > '9' || v[2]) {
        api_fail(&rq->err, 404, "not_found", "The requested path does not exist.");
        return NULL;
    }
    rq->version = v[1] - '0';
    const struct route_entry *r = find(rq, routes, sizeof routes / sizeof *routes, 1);
    if (r && !version_exists(rq->version, r)) {
        api_fail(&rq->err, 404, "not_found", "The requested path does not exist in v%d.", rq->version);
        return NULL;
    }
    return r;
}

static void print_table(const struct route_entry *table, size_t n, bool versioned,
                        void (*line)(void *arg, const char *method, int version, const char *pattern),
                        void *arg)
{
    for (size_t i = 0; i < n; i++)
        for (int v = versioned ? 1 : 0; v <= (versioned ? 9 : 0); v++)
            if (!versioned || version_exists(v, &table[i]))
                line(arg, table[i].method, v, table[i].pattern);
}

void router_print(void (*line)(void *arg, const char *method, int version, const char *pattern), void *arg)
{
    print_table(routes, sizeof routes / sizeof *routes, true, line, arg);
    print_table(account_routes, sizeof account_routes / sizeof *account_routes, false, line, arg);
    print_table(admin_routes, sizeof admin_routes / sizeof *admin_routes, false, line, arg);
}
