#include "guestlink/guestlink.h"

#include "base/core/num.h"

#include <stdio.h>
#include <string.h>

static enum sg_code file_code(const char *name)
{
    static const struct {
        const char *name;
        enum sg_code code;
    } known[] = {
        {"ENOENT", SG_E_FILE_NOT_FOUND},    {"EEXIST", SG_E_FILE_EXISTS},
        {"EISDIR", SG_E_IS_DIRECTORY},      {"ENOTDIR", SG_E_NOT_DIRECTORY},
        {"EACCES", SG_E_PERMISSION_DENIED}, {"EPERM", SG_E_PERMISSION_DENIED},
        {"EROFS", SG_E_PERMISSION_DENIED},  {"ENOSPC", SG_E_NO_SPACE},
        {"EDQUOT", SG_E_NO_SPACE},          {"ENAMETOOLONG", SG_E_INVALID_PATH},
        {"ENOTEMPTY", SG_E_NOT_EMPTY},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].code;
    return SG_E_FILE_ERROR;
}

/* What "accepted N" says; -1 where it says something else. */
static int64_t accepted_of(const char *text)
{
    static const char word[] = "accepted ";
    size_t n = sizeof word - 1;
    uint64_t accepted;
    if (strncmp(text, word, n) != 0 || !sg_parse_u64(text + n, strlen(text + n), INT64_MAX, &accepted))
        return -1;
    return (int64_t)accepted;
}

enum sg_code guest_error(const struct sg_wire_line *line, struct sg_error *e)
{
    enum sg_code code = SG_E_INTERNAL;
    enum sg_outcome outcome = SG_NOT_STARTED;
    switch (line->fail) {
    case SG_WF_USAGE:
        break;
    case SG_WF_NO_RECORD:
    case SG_WF_NOT_STARTED:
        code = SG_E_PROCESS_NOT_FOUND;
        break;
    case SG_WF_CONFLICT:
        code = SG_E_PROCESS_ID_CONFLICT;
        break;
    case SG_WF_EXEC:
        code = SG_E_EXECUTABLE_NOT_FOUND;
        break;
    case SG_WF_FINISHED:
        code = SG_E_PROCESS_FINISHED;
        break;
    case SG_WF_NO_INPUT:
        code = SG_E_STDIN_CLOSED;
        break;
    case SG_WF_OFFSET:
        code = SG_E_STDIN_OFFSET;
        break;
    case SG_WF_FENCED:
        code = SG_E_WRITER_REPLACED;
        break;
    case SG_WF_USER:
        code = SG_E_UNSUPPORTED;
        break;
    case SG_WF_STALE:
        code = SG_E_PRECONDITION_FAILED;
        break;
    case SG_WF_DIGEST:
        code = SG_E_DIGEST_MISMATCH;
        break;
    case SG_WF_CHANGED:
        code = SG_E_FILE_CHANGED;
        break;
    case SG_WF_ARCHIVE:
        code = SG_E_ARCHIVE_REFUSED;
        break;
    case SG_WF_NO_UPLOAD:
        code = SG_E_UPLOAD_NOT_FOUND;
        break;
    case SG_WF_UPLOAD_OFFSET:
        code = SG_E_UPLOAD_OFFSET;
        break;
    case SG_WF_NO_WATCH:
        code = SG_E_WATCH_GONE;
        break;
    case SG_WF_WATCH_LIMIT:
        code = SG_E_WATCH_LIMIT;
        break;
    case SG_WF_NO_SPACE:
        code = SG_E_NO_SPACE;
        break;
    case SG_WF_FILE:
        code = file_code(line->errno_name);
        if (!strcmp(line->errno_name, "EXDEV") && !strcmp(line->text, "outside"))
            code = SG_E_PATH_OUTSIDE_ROOT;
        break;
    case SG_WF_INTERNAL:
    default:
        outcome = SG_OUTCOME_UNKNOWN;
        break;
    }
    (void)sg_fail(e, code, outcome, "%.*s", (int)sizeof line->text - 1, line->text);
    bool tells = code == SG_E_STDIN_OFFSET || code == SG_E_PROCESS_FINISHED || code == SG_E_UPLOAD_OFFSET;
    int64_t accepted = tells ? accepted_of(line->text) : -1;
    if (e && accepted >= 0) {
        (void)sg_fail(e, code, outcome,
                      code == SG_E_STDIN_OFFSET ? "%lld bytes of input have been accepted: go on from there"
                      : code == SG_E_UPLOAD_OFFSET ? "the upload goes on at %lld"
                                                   : "the process has ended; it had %lld bytes of input",
                      (long long)accepted);
        e->accepted = accepted;
    }
    if (e && line->fail == SG_WF_USER)
        (void)snprintf(e->pointer, sizeof e->pointer, "/user");
    if (e)
        (void)snprintf(e->errno_name, sizeof e->errno_name, "%s", line->errno_name);
    return code;
}
