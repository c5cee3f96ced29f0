// SPDX-License-Identifier: Apache-2.0
/* session_doc.h -- a session's document: `session/KEY` in the store.
 *
 * It is created in the same write as `in`, after `out`: so a document means that both streams are
 * there, or were. It outlives them for a while, so that a client that comes back too late is told
 * so. In the clear, for it says nothing of what was said:
 *
 *     u64 version | u64 service | i64 created, Unix ms | text salt | text check |
 *     u64 life of `out` | u64 `in` records answered | i64 gone, Unix ms; 0: not known to be |
 *     text message: how it failed, a sealed record; empty: none |
 *     u64 owner: which of several processes has it, see session_own.c
 *
 * The version is 2, or 1 without the owner, where one process has the store for itself. */
#ifndef FEATURE_SESSIONS_SESSION_DOC_H
#define FEATURE_SESSIONS_SESSION_DOC_H

#include "base/buf.h"
#include "feature/sessions/session_messages.h"
#include "feature/sessions/session_seal.h"

#define SESSION_DOC_PREFIX "session/"

struct session_doc {
    enum session_service service;
    int64_t created_ms, gone_ms;
    uint8_t salt[SESSION_SALT_SIZE], check[SESSION_CHECK_SIZE];
    uint64_t out_life, answered;
    uint64_t owner;     /* an instance; 0: nobody needs to know */
    struct str message; /* when read: lent by the text it was read from */
};

void session_doc_put(struct buf *out, const struct session_doc *d);
int session_doc_read(struct str text, struct session_doc *out); /* ERR_CORRUPT */

#endif
