// SPDX-License-Identifier: Apache-2.0
/* trace.h -- what the server has to say for people and machines watching it, one line each.
 *
 * Every kind of line is one row of the table: its name, level and sentence. Human-readable by
 * default, in local time:
 *
 *     12:00:01 info  listening on 127.0.0.1:4437
 *
 * and with `--trace json` one object a line, whose last members are the line's fields:
 *
 *     {"time":"2026-01-31T12:00:01.250Z","level":"info","kind":"listening",
 *      "message":"listening on 127.0.0.1:4437","address":"127.0.0.1:4437"}
 *
 * A line is written at once. Values may hold anything a peer sent: they are cut at
 * TRACE_VALUE_MAX bytes, and what could end, hide or recolour a line is escaped. Secrets never go
 * in. Any thread. */
#ifndef TELEMETRY_TRACE_H
#define TELEMETRY_TRACE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum trace_level { TRACE_ERROR, TRACE_WARN, TRACE_INFO, TRACE_DEBUG };

#define TRACE_VALUE_MAX 1024 /* bytes of one value; the rest is left out */

/* name, level, sentence; `{}` stands for the next field's value, fields beyond that are added to
 * the line as key=value */
#define TRACE_TABLE(X)                                                                             \
    X(LISTENING, TRACE_INFO, "listening on {}")                                                    \
    X(LISTEN_FAILED, TRACE_ERROR, "cannot listen on {}: {}")                                       \
    X(STORE_OPEN, TRACE_INFO, "store {} is open")                                                  \
    X(STORE_FAILED, TRACE_ERROR, "cannot open the store {}: {}")                                   \
    X(STORE_REDIS_UP, TRACE_INFO, "Redis answers: {}")                                             \
    X(STORE_REDIS_DOWN, TRACE_WARN, "Redis does not answer, the store waits for it: {}")           \
    X(STORE_STOPPED, TRACE_ERROR,                                                                  \
      "the disk failed: nothing is written any more, reads go on; restart when it works: {}")      \
    X(STORE_CLOCK, TRACE_WARN,                                                                     \
      "the clock is {} what the store knew by {} s, and is believed: check it")                    \
    X(STORE_UNWELL, TRACE_WARN, "not ready: {}")                                                   \
    X(STORE_WELL, TRACE_INFO, "ready: {}")                                                         \
    X(STORE_REFUSED, TRACE_WARN, "the store has refused {} operations: {}")                        \
    X(ANSWERS_DEGRADED, TRACE_WARN,                                                                \
      "{} answers were passed on unrecorded, since the store took nothing: they cannot resume")    \
    X(SESSIONS_DEGRADED, TRACE_WARN, "{} sessions are held in memory alone: they cannot resume")   \
    X(CONFIG_DOUBT, TRACE_WARN, "{} {}")                                                           \
    X(DRAINING, TRACE_INFO, "{}: draining, {} connections open")                                   \
    X(DRAIN_OVER, TRACE_WARN, "no more time to finish: {} answers under way end as orphaned")      \
    X(STOPPED, TRACE_INFO, "stopped")                                                              \
    X(CONNECTIONS_FULL, TRACE_WARN, "connection limit {} reached; new ones get 503")               \
    X(ACCEPT_FAILED, TRACE_WARN, "accept failed: {}")                                              \
    X(BAD_REQUEST, TRACE_DEBUG, "refused a request: {}")                                           \
    X(TLS_REFUSED, TRACE_ERROR, "cannot speak TLS: {}")                                            \
    X(TLS_RELOADED, TRACE_INFO, "SIGHUP: new connections get the certificate in {}")               \
    X(TLS_KEPT, TRACE_ERROR, "SIGHUP: the certificate in use stays: {}")                           \
    X(RELOADED, TRACE_INFO, "SIGHUP: in use now: {}")                                              \
    X(RELOAD_SAME, TRACE_INFO, "SIGHUP: {}")                                                       \
    X(RELOAD_LATER, TRACE_WARN, "SIGHUP: changed, but needs a restart: {}")                        \
    X(RELOAD_KEPT, TRACE_ERROR, "SIGHUP: the settings in use stay: {}")                            \
    X(TLS_DATES, TRACE_WARN, "the certificate in {} {}; clients will refuse it")                   \
    X(TLS_FAILED, TRACE_DEBUG, "TLS with a peer failed: {}")                                       \
    X(WEBHOOK_FAILED, TRACE_WARN, "webhook of subscription {} failed: {}; next try in {} ms")      \
    X(UPSTREAM_FAILED, TRACE_WARN, "the upstream of {} failed: {}")                                \
    X(SESSION_UPSTREAM_FAILED, TRACE_WARN,                                                         \
      "the upstream has not answered {}: {}; next try in {} ms")                                   \
    X(POLL_FAILED, TRACE_WARN, "polling for {} failed: {}; next try in {} ms")                     \
    X(POLL_ENDED, TRACE_WARN, "polling for {} has ended: {}")                                      \
    X(CONFIG_UNKNOWN, TRACE_WARN, "unknown setting {} in {}")                                      \
    X(LOGS_FAILED, TRACE_ERROR, "cannot serve logs: {}")                                           \
    X(LOG_KEYS_FULL, TRACE_WARN,                                                                   \
      "the log {} gets more idempotency keys than are kept: the oldest are forgotten before "      \
      "key-lifetime is over, from now on without a word")                                          \
    X(GATEWAY_FAILED, TRACE_ERROR, "cannot set up the gateway: {}")                                \
    X(CASCADE_REFUSED, TRACE_ERROR, "cannot set up the Cascade bridge: {}")                        \
    X(CASCADE_FOUND, TRACE_INFO, "the editor's language server is process {} at {}")               \
    X(CASCADE_FAILED, TRACE_INFO, "no language server can be asked: {}")                           \
    X(CASCADE_STRANGER, TRACE_WARN,                                                                \
      "another user's process listens at {} now: neither token nor key was sent there")            \
    X(CASCADE_TOOLS, TRACE_WARN,                                                                   \
      "a request offers tools, which a Cascade cannot use: they are ignored, from now on without " \
      "a word ({} refuses them)")                                                                  \
    X(CASCADE_FLOW_FAILED, TRACE_WARN, "the Cascade {} failed with {}: {}")                        \
    X(CASCADE_ARCHIVED, TRACE_INFO, "archived the Cascade {}, which was left behind")              \
    X(CASCADE_LEFT, TRACE_WARN, "the Cascade {} could not be archived: {}")                        \
    X(LAB_FAILED, TRACE_ERROR, "cannot set up the Lab: {}")                                        \
    X(TOOLS_FAILED, TRACE_ERROR, "cannot set up the tools: {}")                                    \
    X(AUDIT_FAILED, TRACE_ERROR, "a call of a tool could not be put on record in {}: {}")          \
    X(CURSOR_KEY, TRACE_WARN, "ATD_CURSOR_SIGNING_KEY is not used, {}; a random key is")           \
    X(GATEWAY, TRACE_INFO, "{}")

enum trace_kind {
#define X(name, level, text) TRACE_KIND_##name,
    TRACE_TABLE(X)
#undef X
        TRACE_KINDS,
};

struct trace {
    FILE *to; /* not owned; NULL: stderr */
    bool json;
    enum trace_level level; /* lines above it are dropped */
};

/* One field of a line. TRACE_STR / TRACE_INT build them. */
struct trace_field {
    const char *key;
    bool is_text;
    struct str text;
    int64_t number;
};
#define TRACE_STR(k, s) ((struct trace_field){.key = (k), .is_text = true, .text = (s)})
#define TRACE_INT(k, v) ((struct trace_field){.key = (k), .number = (v)})

void trace_line(const struct trace *t, enum trace_kind kind, const struct trace_field *fields,
                size_t n);

/* trace(t, LISTENING, TRACE_STR("address", s)); */
#define trace(t, kind, ...)                                                                        \
    trace_line((t), TRACE_KIND_##kind, (const struct trace_field[]){__VA_ARGS__},                  \
               sizeof((const struct trace_field[]){__VA_ARGS__}) / sizeof(struct trace_field))

#endif
