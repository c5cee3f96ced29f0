// SPDX-License-Identifier: Apache-2.0
/* logs.h -- what other features may know of logs: files of JSON lines, and how they are read. */
#ifndef FEATURE_LOGS_LOGS_H
#define FEATURE_LOGS_LOGS_H

#include "feature/builtin.h"
#include "feature/logs/log.h"
#include "feature/logs/log_config.h"
#include "feature/logs/log_page.h"
#include "feature/logs/log_query.h"

/* The file of a log, from the state of the feature. NULL: there is no log of that name. */
const char *logs_path(const void *state, struct str name);

extern const struct builtin_tool logs_tools[];

#endif
