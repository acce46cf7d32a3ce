/* Drives: storage that outlives sandboxes and is mounted into them.  Blocking, for worker threads.
 * Source: Vercel's Sandbox REST API, generation v2.
 */
#ifndef SG_VERCEL_DRIVES_H
#define SG_VERCEL_DRIVES_H

#include "vercel/client.h"

/* Strings are borrowed from doc; absent ones NULL, absent numbers -1. */
struct vercel_drive {
    json_t *doc; /* NULL in an entry of a page */
    const char *id, *name, *region;
    const char *session_id, *sandbox; /* which has it mounted for writing */
    const char *parent_id;            /* the drive it is a fork of */
    int64_t max_size_bytes, created_at, updated_at;
};
void vercel_drive_clear(struct vercel_drive *d);
struct vercel_drive_page {
    json_t *doc;
    struct vercel_drive *items;
    size_t n;
    const char *next;
};
void vercel_drive_page_clear(struct vercel_drive_page *p);

/* By name or id.  DRIVE_NOT_FOUND. */
SG_MUST_CHECK enum sg_code vercel_drive_get(struct vercel_client *c, const char *name,
                                            struct vercel_drive *out, struct sg_error *e);
/* By name, ascending; prefix NULL: all; limit 1..50. */
SG_MUST_CHECK enum sg_code vercel_drive_list(struct vercel_client *c, const char *prefix, int limit,
                                             const char *cursor, struct vercel_drive_page *out,
                                             struct sg_error *e);
/* Get or create; region NULL and max_size_bytes 0: the upstream's defaults, or what it has.  Twice is once, so it is sent again
 * where that helps.  DRIVE_CONFLICT when it exists with another region or size. */
SG_MUST_CHECK enum sg_code vercel_drive_put(struct vercel_client *c, const char *name, const char *region,
                                            int64_t max_size_bytes, struct vercel_drive *out,
                                            struct sg_error *e);
/* DRIVE_IN_USE while it is attached; an absent one is DRIVE_NOT_FOUND. */
SG_MUST_CHECK enum sg_code vercel_drive_delete(struct vercel_client *c, const char *name, struct sg_error *e);
/* A new drive with the committed data of another; never sent twice.  DRIVE_CONFLICT when the name is taken. */
SG_MUST_CHECK enum sg_code vercel_drive_fork(struct vercel_client *c, const char *source, const char *name,
                                             struct vercel_drive *out, struct sg_error *e);

#endif
