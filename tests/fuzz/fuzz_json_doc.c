/* The in-place reader accepts what jansson accepts and reads the same out of it; the writer's text is jansson's. */
#include "base/json.h"
#include "base/json_doc.h"
#include "base/json_write.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void same_text(const char *s)
{
    json_t *v = json_string(s);
    char *want = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    struct sg_buf b;
    must(want != NULL);
    sg_buf_init(&b, 1 << 20);
    sg_jw_text(&b, s);
    must(b.failed || strcmp(b.data, want) == 0);
    sg_buf_free(&b);
    free(want);
    json_decref(v);
}

static void same(const struct sg_jnode *n, const json_t *v);

/* Members in the text's order; of a name that comes twice jansson kept the last value. */
static void same_members(const struct sg_jnode *n, const json_t *v)
{
    size_t distinct = 0;
    for (const struct sg_jnode *k = n + 1; k < n + n->span; k += 1 + k[1].span) {
        must(k->type == SG_JSTRING && strlen(k->u.text) == k->len);
        const struct sg_jnode *last = sg_jn_get(n, k->u.text);
        distinct += last == k + 1;
        if (last == k + 1)
            same(last, json_object_get(v, k->u.text));
    }
    must(distinct == json_object_size(v));
}

static void same(const struct sg_jnode *n, const json_t *v)
{
    must(v != NULL);
    switch (n->type) {
    case SG_JNULL:
        must(json_is_null(v));
        break;
    case SG_JFALSE:
        must(json_is_false(v));
        break;
    case SG_JTRUE:
        must(json_is_true(v));
        break;
    case SG_JINTEGER:
        must(json_is_integer(v) && json_integer_value(v) == n->u.integer);
        break;
    case SG_JREAL: {
        double d = json_real_value(v);
        must(json_is_real(v) && memcmp(&d, &n->u.real, sizeof d) == 0);
        break;
    }
    case SG_JSTRING:
        must(json_is_string(v) && json_string_length(v) == n->len &&
             memcmp(json_string_value(v), n->u.text, n->len + 1) == 0);
        same_text(n->u.text);
        break;
    case SG_JARRAY: {
        must(json_is_array(v) && json_array_size(v) == n->len);
        const struct sg_jnode *item = n + 1;
        for (size_t i = 0; i < n->len; i++, item += item->span)
            same(item, json_array_get(v, i));
        must(item == n + n->span);
        break;
    }
    case SG_JOBJECT:
        must(json_is_object(v));
        same_members(n, v);
        break;
    }
}

/* Deeper than the reader goes, perhaps: brackets in strings only make it guess too much. */
static bool maybe_deep(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += s[i] == '[' || s[i] == '{';
    return n > SG_JDOC_DEPTH_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    json_t *v = json_loadb((const char *)data, size, 0, NULL);
    bool deep = maybe_deep(text, size);
    struct sg_jdoc d;
    if (sg_jdoc_parse(text, size, &d)) {
        same(sg_jdoc_root(&d), v);
        must(d.nodes[0].span == d.count);
        sg_jdoc_free(&d);
    } else {
        must(!v || deep || memchr(data, '\0', size)); /* jansson overlooks a NUL behind some numbers */
        free(text);
    }
    json_decref(v);
    return 0;
}
