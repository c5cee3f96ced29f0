// SPDX-License-Identifier: Apache-2.0
/* share.h -- with whom an answer is shared: pages of other origins, and caches on the way.
 *
 * Pure; front.h has found out who asks. */
#ifndef HTTP_SHARE_H
#define HTTP_SHARE_H

#include "http/front_state.h"
#include "http/message.h"

struct surface_share;

struct share_ask {
    const struct front *front;
    const struct surface_share *share; /* of the surface; NULL: it shares nothing */
    const char *origin;                /* whose page may read it; NULL: as page says */
    enum front_page page;
    bool reads;  /* it was asked for by a GET or a HEAD */
    bool public; /* there is a public-url, whose pages are friends */
};

/* The headers that say so; kept by reference as origin is. */
#define SHARE_HEADERS_MAX 6
size_t share_headers(const struct share_ask *a, struct header out[SHARE_HEADERS_MAX]);

/* `*` is among allow-origin. */
bool share_allows_any(const struct front *f);
/* Pages of this machine are friends. */
bool share_befriends_local(const struct front *f);

#endif
