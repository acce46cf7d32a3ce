/* The handlers of all routes, one file per resource. */
#ifndef SG_EMULATOR_API_H
#define SG_EMULATOR_API_H

#include "emulator/http.h"
#include "emulator/state.h"

#define API_HANDLER(name) int name(struct request *rq, struct reply *rp)

API_HANDLER(api_sandbox_create);
API_HANDLER(api_sandbox_list);
API_HANDLER(api_sandbox_get);
API_HANDLER(api_sandbox_patch);
API_HANDLER(api_sandbox_delete);
API_HANDLER(api_sandbox_fork);

API_HANDLER(api_drive_list);
API_HANDLER(api_drive_get);
API_HANDLER(api_drive_make);
API_HANDLER(api_drive_delete);
API_HANDLER(api_drive_fork);

API_HANDLER(api_session_list);
API_HANDLER(api_session_get);
API_HANDLER(api_session_stop);
API_HANDLER(api_session_extend);
API_HANDLER(api_session_policy);
API_HANDLER(api_session_snapshot);
API_HANDLER(api_session_interactive);
API_HANDLER(api_terminal_socket);

API_HANDLER(api_snapshot_list);
API_HANDLER(api_snapshot_get);
API_HANDLER(api_snapshot_delete);
API_HANDLER(api_snapshot_tree);

API_HANDLER(api_command_run);
API_HANDLER(api_command_list);
API_HANDLER(api_command_get);
API_HANDLER(api_command_logs);
API_HANDLER(api_command_kill);
API_HANDLER(api_command_stdin);

API_HANDLER(api_file_mkdir);
API_HANDLER(api_file_read);
API_HANDLER(api_file_write);
extern const struct upload_sink api_file_write_sink;

API_HANDLER(api_admin_health);
API_HANDLER(api_admin_journal);
API_HANDLER(api_admin_journal_clear);
API_HANDLER(api_admin_faults_add);
API_HANDLER(api_admin_faults_list);
API_HANDLER(api_admin_faults_clear);

/* api_account.c, api_login.c */
API_HANDLER(api_user_get);
API_HANDLER(api_team_list);
API_HANDLER(api_team_get);
API_HANDLER(api_project_get);
API_HANDLER(api_project_create);
API_HANDLER(api_project_token);
API_HANDLER(api_telemetry);
API_HANDLER(api_health);
API_HANDLER(api_oauth_discovery);
API_HANDLER(api_oauth_device);
API_HANDLER(api_oauth_token);
API_HANDLER(api_oauth_revoke);
API_HANDLER(api_oauth_introspect);
API_HANDLER(api_oauth_jwks);
API_HANDLER(api_device_page);
API_HANDLER(api_device_decide);

/* {"sandbox","session","routes"} and, unless NULL, "resumed"; s NULL: the current session. */
int api_answer_sandbox(struct request *rq, struct reply *rp, struct sandbox *sb, struct session *s,
                       const char *resumed);

/* The session that the path names, counted; NULL with 404 in rq->err. */
struct session *api_session(struct request *rq);
/* One page of a list: items are sorted already; skips to after `cursor`, takes `limit`. */
struct page {
    size_t from, to; /* indexes */
    bool more;
};
/* limit and cursor of a list call; item ids through id_of.  -1 with 400 in rq->err. */
int api_page(struct request *rq, size_t n, const char *(*id_of)(void *item), void **items, struct page *out);
/* sortOrder: 1 ascending, -1 descending (default); 0 with 400. */
int api_order(struct request *rq);

#endif
