// SPDX-License-Identifier: Apache-2.0
/* logs_trace.h -- what logs say in traces. */
#ifndef FEATURE_LOGS_LOGS_TRACE_H
#define FEATURE_LOGS_LOGS_TRACE_H

#include "telemetry/trace.h"

#define LOGS_TRACES(X)                                                                             \
    X(LOG_KEYS_FULL, TRACE_WARN,                                                                   \
      "the log {} gets more idempotency keys than are kept: the oldest are forgotten before "      \
      "key-lifetime is over, from now on without a word")

TRACE_TABLE(logs_traces, LOGS_TRACES);

#endif
