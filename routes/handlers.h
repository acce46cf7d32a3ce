/* Private to routes/: the handlers that the table names. */
#ifndef SG_ROUTES_HANDLERS_H
#define SG_ROUTES_HANDLERS_H

#include "routes/exchange.h"

void route_healthz(struct exchange *ex);
void route_readyz(struct exchange *ex);
void route_version(struct exchange *ex);
void route_limits(struct exchange *ex);

void route_sandbox_create(struct exchange *ex);
void route_sandbox_list(struct exchange *ex);
void route_sandbox_get(struct exchange *ex);
void route_sandbox_patch(struct exchange *ex);
void route_sandbox_extend(struct exchange *ex);
void route_sandbox_destroy(struct exchange *ex);
void route_sandbox_resume(struct exchange *ex);
void route_sandbox_stop(struct exchange *ex);

void route_prune(struct exchange *ex);

void route_lease_put(struct exchange *ex);
void route_lease_get(struct exchange *ex);
void route_lease_release(struct exchange *ex);
void route_snapshot_list(struct exchange *ex);
void route_snapshot_get(struct exchange *ex);
void route_snapshot_delete(struct exchange *ex);
void route_sandbox_snapshots(struct exchange *ex);
void route_sandbox_capture(struct exchange *ex);
void route_sandbox_sessions(struct exchange *ex);
void route_checkpoint_make(struct exchange *ex);
void route_checkpoint_list(struct exchange *ex);
void route_checkpoint_get(struct exchange *ex);
void route_checkpoint_delete(struct exchange *ex);
void route_checkpoint_default(struct exchange *ex);
void route_sandbox_fork(struct exchange *ex);

void route_drive_list(struct exchange *ex);
void route_drive_get(struct exchange *ex);
void route_drive_put(struct exchange *ex);
void route_drive_delete(struct exchange *ex);
void route_drive_fork(struct exchange *ex);

void route_run(struct exchange *ex);

void route_process_start(struct exchange *ex);
void route_process_list(struct exchange *ex);
void route_process_get(struct exchange *ex);
void route_process_signal(struct exchange *ex);
void route_process_remove(struct exchange *ex);
void route_process_patch(struct exchange *ex);
void route_process_cancel(struct exchange *ex);
void route_process_resize(struct exchange *ex);
void route_process_ack(struct exchange *ex);
void route_process_stdin(struct exchange *ex);
void route_process_output(struct exchange *ex);
void route_process_events(struct exchange *ex);
void route_process_attach(struct exchange *ex);
void route_exec(struct exchange *ex);

void route_file_read(struct exchange *ex);
void route_file_write(struct exchange *ex);
void route_file_append(struct exchange *ex);
void route_file_list(struct exchange *ex);
void route_file_stat(struct exchange *ex);
void route_file_readlink(struct exchange *ex);
void route_file_realpath(struct exchange *ex);
void route_file_exists(struct exchange *ex);
void route_file_access(struct exchange *ex);
void route_file_glob(struct exchange *ex);
void route_file_grep(struct exchange *ex);
void route_file_text(struct exchange *ex);
void route_file_mkdir(struct exchange *ex);
void route_file_remove(struct exchange *ex);
void route_file_delete(struct exchange *ex);
void route_file_move(struct exchange *ex);
void route_file_copy(struct exchange *ex);
void route_file_symlink(struct exchange *ex);
void route_file_link(struct exchange *ex);
void route_file_chmod(struct exchange *ex);
void route_file_chown(struct exchange *ex);
void route_file_truncate(struct exchange *ex);
void route_file_utimes(struct exchange *ex);
void route_file_mktemp(struct exchange *ex);
void route_file_watch(struct exchange *ex);
void route_file_operation(struct exchange *ex);
void route_operation(struct exchange *ex);
void route_upload_create(struct exchange *ex);
void route_upload_tell(struct exchange *ex);
void route_upload_append(struct exchange *ex);
void route_upload_remove(struct exchange *ex);
void route_archive_read(struct exchange *ex);
void route_archive_write(struct exchange *ex);

void route_template_put(struct exchange *ex);
void route_template_get(struct exchange *ex);
void route_template_list(struct exchange *ex);
void route_template_delete(struct exchange *ex);
void route_template_prepare(struct exchange *ex);
void route_template_log(struct exchange *ex);
void route_template_apply(struct exchange *ex);

#endif
