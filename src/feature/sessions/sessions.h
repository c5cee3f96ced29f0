// SPDX-License-Identifier: Apache-2.0
/* sessions.h -- what other features may know of sessions. */
#ifndef FEATURE_SESSIONS_SESSIONS_H
#define FEATURE_SESSIONS_SESSIONS_H

#include "feature/builtin.h"

struct store;

/* The streams of sessions as workers see them, from the state of the feature. */
struct store *sessions_workers_view(void *state);

extern const struct builtin_tool sessions_tools[];

#endif
