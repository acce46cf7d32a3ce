#include "guest/tar_read.h"

#include <string.h>

enum { AT_HEADER, IN_LONG_NAME, IN_LONG_TARGET, IN_PAX, IN_GLOBAL, AFTER_ZEROS, AT_END };
enum { IN_LENGTH, IN_KEY, IN_VALUE };

/* Where the fields of a header are. */
enum {
    NAME = 0,
    NAME_LEN = 100,
    MODE = 100,
    SIZE = 124,
    SIZE_LEN = 12,
    MTIME = 136,
    SUM = 148,
    NUMBER_LEN = 8,
    TYPE = 156,
    TARGET = 157,
    MAGIC = 257,
    MAGIC_LEN = 8,
    PREFIX = 345,
    PREFIX_LEN = 155,
};

uint64_t tar_padded(uint64_t size)
{
    return (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

void tar_read_start(struct tar_reader *r)
{
    memset(r, 0, sizeof *r);
}

const char *tar_read_finish(const struct tar_reader *r)
{
    if (r->state == AT_END)
        return NULL;
    return r->state == AT_HEADER || r->state == AFTER_ZEROS ? "the end of the archive is missing"
                                                            : "the archive ends in a header";
}

/* ---- numbers ---- */

/* Two's complement without its first bit, big-endian. */
static bool read_binary(const unsigned char *p, size_t n, int64_t *v)
{
    bool minus = p[0] & 0x40;
    uint64_t got = minus ? UINT64_MAX : 0, lost = minus ? 0xff : 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = i ? p[i] : minus ? p[0] : p[0] & 0x7f;
        if (got >> 56 != lost)
            return false;
        got = got << 8 | byte;
    }
    *v = (int64_t)got;
    return (*v < 0) == minus;
}

/* Octal digits among spaces and NULs, or base 256; nothing is 0. */
static bool read_number(const unsigned char *p, size_t n, int64_t *v)
{
    if (p[0] & 0x80)
        return read_binary(p, n, v);
    size_t i = 0;
    *v = 0;
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        *v = *v * 8 + (p[i] - '0');
    while (i < n && (p[i] == ' ' || p[i] == '\0'))
        i++;
    return i == n;
}

static bool read_decimal(const char *p, size_t n, uint64_t *v)
{
    *v = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(p[i] - '0');
        if (p[i] < '0' || p[i] > '9' || *v > (INT64_MAX - digit) / 10)
            return false;
        *v = *v * 10 + digit;
    }
    return n > 0;
}

/* [-]seconds[.fraction] */
static bool read_time(const char *p, size_t n, int64_t *s, uint32_t *ns)
{
    bool minus = n && *p == '-';
    p += minus;
    n -= minus;
    const char *point = memchr(p, '.', n);
    size_t whole = point ? (size_t)(point - p) : n;
    uint64_t seconds;
    uint32_t fraction = 0, unit = 100000000;
    if (!read_decimal(p, whole, &seconds))
        return false;
    for (size_t i = whole + 1; i < n; i++, unit /= 10) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        fraction += unit * (uint32_t)(p[i] - '0');
    }
    *s = minus ? -(int64_t)seconds : (int64_t)seconds;
    *ns = fraction;
    if (minus && fraction) {
        *s -= 1;
        *ns = 1000000000 - fraction;
    }
    return true;
}

/* ---- names ---- */

/* A field without NUL at its end when it is full; behind a NUL nothing may be hidden. */
static bool read_text(const unsigned char *p, size_t n, char *out, size_t *len)
{
    size_t k = strnlen((const char *)p, n);
    for (size_t i = k; i < n; i++)
        if (p[i])
            return false;
    memcpy(out, p, k);
    *len = k;
    return true;
}

/* NULL, or why the name is not taken. */
static const char *clean_name(const char *raw, char out[TAR_PATH_MAX + 1])
{
    size_t used = 0, depth = 0;
    if (raw[0] == '/')
        return "an absolute name";
    while (*raw) {
        size_t n = strcspn(raw, "/");
        bool dot = n == 1 && raw[0] == '.';
        if (n == 2 && raw[0] == '.' && raw[1] == '.')
            return "a name with .. in it";
        if (n > TAR_NAME_MAX)
            return "a name that is too long";
        if (n && !dot) {
            if (++depth > TAR_DEPTH_MAX)
                return "a name that leads too deep";
            if (used)
                out[used++] = '/';
            memcpy(out + used, raw, n);
            used += n;
        }
        raw += n + (raw[n] == '/');
    }
    out[used] = '\0';
    return NULL;
}

/* ---- what comes before a header ---- */

static bool add_text(struct tar_text *t, const unsigned char *p, size_t n)
{
    if (n > TAR_PATH_MAX - t->len)
        return false;
    memcpy(t->text + t->len, p, n);
    t->len += n;
    t->text[t->len] = '\0';
    return true;
}

static void forget(struct tar_text *t)
{
    t->text[0] = '\0';
    t->len = 0;
    t->given = false;
}

/* A GNU long name, which ends with a NUL or with its header's size. */
static const char *take_long(struct tar_reader *r, struct tar_text *t, const unsigned char *block)
{
    size_t n = r->left < TAR_BLOCK ? (size_t)r->left : TAR_BLOCK;
    r->left -= n;
    if (r->left == 0 && block[n - 1] == '\0')
        n--;
    if (memchr(block, '\0', n))
        return "a name with NUL in it";
    if (!add_text(t, block, n))
        return "a name that is too long";
    if (r->left == 0)
        r->state = AT_HEADER;
    return r->left || t->len ? NULL : "an empty name";
}

static const char *take_pax_text(struct tar_text *t, const char *value, size_t len)
{
    if (t->given)
        return "a name that is given twice";
    if (len == 0)
        return "an empty name";
    if (len > TAR_PATH_MAX)
        return "a name that is too long";
    if (memchr(value, '\0', len))
        return "a name with NUL in it";
    t->given = true;
    return add_text(t, (const unsigned char *)value, len) ? NULL : "a name that is too long";
}

static const char *take_pax_time(struct tar_reader *r, const char *value, size_t len)
{
    int64_t s;
    uint32_t ns;
    if (len > TAR_PATH_MAX || !read_time(value, len, &s, &ns))
        return "a bad time in pax records";
    if (r->state == IN_GLOBAL) {
        r->has_global_mtime = true;
        r->global_mtime_s = s;
        r->global_mtime_ns = ns;
        return NULL;
    }
    if (r->has_mtime)
        return "a time that is given twice";
    r->has_mtime = true;
    r->mtime_s = s;
    r->mtime_ns = ns;
    return NULL;
}

static const char *take_record(struct tar_reader *r)
{
    const char *key = r->record.key, *value = r->record.value;
    size_t len = r->record.value_len;
    if (strncmp(key, "GNU.sparse.", 11) == 0 || strcmp(key, "SUN.holesdata") == 0)
        return "a sparse file";
    bool is_path = strcmp(key, "path") == 0, is_size = strcmp(key, "size") == 0;
    if (strcmp(key, "mtime") == 0)
        return take_pax_time(r, value, len);
    if (!is_path && !is_size && strcmp(key, "linkpath") != 0)
        return NULL; /* says what we do not keep */
    if (r->state == IN_GLOBAL)
        return "a name or size for all entries";
    if (!is_size)
        return take_pax_text(is_path ? &r->path : &r->target, value, len);
    if (r->has_size)
        return "a size that is given twice";
    r->has_size = true;
    return len <= TAR_PATH_MAX && read_decimal(value, len, &r->size) ? NULL : "a bad size in pax records";
}

static const char bad_pax[] = "malformed pax records";

/* The length of a record, which counts itself; a space ends it. */
static bool take_length(struct tar_reader *r, unsigned char c)
{
    if (c >= '0' && c <= '9') {
        r->record.len = r->record.len * 10 + (c - '0');
        return (c != '0' || r->record.digits) && ++r->record.digits <= 7;
    }
    /* a key, "=" and LF at least */
    uint64_t head = r->record.digits + 1;
    if (c != ' ' || r->record.len < head + 3 || r->record.len - head > r->left)
        return false;
    r->record.left = r->record.len - head;
    r->record.state = IN_KEY;
    r->record.key_len = 0;
    r->record.value_len = 0;
    return true;
}

static bool take_key(struct tar_reader *r, unsigned char c)
{
    size_t max = sizeof r->record.key - 1;
    if (c == '=') {
        r->record.key[r->record.key_len < max ? r->record.key_len : max] = '\0';
        r->record.state = IN_VALUE;
        return r->record.key_len > 0;
    }
    if (r->record.key_len < max)
        r->record.key[r->record.key_len] = (char)c;
    r->record.key_len++;
    return c != '\0' && c != '\n';
}

static const char *take_pax_byte(struct tar_reader *r, unsigned char c)
{
    r->left--; /* first, so that a record's length is held against what comes behind it */
    if (r->record.state == IN_LENGTH)
        return take_length(r, c) ? NULL : bad_pax;
    r->record.left--;
    if (r->record.state == IN_KEY)
        return take_key(r, c) && r->record.left ? NULL : bad_pax;
    if (r->record.left) {
        if (r->record.value_len < TAR_PATH_MAX)
            r->record.value[r->record.value_len] = (char)c;
        r->record.value_len++;
        return NULL;
    }
    r->record.state = IN_LENGTH;
    r->record.len = 0;
    r->record.digits = 0;
    return c == '\n' ? take_record(r) : bad_pax;
}

static const char *take_pax(struct tar_reader *r, const unsigned char *block)
{
    size_t n = r->left < TAR_BLOCK ? (size_t)r->left : TAR_BLOCK;
    for (size_t i = 0; i < n; i++) {
        const char *wrong = take_pax_byte(r, block[i]);
        if (wrong)
            return wrong;
    }
    if (r->left == 0) {
        if (r->record.state != IN_LENGTH || r->record.digits)
            return bad_pax;
        r->state = AT_HEADER;
    }
    return NULL;
}

static const char *begin_long(struct tar_reader *r, struct tar_text *t, int state)
{
    if (t->given)
        return "a name that is given twice";
    if (r->left == 0 || r->left > TAR_PATH_MAX + 1)
        return r->left ? "a name that is too long" : "an empty name";
    t->given = true;
    r->state = state;
    return NULL;
}

static const char *begin_pax(struct tar_reader *r, bool global)
{
    bool pending = r->pax || r->path.given || r->target.given;
    if (pending)
        return "several headers before one entry";
    if (global && ++r->extensions > TAR_EXTENSIONS_MAX)
        return "too many pax headers";
    if (r->left > TAR_PAX_MAX)
        return "pax records that are too long";
    r->pax = !global;
    r->record.state = IN_LENGTH;
    r->record.len = 0;
    r->record.digits = 0;
    if (r->left)
        r->state = global ? IN_GLOBAL : IN_PAX;
    return NULL;
}

/* ---- headers ---- */

static bool is_zero(const unsigned char *block)
{
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static bool has_sum(const unsigned char *h)
{
    int64_t want;
    unsigned sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= SUM && i < SUM + NUMBER_LEN ? ' ' : h[i];
    return !(h[SUM] & 0x80) && read_number(h + SUM, NUMBER_LEN, &want) && want == (int64_t)sum;
}

/* The name in the header alone, to r->name. */
static const char *header_name(struct tar_reader *r, const unsigned char *h)
{
    static const char hidden[] = "a name with NUL in it";
    size_t prefix = 0, len = 0;
    bool posix = memcmp(h + MAGIC, "ustar\0", 6) == 0;
    if (posix && !read_text(h + PREFIX, PREFIX_LEN, r->name, &prefix))
        return hidden;
    if (prefix)
        r->name[prefix++] = '/';
    bool ok = read_text(h + NAME, NAME_LEN, r->name + prefix, &len);
    r->name[prefix + len * ok] = '\0';
    if (!ok)
        return hidden;
    if (len == 0)
        return "an empty name";
    return prefix && r->name[prefix] == '/' ? "an absolute name" : NULL;
}

static const char *find_name(struct tar_reader *r, const unsigned char *h)
{
    if (!r->path.given)
        return header_name(r, h);
    memcpy(r->name, r->path.text, r->path.len + 1);
    return NULL;
}

static const char *find_target(struct tar_reader *r, const unsigned char *h)
{
    char field[NAME_LEN + 1];
    size_t len;
    const char *text = r->target.text;
    if (!r->target.given) {
        if (!read_text(h + TARGET, NAME_LEN, field, &len))
            return "a target with NUL in it";
        field[len] = '\0';
        text = field;
    }
    if (!*text)
        return "a link without a target";
    if (r->entry.kind == TAR_HARDLINK) {
        const char *wrong = clean_name(text, r->entry.target);
        return wrong || r->entry.target[0] ? wrong : "a link without a target";
    }
    memcpy(r->entry.target, text, strlen(text) + 1);
    return NULL;
}

static const char *find_kind(struct tar_reader *r, unsigned char type)
{
    size_t n = strlen(r->name);
    bool slash = n && r->name[n - 1] == '/';
    switch (type) {
    case '\0':
    case '0':
    case '7':
        r->entry.kind = slash ? TAR_DIRECTORY : TAR_FILE;
        return NULL;
    case '1':
    case '2':
        r->entry.kind = type == '1' ? TAR_HARDLINK : TAR_SYMLINK;
        return slash ? "a link whose name ends in a slash" : NULL;
    case '5':
        r->entry.kind = TAR_DIRECTORY;
        return NULL;
    case '3':
    case '4':
        return "a device";
    case '6':
        return "a FIFO";
    case 'S':
        return "a sparse file";
    default:
        return "an entry of a kind that is not known";
    }
}

static const char *take_entry(struct tar_reader *r, const unsigned char *h, int64_t size)
{
    struct tar_entry *e = &r->entry;
    int64_t mode, mtime;
    const char *wrong = find_name(r, h);
    if (!wrong)
        wrong = find_kind(r, h[TYPE]);
    if (!wrong)
        wrong = clean_name(r->name, e->path);
    if (wrong)
        return wrong;
    if (!e->path[0] && e->kind != TAR_DIRECTORY)
        return "an empty name";
    bool link = e->kind == TAR_SYMLINK || e->kind == TAR_HARDLINK;
    e->target[0] = '\0';
    if (link && (wrong = find_target(r, h)))
        return wrong;
    if (!read_number(h + MODE, NUMBER_LEN, &mode) || !read_number(h + MTIME, SIZE_LEN, &mtime))
        return "a malformed number";
    e->size = r->has_size ? r->size : (uint64_t)size;
    if (e->size && e->kind != TAR_FILE)
        return "an entry with contents that is no file";
    e->mode = (unsigned)mode & 07777;
    e->mtime_s = r->has_mtime ? r->mtime_s : r->has_global_mtime ? r->global_mtime_s : mtime;
    e->mtime_ns = r->has_mtime ? r->mtime_ns : r->has_global_mtime ? r->global_mtime_ns : 0;
    forget(&r->path);
    forget(&r->target);
    r->pax = r->has_size = r->has_mtime = false;
    return NULL;
}

static const char *take_header(struct tar_reader *r, const unsigned char *h, bool *entry)
{
    static const unsigned char none[MAGIC_LEN];
    int64_t size;
    bool known = memcmp(h + MAGIC, "ustar\0", 6) == 0 || memcmp(h + MAGIC, "ustar  \0", MAGIC_LEN) == 0 ||
                 memcmp(h + MAGIC, none, MAGIC_LEN) == 0;
    r->name[0] = '\0';
    if (!has_sum(h))
        return "a header with a wrong checksum";
    if (!known)
        return "this is no tar archive";
    if (!read_number(h + SIZE, SIZE_LEN, &size) || size < 0)
        return "a bad size";
    r->left = (uint64_t)size;
    switch (h[TYPE]) {
    case 'x':
        return begin_pax(r, false);
    case 'g':
        return begin_pax(r, true);
    case 'L':
        return r->pax ? "several headers before one entry" : begin_long(r, &r->path, IN_LONG_NAME);
    case 'K':
        return r->pax ? "several headers before one entry" : begin_long(r, &r->target, IN_LONG_TARGET);
    default:
        *entry = true;
        return take_entry(r, h, size);
    }
}

static const char *take_zeros(struct tar_reader *r)
{
    if (r->state == AT_HEADER && (r->pax || r->path.given || r->target.given))
        return "the archive ends in a header";
    r->state = r->state == AT_HEADER ? AFTER_ZEROS : AT_END;
    return NULL;
}

static const char *take_block(struct tar_reader *r, const unsigned char *block, bool *entry)
{
    switch (r->state) {
    case IN_LONG_NAME:
        return take_long(r, &r->path, block);
    case IN_LONG_TARGET:
        return take_long(r, &r->target, block);
    case IN_PAX:
    case IN_GLOBAL:
        return take_pax(r, block);
    case AT_HEADER:
        return is_zero(block) ? take_zeros(r) : take_header(r, block, entry);
    default:
        r->name[0] = '\0';
        return is_zero(block) ? take_zeros(r) : "something follows the end of the archive";
    }
}

enum tar_step tar_read_block(struct tar_reader *r, const unsigned char block[TAR_BLOCK])
{
    bool entry = false;
    if (r->wrong)
        return TAR_WRONG;
    r->wrong = take_block(r, block, &entry);
    if (r->wrong)
        return TAR_WRONG;
    return entry ? TAR_ENTRY : r->state == AT_END ? TAR_END : TAR_MORE;
}
