/* What C libraries do differently or not at all.  The helper is linked with musl where it is there: glibc asks the
 * processor for its caches when a program starts, each question of which traps in a virtual machine, and that
 * takes longer than everything the helper does. */
#ifndef SG_GUEST_LIBC_H
#define SG_GUEST_LIBC_H

/* renameat2 with RENAME_NOREPLACE. */
int libc_rename_new(int from_dir, const char *from, int to_dir, const char *to);
/* Closes every descriptor from `first` on, where the kernel can. */
void libc_close_from(unsigned first);
/* "ENOENT"; NULL for a number without a name here. */
const char *libc_errno_name(int err);
/* execvp that runs a script without an interpreter line by /bin/sh, as shells do.  Returns with errno. */
void libc_exec(char *const *argv);
/* Something of this name is there, whatever it is. */
int libc_exists(int dir, const char *name);

#endif
