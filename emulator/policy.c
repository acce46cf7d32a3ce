#include "emulator/policy.h"

#include <stdlib.h>
#include <string.h>

static int strings(const json_t *v, const char *what, struct api_error *e)
{
    size_t i;
    json_t *x;
    if (!json_is_array(v))
        return api_invalid(e, "`networkPolicy.%s` should be an array of strings.", what);
    json_array_foreach((json_t *)(uintptr_t)v, i, x)
    {
        if (!json_is_string(x))
            return api_invalid(e, "`networkPolicy.%s[%zu]` should be string.", what, i);
    }
    return 0;
}

static json_t *keys_of(const json_t *obj)
{
    json_t *a = json_array();
    const char *k;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)obj, k, v)
    {
        json_array_append_new(a, json_string(k));
    }
    return a;
}

/* One rule of one domain; values of headers are never told again. */
static int add_rule(json_t *injection, json_t *forward, const char *domain, const json_t *rule,
                    struct api_error *e)
{
    if (!json_is_object(rule))
        return api_invalid(e, "`networkPolicy.allow['%s']` should have objects.", domain);
    const json_t *transform = json_object_get(rule, "transform"), *url = json_object_get(rule, "forwardURL"),
                 *response = json_object_get(rule, "response");
    if (!transform + !url + !response != 2)
        return api_invalid(e, "a rule of '%s' should have exactly one of transform, forwardURL and response.",
                           domain);
    json_t *entry = json_pack("{s:s}", "domain", domain);
    json_t *match = json_object_get(rule, "match");
    if (match)
        json_object_set(entry, "match", match);
    if (transform) {
        json_t *names = json_array(), *t;
        size_t i;
        json_array_foreach((json_t *)(uintptr_t)transform, i, t)
        {
            json_t *more = keys_of(json_object_get(t, "headers"));
            json_array_extend(names, more);
            json_decref(more);
        }
        json_object_set_new(entry, "headerNames", names);
        json_array_append(injection, entry);
    } else if (url) {
        json_object_set(entry, "forwardURL", (json_t *)(uintptr_t)url);
        json_array_append(forward, entry);
    }
    json_decref(entry);
    return json_is_string(url) || !url ? 0 : api_invalid(e, "`forwardURL` should be string.");
}

static int add_domains(json_t *out, const json_t *allow, struct api_error *e)
{
    if (json_is_array(allow)) {
        if (strings(allow, "allow", e))
            return -1;
        json_object_set(out, "allowedDomains", (json_t *)(uintptr_t)allow);
        return 0;
    }
    if (!json_is_object(allow))
        return api_invalid(e, "`networkPolicy.allow` should be array or object.");
    json_object_set_new(out, "allowedDomains", keys_of(allow));
    json_t *injection = json_array(), *forward = json_array(), *rules, *rule;
    const char *domain;
    size_t i;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)allow, domain, rules)
    {
        if (!json_is_array(rules))
            rc = api_invalid(e, "`networkPolicy.allow['%s']` should be array.", domain);
        json_array_foreach(rules, i, rule)
        {
            if (!rc)
                rc = add_rule(injection, forward, domain, rule, e);
        }
    }
    if (json_array_size(injection))
        json_object_set(out, "injectionRules", injection);
    if (json_array_size(forward))
        json_object_set(out, "forwardRules", forward);
    json_decref(injection);
    json_decref(forward);
    return rc;
}

static int add_subnets(json_t *out, const json_t *subnets, struct api_error *e)
{
    static const char *const names[][2] = {{"allow", "allowedCIDRs"}, {"deny", "deniedCIDRs"}};
    if (!json_is_object(subnets))
        return api_invalid(e, "`networkPolicy.subnets` should be object.");
    for (int i = 0; i < 2; i++) {
        json_t *list = json_object_get(subnets, names[i][0]);
        if (!list)
            continue;
        if (strings(list, names[i][0], e))
            return -1;
        json_object_set(out, names[i][1], list);
    }
    return 0;
}

/* The older form, which is near the response form already. */
static int add_legacy(json_t *out, const json_t *policy, struct api_error *e)
{
    static const char *const lists[] = {"allowedDomains", "allowedCIDRs", "deniedCIDRs"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = json_object_get(policy, lists[i]);
        if (!list)
            continue;
        if (strings(list, lists[i], e))
            return -1;
        json_object_set(out, lists[i], list);
    }
    json_t *rules = json_object_get(policy, "injectionRules"), *told, *r;
    size_t i;
    if (!rules)
        return 0;
    told = json_array();
    json_array_foreach(rules, i, r)
    {
        json_t *entry = json_object(), *domain = json_object_get(r, "domain"),
               *match = json_object_get(r, "match");
        json_object_set_new(entry, "domain", json_is_string(domain) ? json_incref(domain) : json_string(""));
        json_object_set_new(entry, "headerNames", keys_of(json_object_get(r, "headers")));
        if (match)
            json_object_set(entry, "match", match);
        json_array_append_new(told, entry);
    }
    json_object_set_new(out, "injectionRules", told);
    return 0;
}

static int convert(const json_t *policy, json_t *out, struct api_error *e)
{
    const char *mode = json_string_value(json_object_get(policy, "mode"));
    if (mode && (!strcmp(mode, "allow-all") || !strcmp(mode, "deny-all")))
        return json_object_set_new(out, "mode", json_string(mode));
    if (json_object_get(policy, "mode") && (!mode || strcmp(mode, "custom") != 0))
        return api_invalid(e, "`networkPolicy.mode` should be equal to one of the allowed values "
                              "\"allow-all, deny-all, custom\".");
    json_object_set_new(out, "mode", json_string("custom"));
    const json_t *allow = json_object_get(policy, "allow"), *subnets = json_object_get(policy, "subnets");
    if (allow && add_domains(out, allow, e))
        return -1;
    if (subnets && add_subnets(out, subnets, e))
        return -1;
    return mode ? add_legacy(out, policy, e) : 0;
}

int policy_response(const json_t *policy, bool record_only, char **text, struct api_error *e)
{
    *text = NULL;
    if (policy && !json_is_object(policy))
        return api_invalid(e, "`networkPolicy` should be object.");
    const char *mode = policy ? json_string_value(json_object_get(policy, "mode")) : "allow-all";
    bool open = mode && !strcmp(mode, "allow-all");
    if (!open && !record_only)
        return api_fail(
            e, 400, "bad_request",
            "This emulator does not enforce network policies yet and therefore takes only "
            "allow-all; start it with --policy=record-only to have them recorded without effect.");
    json_t *out = json_object();
    int rc = open ? json_object_set_new(out, "mode", json_string("allow-all")) : convert(policy, out, e);
    if (!rc) {
        *text = json_dumps(out, JSON_COMPACT);
        if (!*text)
            rc = api_fail(e, 500, "internal_server_error", "no memory");
    }
    json_decref(out);
    return rc;
}
