// SPDX-License-Identifier: Apache-2.0
#include "store/content.h"
#include "base/ascii.h"

static struct str media_type(struct str content_type)
{
    return str_trim(str_cut(&content_type, ';'));
}

enum content_kind content_kind(struct str content_type)
{
    struct str type = media_type(content_type);
    if (str_eq_nocase(type, STR("application/json")))
        return CONTENT_JSON;
    if (type.n >= 5 && str_eq_nocase(str_of(type.p, 5), STR("text/")))
        return CONTENT_TEXT;
    return CONTENT_BINARY;
}

bool content_same(struct str a, struct str b)
{
    return str_eq(a, b) || str_eq_nocase(media_type(a), media_type(b));
}

bool content_valid(struct str content_type)
{
    if (content_type.n > CONTENT_TYPE_MAX)
        return false;
    for (size_t i = 0; i < content_type.n; i++)
        if (content_type.p[i] < 0x20 || content_type.p[i] > 0x7e)
            return false;
    struct str subtype = media_type(content_type);
    struct str type = str_cut(&subtype, '/');
    return ascii_is_token(type) && ascii_is_token(subtype);
}
