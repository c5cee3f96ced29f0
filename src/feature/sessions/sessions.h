// SPDX-License-Identifier: Apache-2.0
/* sessions.h -- what other features may know of sessions. */
#ifndef FEATURE_SESSIONS_SESSIONS_H
#define FEATURE_SESSIONS_SESSIONS_H

struct store;

/* The streams of sessions as workers see them, from the state of the feature. */
struct store *sessions_workers_view(void *state);

#endif
