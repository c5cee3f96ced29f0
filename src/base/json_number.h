// SPDX-License-Identifier: Apache-2.0
/* json_number.h -- a JSON number as ECMAScript prints the double that is nearest to it: with the
 * fewest digits that mean this double, and an exponent from 1e21 up and below 1e-6. No locale has a
 * say in it. Nothing is allocated, and nothing aborts: libtidemark has it, too. */
#ifndef BASE_JSON_NUMBER_H
#define BASE_JSON_NUMBER_H

#include "base/str.h"

#define JSON_NUMBER_MAX 32 /* characters */

/* text begins with a valid JSON number; *taken is its length. Returns how many characters were
 * written; 0: a double cannot be that large. */
size_t json_number_canonical(struct str text, size_t *taken, char out[JSON_NUMBER_MAX]);

#endif
