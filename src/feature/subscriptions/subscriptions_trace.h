// SPDX-License-Identifier: Apache-2.0
/* subscriptions_trace.h -- what subscriptions say in traces. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTIONS_TRACE_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTIONS_TRACE_H

#include "telemetry/trace.h"

#define SUBSCRIPTIONS_TRACES(X)                                                                    \
    X(WEBHOOK_FAILED, TRACE_WARN, "webhook of subscription {} failed: {}; next try in {} ms")

TRACE_TABLE(subscriptions_traces, SUBSCRIPTIONS_TRACES);

#endif
