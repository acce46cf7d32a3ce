#include "guest/tar_source.h"

#include <errno.h>
#include <unistd.h>

void tar_source_open(struct tar_source *s, int fd, uint64_t size)
{
    tar_read_start(&s->reader);
    s->head = s->data = s->next = 0;
    s->wrong = NULL;
    s->fd = fd;
    s->size = size;
    s->window = 0;
    s->have = 0;
}

void tar_source_go_on(struct tar_source *s, const struct tar_reader *reader, uint64_t next)
{
    s->reader = *reader;
    s->next = next;
}

/* The block at s->next; NULL with s->wrong, or errno. */
static const unsigned char *read_block(struct tar_source *s)
{
    if (s->size - s->next < TAR_BLOCK) {
        s->wrong = "the archive ends within a block";
        return NULL;
    }
    if (s->next < s->window || s->next + TAR_BLOCK > s->window + s->have) {
        s->window = s->next;
        s->have = 0;
        while (s->have < TAR_BLOCK) {
            ssize_t n =
                pread(s->fd, s->bytes + s->have, sizeof s->bytes - s->have, (off_t)(s->window + s->have));
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return NULL;
            if (n == 0) {
                s->wrong = "the archive became shorter";
                return NULL;
            }
            s->have += (size_t)n;
        }
    }
    return s->bytes + (s->next - s->window);
}

static enum tar_step take_entry(struct tar_source *s)
{
    uint64_t size = s->reader.entry.size;
    s->data = s->next;
    if (size > s->size - s->next || tar_padded(size) > s->size - s->next) {
        s->wrong = "the archive ends within it";
        return TAR_WRONG;
    }
    s->next += tar_padded(size);
    return TAR_ENTRY;
}

enum tar_step tar_source_next(struct tar_source *s)
{
    s->head = s->next;
    s->wrong = NULL;
    while (s->next < s->size) {
        const unsigned char *block = read_block(s);
        if (!block)
            return TAR_WRONG;
        s->next += TAR_BLOCK;
        enum tar_step step = tar_read_block(&s->reader, block);
        if (step == TAR_ENTRY)
            return take_entry(s);
        if (step == TAR_WRONG) {
            s->wrong = s->reader.wrong;
            return TAR_WRONG;
        }
    }
    s->wrong = tar_read_finish(&s->reader);
    if (!s->wrong)
        return TAR_END;
    s->reader.name[0] = '\0';
    return TAR_WRONG;
}
