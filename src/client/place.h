// SPDX-License-Identifier: Apache-2.0
/* place.h -- where a server is, out of its URL. */
#ifndef CLIENT_PLACE_H
#define CLIENT_PLACE_H

#include "client/client_core.h"

/* http(s)://HOST[:PORT][/PREFIX] or unix:PATH. 0, TM_E_NOMEM, or TM_E_INVALID with a sentence. On
 * failure *out holds nothing. */
int place_parse(struct tm_client *c, const char *url, struct server_place *out);
void place_free(struct tm_client *c, struct server_place *place);

#endif
