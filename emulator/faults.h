/* Faults on demand, for tests of clients: rules that match requests and say what goes wrong.  Thread-safe. */
#ifndef SG_EMULATOR_FAULTS_H
#define SG_EMULATOR_FAULTS_H

#include "emulator/apierr.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { FAULTS_ERR = 512 };

struct fault_action {
    bool set;
    int status;        /* > 0: answer this without doing anything */
    const char *type;  /* of that answer; borrowed from own */
    json_t *own;       /* a copy of the rule's action: its body, headers and type live here */
    bool lose_answer;  /* do it, then close without an answer */
    bool do_it;        /* do it, then answer what the rule says instead */
    bool close_before; /* close without doing anything */
    bool malformed;    /* an answer that is not JSON although it says so, nothing done */
    bool html;         /* status with an HTML page, nothing done */
    int64_t cut_after_bytes, cut_after_ms; /* -1: no */
    int64_t delay_ms;                      /* before doing it */
    int64_t drip_bytes, drip_ms;           /* 0: no */
    bool no_stdin_offsets;                 /* as a sandbox older than them: ignored, and no bytesWritten */
    int name_conflict;    /* the status that refuses a name that is taken: 400 or 409; 0: as ever */
    bool evict_snapshot;  /* before doing it, the snapshot is gone: */
    const char *evict_id; /* this one (borrowed from own), or NULL: what the named sandbox has */
};

struct faults;
struct faults *faults_new(void);
void faults_free(struct faults *f);
/* Replaces nothing: appends the rules of `list` (array, one object, or an object with them as its `rules`).  0 or
 * -1 with the error; all or none. */
int faults_add(struct faults *f, const json_t *list, struct api_error *e);
/* The same from a file.  False with a sentence in err: what is wrong, and where. */
bool faults_load(struct faults *f, const char *path, char err[FAULTS_ERR]);
void faults_clear(struct faults *f);
/* The rules with their counters, a new array. */
json_t *faults_list(struct faults *f);
/* The first rule that fires for this request (path without /api and query); counts. */
bool faults_match(struct faults *f, const char *method, const char *path, struct fault_action *out);
/* The same for a request at the edge, where only rules with an `edge`, `port` or `subdomain` to match count:
 * path is the request's target as sent. */
bool faults_match_edge(struct faults *f, const char *subdomain, int port, const char *method,
                       const char *path, struct fault_action *out);
void fault_action_free(struct fault_action *a);

#endif
