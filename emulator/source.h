/* Sources of a sandbox: a git repository or a tarball, fetched on this side (a box has no way out) into a file,
 * then unpacked inside.  Functions block for as long as the network needs, within the limits below; any thread.
 *
 * What is fetched is foreign: git runs as a process of its own without privileges, configuration, hooks or
 * credentials on its command line; only public addresses are dialled unless private ones are allowed; the
 * archive is unpacked by the sandbox user inside the box.
 */
#ifndef SG_EMULATOR_SOURCE_H
#define SG_EMULATOR_SOURCE_H

#include "emulator/emulator.h"
#include "emulator/validate.h"

#include <stdint.h>
#include <sys/socket.h>

static const int64_t SOURCE_TIMEOUT_MS = 300000;
static const uint64_t SOURCE_BYTES_MAX = UINT64_C(2) << 30;

struct source_files {
    int fd;        /* a tar, gzip'd or not; -1: none */
    char name[80]; /* of the repository; "": none */
};

/* 0 at once for a source of another kind.  -1 with 400 in *e; nothing is left behind. */
int source_fetch(struct emulator *emu, const struct source_request *rq, struct source_files *out,
                 struct api_error *e);
/* Unpacks into the working directory of a running session; a repository into a directory of its name unless
 * in_place. */
int source_unpack(struct source_files *files, struct session *s, bool in_place, struct api_error *e);
void source_files_close(struct source_files *files);

/* Before serving: removes what an emulator that died was fetching. */
void source_recover(struct emulator *emu);

/* --- source_net.c --- */
/* Whether an address leads out into the internet, not to this machine or network. */
bool source_address_public(const struct sockaddr *sa);
/* An https? URL's host and port.  False for anything else. */
bool source_url_host(const char *url, char host[256], char port[8]);
/* The name a clone gets. */
void source_repository_name(const char *url, char out[80]);
/* Fetches a URL into a file. */
int source_download(struct emulator *emu, const char *url, int fd, struct api_error *e);

/* --- source_git.c --- */
/* Clones and writes the tree as a tar into fd. */
int source_clone(struct emulator *emu, const struct source_request *rq, int fd, struct api_error *e);
void source_git_recover(struct emulator *emu);

#endif
