/* Archives made by hand: right ones and wrong ones, byte by byte. */
#ifndef GUEST_TARBALL_H
#define GUEST_TARBALL_H

#include <stddef.h>
#include <stdint.h>

struct tarball {
    unsigned char *bytes;
    size_t len, cap;
};

enum tarball_format { TARBALL_USTAR, TARBALL_GNU, TARBALL_V7 };

/* What is zero is as usual: a regular file of mode 0644 without contents. */
struct tarball_member {
    const char *name;
    size_t name_len, target_len; /* of those with NUL in them */
    const char *prefix;
    const char *target;
    char type;        /* '0' */
    const char *data; /* up to its NUL */
    const char *size; /* the field itself, as it is; NULL: right */
    const char *mode; /* likewise */
    const char *mtime;
    enum tarball_format format;
    const char *magic; /* 8 bytes; NULL: that of the format */
    int sum_off;       /* added to the checksum */
};

/* Header and contents, in whole blocks. */
void tarball_add(struct tarball *t, const struct tarball_member *m);
void tarball_raw(struct tarball *t, const void *bytes, size_t n);
/* Up to a whole block. */
void tarball_pad(struct tarball *t);
/* A pax header of this type with these n bytes of records. */
void tarball_pax(struct tarball *t, char type, const void *records, size_t n);
/* One record of "key=value", with the length that it has. */
void tarball_record(struct tarball *t, const char *key, const char *value);
void tarball_long(struct tarball *t, char type, const char *name); /* GNU's L and K */
void tarball_end(struct tarball *t);                               /* two blocks of zeros */
void tarball_free(struct tarball *t);

#define MEMBER(t, ...) tarball_add((t), &(struct tarball_member){__VA_ARGS__})

#endif
