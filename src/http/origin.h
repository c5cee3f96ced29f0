// SPDX-License-Identifier: Apache-2.0
/* origin.h -- whether a request is meant for this server, or a page of somebody else makes it.
 *
 * Two things can go wrong when a browser on this machine, or in its network, is led to us. A page
 * of another site asks us: its browser says so in Origin. Or the site has its own name point to our
 * address (DNS rebinding): then we are of the page's origin, and only Host tells. An address is
 * nobody's to point elsewhere, and neither is `localhost`; every other name must be configured. */
#ifndef HTTP_ORIGIN_H
#define HTTP_ORIGIN_H

#include "base/options.h"
#include "base/str.h"

#include <stdbool.h>

struct exchange;

/* Whose pages may ask. */
enum origin_pages {
    ORIGIN_OWN,   /* those that came from where they ask, and those of public-url */
    ORIGIN_LOCAL, /* and those of every server on this machine */
};

enum origin_verdict {
    ORIGIN_FINE,
    ORIGIN_WRONG_HOST,   /* 421 */
    ORIGIN_FOREIGN_PAGE, /* 403 */
};

/* allowed: origins whose pages may ask, too; NULL: none. */
enum origin_verdict origin_check(const struct exchange *x, enum origin_pages pages,
                                 const struct option_list *allowed);

/* What to tell whose name was wrong. */
#define ORIGIN_WRONG_HOST_TEXT                                                                     \
    "this server does not know itself by the name in Host; use an IP address or localhost, or "    \
    "name "                                                                                        \
    "it with public-url or allow-host"

/* False: refused, and answered in the common form. */
bool origin_admit(struct exchange *x, enum origin_pages pages);

/* What pages of other sites may read and ask (CORS). */
struct origin_share {
    struct str exposed; /* headers of answers; n == 0: only those that every page may read */
    struct str methods;
    struct str headers; /* of requests; n == 0: those that the page asks for */
    struct str keep_s;  /* how long a browser may remember the answer to a preflight */
};

/* Puts into the answer who may read it: every page ("*"), or those of one origin. */
void origin_share(struct exchange *x, struct str origin, const struct origin_share *s);

/* Answers a preflight, an OPTIONS; origin_share comes before. */
void origin_preflight(struct exchange *x, const struct origin_share *s);

/* An origin of this machine: `localhost` or a loopback address, whatever the port. `null`, as of a
 * file or a sandbox, is nobody's. */
bool origin_is_local(struct str origin);

/* Is it the one in a list of them? */
bool origin_in(struct str origin, const struct option_list *list);

/* The host of a URL that is configured; NULL or none: STR_NONE. */
struct str origin_host_of(const char *url);

#endif
