// SPDX-License-Identifier: Apache-2.0
/* session_status_http.h -- which sessions there are and how far they have got, for those who look
 * after them. See docs/protocols/sessions.md.
 *
 *     GET /v1/session/?prefix=P&after=KEY&limit=N
 *         {"sessions":[{"key","service","created","connected","keyHeld","expired","answered"},
 *          ...], "next":KEY or null}
 *     GET /v1/session/KEY
 *         the same of one, and "in":{"events","bytes","closed"}, "out":{"events","bytes","end"};
 *         both null if it has expired, "end" null while it is open
 *
 * Neither what was said nor a key to it is ever among this. Only callers with the capability
 * `worker` are answered; to others there is nothing here (404). */
#ifndef FEATURE_SESSIONS_SESSION_STATUS_HTTP_H
#define FEATURE_SESSIONS_SESSION_STATUS_HTTP_H

struct surface;
struct exchange;
struct http;
struct sessions;

#define SESSION_STATUS_PREFIX "/v1/session/"

/* At SESSION_STATUS_PREFIX. */
extern const struct surface session_status_surface;
void session_status_mount(struct sessions *all, struct http *http);
void session_status_handle(void *sessions, struct exchange *x);

#endif
