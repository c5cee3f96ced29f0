// SPDX-License-Identifier: Apache-2.0
/* log_id.h -- which file a cursor of a log is of. */
#ifndef FEATURE_LOGS_LOG_ID_H
#define FEATURE_LOGS_LOG_ID_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Which file it was: another one under the same path, or one that was truncated and has grown
 * again, has another. All zero: there was none, and any that came later continues it. */
struct log_id {
    uint64_t device, inode;
    uint64_t head; /* digest of the beginning of its first line; 0: it had no line yet */
};
#define LOG_ID_TEXT 48 /* hexadecimal, lower case; no NUL is written */
void log_id_format(const struct log_id *id, char out[LOG_ID_TEXT]);
int log_id_parse(struct str text, struct log_id *out); /* ERR_SYNTAX */

/* A cursor of `then` still counts in `now`. The device decides only while there is no line to tell
 * by: systems number their devices anew when they start. */
bool log_id_same(const struct log_id *then, const struct log_id *now);

#endif
