// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/upstream_url.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/http_url.h"
#include "http/path_pattern.h"

#include <stdio.h>

static bool route_has(struct str pattern, struct str wanted)
{
    struct str before, name;
    while (path_pattern_next(&pattern, &before, &name))
        if (str_eq(name, wanted))
            return true;
    return false;
}

int upstream_url_check(const struct upstream_place *p, char *reason, size_t size)
{
    struct url url;
    struct str before, name;
    if (url_parse(p->upstream, &url) != 0)
        return ERR_SYNTAX;
    if (url.query.n > 0 && memchr(url.query.p, '{', url.query.n) != NULL) {
        snprintf(reason, size, "a parameter stands in the path of the upstream, not in its query");
        return ERR_SYNTAX;
    }
    if (path_pattern_check(url.path, reason, size) != 0)
        return ERR_SYNTAX;
    for (struct str rest = url.path; path_pattern_next(&rest, &before, &name);)
        if (!route_has(p->path, name)) {
            snprintf(reason, size, "the route's path has no parameter {%.*s}", (int)name.n, name.p);
            return ERR_SYNTAX;
        }
    return 0;
}

static void put_filled(struct buf *out, const struct upstream_place *p, struct str text,
                       struct str path)
{
    struct str before, name, value;
    while (path_pattern_next(&text, &before, &name)) {
        buf_put(out, before);
        if (path_pattern_value(p->path, path, name, &value))
            buf_put(out, value);
    }
    buf_put(out, before);
}

static void put_path(struct buf *out, const struct upstream_place *p, struct str own,
                     struct str path)
{
    struct str rest = str_skip(path, path_pattern_covers(p->path, path));
    if (p->prefix && own.n == 0) {
        buf_put(out, path);
        return;
    }
    if (p->prefix && rest.n > 0 && str_ends(own, STR("/")))
        own.n--;
    put_filled(out, p, own, path);
    if (p->prefix)
        buf_put(out, rest);
}

static void put_query(struct buf *out, struct str own, struct str query)
{
    if (own.p == NULL && query.p == NULL)
        return;
    buf_putc(out, '?');
    buf_put(out, own);
    if (own.n > 0 && query.n > 0)
        buf_putc(out, '&');
    buf_put(out, query);
}

struct str upstream_url(struct arena *a, const struct upstream_place *p, struct str path,
                        struct str query)
{
    struct buf out = {0};
    struct url url;
    if (url_parse(p->upstream, &url) != 0) /* it was checked */
        return STR_NONE;
    size_t origin = url.path.n > 0        ? (size_t)(url.path.p - p->upstream.p)
                    : url.query.p != NULL ? (size_t)(url.query.p - 1 - p->upstream.p)
                                          : p->upstream.n;
    buf_put(&out, str_of(p->upstream.p, origin));
    put_path(&out, p, url.path, path);
    put_query(&out, url.query, query);
    struct str text = arena_dup(a, buf_str(&out));
    buf_deinit(&out);
    return text;
}
