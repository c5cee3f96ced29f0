// SPDX-License-Identifier: Apache-2.0
/* Subscriptions: each server that has some has a connection of its own for them. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/must.h"
#include "net/loop.h"
#include "store/redis/client/redis_core.h"
#include "store/redis/client/resp.h"

#include <stdio.h>
#include <stdlib.h>

struct redis_pubsub {
    struct redis_node *node;
    struct redis_link *link; /* NULL: none */
    bool is_ready;
    struct link channels; /* that live here */
    size_t to_confirm;    /* of those that were asked for when the link was made */
    struct timer again;
    struct redis_pause pause;
    bool is_down_reported; /* has been told */
};

enum kind { PLAIN, PREFIX, SHARDED };

struct words {
    struct str subscribe, unsubscribe, message;
};
static const struct words words[] = {
    [PLAIN] = {STR_INIT("subscribe"), STR_INIT("unsubscribe"), STR_INIT("message")},
    [PREFIX] = {STR_INIT("psubscribe"), STR_INIT("punsubscribe"), STR_INIT("pmessage")},
    [SHARDED] = {STR_INIT("ssubscribe"), STR_INIT("sunsubscribe"), STR_INIT("smessage")},
};
#define KINDS (sizeof words / sizeof *words)

struct redis_channel {
    struct link in;            /* its home's channels */
    struct redis_pubsub *home; /* NULL: nowhere yet */
    uint32_t count;
    enum kind kind;
    bool is_asked;   /* on the home's present link */
    struct str name; /* as the caller says it */
    struct str key;  /* a byte for the kind, and the name as Redis says it */
    char text[];
};

static struct str wire_name(const struct redis_channel *ch)
{
    return str_skip(ch->key, 1);
}

/* ---- one channel ---- */

static void redis_pubsub_ask(struct redis_channel *ch, struct str word)
{
    const struct str command[] = {word, wire_name(ch)};
    redis_link_put(ch->home->link, resp_encode(command, 2, NULL, 0), ch);
}

static void join(struct redis_channel *ch)
{
    if (ch->home == NULL || !ch->home->is_ready || ch->is_asked)
        return;
    ch->is_asked = true;
    redis_pubsub_ask(ch, words[ch->kind].subscribe);
}

static void redis_pubsub_leave(struct redis_channel *ch)
{
    if (ch->home != NULL && ch->home->is_ready && ch->is_asked)
        redis_pubsub_ask(ch, words[ch->kind].unsubscribe);
    list_remove(&ch->in);
    ch->home = NULL;
    ch->is_asked = false;
}

static void free_channel(struct redis *r, struct redis_channel *ch)
{
    redis_pubsub_leave(ch);
    map_remove(&r->channels, ch->key);
    free(ch);
}

static struct redis_node *node_for(struct redis *r, const struct redis_channel *ch)
{
    if (r->stage != REDIS_RUNNING || list_empty(&r->nodes))
        return NULL;
    if (r->cluster == NULL)
        return list_item(r->nodes.next, struct redis_node, in);
    return ch->kind == SHARDED ? redis_cluster_node(r->cluster, ch->name)
                               : redis_cluster_any(r->cluster);
}

/* Where it belongs now. One that belongs to no slot stays where it is. */
static void redis_pubsub_settle_channel(struct redis *r, struct redis_channel *ch)
{
    if (ch->home == NULL || ch->kind == SHARDED) {
        struct redis_node *n = node_for(r, ch);
        if (n != NULL && n->pubsub == NULL)
            n->pubsub = redis_pubsub_new(n);
        struct redis_pubsub *home = n != NULL ? n->pubsub : NULL;
        if (home != ch->home) {
            redis_pubsub_leave(ch);
            ch->home = home;
            if (home != NULL)
                list_push(&home->channels, &ch->in);
        }
    }
    join(ch);
}

void redis_pubsub_settle(struct redis *r)
{
    size_t at = 0;
    struct redis_channel *ch;
    while ((ch = map_next(&r->channels, &at)) != NULL)
        redis_pubsub_settle_channel(r, ch);
}

/* ---- for callers ---- */

/* Everything that a pattern gives a meaning is escaped. */
static void put_pattern(struct buf *out, struct str prefix)
{
    for (size_t i = 0; i < prefix.n; i++) {
        if (memchr("*?[]\\", prefix.p[i], 5) != NULL)
            buf_putc(out, '\\');
        buf_putc(out, prefix.p[i]);
    }
    buf_putc(out, '*');
}

static void redis_pubsub_put_key(struct buf *out, enum kind kind, struct str name)
{
    buf_putc(out, (char)('0' + kind));
    if (kind == PREFIX)
        put_pattern(out, name);
    else
        buf_put(out, name);
}

static enum kind kind_of(const struct redis *r, struct str name)
{
    return r->cluster != NULL && redis_hash_tag(name).p != NULL ? SHARDED : PLAIN;
}

static void redis_pubsub_subscribe(struct redis *r, enum kind kind, struct str name)
{
    struct buf key = {0};
    redis_pubsub_put_key(&key, kind, name);
    struct redis_channel *ch = map_get(&r->channels, buf_str(&key));
    if (ch == NULL) {
        ch = mem_zalloc(sizeof *ch + key.n + name.n);
        memcpy(ch->text, key.p, key.n);
        memcpy(ch->text + key.n, name.p, name.n);
        ch->key = str_of(ch->text, key.n);
        ch->name = str_of(ch->text + key.n, name.n);
        ch->kind = kind;
        list_init(&ch->in);
        map_put(&r->channels, ch->key, ch);
        redis_pubsub_settle_channel(r, ch);
    }
    ch->count++;
    buf_deinit(&key);
}

void redis_subscribe(struct redis *r, struct str channel)
{
    redis_pubsub_subscribe(r, kind_of(r, channel), channel);
}

void redis_subscribe_prefix(struct redis *r, struct str prefix)
{
    redis_pubsub_subscribe(r, PREFIX, prefix);
}

void redis_unsubscribe(struct redis *r, struct str channel)
{
    struct buf key = {0};
    redis_pubsub_put_key(&key, kind_of(r, channel), channel);
    struct redis_channel *ch = map_get(&r->channels, buf_str(&key));
    buf_deinit(&key);
    must(ch != NULL);
    if (--ch->count == 0)
        free_channel(r, ch);
}

void redis_pubsub_drop_all(struct redis *r)
{
    size_t at = 0;
    struct redis_channel *ch;
    while ((ch = map_next(&r->channels, &at)) != NULL) {
        list_remove(&ch->in);
        free(ch);
    }
}

/* ---- what comes ---- */

static void confirm(struct redis_pubsub *p, enum kind kind, struct str wire)
{
    struct redis *r = p->node->redis;
    p->pause.ms = 0;
    p->is_down_reported = false;
    if (p->to_confirm > 0) {
        if (--p->to_confirm == 0)
            r->setup.missed(r->setup.ctx, STR_NONE);
        return;
    }
    struct buf key = {0};
    buf_putc(&key, (char)('0' + kind));
    buf_put(&key, wire);
    struct redis_channel *ch = map_get(&r->channels, buf_str(&key));
    buf_deinit(&key);
    if (ch != NULL && ch->home == p)
        r->setup.missed(r->setup.ctx, ch->name);
}

/* A cluster tells its subscribers when it moves their slot. */
static void drop_slot(struct redis_pubsub *p, struct str wire)
{
    struct redis *r = p->node->redis;
    struct buf key = {0};
    redis_pubsub_put_key(&key, SHARDED, wire);
    struct redis_channel *ch = map_get(&r->channels, buf_str(&key));
    buf_deinit(&key);
    if (ch == NULL || ch->home != p || !ch->is_asked)
        return; /* it was we who left */
    ch->is_asked = false;
    redis_cluster_refresh(r->cluster);
}

static void redis_pubsub_take_message(struct redis_pubsub *p, const struct redisReply *reply)
{
    struct redis *r = p->node->redis;
    size_t n = reply->elements;
    struct str word = resp_text(reply->element[0]);
    struct str channel = resp_text(reply->element[n - 2]), last = resp_text(reply->element[n - 1]);
    for (size_t i = 0; i < KINDS; i++) {
        if (str_eq(word, words[i].message) && n == (i == PREFIX ? 4 : 3)) {
            r->setup.message(r->setup.ctx, channel, last);
            return;
        }
        if (str_eq(word, words[i].subscribe) && n == 3) {
            confirm(p, (enum kind)i, channel);
            return;
        }
    }
    if (str_eq(word, words[SHARDED].unsubscribe) && n == 3 && r->cluster != NULL)
        drop_slot(p, channel);
}

static void redis_pubsub_on_reply(void *ctx, void *tag, const struct redisReply *reply)
{
    struct redis_pubsub *p = ctx;
    struct redis *r = p->node->redis;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2) {
        redis_pubsub_take_message(p, reply);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        char why[REDIS_WHY_MAX];
        struct str text = resp_text(reply);
        snprintf(why, sizeof why, "refuses a subscription: %.*s",
                 (int)(text.n < REDIS_WHY_MAX / 2 ? text.n : REDIS_WHY_MAX / 2), text.p);
        if (r->cluster != NULL)
            redis_cluster_refresh(r->cluster);
        redis_link_fail(p->link, why);
    }
}

/* ---- its link ---- */

static void redis_pubsub_on_ready(void *ctx)
{
    struct redis_pubsub *p = ctx;
    p->is_ready = true;
    p->to_confirm = 0;
    list_each (l, &p->channels) {
        struct redis_channel *ch = list_item(l, struct redis_channel, in);
        ch->is_asked = false;
        join(ch);
        p->to_confirm++;
    }
}

static void forget_link(struct redis_pubsub *p)
{
    p->link = NULL;
    p->is_ready = false;
    list_each (l, &p->channels)
        list_item(l, struct redis_channel, in)->is_asked = false;
}

static void notify_pubsub_down(struct redis_pubsub *p, const char *why)
{
    const struct redis_setup *setup = &p->node->redis->setup;
    char addr[REDIS_ADDR_TEXT], text[REDIS_ADDR_TEXT + REDIS_WHY_MAX];
    if (p->is_down_reported || setup->pubsub_down == NULL)
        return;
    p->is_down_reported = true;
    redis_addr_format(&p->node->addr, addr);
    snprintf(text, sizeof text, "%s %s", addr, why);
    setup->pubsub_down(setup->ctx, str_of_cstr(text));
}

static void redis_pubsub_on_down(void *ctx, const char *why)
{
    struct redis_pubsub *p = ctx;
    forget_link(p);
    notify_pubsub_down(p, why);
    sched_start(&p->node->redis->loop->sched, &p->again, redis_pause_next(&p->pause));
}

static const struct redis_link_ops link_ops = {redis_pubsub_on_ready, redis_pubsub_on_reply,
                                               redis_pubsub_on_down};

static void connect_link(struct redis_pubsub *p)
{
    struct redis_node *n = p->node;
    if (p->link == NULL && n->is_placed && n->redis->stage == REDIS_RUNNING)
        p->link = redis_link_open(n->redis, &n->addr, REDIS_MESSAGES, &link_ops, p);
}

static void redis_pubsub_on_again(struct timer *t)
{
    connect_link(container_of(t, struct redis_pubsub, again));
}

struct redis_pubsub *redis_pubsub_new(struct redis_node *n)
{
    struct redis_pubsub *p = mem_zalloc(sizeof *p);
    p->node = n;
    list_init(&p->channels);
    timer_init(&p->again, redis_pubsub_on_again);
    connect_link(p);
    return p;
}

static void drop_link(struct redis_pubsub *p)
{
    struct redis_link *old = p->link;
    forget_link(p);
    redis_link_close(old);
    timer_stop(&p->again);
}

void redis_pubsub_move(struct redis_pubsub *p)
{
    if (p == NULL)
        return;
    drop_link(p);
    connect_link(p);
}

void redis_pubsub_free(struct redis_pubsub *p)
{
    if (p == NULL)
        return;
    drop_link(p);
    list_each_safe (l, &p->channels) {
        struct redis_channel *ch = list_item(l, struct redis_channel, in);
        list_remove(&ch->in);
        ch->home = NULL;
    }
    free(p);
}
