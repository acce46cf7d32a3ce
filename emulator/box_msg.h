/* Messages between the emulator, its spawner and the agents: one bounded record per SOCK_SEQPACKET datagram,
 * with a few descriptors.  Anything larger (argument lists, layer lists) travels as a memfd of NUL-terminated
 * strings.
 *
 * A request carries the sending end of a private socket pair as its first descriptor; the answer comes back
 * on that pair.  So any number of requests may be in flight, an answer cannot reach the wrong caller, and a
 * peer that dies is an end of file.  What arrives is foreign input to the receiver: lengths are checked here.
 */
#ifndef SG_EMULATOR_BOX_MSG_H
#define SG_EMULATOR_BOX_MSG_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum box_op {
    BOX_OP_NONE,
    BOX_OP_HELLO,  /* spawner → emulator, once: tier or failure */
    BOX_OP_CREATE, /* emulator → spawner; fds: reply, strings */
    BOX_OP_HELPER, /* emulator → spawner; fds: reply, directory, source */
    BOX_OP_READY,  /* agent → emulator, once: the box is set up, or why not */
    BOX_OP_EXIT,   /* agent → emulator: the process of `token` ended */
    BOX_OP_EXEC,   /* emulator → agent; fds: reply, strings, stdin, stdout, stderr; with value BOX_EXEC_PTY
                    * reply, strings, and bytes is the size of the terminal */
    BOX_OP_KILL,   /* emulator → agent; fds: reply (all below) */
    BOX_OP_OPEN,
    BOX_OP_MKDIR,
    BOX_OP_UNTAR,  /* one more descriptor: the archive */
    BOX_OP_SOCKET, /* value: not 0 for IPv6 */
    BOX_OP_CPU,
    BOX_OP_PROGRESS, /* helper → emulator, any number before BOX_OP_DONE */
    BOX_OP_DONE      /* the answer to a request */
};

enum { BOX_MSG_DATA = 8448, BOX_MSG_FDS = 5 };

enum { BOX_EXEC_PTY = 1 };

/* What a helper process does. */
enum box_helper_kind {
    BOX_HELPER_IMPORT, /* unpack the source into the directory, as root of the box's ids */
    BOX_HELPER_REMOVE, /* empty the directory */
    BOX_HELPER_SIZE,   /* add up what is in the directory */
    BOX_HELPER_COPY    /* copy what is in the source (a directory) into the directory */
};

struct box_msg {
    uint32_t op;
    int32_t error; /* errno, 0: success */
    uint64_t token;
    int32_t pid;
    int32_t value; /* signal, wait status, flags, tier: by op */
    uint32_t uid;
    uint32_t len; /* bytes used of data */
    uint64_t count, bytes;
    struct rusage usage;
    char data[BOX_MSG_DATA]; /* NUL-terminated after receiving; the NUL is not counted */
};

/* 0 or errno (EPIPE: the peer is gone).  Descriptors remain the caller's. */
int box_msg_send(int sock, const struct box_msg *m, const int *fds, size_t n_fds);
/* 0, EPIPE at the end of the stream, EBADMSG for a malformed message, EAGAIN after a receive timeout.
 * Received descriptors are CLOEXEC and the caller's; unused places are -1.  On failure all are -1. */
int box_msg_recv(int sock, struct box_msg *m, int fds[BOX_MSG_FDS]);
void box_fds_close(int *fds, size_t n);
/* Closes *fd unless negative and sets it to -1; keeps errno. */
void box_fd_close(int *fd);

/* Sets the text of an answer (printable, cut), with the errno it comes with. */
void box_msg_text(struct box_msg *m, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Appends a string with its NUL to data.  False when it does not fit. */
bool box_msg_add(struct box_msg *m, const char *s);
/* The string at *pos of data, moving *pos behind it; NULL at the end or when it is not terminated. */
const char *box_msg_next(const struct box_msg *m, size_t *pos);

/* errno, or EIO should a call have failed without saying why: a failure must never look like success. */
static inline int box_errno(void)
{
    int e = errno;
    return e != 0 ? e : EIO;
}

/* Copies text into out[cap], replacing what is not printable ASCII; always terminated. */
void box_text_copy(char *out, size_t cap, const char *text);

#endif
