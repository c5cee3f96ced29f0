// SPDX-License-Identifier: Apache-2.0
/* response_id.h -- what a response of OpenAI's Responses API is called here.
 *
 *     resp_ XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX     the generation's id without its dashes
 *
 * A backend's own id would not do. It is not known when a background response is answered at once;
 * some backends draw one of a million, so that ids can be guessed and come twice; and ours says
 * whose it is (gateway_owner.c) and leads to the generation without anything being stored. */
#ifndef FEATURE_GATEWAY_RESPONSE_ID_H
#define FEATURE_GATEWAY_RESPONSE_ID_H

#include "base/rand.h"
#include "base/str.h"

#define RESPONSE_ID_HEX  32
#define RESPONSE_ID_TEXT (5 + RESPONSE_ID_HEX)

/* request_id: as gateway_is_request_id has it. */
void response_id_make(struct str request_id, char id[RESPONSE_ID_TEXT]);

/* False: it is no id of ours. */
bool response_id_parse(struct str id, char request_id[RAND_UUID]);

#endif
