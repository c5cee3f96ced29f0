// SPDX-License-Identifier: Apache-2.0
/* front_state.h -- what a server knows of listeners, names, proxies and pages: see front.h. */
#ifndef HTTP_FRONT_STATE_H
#define HTTP_FRONT_STATE_H

#include "base/options.h"
#include "http/forwarded.h"

#include <stdbool.h>

/* Who made a request, as its Origin says. */
enum front_page {
    FRONT_NO_PAGE, /* there is none */
    FRONT_SAME,    /* a page of the origin that is asked */
    FRONT_FRIEND,  /* of public-url, or of this machine where that will do: it reads answers */
    FRONT_LISTED,  /* the same, and with its user's cookie */
    FRONT_ANY,     /* of any other: `*` is configured. No cookie of it counts */
    FRONT_FOREIGN, /* it reads no answer */
};

#define FRONT_HOST_MAX 64

/* Zero-initialised: an open server that only this machine can reach. */
struct front {
    bool guarded;     /* something says who may do what */
    bool open;        /* nothing does, and that is meant: `access = open` */
    bool exposed;     /* other machines can reach it */
    bool admin_apart; /* there is a listener for RULE_ADMIN alone */
    bool local_proxy; /* whoever comes over a Unix socket is a proxy whose word counts */
    struct forwarded_proxies proxies;  /* nets owned */
    const struct option_list *origins; /* of allow-origin; NULL: none */
    char host[FRONT_HOST_MAX];         /* the last that was found to be ours: most ask by it */
    uint8_t host_n;
};

#endif
