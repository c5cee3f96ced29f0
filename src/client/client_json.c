// SPDX-License-Identifier: Apache-2.0
#include "client/client_json.h"
#include "base/json.h"
#include "base/json_view.h"

bool json_valid(struct str text)
{
    size_t at;
    return json_check(text, &at) == 0;
}

/* What stands between the brackets, if the text is valid and of this type. */
static bool enter(struct str text, enum view_type type, struct str *inside)
{
    if (!json_valid(text))
        return false;
    text = view_trim(text);
    if (view_type(text) != type)
        return false;
    *inside = view_inside(text);
    return true;
}

bool json_array_begin(struct json_array *a, struct str text)
{
    return enter(text, VIEW_ARRAY, &a->rest);
}

bool json_array_next(struct json_array *a, struct str *value)
{
    return view_element(&a->rest, value);
}

bool json_array_ended(struct json_array *a)
{
    a->rest = view_trim(a->rest);
    return a->rest.n == 0;
}

bool json_member(struct str object, struct str name, struct str *value)
{
    struct str rest, found;
    if (!enter(object, VIEW_OBJECT, &rest))
        return false;
    while (view_member(&rest, &found, value))
        if (str_eq(found, name))
            return true;
    return false;
}

bool json_member_is_true(struct str object, struct str name)
{
    struct str value;
    return json_member(object, name, &value) && str_eq(value, STR("true"));
}

/* The next character, escapes resolved; half a surrogate pair is U+FFFD. */
static size_t next_character(struct str *inside, char out[4])
{
    if (inside->p[0] == '\\') {
        size_t n = view_unescape(inside, out);
        if (view_is_half(out))
            memcpy(out, "\xef\xbf\xbd", 3);
        return n;
    }
    out[0] = inside->p[0];
    *inside = str_skip(*inside, 1);
    return 1;
}

bool json_member_text(struct str object, struct str name, char *out, size_t size)
{
    struct str value;
    size_t n = 0;
    out[0] = '\0';
    if (!json_member(object, name, &value) || view_type(value) != VIEW_STRING)
        return false;
    for (struct str inside = view_inside(value); inside.n > 0;) {
        char c[4] = {0};
        size_t more = next_character(&inside, c);
        if (more >= size - n || c[0] == '\0') {
            out[0] = '\0';
            return false;
        }
        memcpy(out + n, c, more);
        n += more;
    }
    out[n] = '\0';
    return true;
}
