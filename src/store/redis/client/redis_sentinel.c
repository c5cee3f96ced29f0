// SPDX-License-Identifier: Apache-2.0
/* Sentinels know which server is the primary: they are asked before each connection to it, and one
 * of them tells when another has taken over. What they say is checked: a replica takes no calls. */
#include "base/mem.h"
#include "base/num.h"
#include "net/loop.h"
#include "store/redis/client/redis_core.h"
#include "store/redis/client/resp.h"

#include <stdlib.h>

struct redis_sentinel {
    struct redis *redis;
    struct redis_link *asked; /* NULL: none is */
    size_t next_asked, n_failed;
    struct redis_link *watched; /* NULL: none is */
    size_t next_watched;
    struct timer again; /* to watch one */
    struct redis_pause pause;
};

static struct redis_node *primary(const struct redis_sentinel *s)
{
    return list_item(s->redis->nodes.next, struct redis_node, in);
}

static const struct redis_addr *redis_sentinel_turn(const struct redis_sentinel *s, size_t *next)
{
    const struct redis_url *u = s->redis->url;
    return &u->addrs[(*next)++ % u->n_addrs];
}

static int redis_sentinel_take_addr(struct str host, struct str port, struct redis_addr *out)
{
    uint64_t number;
    if (host.n == 0 || host.n > REDIS_HOST_MAX || memchr(host.p, '\0', host.n) != NULL ||
        num_parse(port, UINT16_MAX, &number) != 0 || number == 0)
        return -1;
    *out = (struct redis_addr){.port = (uint16_t)number};
    memcpy(out->host, host.p, host.n);
    return 0;
}

static void go_to(struct redis_sentinel *s, const struct redis_addr *addr)
{
    struct redis_node *n = primary(s);
    s->n_failed = 0;
    redis_node_move(n, addr);
    redis_node_connect(n);
}

/* ---- asking ---- */

static void ask_next(struct redis_sentinel *s, const char *why);

static void redis_sentinel_on_asked_ready(void *ctx)
{
    struct redis_sentinel *s = ctx;
    const struct str words[] = {STR("SENTINEL"), STR("get-master-addr-by-name"),
                                s->redis->url->name};
    redis_link_put(s->asked, resp_encode(words, 3, NULL, 0), s);
}

static void redis_sentinel_on_asked_reply(void *ctx, void *tag, const struct redisReply *reply)
{
    struct redis_sentinel *s = ctx;
    struct redis_addr addr;
    redis_link_close(s->asked);
    s->asked = NULL;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        redis_sentinel_take_addr(resp_text(reply->element[0]), resp_text(reply->element[1]),
                                 &addr) != 0)
        ask_next(s, "know no primary of that name");
    else
        go_to(s, &addr);
}

static void redis_sentinel_on_asked_down(void *ctx, const char *why)
{
    struct redis_sentinel *s = ctx;
    s->asked = NULL;
    ask_next(s, why);
}

static const struct redis_link_ops asked_ops = {
    redis_sentinel_on_asked_ready, redis_sentinel_on_asked_reply, redis_sentinel_on_asked_down};

static void open_asked(struct redis_sentinel *s)
{
    s->asked = redis_link_open(s->redis, redis_sentinel_turn(s, &s->next_asked), REDIS_QUESTIONS,
                               &asked_ops, s);
}

/* When none of them was of help, it is up to the node to come back after a pause. */
static void ask_next(struct redis_sentinel *s, const char *why)
{
    if (++s->n_failed < s->redis->url->n_addrs) {
        open_asked(s);
        return;
    }
    s->n_failed = 0;
    struct redis_node *n = primary(s);
    redis_note(s->redis, redis_node_is_up(n), "Sentinels:", why);
    if (n->link == NULL)
        redis_node_again(n);
}

void redis_sentinel_ask(struct redis_sentinel *s)
{
    if (s->asked == NULL && s->redis->stage == REDIS_RUNNING)
        open_asked(s);
}

/* ---- watching ---- */

static void redis_sentinel_on_watched_ready(void *ctx)
{
    struct redis_sentinel *s = ctx;
    const struct str words[] = {STR("SUBSCRIBE"), STR("+switch-master")};
    redis_link_put(s->watched, resp_encode(words, 2, NULL, 0), s);
    s->pause.ms = 0;
}

/* `NAME old-host old-port new-host new-port` */
static void take_switch(struct redis_sentinel *s, struct str text)
{
    struct redis_addr addr;
    struct str name = str_cut(&text, ' ');
    str_cut(&text, ' ');
    str_cut(&text, ' ');
    struct str host = str_cut(&text, ' ');
    if (str_eq(name, s->redis->url->name) && redis_sentinel_take_addr(host, text, &addr) == 0)
        go_to(s, &addr);
}

static void redis_sentinel_on_watched_reply(void *ctx, void *tag, const struct redisReply *reply)
{
    struct redis_sentinel *s = ctx;
    if (reply->type == REDIS_REPLY_ERROR)
        redis_link_fail(s->watched, "refuses a subscription");
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
        return;
    struct str word = resp_text(reply->element[0]);
    if (str_eq(word, STR("subscribe")))
        redis_sentinel_ask(s); /* it may have happened just before */
    else if (str_eq(word, STR("message")))
        take_switch(s, resp_text(reply->element[2]));
}

static void redis_sentinel_on_watched_down(void *ctx, const char *why)
{
    struct redis_sentinel *s = ctx;
    s->watched = NULL;
    sched_start(&s->redis->loop->sched, &s->again, redis_pause_next(&s->pause));
}

static const struct redis_link_ops watched_ops = {redis_sentinel_on_watched_ready,
                                                  redis_sentinel_on_watched_reply,
                                                  redis_sentinel_on_watched_down};

static void open_watched(struct redis_sentinel *s)
{
    s->watched = redis_link_open(s->redis, redis_sentinel_turn(s, &s->next_watched), REDIS_MESSAGES,
                                 &watched_ops, s);
}

static void redis_sentinel_on_again(struct timer *t)
{
    open_watched(container_of(t, struct redis_sentinel, again));
}

/* ---- the whole ---- */

struct redis_sentinel *redis_sentinel_new(struct redis *r)
{
    struct redis_sentinel *s = mem_zalloc(sizeof *s);
    s->redis = r;
    timer_init(&s->again, redis_sentinel_on_again);
    open_asked(s);
    open_watched(s);
    return s;
}

void redis_sentinel_free(struct redis_sentinel *s)
{
    if (s == NULL)
        return;
    redis_link_close(s->asked);
    redis_link_close(s->watched);
    timer_stop(&s->again);
    free(s);
}
