// SPDX-License-Identifier: Apache-2.0
/* strict_json.h -- JSON that strangers sign or publish: parts of tokens, and keys.
 *
 * Everybody who reads it must see the same. So an object is refused that has a name twice, however
 * it is spelled, and so is a NUL in a string. The caller bounds the size. */
#ifndef TOKEN_STRICT_JSON_H
#define TOKEN_STRICT_JSON_H

#include "base/str.h"

#include <jansson.h>

#define STRICT_JSON_DEPTH_MAX 8 /* brackets in each other */

/* The object that the text is; the caller's to decref. NULL: it is none, or not as above. */
json_t *strict_json_object(struct str text);

/* The string, as long as the value lives; p == NULL if it is none, or v is NULL. */
struct str strict_json_text(const json_t *v);

#endif
