// SPDX-License-Identifier: Apache-2.0
/* cascade_trace.h -- what the Cascade bridge says in traces. */
#ifndef FEATURE_CASCADE_CASCADE_TRACE_H
#define FEATURE_CASCADE_CASCADE_TRACE_H

#include "telemetry/trace.h"

#define CASCADE_TRACES(X)                                                                          \
    X(CASCADE_FOUND, TRACE_INFO, "the editor's language server is process {} at {}")               \
    X(CASCADE_FAILED, TRACE_INFO, "no language server can be asked: {}")                           \
    X(CASCADE_STRANGER, TRACE_WARN,                                                                \
      "another user's process listens at {} now: neither token nor key was sent there")            \
    X(CASCADE_TOOLS, TRACE_WARN,                                                                   \
      "a request offers tools, which a Cascade cannot use: they are ignored, from now on without " \
      "a word ({} refuses them)")                                                                  \
    X(CASCADE_FLOW_FAILED, TRACE_WARN, "the Cascade {} failed with {}: {}")                        \
    X(CASCADE_ARCHIVED, TRACE_INFO, "archived the Cascade {}, which was left behind")              \
    X(CASCADE_LEFT, TRACE_WARN, "the Cascade {} could not be archived: {}")

TRACE_TABLE(cascade_traces, CASCADE_TRACES);

#endif
