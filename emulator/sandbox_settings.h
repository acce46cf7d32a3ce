/* From a request's members to the settings of a sandbox.  Functions that take settings only need whatever
 * guards them; 0, or -1 with the refusal in *e.
 */
#ifndef SG_EMULATOR_SANDBOX_SETTINGS_H
#define SG_EMULATOR_SANDBOX_SETTINGS_H

#include "emulator/emulator.h"
#include "emulator/validate.h"

#define DEFAULT_IMAGE "vercel/sandbox/universal:latest"

/* The image as a base tree and in the digest-pinned form that responses show.  The default image and
 * "vercel/sandbox/universal" are the default base; any other is the base tree whose name is the repository, its
 * tag unless that is "latest", and '-' in place of '/', ':' and '.': "vercel/sandbox/python:3.14" is the base
 * "vercel-sandbox-python-3-14". */
int settings_image(struct emulator *emu, struct settings *set, const char *image, struct api_error *e);

/* What is no pointer: ports, limits, places, mounts. */
int settings_apply(struct settings *set, const struct sandbox_request *in, struct api_error *e);
/* env and tags, copied: a request's JSON belongs to its own thread. */
int settings_apply_maps(struct settings *set, const struct sandbox_request *in, struct api_error *e);

/* Whether the plan and the settings among themselves allow it.  Before anything is created or changed; takes
 * state->lock.  now: the drives must be free at this moment. */
int settings_check(struct emulator *emu, const char *project, const struct settings *set, bool now,
                   struct api_error *e);

/* Defaults of v3 forks and v4 creations, where nobody said anything. */
void settings_short_lived(struct settings *set);

/* A copy that shares nothing; names of routes are new.  False without memory or random numbers. */
bool settings_copy(struct settings *to, const struct settings *from);

#endif
