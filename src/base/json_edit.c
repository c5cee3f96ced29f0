// SPDX-License-Identifier: Apache-2.0
#include "base/json_edit.h"
#include "base/json_view.h"
#include "base/must.h"

#include <stdint.h>

static const struct json_edit *find_edit(const struct json_edit *edits, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (view_name_is(name, edits[i].name))
            return &edits[i];
    return NULL;
}

/* Which of the edits have a member; *same: all of those are as they should be. */
static uint32_t find_members(struct str object, const struct json_edit *edits, size_t n, bool *same)
{
    struct str rest = view_inside(object), name, value;
    uint32_t there = 0;
    *same = true;
    while (view_member(&rest, &name, &value)) {
        const struct json_edit *e = find_edit(edits, n, name);
        if (e == NULL)
            continue;
        there |= UINT32_C(1) << (e - edits);
        *same = *same && (e->only_missing || str_eq(value, e->value));
    }
    return there;
}

static bool is_all_there(const struct json_edit *edits, size_t n, uint32_t there)
{
    for (size_t i = 0; i < n; i++)
        if (edits[i].value.n > 0 && (there & UINT32_C(1) << i) == 0)
            return false;
    return true;
}

static void json_edit_put_member(struct buf *out, char *before, struct str name, struct str value)
{
    buf_putc(out, *before);
    buf_putc(out, '"');
    buf_put(out, name);
    buf_put(out, STR("\":"));
    buf_put(out, value);
    *before = ',';
}

bool json_edit_put(struct buf *out, struct str object, const struct json_edit *edits, size_t n)
{
    struct str rest = view_inside(object), name, value;
    bool same;
    char before = '{';
    must(n <= JSON_EDITS_MAX);
    uint32_t there = find_members(object, edits, n, &same);
    if (same && is_all_there(edits, n, there)) {
        buf_put(out, object);
        return false;
    }
    while (view_member(&rest, &name, &value)) {
        const struct json_edit *e = find_edit(edits, n, name);
        if (e != NULL && !e->only_missing)
            value = e->value;
        if (value.n > 0)
            json_edit_put_member(out, &before, name, value);
    }
    for (size_t i = 0; i < n; i++)
        if (edits[i].value.n > 0 && (there & UINT32_C(1) << i) == 0)
            json_edit_put_member(out, &before, edits[i].name, edits[i].value);
    if (before == '{')
        buf_putc(out, '{');
    buf_putc(out, '}');
    return true;
}
