// SPDX-License-Identifier: Apache-2.0
/* client_canonical.h -- the one spelling of a JSON value (RFC 8785), as base/json_canonical.h has
 * it for the server, with memory that may run out. */
#ifndef CLIENT_CLIENT_CANONICAL_H
#define CLIENT_CLIENT_CANONICAL_H

#include "client/client_core.h"

/* Appends it. TM_E_NOMEM, TM_E_TOO_LARGE, or TM_E_INVALID: not JSON, a name that comes twice in one
 * object, half a surrogate pair, a number beyond a double's range. */
int canonical_put(struct tm_client *c, struct str text, struct bytes *out);

#endif
