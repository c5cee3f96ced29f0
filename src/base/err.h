// SPDX-License-Identifier: Apache-2.0
/* err.h -- every error a caller can meet, once: its code, HTTP status, gRPC status and sentence.
 *
 * Functions return 0 or one of these (negative). All protocols answer from this table, so that a
 * failure is called the same everywhere. Sentences say what to do where something can be done. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* gRPC status codes by their official numbers. */
enum {
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16, /* the last one */
};

/* name, code, HTTP status, gRPC status, sentence */
#define ERR_TABLE(X)                                                                               \
    X(NOMEM, -1, 503, GRPC_RESOURCE_EXHAUSTED, "out of memory; retry later")                       \
    X(FENCED, -2, 403, GRPC_FAILED_PRECONDITION, "a newer producer epoch holds this stream")       \
    X(SEQ_GAP, -3, 409, GRPC_FAILED_PRECONDITION,                                                  \
      "the producer sequence has a gap; send the expected sequence first")                         \
    X(EPOCH_START, -4, 400, GRPC_INVALID_ARGUMENT,                                                 \
      "a new producer epoch must start at sequence 0")                                             \
    X(CLOSED, -5, 409, GRPC_FAILED_PRECONDITION, "the stream is closed")                           \
    X(TYPE_MISMATCH, -6, 409, GRPC_FAILED_PRECONDITION,                                            \
      "the content type differs from the stream's")                                                \
    X(SEQ_ORDER, -7, 409, GRPC_FAILED_PRECONDITION,                                                \
      "Stream-Seq must be greater than the last one")                                              \
    X(TAIL_MOVED, -8, 412, GRPC_ABORTED, "If-Match names another offset than the stream's tail")   \
    X(NOT_FOUND, -9, 404, GRPC_NOT_FOUND, "no such stream")                                        \
    X(DELETED, -10, 410, GRPC_NOT_FOUND,                                                           \
      "the stream was deleted; forks of it still hold its data")                                   \
    X(EXISTS, -11, 409, GRPC_ALREADY_EXISTS, "the stream exists with another configuration")       \
    X(GAP, -12, 410, GRPC_OUT_OF_RANGE, "this position can no longer be read")                     \
    X(OFFSET, -13, 400, GRPC_INVALID_ARGUMENT, "this is not an offset of this stream")             \
    X(JSON, -14, 400, GRPC_INVALID_ARGUMENT, "the body is not valid JSON")                         \
    X(EMPTY, -15, 400, GRPC_INVALID_ARGUMENT, "an append needs at least one byte or element")      \
    X(SYNTAX, -16, 400, GRPC_INVALID_ARGUMENT, "malformed value")                                  \
    X(TOO_LARGE, -17, 413, GRPC_RESOURCE_EXHAUSTED, "larger than the configured limit")            \
    X(FULL, -18, 507, GRPC_RESOURCE_EXHAUSTED, "storage is full")                                  \
    X(IO, -19, 503, GRPC_UNAVAILABLE, "storage does not accept writes at present")                 \
    X(LIMIT, -20, 429, GRPC_RESOURCE_EXHAUSTED, "too many; retry later")                           \
    X(BUSY, -21, 503, GRPC_UNAVAILABLE, "overloaded; retry later")                                 \
    X(VERSION, -22, 409, GRPC_ABORTED, "changed by somebody else meanwhile")                       \
    X(FORK_SOURCE, -23, 404, GRPC_NOT_FOUND, "the stream to fork from does not exist")             \
    X(FORK_DELETED, -24, 409, GRPC_FAILED_PRECONDITION, "the stream to fork from was deleted")     \
    X(FORK_OFFSET, -25, 400, GRPC_OUT_OF_RANGE,                                                    \
      "the fork offset or sub-offset does not exist in the source")                                \
    X(CANCELLED, -26, 499, GRPC_CANCELLED, "the peer went away")                                   \
    X(TIMEOUT, -27, 504, GRPC_DEADLINE_EXCEEDED, "timed out")                                      \
    X(REFUSED, -28, 502, GRPC_UNAVAILABLE, "could not connect")                                    \
    X(FORBIDDEN_ADDR, -29, 403, GRPC_PERMISSION_DENIED,                                            \
      "this address is in a private or loopback range that is not allowed")                        \
    X(CORRUPT, -30, 500, GRPC_INTERNAL, "stored data failed its checksum")                         \
    X(UPSTREAM, -31, 502, GRPC_UNAVAILABLE,                                                        \
      "the upstream could not be reached or broke off its answer")                                 \
    X(UPSTREAM_TIMEOUT, -32, 504, GRPC_DEADLINE_EXCEEDED, "the upstream did not answer in time")   \
    X(DENIED, -33, 403, GRPC_PERMISSION_DENIED, "these credentials do not allow this")             \
    X(UNAUTHENTICATED, -34, 401, GRPC_UNAUTHENTICATED,                                             \
      "credentials are missing, wrong or expired; send valid ones")                                \
    X(KEY_ABSENT, -35, 503, GRPC_UNAVAILABLE,                                                      \
      "the session is sealed and its key is not here; its client must come back first")            \
    X(AWAY, -36, 503, GRPC_UNAVAILABLE, "the store does not answer at present; retry later")       \
    X(FORK_DEPTH, -37, 422, GRPC_FAILED_PRECONDITION,                                              \
      "the source is a fork of forks already, as deep as max-fork-depth allows")                   \
    X(TOO_MANY_EVENTS, -38, 413, GRPC_RESOURCE_EXHAUSTED,                                          \
      "an append holds at most 1,048,576 events; send more in several")

/* Nothing is wrong with what was asked, and nothing was done as far as is known: the same may be
 * taken a little later. */
#define ERR_IS_PASSING(err) ((err) == ERR_BUSY || (err) == ERR_AWAY)

/* There is no such stream, or no longer. */
#define ERR_IS_GONE(err)    ((err) == ERR_NOT_FOUND || (err) == ERR_DELETED)

enum {
#define X(name, code, http, grpc, text) ERR_##name = code,
    ERR_TABLE(X)
#undef X
};

/* err: one of the table, or 0. The strings are static. */
const char *err_name(int err);
const char *err_text(int err);
int err_http_status(int err);
int err_grpc_status(int err);

/* The name of a gRPC status as peers write it, "failed_precondition"; 0 is "ok". Of a number that
 * is none: "unknown". Static. */
const char *err_grpc_name(int grpc_status);
/* ... and its HTTP status, as unary calls of Connect have it. */
int err_grpc_http(int grpc_status);

#endif
