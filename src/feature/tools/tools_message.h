// SPDX-License-Identifier: Apache-2.0
/* tools_message.h -- what clients of tools say and are told, as JSON. The Unix socket carries these
 * messages in frames, /atd/v1/ as bodies.
 *
 *     {"type":"ping"}                                      {"type":"pong"}
 *     {"type":"hello","client_id"?,                        {"type":"hello_ack",
 *      "requested_capabilities"?:[..]}                      "granted_capabilities":[..],
 *                                                           "server_version",
 *                                                           "supported_tiers":[..]}
 *     {"type":"tool_list"}                                 {"type":"tool_list","tools":[TOOL..]}
 *     {"type":"tool_schema","tool_id"}                     {"type":"tool_schema","schema":TOOL}
 *     {"type":"run_tool","tool_id","args","dry_run"}       {"type":"tool_result","tool_id",
 *     {"type":"run_tool_continue","tool_id","cursor",       "result","success","dry_run",
 *      "args"?}                                             "next_cursor"?}
 *                                                          {"type":"error","message","code"?,
 *                                                           "retryable"?,"details"?}
 *
 *     TOOL = {"id","description","input_schema","capability"?,"paginated"}
 *
 * Members that are not known are passed over; of those that come twice the last one counts. */
#ifndef FEATURE_TOOLS_TOOLS_MESSAGE_H
#define FEATURE_TOOLS_TOOLS_MESSAGE_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct principal;
struct tool_call;
struct tool_info;
struct tools;

enum tools_request_type {
    TOOLS_PING,
    TOOLS_HELLO,
    TOOLS_LIST,
    TOOLS_SCHEMA,
    TOOLS_RUN,
    TOOLS_CONTINUE,
};

#define TOOLS_CAPABILITIES_MAX 64 /* that one hello asks for */

/* Texts are decoded, in the arena; args is JSON as it came, a slice of the message. */
struct tools_request {
    enum tools_request_type type;
    struct str client_id; /* of hello; p == NULL: it has none */
    struct str capabilities[TOOLS_CAPABILITIES_MAX];
    size_t n_capabilities;
    struct str tool_id; /* of tool_schema, run_tool and run_tool_continue */
    struct str args;    /* n == 0: none were sent */
    struct str cursor;  /* of run_tool_continue */
    bool dry_run;
};

/* A whole message. 0, or ERR_SYNTAX with the reason in *why (static). */
int tools_request_read(struct str text, struct arena *a, struct tools_request *out,
                       const char **why);

/* The same of a body whose path has said what it is: `type` is not looked at, and dry_run, args
 * need not be there. */
int tools_request_read_body(struct str text, enum tools_request_type type, struct arena *a,
                            struct tools_request *out, const char **why);

void tools_put_pong(struct buf *out);
void tools_put_hello_ack(struct buf *out, const struct str *granted, size_t n);
/* Those that may be called with these rights; NULL: with all. */
void tools_put_list(struct buf *out, const struct tools *t, const struct principal *p);
void tools_put_schema(struct buf *out, const struct tool_info *info);
/* What a call that is over has come to. */
void tools_put_answer(struct buf *out, const struct tool_call *c);
/* code 0: none. */
void tools_put_error(struct buf *out, struct str message, uint16_t code, bool retryable);

/* The sentence for a tool that is not there. */
void tools_put_not_found(struct buf *out, struct str tool_id);

#endif
