/* What C libraries do differently or not at all.  The helper is linked with musl where it is there: glibc asks the
 * processor for its caches when a program starts, each question of which traps in a virtual machine, and that
 * takes longer than everything the helper does. */
#ifndef SG_GUEST_LIBC_H
#define SG_GUEST_LIBC_H

#include <sys/types.h>

/* renameat2 with RENAME_NOREPLACE. */
int libc_rename_new(int from_dir, const char *from, int to_dir, const char *to);
/* Closes every descriptor from `first` on, where the kernel can. */
void libc_close_from(unsigned first);
/* "ENOENT"; NULL for a number without a name here. */
const char *libc_errno_name(int err);
/* execvpe that runs a script without an interpreter line by /bin/sh, as shells do; the PATH of env counts.  Returns
 * with errno. */
void libc_exec(char *const *argv, char *const *env);
/* A child that runs f(arg), and exits with what it returns.  It shares our memory, and we wait, until it executes or
 * ends: so it costs a fraction of a fork, may fork in turn, and must leave our memory as it was.  -1 with errno. */
pid_t libc_spawn(int (*f)(void *), void *arg);
/* Something of this name is there, whatever it is. */
int libc_exists(int dir, const char *name);

#endif
