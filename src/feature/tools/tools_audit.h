// SPDX-License-Identifier: Apache-2.0
/* tools_audit.h -- who called which tool, and how that ended: one JSON object a line of the
 * server's audit (http/audit.h).
 *
 *     {"ts":"2026-01-31T12:00:01.250Z","event":"tool","call_id":ULID,"tool_id","caller_id"?,
 *      "granted_capabilities":[..],"duration_ms","outcome":{"kind",..},"tier":"hot","dry_run",
 *      "schema_version":2,"secrets_resolved":[],"cursor_page"?}
 *
 * What was asked for and answered is not in it. cursor_page is there from the second page on. */
#ifndef FEATURE_TOOLS_TOOLS_AUDIT_H
#define FEATURE_TOOLS_TOOLS_AUDIT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct tool_call;

struct tool_record {
    const struct tool_call *call; /* over, unless cancelled */
    int64_t begun_ms;             /* wall clock */
    uint64_t duration_ms;
    bool cancelled; /* whoever asked has gone: execution_failed, as far as it got */
};

/* Whether it is for the audit: continuations that were refused are not, since nothing was run. */
bool tools_audit_wants(const struct tool_call *c);

/* The line, with its newline. */
void tools_audit_put(struct buf *out, const struct tool_record *e);

/* A ULID: the time in milliseconds and 80 random bits. No NUL is written. */
#define AUDIT_ULID_TEXT 26
void audit_ulid(int64_t wall_ms, char out[AUDIT_ULID_TEXT]);

#endif
