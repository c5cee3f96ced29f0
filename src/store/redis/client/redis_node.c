// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/redis/client/redis_core.h"
#include "store/redis/client/resp.h"

#include <stdlib.h>

#define RETIRED_MS 100

/* ---- calls ---- */

static void send_call(struct redis_node *n, struct redis_call *c)
{
    c->state = REDIS_SENT;
    c->number = redis_link_put(n->link, redis_encode(n->redis, c), c);
    list_push(&n->sent, &c->link);
}

static bool takes_calls(const struct redis_node *n)
{
    return n->state == REDIS_NODE_READY;
}

/* The reply to ASKING is of no interest: if it was refused, so is the call behind it. */
static void put_asking(struct redis_node *n)
{
    const struct str word = STR("ASKING");
    uint64_t number = redis_link_put(n->link, resp_encode(&word, 1, NULL, 0), n);
    redis_link_forget(n->link, number, 0);
}

void redis_node_take(struct redis_node *n, struct redis_call *c, bool asking)
{
    c->node = n;
    c->state = REDIS_WAITING;
    if (!takes_calls(n)) {
        list_push(&n->waiting, &c->link);
        return;
    }
    if (asking)
        put_asking(n);
    send_call(n, c);
}

static void send_waiting(struct redis_node *n)
{
    while (!list_empty(&n->waiting)) {
        struct redis_call *c = list_item(n->waiting.next, struct redis_call, link);
        list_remove(&c->link);
        send_call(n, c);
    }
}

/* The connection is gone: what was sent may have been done. Those that may be done twice go on
 * first, in their order. */
static void retry_sent(struct redis_node *n)
{
    struct link lost, again;
    list_init(&lost);
    list_init(&again);
    list_splice(&lost, &n->sent);
    while (!list_empty(&lost)) {
        struct redis_call *c = list_item(lost.next, struct redis_call, link);
        list_remove(&c->link);
        c->state = REDIS_WAITING;
        c->maybe_done = true;
        if (c->sent == REDIS_AGAIN)
            list_push(&again, &c->link);
        else
            redis_end(n->redis, c, ERR_UPSTREAM, NULL, STR_NONE);
    }
    list_splice(&again, &n->waiting);
    list_splice(&n->waiting, &again);
}

void redis_node_forget(struct redis_node *n, struct redis_call *c)
{
    redis_link_forget(n->link, c->number, c->bytes);
    list_remove(&c->link);
}

/* ---- its link ---- */

static void redis_node_on_ready(void *ctx)
{
    struct redis_node *n = ctx;
    n->state = REDIS_NODE_READY;
    n->pause.ms = 0;
    send_waiting(n); /* first: who is told may have more */
    redis_note(n->redis, true, "", "");
}

static void drop_if_idle(struct redis_node *n)
{
    if (n->state == REDIS_NODE_RETIRING && redis_link_waiting(n->link) == 0)
        redis_link_fail(n->link, n->retiring_why);
}

static void redis_node_on_reply(void *ctx, void *tag, const struct redisReply *reply)
{
    struct redis_node *n = ctx;
    struct redis_call *c = tag;
    if (c != NULL) {
        list_remove(&c->link);
        redis_take_reply(n, c, reply);
    }
    drop_if_idle(n);
}

static void forget_link(struct redis_node *n)
{
    n->link = NULL;
    n->state = REDIS_NODE_DOWN;
}

static bool is_any_ready(const struct redis *r)
{
    list_each (l, &r->nodes)
        if (redis_node_is_up(list_item(l, struct redis_node, in)))
            return true;
    return false;
}

static void redis_node_on_down(void *ctx, const char *why)
{
    struct redis_node *n = ctx;
    struct redis *r = n->redis;
    char addr[REDIS_ADDR_TEXT];
    forget_link(n);
    redis_addr_format(&n->addr, addr);
    redis_note(r, is_any_ready(r), addr, why);
    redis_node_again(n); /* first: what follows may free the node's calls, and stop everything */
    retry_sent(n);
}

static const struct redis_link_ops link_ops = {redis_node_on_ready, redis_node_on_reply,
                                               redis_node_on_down};

void redis_node_connect(struct redis_node *n)
{
    timer_stop(&n->again);
    if (n->state != REDIS_NODE_DOWN || n->redis->stage != REDIS_RUNNING)
        return;
    n->state = REDIS_NODE_CONNECTING;
    n->link = redis_link_open(n->redis, &n->addr, REDIS_CALLS, &link_ops, n);
}

void redis_node_move(struct redis_node *n, const struct redis_addr *addr)
{
    if (n->is_placed && redis_addr_eq(&n->addr, addr))
        return;
    struct redis_link *old = n->link;
    forget_link(n);
    redis_link_close(old);
    n->addr = *addr;
    n->is_placed = true;
    redis_pubsub_move(n->pubsub);
    retry_sent(n);
}

void redis_node_retire(struct redis_node *n, const char *why)
{
    n->state = REDIS_NODE_RETIRING;
    n->retiring_why = why;
    if (n->pause.ms < RETIRED_MS)
        n->pause.ms = RETIRED_MS; /* it connects well enough, so that nothing else slows us down */
}

static void redis_node_on_again(struct timer *t)
{
    struct redis_node *n = container_of(t, struct redis_node, again);
    if (n->redis->sentinel != NULL)
        redis_sentinel_ask(n->redis->sentinel);
    else
        redis_node_connect(n);
}

void redis_node_again(struct redis_node *n)
{
    if (n->redis->stage != REDIS_RUNNING)
        return;
    if (n->redis->cluster != NULL)
        redis_cluster_refresh(n->redis->cluster);
    sched_start(&n->redis->loop->sched, &n->again, redis_pause_next(&n->pause));
}

struct redis_node *redis_node_new(struct redis *r, const struct redis_addr *addr)
{
    struct redis_node *n = mem_zalloc(sizeof *n);
    n->redis = r;
    list_init(&n->waiting);
    list_init(&n->sent);
    timer_init(&n->again, redis_node_on_again);
    list_push(&r->nodes, &n->in);
    if (addr != NULL) {
        n->addr = *addr;
        n->is_placed = true;
    }
    return n;
}

void redis_node_free(struct redis_node *n)
{
    struct redis *r = n->redis;
    struct redis_link *old = n->link;
    forget_link(n);
    redis_link_close(old);
    timer_stop(&n->again);
    list_remove(&n->in);
    redis_pubsub_free(n->pubsub);
    retry_sent(n);
    while (!list_empty(&n->waiting)) {
        struct redis_call *c = list_item(n->waiting.next, struct redis_call, link);
        list_remove(&c->link);
        c->node = NULL;
        list_push(&r->parked, &c->link);
    }
    free(n);
}
