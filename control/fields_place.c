#include "control/fields.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const char *const regions[] = {"iad1", "sfo1", "cle1", "cdg1", "fra1", "arn1", "sin1",
                                      "pdx1", "lhr1", "icn1", "bom1", "cpt1", "dub1", "gru1",
                                      "hkg1", "syd1", "yul1", "hnd1", "kix1", NULL};

enum sg_code field_region(const json_t *body, json_t *out, struct sg_error *e)
{
    const char *region = NULL;
    enum sg_code rc = sg_json_str(body, "", "region", 16, &region, e);
    if (rc || !region)
        return rc;
    if (!field_listed(regions, region))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/region", "no such region");
    return field_put(out, "region", json_string(region), e);
}

static enum sg_code check_failover(const json_t *list, size_t i, const char *region, struct sg_error *e)
{
    const json_t *v = json_array_get(list, i);
    const char *name = json_string_value(v);
    char ptr[48];
    (void)snprintf(ptr, sizeof ptr, "/failover_regions/%zu", i);
    if (!name || field_has_nul(v) || !field_listed(regions, name))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "no such region");
    if (region && !strcmp(region, name))
        return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "is the region itself");
    for (size_t k = 0; k < i; k++)
        if (!strcmp(json_string_value(json_array_get(list, k)), name))
            return sg_fail_field(e, SG_E_INVALID_FIELD, ptr, "listed twice");
    return SG_OK;
}

enum sg_code field_failover_regions(const json_t *body, const char *region, json_t *out, struct sg_error *e)
{
    json_t *list = NULL;
    enum sg_code rc = sg_json_array(body, "", "failover_regions", &list, e);
    if (rc || !list)
        return rc;
    for (size_t i = 0; i < json_array_size(list) && !rc; i++)
        rc = check_failover(list, i, region, e);
    return rc ? rc : field_put(out, "failoverRegions", json_incref(list), e);
}

enum sg_code field_network_id(const json_t *body, json_t *out, struct sg_error *e)
{
    const char *id = NULL;
    enum sg_code rc = sg_json_str(body, "", "network_id", FIELD_NETWORK_ID_MAX, &id, e);
    if (rc || !id)
        return rc;
    for (const char *p = id; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return sg_fail_field(e, SG_E_INVALID_FIELD, "/network_id", "must be a network's id");
    if (!*id || field_has_nul(json_object_get(body, "network_id")))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/network_id", "must be a network's id");
    return field_put(out, "networkId", json_string(id), e);
}

enum sg_code field_network_policy(const json_t *body, json_t *out, struct sg_error *e)
{
    const json_t *policy = json_object_get(body, "network_policy");
    if (!policy)
        return SG_OK;
    const char *mode = json_string_value(policy);
    if (!mode)
        return sg_fail_field(e, SG_E_UNSUPPORTED, "/network_policy",
                             "only \"allow-all\" and \"deny-all\" are supported");
    if (strcmp(mode, "allow-all") != 0 && strcmp(mode, "deny-all") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/network_policy",
                             "must be \"allow-all\" or \"deny-all\"");
    return field_put(out, "networkPolicy", json_pack("{ss}", "mode", mode), e);
}
