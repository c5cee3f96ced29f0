// SPDX-License-Identifier: Apache-2.0
/* json_number.h -- a JSON number as ECMAScript prints the double that is nearest to it: with the
 * fewest digits that mean this double, and an exponent from 1e21 up and below 1e-6. No locale has a
 * say in it. */
#ifndef BASE_JSON_NUMBER_H
#define BASE_JSON_NUMBER_H

#include "base/buf.h"
#include "base/str.h"

/* text begins with a valid JSON number; *taken is its length. Appends it, or ERR_JSON and *out as
 * it was: a double cannot be that large. */
int json_number_canonical(struct str text, size_t *taken, struct buf *out);

#endif
