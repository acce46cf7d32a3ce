/* Sandboxes, sessions and snapshots in memory, and the tables that find them.
 *
 * Locks, always taken in this order:
 *   sandbox->op    one lifecycle change (boot, stop, snapshot, delete, update) of a sandbox at a time; may be
 *                  held for long; never taken by a plain read
 *   state->lock    the tables and the live list; microseconds
 *   sandbox->lock  every changing field of the sandbox and of its sessions; microseconds
 * No lock but `op` is held over I/O.  Objects are counted; a table holds one reference.  A snapshot's fields
 * are guarded by state->lock.
 */
#ifndef SG_EMULATOR_STATE_H
#define SG_EMULATOR_STATE_H

#include "emulator/apierr.h"
#include "emulator/places.h"
#include "emulator/strmap.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    ID_TEXT = 40,
    NAME_TEXT = 129,
    PROJECT_TEXT = 129,
    IMAGE_TEXT = 384,
    PORTS_MAX = 15,
    SUBDOMAIN_TEXT = 24,
    MOUNTS_MAX = 4,
    MOUNT_PATH_TEXT = 256,
    DRIVE_NAME_TEXT = 65,
    NETWORK_TEXT = 256,
};

enum status {
    ST_PENDING,
    ST_RUNNING,
    ST_STOPPING,
    ST_STOPPED,
    ST_FAILED,
    ST_ABORTED,
    ST_SNAPSHOTTING,
};
const char *status_name(enum status s);
bool status_from_name(const char *name, enum status *out);
/* No session comes back from these. */
bool status_ended(enum status s);

struct keep_last {
    bool set;
    int count;
    int64_t expiration_ms; /* -1: not given */
    bool delete_evicted;
};

struct route {
    int port;
    char subdomain[SUBDOMAIN_TEXT];
};

struct mount_setting {
    char path[MOUNT_PATH_TEXT]; /* absolute, normalized */
    char drive[DRIVE_NAME_TEXT];
    bool snapshot; /* read-only, as the drive is when the session begins */
};

/* What a caller configures; used for the next session. */
struct settings {
    int vcpus;
    int64_t timeout_ms;
    int64_t snapshot_expiration_ms; /* 0: never */
    bool persistent;
    struct keep_last keep;
    char runtime[24];
    char image[IMAGE_TEXT];
    char base[64];     /* base tree of the image */
    char *policy_text; /* response form, JSON text */
    json_t *env, *tags;
    unsigned nroutes;
    struct route routes[PORTS_MAX];
    bool expiration_said, keep_said; /* given by somebody, not a default */
    int region;
    unsigned nfailover;
    uint8_t failover[REGIONS]; /* regions, in order */
    char network_id[NETWORK_TEXT];
    unsigned nmounts;
    struct mount_setting mounts[MOUNTS_MAX];
};

struct session;
struct drive;
struct box;
struct pump;
struct command;

struct sandbox {
    atomic_int refs;
    pthread_mutex_t op;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* a session's box has no users any more */
    char uid[ID_TEXT];   /* names its file; a later namesake gets another one */
    char name[NAME_TEXT];
    char project[PROJECT_TEXT];
    struct settings set;
    int64_t created_ms, updated_ms, status_ms;
    int64_t total_cpu_ms, total_duration_ms;
    int64_t total_ingress, total_egress; /* bytes, of sessions that ended */
    struct session *current;
    char snapshot_id[ID_TEXT]; /* "": none */
    bool deleted;
};

struct session {
    atomic_int refs;
    struct sandbox *sandbox; /* counted */
    char id[ID_TEXT];
    enum status status;
    int vcpus;
    int region;
    unsigned ndrives;
    struct drive *drives[MOUNTS_MAX]; /* bound for writing; with the sandbox's `op` */
    char runtime[24];
    char *policy_text;
    char source_snapshot[ID_TEXT];
    int64_t timeout_ms;
    int64_t requested_ms, created_ms, updated_ms;
    int64_t started_ms, requested_stop_ms, stopped_ms, aborted_ms, snapshotted_ms; /* 0: not yet */
    int64_t duration_ms, cpu_ms;
    atomic_llong ingress, egress; /* bytes into and out of the box, through the edge */
    unsigned nboot_ports;
    int boot_ports[PORTS_MAX]; /* exposed when it began; others came late */
    int64_t started_mono;      /* the deadline is this plus timeout_ms */
    struct box *box;           /* NULL unless running */
    struct pump *pump;
    unsigned users; /* threads using the box */
    bool stop_thread;
    struct command *commands; /* newest first */
    size_t ncommands;
    struct early_exit *early; /* exits that came before box_exec returned */
    struct upload *uploads;
    struct terminal *terminals; /* connected, or left behind by their client */
    struct session *live_next;  /* state->live */
};

struct snapshot {
    atomic_int refs;
    char id[ID_TEXT];
    char session_id[ID_TEXT];
    char sandbox_uid[ID_TEXT];
    char project[PROJECT_TEXT];
    char parent[ID_TEXT]; /* "": none */
    char base[64];
    bool deleted, manual, has_layer;
    bool evicted;        /* deleted by retention: not listed, forgotten with its layer */
    bool needed;         /* scratch of the layer sweep */
    bool own_expiration; /* asked for with the snapshot itself: retention leaves it alone */
    int region;
    uint32_t regions;      /* where it can be used, a bit each */
    int64_t expiration_ms; /* 0: never; counts from last use */
    int64_t created_ms, updated_ms, last_used_ms;
    uint64_t size_bytes;
};

struct state {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* live list or a deadline */
    struct strmap sandboxes; /* by project '/' name */
    struct strmap sessions, snapshots;
    struct strmap drives; /* drives.h; by project '/' name */
    struct session *live;
    unsigned stop_threads;
    char dir[512]; /* STATE/meta */
};

struct state *state_new(const char *state_dir, char err[256]);
void state_free(struct state *st);

struct sandbox *sandbox_new(void);
struct sandbox *sandbox_ref(struct sandbox *sb);
void sandbox_unref(struct sandbox *sb);
struct session *session_new(struct sandbox *sb);
struct session *session_ref(struct session *s);
void session_unref(struct session *s);
struct snapshot *snapshot_new(void);
struct snapshot *snapshot_ref(struct snapshot *sn);
void snapshot_unref(struct snapshot *sn);
void settings_free(struct settings *s);

/* Lookups return a counted reference or NULL.  An empty project finds the name in any project. */
struct sandbox *state_sandbox(struct state *st, const char *project, const char *name);
struct session *state_session(struct state *st, const char *id);
struct snapshot *state_snapshot(struct state *st, const char *id);

/* Adds with a reference of the table's own.  0, EEXIST or ENOMEM. */
int state_add_sandbox(struct state *st, struct sandbox *sb);
int state_add_session(struct state *st, struct session *s);
int state_add_snapshot(struct state *st, struct snapshot *sn);
void state_remove_sandbox(struct state *st, struct sandbox *sb);

/* Counted copies of everything that matches (project "" = all); *n of them, free the array.  NULL and n = 0
 * when there is none or no memory (*n = SIZE_MAX then). */
struct sandbox **state_all_sandboxes(struct state *st, const char *project, size_t *n);
struct session **state_all_sessions(struct state *st, const char *project, const char *sandbox_name,
                                    size_t *n);
struct snapshot **state_all_snapshots(struct state *st, const char *project, const char *sandbox_name,
                                      size_t *n);

/* With state->lock held: usable now, or deleted or expired. */
bool snapshot_usable(const struct snapshot *sn);

#endif
