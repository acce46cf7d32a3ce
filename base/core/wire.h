/* The lines that the in-sandbox guest prints and the gateway reads, both sides in one place.
 *
 * The guest's standard output travels through the upstream's log stream, which is UTF-8 text cut at arbitrary
 * places.  So everything is printable ASCII in LF-terminated lines of bounded length, and every answer names
 * its absolute offsets.  A line is a letter, then fields separated by one space:
 *
 *   H <state> <out_oldest> <out_end> <err_oldest> <err_end> <started_ms> <pid> <flags> <input> <id>
 *       hello: always the first line of run, start, follow and settle
 *   D <channel> <offset> <base64>
 *       output bytes; channel 1 stdout, 2 stderr, 3 terminal
 *   G <channel> <from> <to>
 *       bytes from..to are no longer kept (a gap)
 *   X <how> <value> <flags> <duration_ms> <out_end> <err_end>
 *       the end of the process; last line
 *   M
 *       more to come: follow again from here; last line
 *   P <state> <started_ms> <pid> <how> <value> <flags> <duration_ms> <out_oldest> <out_end> <err_oldest> <err_end> <input> <id>
 *       one process of list or watch, or the answer of status
 *   C <epoch> <accepted> <room>
 *       a carrier of input is open: its epoch (the highest one counts), how many bytes of the program's input
 *       have been accepted, and how many more there is room for
 *   A <accepted> <room> <flags>
 *       an acknowledgement of input; flags: "-" or letters: c closed (everything was accepted and the program
 *       gets its end of file), x the program takes no more input
 *   S <type> <mode> <uid> <gid> <size> <mtime_ns> <ctime_ns> <ino> <dev> <nlink> <name> <target>
 *       one file: type is f d l p s c b, mode four octal digits at most, the times signed and since the epoch, name
 *       the last part of its path and target the text of a link in base64, "-" for none (also for a target that
 *       does not fit beside its name: readlink tells it)
 *   N <base64>
 *       a name or path: what readlink, realpath, mktemp and glob find
 *   R <line> <offset> <flags> <path> <text>
 *       a line of a text file, without its LF, and where in the file the text begins; lines count from 1.  path and
 *       text are base64; path is "-" for that of the R line before, text "-" for none.  flags: "-" or letters:
 *       t cut at the limit of a line, c context of a match, m the line goes on in the next R line.  With m right before
 *       M: the time of a search was over; it goes on after this line of this file (line 0: after the file)
 *   V <what> <type> <path> <to>
 *       a change below a watched directory: create, modify, delete, attrib, move or overflow.  type is d for a
 *       directory, f for anything else, "-" where it is not known.  path is base64, relative to the watched directory
 *       and "." for itself; to is where a move led to, "-" for all others.  overflow has neither: changes were lost
 *   K [<word>]
 *       done: the act succeeded; last line.  put says "created" when the path did not exist before
 *   E <code> <errno> <text>
 *       failure; code is a word of enum sg_wire_fail, errno a name such as ENOENT or "-", text is free and
 *       printable; last line
 *
 * <how> is exit | signal | timeout | scope | unknown | none (none: still running; value is the exit code or the
 * signal number, 0 otherwise; scope: ended because its lease ran out, or nobody was attached any more).
 * <flags> is "-" or letters: d descendants still hold the output, i output incomplete, t terminal (its output is
 * channel 3 and counts as stdout here), o takes input, l lossless, p paused until output is acknowledged, u ends when
 * nobody has been attached for a while.
 * <input> is how many bytes of input were accepted.  <state> is starting | running | finished | not_started |
 * unknown.
 *
 * Pure, libc only, no allocation; any thread.
 */
#ifndef SG_CORE_WIRE_H
#define SG_CORE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SG_WIRE_DATA_MAX = 4096, /* payload bytes of one D line */
    SG_WIRE_LINE_MAX = 6144, /* longest line, LF included */
    SG_WIRE_ID_MAX = 64,     /* longest process id */
    SG_WIRE_TEXT_MAX = 256,
};

enum sg_wire_kind {
    SG_WIRE_HELLO = 'H',
    SG_WIRE_DATA = 'D',
    SG_WIRE_GAP = 'G',
    SG_WIRE_EXIT = 'X',
    SG_WIRE_MORE = 'M',
    SG_WIRE_PROCESS = 'P',
    SG_WIRE_OK = 'K',
    SG_WIRE_ERROR = 'E',
    SG_WIRE_CARRIER = 'C',
    SG_WIRE_ACCEPTED = 'A',
    SG_WIRE_FILE = 'S',
    SG_WIRE_NAME = 'N',
    SG_WIRE_TEXT = 'R',
    SG_WIRE_CHANGE = 'V',
};

enum sg_wire_state { SG_PS_STARTING, SG_PS_RUNNING, SG_PS_FINISHED, SG_PS_NOT_STARTED, SG_PS_UNKNOWN };
enum sg_wire_how {
    SG_HOW_NONE,
    SG_HOW_EXIT,
    SG_HOW_SIGNAL,
    SG_HOW_TIMEOUT,
    SG_HOW_UNKNOWN,
    SG_HOW_SCOPE,
};

enum sg_wire_change {
    SG_CH_CREATE,
    SG_CH_MODIFY,
    SG_CH_DELETE,
    SG_CH_ATTRIB,
    SG_CH_MOVE,
    SG_CH_OVERFLOW,
};

enum sg_wire_fail {
    SG_WF_USAGE,       /* bad arguments: a fault of the gateway */
    SG_WF_NO_RECORD,   /* no process of this id in this session */
    SG_WF_CONFLICT,    /* the id exists with another spec hash */
    SG_WF_NOT_STARTED, /* the id carries a tombstone: nothing can start under it */
    SG_WF_EXEC,        /* the program could not be executed; errno says why; nothing runs */
    SG_WF_FINISHED,    /* the process has ended: nothing to signal */
    SG_WF_NO_SPACE,    /* no room for the record; nothing was started */
    SG_WF_FILE,        /* a file operation failed; errno says why */
    SG_WF_INTERNAL,
    SG_WF_NO_INPUT, /* the program takes no input: never did, or its input was closed */
    SG_WF_OFFSET,   /* input was sent beyond what has been accepted */
    SG_WF_FENCED,   /* another carrier with a higher epoch was opened */
    SG_WF_USER,     /* programs do not run as the user who was asked for; nothing was started */
    SG_WF_STALE,    /* the file is not the one of the condition; nothing was changed */
    SG_WF_DIGEST,   /* the upload has another digest; nothing was changed */
    SG_WF_CHANGED,  /* the file was written to or replaced while it was read */
    SG_WF_ARCHIVE,  /* the archive is damaged or leads out of its target; nothing was extracted */
    SG_WF_NO_UPLOAD,
    SG_WF_UPLOAD_OFFSET, /* the upload goes on elsewhere: text is "accepted N" */
    SG_WF_NO_WATCH,      /* what was watched is gone: text is deleted, moved, replaced or unmounted */
    SG_WF_WATCH_LIMIT,   /* more directories than can be watched */
};

struct sg_wire_process {
    enum sg_wire_state state;
    enum sg_wire_how how;
    uint32_t value; /* exit code or signal number */
    bool descendants_hold_output;
    bool output_incomplete;
    bool terminal;              /* its output is stream 0 */
    bool takes_input;           /* H, P */
    bool lossless, paused;      /* H, P */
    bool ends_unattended;       /* H, P: on_disconnect was asked for */
    uint64_t input;             /* H, P: bytes of input accepted */
    uint64_t oldest[2], end[2]; /* stdout, stderr: first kept offset, offset after the last byte */
    uint64_t started_ms;        /* wall clock of the sandbox */
    uint64_t duration_ms;
    uint64_t pid; /* inside the sandbox; 0 before it started */
    char id[SG_WIRE_ID_MAX + 1];
};

struct sg_wire_file {
    char type;     /* one of SG_WIRE_TYPES */
    uint32_t mode; /* 07777 at most */
    uint32_t uid, gid;
    uint64_t size; /* INT64_MAX at most */
    int64_t mtime_ns, ctime_ns;
    uint64_t ino, dev, nlink;
};
#define SG_WIRE_TYPES "fdlpscb"

struct sg_wire_line {
    enum sg_wire_kind kind;
    unsigned channel;          /* D, G */
    uint64_t offset, to;       /* D, R: offset; G: offset..to */
    const unsigned char *data; /* D: bytes; S: target; R: text; V: to; points into the caller's scratch */
    size_t len;                /* of data */
    const unsigned char
        *name; /* S, N, R, V: name or path; likewise; it and data are SG_WIRE_DATA_MAX at most together */
    size_t name_len;
    uint64_t line;              /* R */
    bool cut, context, goes_on; /* R: flags t, c and m */
    struct sg_wire_file file;   /* S */
    enum sg_wire_change change; /* V */
    char entry;                 /* V: 'd', 'f', '\0' not known */
    uint64_t epoch;             /* C */
    uint64_t accepted, room;    /* C, A */
    bool closed, unwanted;      /* A: flags c and x */
    struct sg_wire_process
        process; /* H (state, offsets, started, pid, flags, input, id), X (how…, ends), P (all) */
    enum sg_wire_fail fail;      /* E */
    char errno_name[16];         /* E; "" when "-" */
    char text[SG_WIRE_TEXT_MAX]; /* E */
};

/* Parses one line without its LF.  `scratch` holds the decoded bytes of a line and must stay while they are
 * used.  False when the line is malformed in any way (foreign input: nothing is assumed). */
bool sg_wire_parse(const char *line, size_t len, unsigned char scratch[SG_WIRE_DATA_MAX],
                   struct sg_wire_line *out);

/* Formats a line, LF included, into out[SG_WIRE_LINE_MAX]; returns its length.  Of D lines len must be
 * 1..SG_WIRE_DATA_MAX; name and data that are longer together are cut; ids and texts that would break the line are replaced by '?'. */
size_t sg_wire_format(char out[SG_WIRE_LINE_MAX], const struct sg_wire_line *line);

/* [A-Za-z0-9][A-Za-z0-9._-]{0,63}: what a process id may be, on both sides. */
bool sg_wire_id_valid(const char *id, size_t len);
/* Begins with SG_WIRE_OWN: a recorded helper of the gateway's own, which no list shows and no API caller may name. */
bool sg_wire_id_own(const char *id);
#define SG_WIRE_OWN "sgw-"

const char *sg_wire_state_name(enum sg_wire_state s);
const char *sg_wire_fail_name(enum sg_wire_fail f);
const char *sg_wire_change_name(enum sg_wire_change c);

#endif
