/* What names sandboxes may have. */
#include "control/create_spec.h"
#include "control/fields.h"
#include "control/sandboxes.h"

#include <string.h>

/* Words that the upstream's paths give another meaning. */
static bool reserved_name(const char *s)
{
    return !strcmp(s, "sessions") || !strcmp(s, "snapshots") || !strcmp(s, "drives");
}

enum sg_code control_name_for_create(const char *name, struct sg_error *e)
{
    if (!field_is_name(name, CREATE_NAME_MAX) || name[0] == '_' || name[0] == '-')
        return sg_fail_field(
            e, SG_E_INVALID_FIELD, "/name",
            "a name is 1 to 63 letters, digits, '_' or '-', beginning with a letter or digit");
    if (reserved_name(name))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/name", "this name cannot be addressed upstream");
    return SG_OK;
}

enum sg_code control_name_for_lookup(const char *name, struct sg_error *e)
{
    if (!field_is_name(name, 128) || reserved_name(name))
        return sg_fail(e, SG_E_SANDBOX_NOT_FOUND, SG_NOT_SENT, "no sandbox can have this name");
    return SG_OK;
}
