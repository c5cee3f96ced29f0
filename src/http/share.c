// SPDX-License-Identifier: Apache-2.0
#include "http/share.h"
#include "http/origin.h"
#include "http/surface.h"

bool share_allows_any(const struct front *f)
{
    return f->origins != NULL && f->origins->n > 0 && origin_in(STR("*"), f->origins);
}

bool share_befriends_local(const struct front *f)
{
    return !f->guarded && !f->exposed;
}

/* Whose pages may read the answer; n == 0: no other's than our own. */
static struct str shared_with(const struct share_ask *a)
{
    if (a->share == NULL)
        return STR_NONE;
    if (a->origin != NULL)
        return str_of_cstr(a->origin);
    /* A cache may give what one got who is no page to a page, later. */
    bool any = a->page == FRONT_ANY ||
               (a->page == FRONT_NO_PAGE && a->reads && share_allows_any(a->front));
    return any ? STR("*") : STR_NONE;
}

static bool depends_on_origin(const struct share_ask *a)
{
    const struct front *f = a->front;
    size_t listed = f->origins != NULL ? f->origins->n : 0;
    return a->share != NULL &&
           (share_befriends_local(f) || a->public || listed > (share_allows_any(f) ? 1 : 0));
}

size_t share_headers(const struct share_ask *a, struct header out[SHARE_HEADERS_MAX])
{
    struct str with = shared_with(a);
    bool varies = a->reads || a->page != FRONT_NO_PAGE;
    size_t n = 0;
    if (with.n > 0)
        out[n++] = (struct header){STR("Access-Control-Allow-Origin"), with};
    if (with.n > 0 && a->page == FRONT_LISTED)
        out[n++] = (struct header){STR("Access-Control-Allow-Credentials"), STR("true")};
    if (with.n > 0 && a->share->exposed.n > 0)
        out[n++] = (struct header){STR("Access-Control-Expose-Headers"), a->share->exposed};
    if (varies && a->front->guarded)
        out[n++] = (struct header){STR("Vary"), STR("Authorization, Cookie, Origin, "
                                                    "Tidemark-Authorization")};
    else if (varies && depends_on_origin(a))
        out[n++] = (struct header){STR("Vary"), STR("Origin")};
    if (a->front->guarded) {
        out[n++] = (struct header){STR("Cross-Origin-Resource-Policy"),
                                   with.n > 0 ? STR("cross-origin") : STR("same-origin")};
        out[n++] = (struct header){STR("Referrer-Policy"), STR("no-referrer")};
    }
    return n;
}
