// SPDX-License-Identifier: Apache-2.0
/* sessions_trace.h -- what sessions say in traces. */
#ifndef FEATURE_SESSIONS_SESSIONS_TRACE_H
#define FEATURE_SESSIONS_SESSIONS_TRACE_H

#include "telemetry/trace.h"

#define SESSIONS_TRACES(X)                                                                         \
    X(SESSION_UPSTREAM_FAILED, TRACE_WARN,                                                         \
      "the upstream has not answered {}: {}; next try in {} ms")                                   \
    X(SESSIONS_DEGRADED, TRACE_WARN, "{} sessions are held in memory alone: they cannot resume")

TRACE_TABLE(sessions_traces, SESSIONS_TRACES);

#endif
