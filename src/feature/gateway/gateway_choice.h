// SPDX-License-Identifier: Apache-2.0
/* gateway_choice.h -- what dialect is spoken, where a route says `auto`: by the request's path and
 * headers, else by its body, else by the first event of the answer. Each gives ROUTE_DIALECT_AUTO
 * when it does not know. Pure. */
#ifndef FEATURE_GATEWAY_GATEWAY_CHOICE_H
#define FEATURE_GATEWAY_GATEWAY_CHOICE_H

#include "base/str.h"
#include "feature/gateway/route_config.h"

struct request;

/* path: of the generation, still encoded. */
enum route_dialect choice_by_request(struct str path, const struct request *req);

/* body: any bytes. */
enum route_dialect choice_by_body(struct str path, struct str body);

/* An event of the answer: its type, `message` or empty for none, and its data. */
enum route_dialect choice_by_event(struct str type, struct str data);

/* The same as it is stored. */
enum route_dialect choice_by_stored(struct str stored);

#endif
