// SPDX-License-Identifier: Apache-2.0
/* url.h -- percent-encoding, queries, and absolute http(s) URLs. Lengths rule, never NULs. */
#ifndef HTTP_URL_H
#define HTTP_URL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

/* Decodes %XX (and `+` as a space if form is true). A broken escape is ERR_SYNTAX. The result may
 * contain any byte, NUL included; without escapes it is s itself, otherwise it lives in a. */
int url_decode(struct arena *a, struct str s, bool form, struct str *out);

/* Percent-encodes all but unreserved characters (and `/` if keep_slash). */
void url_encode(struct buf *out, struct str s, bool keep_slash);

/* Looks up a parameter in a raw query (`a=1&b=2`): 1 found once (decoded into *value), 0 absent,
 * ERR_SYNTAX when it is broken or given more than once. Keys are compared after decoding; one that
 * cannot be decoded matches none. Without `=` the value is empty. */
int url_query(struct arena *a, struct str query, struct str key, struct str *value);

/* scheme://host[:port][/path][?query]; no user info, no fragment, nothing but printable ASCII.
 * Slices of text. scheme: http or https in any case. host: a name of letters, digits, `-`, `.` and
 * `_`, an IPv4 address, or an IPv6 address without its brackets. port: 80 or 443 if not given,
 * never 0. path: still encoded, maybe empty. query: still encoded, p == NULL when there was no `?`.
 * 0 or ERR_SYNTAX. */
struct url {
    struct str scheme, host, path, query;
    uint16_t port;
};
int url_parse(struct str text, struct url *out);

#endif
