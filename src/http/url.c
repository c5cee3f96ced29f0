// SPDX-License-Identifier: Apache-2.0
#include "http/url.h"
#include "base/err.h"
#include "base/hex.h"

int url_decode_escapes(struct arena *a, struct str s, bool form, struct str *out)
{
    char *decoded = arena_alloc(a, s.n);
    size_t n;
    if (!percent_decode(s, form, decoded, &n))
        return ERR_SYNTAX;
    *out = str_of(decoded, n);
    return 0;
}

void url_encode(struct buf *out, struct str s, bool keep_slash)
{
    out->n += percent_encode(s, keep_slash, buf_reserve(out, s.n * 3));
}

/* Is this encoded name the key? One that cannot be decoded is no name at all. */
static bool names(struct arena *a, struct str encoded, struct str key)
{
    struct str name;
    return url_decode(a, encoded, true, &name) == 0 && str_eq(name, key);
}

int url_query(struct arena *a, struct str query, struct str key, struct str *value)
{
    struct str found = STR_NONE;
    int times = 0;
    while (query.n > 0) {
        struct str encoded = str_cut(&query, '&');
        struct str name = str_cut(&encoded, '=');
        if (!names(a, name, key))
            continue;
        found = encoded;
        times++;
    }
    if (times > 1)
        return ERR_SYNTAX;
    if (times == 0)
        return 0;
    int err = url_decode(a, found, true, value);
    return err != 0 ? err : 1;
}
