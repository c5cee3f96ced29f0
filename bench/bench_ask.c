// SPDX-License-Identifier: Apache-2.0
/* Requests, and the simple exchanges that surround a measurement. */
#include "bench.h"

#include "base/mem.h"

#include <stdlib.h>
#include <unistd.h>

struct name stream_name(const char *phase, unsigned number)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "bench-%d-%s-%05u", (int)getpid(), phase, number);
    return name;
}

static void put_start(struct buf *out, const char *method, struct name stream, const char *query)
{
    buf_printf(out, "%s /v1/stream/%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\n", method, stream.text,
               query);
}

void request_create(struct buf *out, struct name stream, const char *type, struct str body)
{
    put_start(out, "PUT", stream, "");
    buf_printf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n", type, body.n);
    buf_put(out, body);
}

void request_delete(struct buf *out, struct name stream)
{
    put_start(out, "DELETE", stream, "");
    buf_put(out, STR("\r\n"));
}

void request_append(struct buf *out, struct name stream, const char *type, struct str body)
{
    put_start(out, "POST", stream, "");
    buf_printf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n", type, body.n);
    buf_put(out, body);
}

void request_read(struct buf *out, struct name stream, const char *offset, bool sse)
{
    char query[ANSWER_OFFSET_MAX + 32];
    snprintf(query, sizeof query, "?offset=%s%s", offset, sse ? "&live=sse" : "");
    put_start(out, "GET", stream, query);
    buf_put(out, STR("\r\n"));
}

struct asker {
    struct peer peer;
    struct tally *tally; /* NULL: bodies are not looked at */
    struct buf *body;    /* or kept; may be NULL */
    bool done;
};

static void asker_body(struct peer *p, struct str piece)
{
    struct asker *a = container_of(p, struct asker, peer);
    if (a->tally)
        tally_feed(a->tally, piece);
    if (a->body)
        buf_put(a->body, piece);
}

static void asker_end(struct peer *p)
{
    container_of(p, struct asker, peer)->done = true;
}

static bool asker_done(void *arg)
{
    return ((struct asker *)arg)->done;
}

static const struct peer_ops asker_ops = {.body = asker_body, .end = asker_end};

/* Sends *request, frees it, waits. ASK_2XX and ASK_ANY will do, too. The answer's status and
 * headers are in a->peer.answer. */
static void ask(struct bench *b, struct asker *a, struct buf *request, int status, const char *what)
{
    a->done = false;
    peer_open(&a->peer, &b->swarm, &asker_ops);
    peer_send(&a->peer, buf_str(request));
    swarm_run(&b->swarm, "an answer", asker_done, a);
    bool good = status == ASK_ANY || (status == ASK_2XX && a->peer.answer.status / 100 == 2);
    if (!b->swarm.failed && !good)
        peer_expect(&a->peer, status, what);
    peer_close(&a->peer);
    buf_deinit(request);
}

void ask_create(struct bench *b, struct name stream, const char *type)
{
    struct asker a = {0};
    struct buf request = {0};
    request_create(&request, stream, type, STR_NONE);
    ask(b, &a, &request, 201, "creating a stream");
}

void ask_confirm(struct bench *b, struct name stream, const char *type)
{
    struct asker a = {0};
    struct buf request = {0};
    request_create(&request, stream, type, STR_NONE);
    ask(b, &a, &request, ASK_2XX, "creating a stream, or finding it");
}

void ask_for(struct bench *b, struct buf *request, int status, const char *what, struct buf *body)
{
    struct asker a = {.body = body};
    ask(b, &a, request, status, what);
}

void ask_delete(struct bench *b, struct name stream)
{
    struct asker a = {0};
    struct buf request = {0};
    request_delete(&request, stream);
    ask(b, &a, &request, 204, "deleting a stream");
}

void ask_append(struct bench *b, struct name stream, const char *type, struct str body,
                char next[ANSWER_OFFSET_MAX])
{
    struct asker a = {0};
    struct buf request = {0};
    request_append(&request, stream, type, body);
    ask(b, &a, &request, 204, "appending");
    if (next)
        memcpy(next, a.peer.answer.next_offset, ANSWER_OFFSET_MAX);
}

void ask_read(struct bench *b, struct name stream, int status)
{
    struct asker a = {0};
    struct buf request = {0};
    request_read(&request, stream, "-1", false);
    ask(b, &a, &request, status, "reading a stream");
}

unsigned ask_all(struct bench *b, struct name stream, struct tally *into)
{
    unsigned requests = 0;
    struct asker a = {.tally = into};
    char offset[ANSWER_OFFSET_MAX] = "-1";
    do {
        struct buf request = {0};
        request_read(&request, stream, offset, false);
        ask(b, &a, &request, 200, "reading a stream");
        if (!b->swarm.failed && strcmp(offset, a.peer.answer.next_offset) == 0 &&
            !a.peer.answer.up_to_date)
            swarm_fail(&b->swarm, "a read neither advances nor says that it is up to date");
        memcpy(offset, a.peer.answer.next_offset, sizeof offset);
        requests++;
    } while (!b->swarm.failed && !a.peer.answer.up_to_date);
    return requests;
}
