// SPDX-License-Identifier: Apache-2.0
/* url.h -- percent-encoding and queries; base/http_url.h has absolute URLs. Lengths rule, never
 * NULs. */
#ifndef HTTP_URL_H
#define HTTP_URL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/http_url.h"
#include "base/str.h"

#include <stdint.h>

/* Decodes %XX (and `+` as a space if form is true). A broken escape is ERR_SYNTAX. The result may
 * contain any byte, NUL included; without escapes it is s itself, otherwise it lives in a. */
int url_decode_escapes(struct arena *a, struct str s, bool form, struct str *out);
static inline int url_decode(struct arena *a, struct str s, bool form, struct str *out)
{
    if (s.n > 0 && (memchr(s.p, '%', s.n) != NULL || (form && memchr(s.p, '+', s.n) != NULL)))
        return url_decode_escapes(a, s, form, out);
    *out = s;
    return 0;
}

/* Percent-encodes all but unreserved characters (and `/` if keep_slash). */
void url_encode(struct buf *out, struct str s, bool keep_slash);

/* Looks up a parameter in a raw query (`a=1&b=2`): 1 found once (decoded into *value), 0 absent,
 * ERR_SYNTAX when it is broken or given more than once. Keys are compared after decoding; one that
 * cannot be decoded matches none. Without `=` the value is empty. */
int url_query(struct arena *a, struct str query, struct str key, struct str *value);

#endif
