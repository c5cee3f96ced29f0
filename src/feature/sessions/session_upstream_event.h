// SPDX-License-Identifier: Apache-2.0
/* session_upstream_event.h -- what an upstream's event is, by the name in its `event:` line.
 *
 *     thinking    its data is the text of a Thinking
 *     tool_call   its data is a ClientSideToolV2Call in JSON, as protobuf spells it
 *     data        its data is a StreamUnifiedChatResponseWithTools in base64
 *     any other   its data is text
 *
 * docs/protocols/sessions.md has the members of a tool call. */
#ifndef FEATURE_SESSIONS_SESSION_UPSTREAM_EVENT_H
#define FEATURE_SESSIONS_SESSION_UPSTREAM_EVENT_H

#include "base/buf.h"
#include "base/str.h"

/* Of an aiserver session. 1: the content for session_put_chunk was appended. 0: it is text.
 * ERR_SYNTAX: the data is not what the name says. */
int session_upstream_event(struct str name, struct str data, struct buf *out);

#endif
