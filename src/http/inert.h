// SPDX-License-Identifier: Apache-2.0
/* inert.h -- keeps what others stored from acting in our origin.
 *
 * Anybody may store a page. A browser that navigates to it must neither run it nor show it as if it
 * were ours: its scripts could call whatever else this server offers. */
#ifndef HTTP_INERT_H
#define HTTP_INERT_H

#include "base/str.h"

#include <stdbool.h>

/* No scripts, forms, frames or subresources, and an origin that is nobody's. */
#define INERT_POLICY "sandbox; default-src 'none'"

/* Whether a browser shows this type as plain text or as a picture, plays it, or saves it to a file
 * in any case. Everything else it might render or run, and is told to save. */
bool inert_type(struct str content_type);

#endif
