// SPDX-License-Identifier: Apache-2.0
/* origin.h -- names of this server, and whose pages ask: what front.h decides by.
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

struct http_names;

/* Is a Host meant for us? None at all, as in HTTP/1.0, is no browser's. */
bool origin_is_our_host(const struct http_names *names, struct str host);

/* A page that came from where it asks: its origin is that of a request with this Host. */
bool origin_is_same(struct str origin, struct str host, bool secure);

/* An origin of public-url's host. */
bool origin_is_public(const struct http_names *names, struct str origin);

/* An origin of this machine: `localhost` or a loopback address, whatever the port. `null`, as of a
 * file or a sandbox, is nobody's. */
bool origin_is_local(struct str origin);

/* Is it the one in a list of them? */
bool origin_in(struct str origin, const struct option_list *list);

/* For the table of settings: an origin as browsers send it, or `*`. */
int origin_check_setting(struct str value, char *reason, size_t size);

/* The host of a URL that is configured; NULL or none: STR_NONE. */
struct str origin_host_of(const char *url);

#endif
