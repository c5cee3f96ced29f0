// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_keys.h"
#include "base/ascii.h"

static const struct {
    struct str prefix;
    enum cascade_key_kind kind;
} kinds[] = {
    {STR_INIT("sk-ws-01-"), CASCADE_KEY_WINDSURF},
    {STR_INIT("devin-session-token$"), CASCADE_KEY_DEVIN},
    {STR_INIT("cog_"), CASCADE_KEY_TEAM},
};

enum cascade_key_kind cascade_key_kind(struct str key)
{
    if (key.n > CASCADE_KEY_MAX || !ascii_is_visible(key))
        return CASCADE_KEY_MALFORMED;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_starts(key, kinds[i].prefix))
            return key.n > kinds[i].prefix.n ? kinds[i].kind : CASCADE_KEY_MALFORMED;
    return CASCADE_KEY_LEGACY;
}

const char *cascade_key_refusal(enum cascade_key_kind kind)
{
    switch (kind) {
    case CASCADE_KEY_MALFORMED:
        return "the API key is malformed; it begins with sk-ws-01-, devin-session-token$ or cog_";
    case CASCADE_KEY_LEGACY:
        return "the API key is of an old kind that servers no longer take; start Windsurf once and "
               "sign in, and it will be exchanged for a new one";
    default: return NULL;
    }
}

bool cascade_csrf_valid(struct str token)
{
    for (size_t i = 0; i < token.n; i++) {
        char c = token.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-'))
            return false;
    }
    return token.n == CASCADE_CSRF_LEN;
}
