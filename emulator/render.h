/* The documented response objects as JSON text.  No I/O; the caller holds the lock that guards the object. */
#ifndef SG_EMULATOR_RENDER_H
#define SG_EMULATOR_RENDER_H

#include "emulator/state.h"

enum { MEMORY_PER_VCPU = 2048, INTERACTIVE_PORT = 23456 };
#ifdef __aarch64__
#define EMULATOR_ARCHITECTURE "arm64"
#else
#define EMULATOR_ARCHITECTURE "amd64"
#endif
#define EMULATOR_CWD "/vercel/sandbox"

/* With sandbox->lock. */
void render_sandbox(struct sg_buf *out, const struct sandbox *sb);
void render_session(struct sg_buf *out, const struct session *s);
/* url_template: "https://{subdomain}.vercel.run", of characters that JSON takes as they are. */
void render_routes(struct sg_buf *out, const struct sandbox *sb, const char *url_template);
/* With state->lock. */
void render_snapshot(struct sg_buf *out, const struct snapshot *sn);
/* "pagination":{…} */
void render_pagination(struct sg_buf *out, size_t count, const char *next);

#endif
