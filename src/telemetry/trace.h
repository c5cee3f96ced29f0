// SPDX-License-Identifier: Apache-2.0
/* trace.h -- what the server has to say for people and machines watching it, one line each.
 *
 * Every kind of line is one row of a table: its name, level and sentence. The server's own rows are
 * here; a feature has a table in its folder. Names are unique in the program. Human-readable by
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

/* One kind of line. In its sentence `{}` stands for the next field's value; fields beyond that are
 * added to the line as key=value. */
struct trace_kind {
    const char *name, *text;
    enum trace_level level;
};

/* The owner of a table lists its rows in a macro ROWS(X), as X(name, level, sentence). A header
 * declares them with TRACE_TABLE(table, ROWS); and one file defines them with
 * TRACE_TABLE_DEFINE(table, ROWS); The table has NULL behind its last row. */
#define TRACE_TABLE(table, ROWS)                                                                   \
    ROWS(TRACE_ROW_DECLARE_) extern const struct trace_kind *const table[]
#define TRACE_TABLE_DEFINE(table, ROWS)                                                            \
    ROWS(TRACE_ROW_DEFINE_) const struct trace_kind *const table[] = {ROWS(TRACE_ROW_POINT_) NULL}
#define TRACE_ROW_DECLARE_(name, level, text) extern const struct trace_kind TRACE_KIND_##name;
#define TRACE_ROW_DEFINE_(name, level, text)                                                       \
    const struct trace_kind TRACE_KIND_##name = {#name, text, level};
#define TRACE_ROW_POINT_(name, level, text) &TRACE_KIND_##name,

#define SERVER_TRACES(X)                                                                           \
    X(LISTENING, TRACE_INFO, "listening on {}")                                                    \
    X(LISTENING_ADMIN, TRACE_INFO, "metrics and what else is for those who run it: on {}")         \
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
    X(CONFIG_DOUBT, TRACE_WARN, "{} {}")                                                           \
    X(DRAINING, TRACE_INFO, "{}: draining, {} connections open")                                   \
    X(DRAIN_OVER, TRACE_WARN, "no more time to finish: {} answers under way end as orphaned")      \
    X(STOPPED, TRACE_INFO, "stopped")                                                              \
    X(LOOP_BLOCKED, TRACE_WARN, "nothing else was served for {} ms: {}")                           \
    X(ACCEPT_FAILED, TRACE_WARN, "accept failed: {}")                                              \
    X(CONNECTIONS_BOUND, TRACE_WARN,                                                               \
      "at most {} connections, not {}: the system allows {} descriptors; raise its hard limit")    \
    X(BAD_REQUEST, TRACE_DEBUG, "refused a request: {}")                                           \
    X(TLS_REFUSED, TRACE_ERROR, "cannot speak TLS: {}")                                            \
    X(TLS_RELOADED, TRACE_INFO, "SIGHUP: new connections get the certificate in {}")               \
    X(TLS_KEPT, TRACE_ERROR, "SIGHUP: the certificate in use stays: {}")                           \
    X(RELOADED, TRACE_INFO, "SIGHUP: in use now: {}")                                              \
    X(RELOAD_SAME, TRACE_INFO, "SIGHUP: {}")                                                       \
    X(RELOAD_LATER, TRACE_WARN, "SIGHUP: changed, but needs a restart: {}")                        \
    X(RELOAD_KEPT, TRACE_ERROR, "SIGHUP: the settings in use stay: {}")                            \
    X(AUDIT_FAILED, TRACE_ERROR, "lines of the audit could not be written to {}: {}")              \
    X(ACCESS_LATE, TRACE_WARN, "tokens are not served yet, the store has no answer: {}")           \
    X(ERASE_FAILED, TRACE_WARN, "streams below {} are not erased yet, it is tried again: {}")      \
    X(TLS_DATES, TRACE_WARN, "the certificate in {} {}; clients will refuse it")                   \
    X(TLS_FAILED, TRACE_DEBUG, "TLS with a peer failed: {}")                                       \
    X(ACCESS_FAILED, TRACE_ERROR, "cannot tell who may do what: {}")                               \
    X(CREDENTIAL_REFUSED, TRACE_DEBUG, "a credential is not good: {}")                             \
    X(JWKS_KEYS, TRACE_INFO, "issuer {}: {} keys are in use, {} are malformed")                    \
    X(JWKS_FAILED, TRACE_WARN, "issuer {}: its keys cannot be had: {}")                            \
    X(CONFIG_UNKNOWN, TRACE_WARN, "unknown setting {} in {}")                                      \
    X(FEATURE_FAILED, TRACE_ERROR, "cannot set up {}: {}")                                         \
    X(PATH_CLAIMED, TRACE_ERROR, "the path {} is claimed twice: by {} and by {}")

TRACE_TABLE(server_traces, SERVER_TRACES);

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

void trace_line(const struct trace *t, const struct trace_kind *kind,
                const struct trace_field *fields, size_t n);

/* trace(t, LISTENING, TRACE_STR("address", s)); */
#define trace(t, kind, ...)                                                                        \
    trace_line((t), &TRACE_KIND_##kind, (const struct trace_field[]){__VA_ARGS__},                 \
               sizeof((const struct trace_field[]){__VA_ARGS__}) / sizeof(struct trace_field))

#endif
