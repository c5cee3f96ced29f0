// SPDX-License-Identifier: Apache-2.0
/* tools_trace.h -- what tools say in traces. */
#ifndef FEATURE_TOOLS_TOOLS_TRACE_H
#define FEATURE_TOOLS_TOOLS_TRACE_H

#include "telemetry/trace.h"

#define TOOLS_TRACES(X)                                                                            \
    X(CURSOR_KEY, TRACE_WARN, "ATD_CURSOR_SIGNING_KEY is not used, {}; a random key is")

TRACE_TABLE(tools_traces, TOOLS_TRACES);

#endif
