// SPDX-License-Identifier: Apache-2.0
/* http_url.h -- absolute http(s) URLs, for the server and for the client library. */
#ifndef BASE_HTTP_URL_H
#define BASE_HTTP_URL_H

#include "base/str.h"

#include <stdint.h>

#define URL_HOST_MAX 253 /* of a name in the DNS */

/* scheme://host[:port][/path][?query]; no user info, no fragment, nothing but printable ASCII.
 * Slices of text. scheme: http or https in any case. host: a name of letters, digits, `-`, `.` and
 * `_`, an IPv4 address, or an IPv6 address without its brackets. port: 80 or 443 if not given,
 * never 0. path: still encoded, maybe empty. query: still encoded, p == NULL when there was no `?`.
 * 0 or ERR_SYNTAX. */
struct url {
    struct str scheme, host, path, query;
    struct str port_text; /* as it was given; n == 0: it was not */
    uint16_t port;
    bool tls, v6; /* https; an address that stands in brackets */
};
int url_parse(struct str text, struct url *out);

#endif
