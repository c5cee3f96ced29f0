// SPDX-License-Identifier: Apache-2.0
/* stream.h -- what every request about a stream shares: its path, what an answer's head says, what
 * a refusal means, and whether the same request may do better later. */
#ifndef CLIENT_STREAM_H
#define CLIENT_STREAM_H

#include "client/client_http.h"

/* Buffer sizes, NUL included; a server that exceeds them is not understood (TM_E_PROTOCOL). */
#define STREAM_OFFSET_SIZE  256
#define STREAM_TYPE_SIZE    256
#define STREAM_CURSOR_SIZE  64
#define STREAM_REASON_SIZE  64
#define STREAM_MESSAGE_SIZE 320

#define STREAM_REFUSAL_MAX  (64 * 1024) /* bytes kept of what explains a refusal */

/* A struct of options as it was given, or not; one of a program that was built with an older header
 * ends sooner. `to` has the defaults. */
#define STREAM_OPTIONS(to, from)                                                                   \
    do {                                                                                           \
        if ((from) != NULL)                                                                        \
            memcpy(&(to), (from), (from)->size < sizeof(to) ? (from)->size : sizeof(to));          \
    } while (0)

/* The path of a stream into *out, NUL included. TM_E_INVALID for an empty name. */
int stream_path(struct tm_client *c, struct bytes *out, const char *name);
/* A query parameter behind it; `first`: with `?`. */
int stream_param(struct tm_client *c, struct bytes *out, bool first, const char *key,
                 const char *value);

/* The name of a header that a program may set, in lower case; false: it is no name, or one that
 * says how the request is to be read and where it goes. */
bool stream_name_ok(const char *name, char low[HTTP_NAME_MAX + 1]);
/* A header whose value has bytes that no header may have would be refused by http_start; this says
 * so before. */
bool stream_header_ok(const char *value);

/* Adds a header to a request that has room for it. */
void stream_header(struct http_request *r, struct str name, struct str value);

enum stream_kind { STREAM_BYTES, STREAM_TEXT, STREAM_JSON };
enum stream_kind stream_kind(struct str content_type);
bool stream_type_is(struct str content_type, struct str essence); /* without its parameters */

/* What an answer's head said. Headers that did not come leave empty texts and false. */
struct stream_answer {
    char content_type[STREAM_TYPE_SIZE];
    char next_offset[STREAM_OFFSET_SIZE];
    char cursor[STREAM_CURSOR_SIZE];
    char end_reason[STREAM_REASON_SIZE];
    char expires_at[STREAM_REASON_SIZE];
    bool closed, up_to_date, base64;
    bool has_epoch, has_expected_seq;
    uint64_t epoch, expected_seq;
    int64_t ttl_s;           /* -1: none */
    uint64_t retry_after_ms; /* 0: at will */
};

void stream_answer_init(struct stream_answer *a);
/* TM_E_PROTOCOL: a header is longer than any that makes sense. */
int stream_answer_read(struct stream_answer *a, const struct http_request *r);

static inline bool stream_is_success(int status)
{
    return status >= 200 && status <= 299;
}

/* Why a request was refused. */
struct stream_refusal {
    int err;
    char message[STREAM_MESSAGE_SIZE];
    char requested[STREAM_OFFSET_SIZE], earliest[STREAM_OFFSET_SIZE]; /* of TM_E_GAP */
    char reason[STREAM_REASON_SIZE];
};

/* The gap object, {"gap":{..}}; false: this is none. */
bool stream_gap_read(struct stream_refusal *out, struct str body);

/* By what the answer says of itself ({"error":{"code","message"}}, the gap object), else by its
 * status. */
void stream_refusal_read(struct stream_refusal *out, const struct http_request *r,
                         const struct stream_answer *a, struct str body);

/* The same request may succeed later: err without an answer (status 0), or 429 and 5xx. */
bool stream_may_retry(int err, int status);

/* The sentence of tm_error for a request to this path that has failed; returns err. The query is
 * left out: it may hold what nobody else is to see. */
int stream_fail(struct tm_client *c, int err, struct str path, const char *message);
/* The notice of one that is sent again. */
void stream_notice_retry(struct tm_client *c, struct str path, const char *why, uint64_t ms);

/* How long to wait then, after so many failures in a row. */
uint64_t stream_retry_ms(struct tm_client *c, unsigned failures, const struct stream_answer *a);

/* The time, also in a callback that runs before its turn has set sched.now_ms. */
uint64_t stream_now_ms(const struct tm_client *c);

/* Padded base64, in any number of lines, in its own place; TM_E_PROTOCOL. */
int stream_unbase64(char *p, size_t *n);

#endif
