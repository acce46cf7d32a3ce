/* A plan of faults in a file: the rules that the admin endpoint takes, from the first request on. */
#include "emulator/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_MAX = 4 << 20 };

/* 0 or an errno. */
static int read_all(const char *path, struct sg_buf *out)
{
    char block[16384];
    int fd = open(path, O_RDONLY | O_CLOEXEC), e = 0;
    ssize_t n = 1;
    if (fd < 0)
        return errno;
    while (!e && n > 0) {
        n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            e = errno;
        else if (n > 0 && !sg_buf_add(out, block, (size_t)n))
            e = EFBIG;
    }
    close(fd);
    return e;
}

/* One at a time, to tell which is wrong; nothing is served when one is. */
static bool add_each(struct faults *f, const char *path, const json_t *plan, char err[FAULTS_ERR])
{
    const json_t *rules = json_object_get(plan, "rules");
    struct api_error e = {0};
    if (!rules)
        rules = plan;
    size_t n = json_is_array(rules) ? json_array_size(rules) : 1;
    for (size_t i = 0; i < n; i++) {
        if (!faults_add(f, json_is_array(rules) ? json_array_get(rules, i) : rules, &e))
            continue;
        snprintf(err, FAULTS_ERR, "the fault plan %.150s: rule %zu: %.280s", path, i + 1, e.message);
        return false;
    }
    return true;
}

bool faults_load(struct faults *f, const char *path, char err[FAULTS_ERR])
{
    struct sg_buf text;
    json_error_t je;
    bool ok = false;
    sg_buf_init(&text, PLAN_MAX);
    int e = read_all(path, &text);
    json_t *plan = e ? NULL : json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &je);
    if (e)
        snprintf(err, FAULTS_ERR, "cannot read the fault plan %.150s: %s", path, strerror(e));
    else if (!plan)
        snprintf(err, FAULTS_ERR, "the fault plan %.150s is no JSON: line %d column %d: %s", path, je.line,
                 je.column, je.text);
    else
        ok = add_each(f, path, plan, err);
    json_decref(plan);
    sg_buf_free(&text);
    return ok;
}
