// SPDX-License-Identifier: Apache-2.0
/* follower_core.h -- inside a follower.
 *
 *     follower.c           what is asked for and when, and what is handed out
 *     follower_answer.c    what the answers bring */
#ifndef CLIENT_FOLLOWER_CORE_H
#define CLIENT_FOLLOWER_CORE_H

#include "base/sse_parse.h"
#include "client/client_json.h"
#include "client/stream.h"

enum follower_mode { CATCH_UP, LONG_POLL, LIVE_SSE };

/* One batch, or the values of one array. */
struct piece {
    struct link link;
    struct bytes data;
    bool is_split; /* one value at a time, from `values` */
    struct json_array values;
    char next_offset[STREAM_OFFSET_SIZE];
    bool up_to_date, closed, gap;
    bool done; /* handed out; kept until the next call */
};

struct tm_follower {
    struct tm_client *client;
    char *name;
    enum tm_live live_option;
    bool skip_gap, json_values;
    uint64_t retry_for_ms;

    struct http_request request;
    struct task go;
    struct timer retry;
    struct bytes path;
    bool under_way;
    uint64_t began_ms;
    struct stream_answer answer; /* of this request, from its head on */
    int last_status;             /* of the last answer, this one or one before */
    int head_err;
    struct bytes body;
    struct sse_parser sse;
    struct piece *held; /* what came since the last position; NULL: nothing */
    bool moved;         /* this answer brought something */
    bool leave;         /* this answer has done its work: its end is no failure */

    enum follower_mode mode;
    char offset[STREAM_OFFSET_SIZE]; /* all before it is in the queue, or was handed out */
    char cursor[STREAM_CURSOR_SIZE];
    char content_type[STREAM_TYPE_SIZE];
    char end_reason[STREAM_REASON_SIZE];
    bool has_type;
    enum stream_kind kind;
    bool live;       /* caught up once */
    bool polls;      /* live by long-polling, not SSE */
    bool sse_worked; /* an event has come */
    bool gap;        /* the next piece tells */
    unsigned gaps;   /* since the last piece */
    bool ended;
    unsigned failures, idle; /* in a row */
    uint64_t good_ms;        /* when the server last answered well */
    bool ever_good;

    struct link queue;
    size_t queued;
    char told[STREAM_OFFSET_SIZE]; /* behind what was handed out */
    bool told_tail;                /* the last piece was up to date */
    bool nomem;
    int err;
    char message[STREAM_MESSAGE_SIZE];
};

/* The callbacks of its request and of its event stream. */
void follower_head(struct http_request *r);
int follower_data(struct http_request *r, struct str bytes);
int follower_event(void *ctx, const struct sse_event *event);

/* The request is over: 0, or what went wrong, with the message set. *may_pass says whether the same
 * request may do better later. */
int follower_end(struct tm_follower *f, int err, bool *may_pass);

/* Without catching up first: what the stream is made of need not be known. */
static inline bool follower_starts_live(const struct tm_follower *f)
{
    return f->live_option == TM_LIVE_SSE && !f->json_values;
}

void follower_drop_held(struct tm_follower *f);
void follower_free_piece(struct tm_follower *f, struct piece *p);
void follower_note_life(struct tm_follower *f); /* the server has answered well */
/* Sets the message and returns err. */
int follower_complain(struct tm_follower *f, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
