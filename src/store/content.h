// SPDX-License-Identifier: Apache-2.0
/* content.h -- what a content type means for a stream. */
#ifndef STORE_CONTENT_H
#define STORE_CONTENT_H

#include "base/str.h"

enum content_kind {
    CONTENT_BINARY, /* opaque bytes */
    CONTENT_TEXT,   /* text/...: bytes that may travel as SSE lines */
    CONTENT_JSON,   /* application/json: each event one JSON value, stored with a trailing comma */
};

enum content_kind content_kind(struct str content_type);

/* The same media type: case and parameters do not count. */
bool content_same(struct str a, struct str b);

/* type/subtype of token characters, parameters of printable ones, at most CONTENT_TYPE_MAX bytes.
 */
#define CONTENT_TYPE_MAX 255
bool content_valid(struct str content_type);

#endif
