// SPDX-License-Identifier: Apache-2.0
/* logs.h -- what other features may know of logs: files of JSON lines, and how they are read. */
#ifndef FEATURE_LOGS_LOGS_H
#define FEATURE_LOGS_LOGS_H

#include "feature/logs/log.h"
#include "feature/logs/log_config.h"
#include "feature/logs/log_query.h"

#endif
