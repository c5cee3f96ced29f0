// SPDX-License-Identifier: Apache-2.0
/* What makes documents: sessions and subscriptions. */
#include "bench_h2.h"
#include "bench_scale.h"

#include "base/mem.h"

#include <stdlib.h>

#define CONNECTIONS   16
#define SESSION_DEPTH 50 /* calls under way on a connection */
#define SESSION_PATH  "/tidemark.v1.SessionService/Stream"
#define SECRET        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" /* 32 bytes */

/* ---- sessions: a call that says nothing is welcomed and ends; the session stays ---- */

struct opening {
    struct bench *bench;
    unsigned n, asked;
    struct caller {
        struct h2 h2;
        struct opening *opening;
    } callers[CONNECTIONS];
};

static void fill_calls(struct h2 *c)
{
    struct opening *o = container_of(c, struct caller, h2)->opening;
    if (c->refused > 0)
        swarm_fail(c->swarm, "a session was refused");
    while (o->asked < o->n && c->asked - c->ended < SESSION_DEPTH && !c->swarm->failed) {
        struct name key = stream_name("session", o->asked++);
        const struct h2_header headers[] = {
            {"content-type", "application/connect+proto"},
            {"connect-protocol-version", "1"},
            {"x-idempotency-key", key.text},
            {"x-idempotent-encryption-key", SECRET},
        };
        h2_call(c, "POST", SESSION_PATH, headers, sizeof headers / sizeof *headers);
    }
}

static bool all_ended(void *arg)
{
    const struct opening *o = arg;
    uint64_t ended = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        ended += o->callers[i].h2.ended;
    return ended == o->n;
}

void scale_add_sessions(struct bench *b, unsigned n)
{
    struct opening *o = mem_zalloc(sizeof *o);
    o->bench = b;
    o->n = n;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct caller *c = &o->callers[i];
        c->opening = o;
        h2_open(&c->h2, &b->swarm, 1 << 20, fill_calls);
        fill_calls(&c->h2);
        h2_flush(&c->h2);
    }
    swarm_run(&b->swarm, "sessions to be opened", all_ended, o);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        h2_close(&o->callers[i].h2);
    free(o);
}

/* ---- subscriptions ---- */

static void put_subscription(struct buf *out, const char *id, const char *member, const char *value)
{
    struct name wakes = stream_name("wakes", 0);
    struct buf body = {0};
    buf_printf(&body, "{\"type\":\"pull-wake\",\"%s\":%s,\"wake_stream\":\"%s\"}", member, value,
               wakes.text);
    buf_printf(out,
               "PUT /v1/stream/__ds/subscriptions/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
               id, body.n);
    buf_put(out, buf_str(&body));
    buf_deinit(&body);
}

void scale_put_subscription(struct bench *b, const char *id, const char *pattern)
{
    struct buf request = {0};
    char quoted[NAME_MAX_BYTES + 2];
    snprintf(quoted, sizeof quoted, "\"%s\"", pattern);
    ask_confirm(b, stream_name("wakes", 0), TYPE_JSON);
    put_subscription(&request, id, "pattern", quoted);
    ask_for(b, &request, 201, "creating a subscription", NULL);
}

void scale_drop_subscription(struct bench *b, const char *id)
{
    struct buf request = {0};
    buf_printf(&request,
               "DELETE /v1/stream/__ds/subscriptions/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id);
    ask_for(b, &request, 204, "deleting a subscription", NULL);
}

static void put_one(struct buf *out, struct name stream, void *arg)
{
    char member[NAME_MAX_BYTES + 4];
    snprintf(member, sizeof member, "[\"%s\"]", stream.text);
    put_subscription(out, stream.text, "streams", member);
}

void scale_add_subscriptions(struct bench *b, unsigned n)
{
    ask_confirm(b, stream_name("wakes", 0), TYPE_JSON);
    pump_each(b, "linked", n, put_one, NULL, 201, "creating a subscription");
}
