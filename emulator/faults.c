#include "emulator/faults.h"

#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

enum { RULES_MAX = 256 };

struct rule {
    json_t *json;
    struct fault_action action;
    char *method, *prefix; /* NULL: any */
    bool edge;             /* for requests at the edge, and for no others */
    int port;              /* 0: any */
    char *subdomain;       /* NULL: any */
    regex_t regex;
    bool has_regex;
    int64_t nth, times; /* fires from the nth match on, `times` times (-1: always) */
    int64_t matched, fired;
    struct rule *next;
};

struct faults {
    pthread_mutex_t lock;
    struct rule *first;
    size_t n;
};

struct faults *faults_new(void)
{
    struct faults *f = calloc(1, sizeof *f);
    if (f)
        pthread_mutex_init(&f->lock, NULL);
    return f;
}

static void rule_free(struct rule *r)
{
    if (!r)
        return;
    if (r->has_regex)
        regfree(&r->regex);
    free(r->method);
    free(r->prefix);
    free(r->subdomain);
    json_decref(r->json);
    free(r);
}

static void free_list(struct rule *r)
{
    while (r) {
        struct rule *next = r->next;
        rule_free(r);
        r = next;
    }
}

void faults_free(struct faults *f)
{
    if (!f)
        return;
    free_list(f->first);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void faults_clear(struct faults *f)
{
    pthread_mutex_lock(&f->lock);
    struct rule *old = f->first;
    f->first = NULL;
    f->n = 0;
    pthread_mutex_unlock(&f->lock);
    free_list(old);
}

static int only(const json_t *obj, const char *where, const char *const allowed[], struct api_error *e)
{
    const char *k;
    json_t *v;
    if (!json_is_object(obj))
        return api_invalid(e, "`%s` should be object.", where);
    json_object_foreach((json_t *)(uintptr_t)obj, k, v)
    {
        size_t i = 0;
        while (allowed[i] && strcmp(allowed[i], k) != 0)
            i++;
        if (!allowed[i])
            return api_invalid(e, "`%s` should NOT have additional property `%.60s`.", where, k);
    }
    return 0;
}

static int get_int(const json_t *o, const char *key, int64_t dflt, int64_t *out, struct api_error *e)
{
    const json_t *v = json_object_get(o, key);
    *out = dflt;
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return api_invalid(e, "`%s` should be a non-negative integer.", key);
    *out = json_integer_value(v);
    return 0;
}

/* true: the snapshot of the sandbox that the request names; or a snapshot's id. */
static int parse_evict(const json_t *v, struct fault_action *out, struct api_error *e)
{
    if (v && !json_is_boolean(v) && !(json_is_string(v) && json_string_length(v)))
        return api_invalid(e, "`evict_snapshot` should be boolean or a snapshot's id.");
    out->evict_snapshot = v && !json_is_false(v);
    return 0;
}

static int parse_action(const json_t *a, struct fault_action *out, struct api_error *e)
{
    static const char *const members[] = {"status",           "body",
                                          "content_type",     "headers",
                                          "lose_answer",      "do_it",
                                          "cut_after_bytes",  "cut_after_ms",
                                          "delay_ms",         "html",
                                          "malformed",        "drip_bytes",
                                          "drip_ms",          "close_before",
                                          "evict_snapshot",   "name_conflict",
                                          "no_stdin_offsets", NULL};
    int64_t status, html, conflict;
    if (only(a, "action", members, e) || get_int(a, "status", 0, &status, e) ||
        get_int(a, "html", 0, &html, e) || get_int(a, "cut_after_bytes", -1, &out->cut_after_bytes, e) ||
        get_int(a, "cut_after_ms", -1, &out->cut_after_ms, e) ||
        get_int(a, "delay_ms", 0, &out->delay_ms, e) || get_int(a, "drip_bytes", 0, &out->drip_bytes, e) ||
        get_int(a, "drip_ms", 0, &out->drip_ms, e) || get_int(a, "name_conflict", 0, &conflict, e) ||
        parse_evict(json_object_get(a, "evict_snapshot"), out, e))
        return -1;
    if (conflict && conflict != 400 && conflict != 409)
        return api_invalid(e, "`name_conflict` should be 400 or 409.");
    out->name_conflict = (int)conflict;
    out->no_stdin_offsets = json_is_true(json_object_get(a, "no_stdin_offsets"));
    const json_t *headers = json_object_get(a, "headers");
    const char *k;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)headers, k, v)
    {
        if (!json_is_string(v))
            return api_invalid(e, "`headers.%.60s` should be string.", k);
    }
    out->html = html > 0;
    out->status = (int)(html > 0 ? html : status);
    if (out->status && (out->status < 200 || out->status > 599))
        return api_invalid(e, "a status should be between 200 and 599.");
    if (out->drip_ms && !out->drip_bytes)
        out->drip_bytes = 1;
    out->lose_answer = json_is_true(json_object_get(a, "lose_answer"));
    out->do_it = json_is_true(json_object_get(a, "do_it"));
    out->close_before = json_is_true(json_object_get(a, "close_before"));
    out->malformed = json_is_true(json_object_get(a, "malformed"));
    out->set = true;
    return 0;
}

/* A rule for the edge can do less: there is no call to carry out, only bytes. */
static int check_edge_action(const json_t *action, struct api_error *e)
{
    static const char *const members[] = {
        "status", "body", "content_type", "close_before", "cut_after_bytes", "delay_ms", NULL};
    return only(action, "action", members, e);
}

static int parse_edge_match(struct rule *r, const json_t *m, struct api_error *e)
{
    int64_t port;
    const char *subdomain = json_string_value(json_object_get(m, "subdomain"));
    if (get_int(m, "port", 0, &port, e))
        return -1;
    if (port > 65535)
        return api_invalid(e, "`match.port` should be <= 65535.");
    r->port = (int)port;
    r->edge = port || subdomain || json_is_true(json_object_get(m, "edge"));
    if (subdomain && !(r->subdomain = strdup(subdomain)))
        return api_fail(e, 500, "internal_server_error", "no memory");
    return 0;
}

static int parse_match(struct rule *r, const json_t *m, struct api_error *e)
{
    static const char *const members[] = {"method", "path", "prefix",    "path_regex",
                                          "edge",   "port", "subdomain", NULL};
    if (!m)
        return 0;
    if (only(m, "match", members, e))
        return -1;
    const char *method = json_string_value(json_object_get(m, "method"));
    const char *prefix = json_string_value(json_object_get(m, "prefix"));
    const char *path = json_string_value(json_object_get(m, "path"));
    const char *regex = json_string_value(json_object_get(m, "path_regex"));
    if (!regex)
        regex = path; /* a plain path is a regular expression that matches itself */
    if (regex) {
        if (regcomp(&r->regex, regex, REG_EXTENDED | REG_NOSUB))
            return api_invalid(e, "`match.path` should be an extended regular expression.");
        r->has_regex = true;
    }
    if (parse_edge_match(r, m, e))
        return -1;
    if ((method && !(r->method = strdup(method))) || (prefix && !(r->prefix = strdup(prefix))))
        return api_fail(e, 500, "internal_server_error", "no memory");
    return 0;
}

static struct rule *parse_rule(json_t *v, struct api_error *e)
{
    static const char *const members[] = {"match", "nth", "times", "action", NULL};
    struct rule *r = calloc(1, sizeof *r);
    if (!r) {
        api_fail(e, 500, "internal_server_error", "no memory");
        return NULL;
    }
    r->json = json_deep_copy(v);
    if (!r->json || only(r->json, "rule", members, e) ||
        parse_match(r, json_object_get(r->json, "match"), e) ||
        (r->edge && check_edge_action(json_object_get(r->json, "action"), e)) ||
        parse_action(json_object_get(r->json, "action"), &r->action, e) ||
        get_int(r->json, "nth", 0, &r->nth, e) || get_int(r->json, "times", -1, &r->times, e)) {
        rule_free(r);
        return NULL;
    }
    if (r->nth && r->times < 0)
        r->times = 1; /* "the second one" means that one */
    if (!r->nth)
        r->nth = 1;
    return r;
}

int faults_add(struct faults *f, const json_t *list, struct api_error *e)
{
    struct rule *head = NULL, **tail = &head;
    const json_t *inner = json_object_get(list, "rules");
    if (inner)
        list = inner;
    size_t n = json_is_array(list) ? json_array_size(list) : 1;
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_is_array(list) ? json_array_get(list, i) : (json_t *)(uintptr_t)list;
        *tail = parse_rule(v, e);
        if (!*tail) {
            free_list(head);
            return -1;
        }
        tail = &(*tail)->next;
    }
    pthread_mutex_lock(&f->lock);
    bool full = f->n + n > RULES_MAX;
    if (!full) {
        struct rule **p = &f->first;
        while (*p)
            p = &(*p)->next;
        *p = head;
        f->n += n;
    }
    pthread_mutex_unlock(&f->lock);
    if (!full)
        return 0;
    free_list(head);
    return api_invalid(e, "there should NOT be more than %d rules.", RULES_MAX);
}

json_t *faults_list(struct faults *f)
{
    json_t *a = json_array();
    pthread_mutex_lock(&f->lock);
    for (struct rule *r = f->first; r; r = r->next) {
        json_t *o = json_deep_copy(r->json);
        json_object_set_new(o, "matched", json_integer(r->matched));
        json_object_set_new(o, "fired", json_integer(r->fired));
        json_array_append_new(a, o);
    }
    pthread_mutex_unlock(&f->lock);
    return a;
}

static bool applies(const struct rule *r, const char *method, const char *path)
{
    return (!r->method || !strcmp(r->method, method)) &&
           (!r->prefix || !strncmp(path, r->prefix, strlen(r->prefix))) &&
           (!r->has_regex || !regexec(&r->regex, path, 0, NULL, 0));
}

static bool applies_at_edge(const struct rule *r, const char *subdomain, int port)
{
    return subdomain ? r->edge && (!r->port || r->port == port) &&
                           (!r->subdomain || !strcmp(r->subdomain, subdomain))
                     : !r->edge;
}

/* With f->lock: what was matched outlives its rule and shares nothing with it, since the counts of the JSON
 * library are no business of two threads. */
static void take_action(const struct rule *r, struct fault_action *out)
{
    *out = r->action;
    out->own = json_deep_copy(json_object_get(r->json, "action")); /* without memory: a bare answer */
    const char *type = json_string_value(json_object_get(out->own, "content_type"));
    out->type = type ? type : out->html ? "text/html; charset=utf-8" : "application/json; charset=utf-8";
    out->evict_id = json_string_value(json_object_get(out->own, "evict_snapshot"));
}

bool faults_match(struct faults *f, const char *method, const char *path, struct fault_action *out)
{
    return faults_match_edge(f, NULL, 0, method, path, out);
}

bool faults_match_edge(struct faults *f, const char *subdomain, int port, const char *method,
                       const char *path, struct fault_action *out)
{
    bool hit = false;
    pthread_mutex_lock(&f->lock);
    for (struct rule *r = f->first; r; r = r->next) {
        if (!applies_at_edge(r, subdomain, port) || !applies(r, method, path))
            continue;
        r->matched++;
        if (hit || r->matched < r->nth || (r->times >= 0 && r->fired >= r->times))
            continue;
        r->fired++;
        take_action(r, out);
        hit = true;
    }
    pthread_mutex_unlock(&f->lock);
    return hit;
}

void fault_action_free(struct fault_action *a)
{
    json_decref(a->own);
    memset(a, 0, sizeof *a);
}
