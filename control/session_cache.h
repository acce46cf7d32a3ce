/* Which session a sandbox's name ran in when it was last seen: a bounded table, the oldest use leaves first.
 * Any thread; the lock is held only while copying.
 */
#ifndef SG_CONTROL_SESSION_CACHE_H
#define SG_CONTROL_SESSION_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_cache;

struct cached_session {            /* copies, freed by cached_session_clear */
    char *session_id, *cwd, *arch; /* arch may be NULL */
    int64_t deadline_ms;           /* wall clock of its end; 0: not known */
};
void cached_session_clear(struct cached_session *s);

/* NULL when out of memory. */
struct session_cache *session_cache_new(size_t max);
void session_cache_free(struct session_cache *c);
/* False when it is not known, or out of memory. */
bool session_cache_get(struct session_cache *c, const char *name, struct cached_session *out);
/* Remembers; out of memory means forgetting. */
void session_cache_put(struct session_cache *c, const char *name, const char *session_id, const char *cwd,
                       const char *arch, int64_t deadline_ms);
void session_cache_forget(struct session_cache *c, const char *name);
size_t session_cache_count(struct session_cache *c);

#endif
