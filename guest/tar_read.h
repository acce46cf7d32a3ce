/* Takes the headers of a tar archive apart, block by block: v7, ustar and GNU headers, pax records, GNU long names and
 * base-256 numbers.  Strict: what two readers could understand differently is refused, and so are names that lead
 * anywhere but down, devices, FIFOs and sparse files.  What comes out of it may be anything else: whether names fit each
 * other and what is there already is the caller's to check.
 * Foreign input throughout.  Pure, libc only, no allocation; any thread.
 */
#ifndef SG_GUEST_TAR_READ_H
#define SG_GUEST_TAR_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TAR_BLOCK = 512,
    TAR_PATH_MAX = 4095,        /* bytes of a name or target */
    TAR_NAME_MAX = 255,         /* of one part of a name */
    TAR_DEPTH_MAX = 512,        /* parts of a name */
    TAR_PAX_MAX = 1024 * 1024,  /* bytes of the pax records before one entry */
    TAR_EXTENSIONS_MAX = 10000, /* global pax headers of one archive */
};

enum tar_kind { TAR_FILE, TAR_DIRECTORY, TAR_SYMLINK, TAR_HARDLINK };

struct tar_entry {
    enum tar_kind kind;
    /* Names joined by single slashes, none of them "." or ".."; empty for "./", the directory that all is relative to. */
    char path[TAR_PATH_MAX + 1];
    char target[TAR_PATH_MAX + 1]; /* TAR_SYMLINK: as it is, not empty; TAR_HARDLINK: like path, not empty */
    uint64_t size;                 /* TAR_FILE: bytes that follow, INT64_MAX at most; otherwise 0 */
    unsigned mode;                 /* 07777 at most */
    int64_t mtime_s;
    uint32_t mtime_ns;
};

enum tar_step {
    TAR_MORE,  /* the next block, please */
    TAR_ENTRY, /* `entry` is whole; the next block is the header behind its contents (tar_padded) */
    TAR_END,   /* the archive has ended; more blocks may follow if they are empty */
    TAR_WRONG, /* `wrong` says why, `name` in which entry ("" when that is not known) */
};

/* Of one name that comes before its header: a pax record or a GNU long name. */
struct tar_text {
    char text[TAR_PATH_MAX + 1];
    size_t len;
    bool given;
};

struct tar_reader {
    struct tar_entry entry;
    const char *wrong;
    char name[TAR_PATH_MAX + 1]; /* as it is in the archive */
    /* private */
    int state;
    uint64_t left; /* bytes of the extension that we are in */
    unsigned extensions;
    struct tar_text path, target; /* for the next entry */
    bool pax;                     /* pax records came for it */
    bool has_size, has_mtime, has_global_mtime;
    uint64_t size;
    int64_t mtime_s, global_mtime_s;
    uint32_t mtime_ns, global_mtime_ns;
    struct {
        int state;
        uint64_t len, left; /* of the record */
        unsigned digits;
        char key[64];
        char value[TAR_PATH_MAX + 1];
        size_t key_len, value_len; /* also of what had no room */
    } record;
};

void tar_read_start(struct tar_reader *r);
enum tar_step tar_read_block(struct tar_reader *r, const unsigned char block[TAR_BLOCK]);
/* There is no further block: NULL, or what is missing. */
const char *tar_read_finish(const struct tar_reader *r);
/* Bytes that contents of this size take in the archive.  size: INT64_MAX at most. */
uint64_t tar_padded(uint64_t size);

#endif
