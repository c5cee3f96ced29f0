// SPDX-License-Identifier: Apache-2.0
/* request.h -- one HTTP request of a client and its answer, over libcurl.
 *
 *     struct client_request r;
 *     client_request_init(&r, c, "POST", name);
 *     client_request_header(&r, "Stream-Closed", "true");
 *     int err = client_request_run(&r);
 *     ... r.answer ...
 *     client_request_deinit(&r);
 */
#ifndef CLIENT_REQUEST_H
#define CLIENT_REQUEST_H

#include "base/buf.h"
#include "base/str.h"
#include "client/client.h"

#include <curl/curl.h>

#define CLIENT_ERROR_SIZE  1024
#define CLIENT_CURSOR_SIZE 64
#define CLIENT_ANSWER_MAX  (16 * 1024 * 1024) /* bytes of an answer that is collected */
#define CLIENT_REFUSAL_MAX (64 * 1024)        /* bytes kept of what explains a refusal */

struct client {
    CURLM *multi; /* keeps the connections */
    CURL *easy;
    char *server;        /* as it was given, for messages */
    char *base;          /* what every URL begins with */
    char *socket_path;   /* NULL: TCP */
    char *authorization; /* the header's value; NULL: none */
    bool is_near;        /* on this machine: no proxy stands between */
    struct client_options options;
    int watch_fd;
    bool busy; /* a request is under way: no other may begin */
    char error[CLIENT_ERROR_SIZE];
};

/* What an answer said. Headers that did not come leave empty texts and false. */
struct client_answer {
    int status; /* 0: there was no answer */
    struct client_state state;
    char cursor[CLIENT_CURSOR_SIZE];
    bool up_to_date, base64;
    bool framed; /* it says where its body ends */
    bool has_epoch, has_expected_seq;
    uint64_t epoch, expected_seq;
    uint64_t retry_after_ms;
    struct buf body; /* collected: without on_body, or of a refusal */
};

struct client_request {
    struct client *client;
    const char *method;
    struct buf url;  /* further query parameters: client_request_param */
    struct str body; /* borrowed until the request is over */
    bool live;       /* may be silent for long */
    bool once;       /* must not reach the server twice, not even unanswered */
    /* A successful answer's body as it arrives, headers first in `answer`. Not 0: the request ends,
     * and client_request_run returns it. */
    void *user;
    int (*on_body)(struct client_request *r, struct str bytes);

    struct client_answer answer;

    /* private */
    struct curl_slist *headers;
    bool has_params, has_type;
    bool head_ended; /* the empty line behind the answer's head came */
    bool headed;     /* the head has been read */
    int bad;         /* a header could not be sent as asked, or read */
    int stopped;     /* what on_body returned */
    char curl_error[CURL_ERROR_SIZE];
};

#define CLIENT_STREAMS  "/v1/stream/"
#define CLIENT_SESSIONS "/v1/session/"

/* name NULL: the list of streams. */
void client_request_init(struct client_request *r, struct client *c, const char *method,
                         const char *name);
/* The same for whatever is under that path. */
void client_request_init_at(struct client_request *r, struct client *c, const char *method,
                            const char *path, const char *name);
void client_request_deinit(struct client_request *r);

void client_request_header(struct client_request *r, const char *name, const char *value);
void client_request_header_u64(struct client_request *r, const char *name, uint64_t value);
void client_request_param(struct client_request *r, const char *key, struct str value);

/* 0: an answer of 200 to 299 is complete. Otherwise the client's error text is set. */
int client_request_run(struct client_request *r);

/* The same request may succeed later: the network failed, or the server said 429 or 5xx. */
bool client_request_may_retry(const struct client_request *r, int err);

/* Sets the client's error text and returns err. Bytes that could steer a terminal are replaced. */
int client_fail(struct client *c, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* s with a NUL behind it, to be freed. */
char *client_copy(struct str s);

/* Waits; ERR_CANCELLED when the watched descriptor ends it. */
int client_wait(struct client *c, uint64_t ms);

/* Tells whoever listens to notices. */
void client_notice(struct client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
