// SPDX-License-Identifier: Apache-2.0
/* server_url.h -- where a server is, out of its URL. */
#ifndef CLIENT_SERVER_URL_H
#define CLIENT_SERVER_URL_H

#include "client/client_core.h"

/* http(s)://HOST[:PORT][/PREFIX] or unix:PATH. 0, TM_E_NOMEM, or TM_E_INVALID with a sentence. On
 * failure *out holds nothing. */
int server_url_parse(struct tm_client *c, const char *url, struct server_url *out);
void server_url_free(struct tm_client *c, struct server_url *server);

#endif
