/* Trees of files that tests compare, and the tar of this machine. */
#ifndef GUEST_TREES_H
#define GUEST_TREES_H

#include <stdbool.h>
#include <stddef.h>

/* Runs a program; fails the test unless it ends with 0. */
void run_program(const char *const *argv);
#define RUN(...) run_program((const char *const[]){__VA_ARGS__, NULL})

/* A new tree at path, with names, modes, times, links and sizes of many kinds. */
void make_tree(const char *path);
/* Fails the test unless both hold the same: names, types, modes but for 06000, times in seconds, targets and bytes. */
void trees_are_same(const char *a, const char *b);
/* How many things lie below a directory. */
size_t tree_count(const char *path);
/* The whole file; the caller's to free. */
unsigned char *file_bytes(const char *path, size_t *n);

#endif
