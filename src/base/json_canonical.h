// SPDX-License-Identifier: Apache-2.0
/* json_canonical.h -- the one spelling of a JSON value (RFC 8785, JCS), to be hashed or compared.
 *
 * No white space; members in the order of their names' UTF-16 code units; strings with the fewest
 * escapes; numbers as ECMAScript prints the double that is nearest to them. So 1.0, 1e0 and 1 are
 * the same, and so are integers above 2^53 that share a double.
 *
 * Takes time and memory in proportion to the text, but for the sorting: about 20 ms for the longest
 * text, up to ten times that if it is nothing but numbers of 17 digits, or so near to zero that a
 * double loses bits. */
#ifndef BASE_JSON_CANONICAL_H
#define BASE_JSON_CANONICAL_H

#include "base/buf.h"
#include "base/jcs.h"
#include "base/str.h"

#define JSON_CANONICAL_MAX JCS_MAX

/* Appends the canonical form of the JSON text. A member `without` of the outermost object is left
 * out, as if it were not there; STR_NONE: none is. ERR_TOO_LARGE, or ERR_JSON: not JSON
 * (json_check, which bounds the nesting too), a name that comes twice in one object, half a
 * surrogate pair, a number beyond a double's range. *out is as it was then. */
int json_canonical(struct str text, struct str without, struct buf *out);

#endif
