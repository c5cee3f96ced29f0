// SPDX-License-Identifier: Apache-2.0
/* What json_view.h puts into buffers and arenas. The client library does without. */
#include "base/json_view.h"
#include "base/arena.h"

void view_decode(struct str inside, struct buf *out)
{
    while (inside.n > 0) {
        const char *slash = memchr(inside.p, '\\', inside.n);
        size_t n = slash != NULL ? (size_t)(slash - inside.p) : inside.n;
        buf_put(out, str_of(inside.p, n));
        inside = str_skip(inside, n);
        if (inside.n > 0)
            out->n += view_unescape(&inside, buf_reserve(out, 4));
    }
}

struct str view_text(struct arena *a, struct str value)
{
    struct str inside = view_inside(value);
    size_t n;
    if (inside.n == 0)
        return STR("");
    char *text = arena_alloc(a, inside.n);
    view_decode_to(inside, text, &n);
    return str_of(text, n);
}

void view_put_unbroken(struct buf *out, struct str value)
{
    char *to = buf_reserve(out, value.n);
    size_t n = 0;
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] != '\n' && value.p[i] != '\r')
            to[n++] = value.p[i];
    out->n += n;
}
