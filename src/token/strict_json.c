// SPDX-License-Identifier: Apache-2.0
#include "token/strict_json.h"
#include "base/json.h"
#include "base/json_view.h"

/* The depth is known before jansson, which calls itself for every bracket, sees the text. */
json_t *strict_json_object(struct str text)
{
    size_t at;
    if (json_check(text, &at) != 0 || view_depth(text) > STRICT_JSON_DEPTH_MAX)
        return NULL;
    json_t *v = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return NULL;
}

struct str strict_json_text(const json_t *v)
{
    return json_is_string(v) ? str_of(json_string_value(v), json_string_length(v)) : STR_NONE;
}
