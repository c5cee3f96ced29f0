// SPDX-License-Identifier: Apache-2.0
/* gateway_trace.h -- what the gateway says in traces. */
#ifndef FEATURE_GATEWAY_GATEWAY_TRACE_H
#define FEATURE_GATEWAY_GATEWAY_TRACE_H

#include "telemetry/trace.h"

#define GATEWAY_TRACES(X)                                                                          \
    X(UPSTREAM_FAILED, TRACE_WARN, "the upstream of {} failed: {}")                                \
    X(ANSWERS_DEGRADED, TRACE_WARN,                                                                \
      "{} answers were passed on unrecorded, since the store took nothing: they cannot resume")    \
    X(GATEWAY, TRACE_INFO, "{}")

TRACE_TABLE(gateway_traces, GATEWAY_TRACES);

#endif
