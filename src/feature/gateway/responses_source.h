// SPDX-License-Identifier: Apache-2.0
/* responses_source.h -- the source of a response: that of its route, with its events mended
 * (responses_mend.h).
 *
 * A stream of events that ends before the response has is a failure, however clean its end. What is
 * no stream of events goes on as it is, unless the response runs in the background: whoever asked
 * has been answered then, so it becomes a response, completed or failed, that can be asked for. */
#ifndef FEATURE_GATEWAY_RESPONSES_SOURCE_H
#define FEATURE_GATEWAY_RESPONSES_SOURCE_H

#include "feature/gateway/gateway_source.h"
#include "feature/gateway/responses_mend.h"

/* The last event has all that came before it. What is mended and folded is looked at on the loop
 * thread, so that this bounds how long others wait. */
#define RESPONSES_EVENT_MAX (4 * 1024 * 1024)

/* As the ctx of a source_kind; lent for the call. */
struct responses_source_order {
    struct str body; /* for the upstream */
    struct responses_mend_config mend;
};
struct generation_source *responses_source_open(void *ctx, const struct source_order *o);

#endif
