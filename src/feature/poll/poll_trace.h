// SPDX-License-Identifier: Apache-2.0
/* poll_trace.h -- what polls say in traces. */
#ifndef FEATURE_POLL_POLL_TRACE_H
#define FEATURE_POLL_POLL_TRACE_H

#include "telemetry/trace.h"

#define POLL_TRACES(X)                                                                             \
    X(POLL_FAILED, TRACE_WARN, "polling for {} failed: {}; next try in {} ms")                     \
    X(POLL_ENDED, TRACE_WARN, "polling for {} has ended: {}")

TRACE_TABLE(poll_traces, POLL_TRACES);

#endif
