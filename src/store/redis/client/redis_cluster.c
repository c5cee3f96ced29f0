// SPDX-License-Identifier: Apache-2.0
/* A cluster: which server has which slot. The map is read as a whole (CLUSTER SLOTS) from any
 * server that answers, at the beginning and whenever something shows that it is out of date; a
 * redirection corrects one slot at once. */
#include "base/mem.h"
#include "base/num.h"
#include "net/loop.h"
#include "store/redis/client/redis_core.h"
#include "store/redis/client/resp.h"

#include <stdlib.h>

#define NODES_MAX     1000 /* what Redis itself recommends at most */
#define REFRESH_MS    100  /* between two readings of the map, however many ask for it */
#define HOST_AND_PORT 2

struct redis_cluster {
    struct redis *redis;
    struct redis_node *slots[REDIS_SLOTS]; /* NULL: nobody's */
    struct redis_link *asked;              /* NULL: none is */
    struct redis_addr addr;                /* of that one */
    size_t next; /* of those to be asked: the nodes that are up, then the places of the URL */
    bool is_wanted;
    struct timer again;
    struct redis_pause pause;
};

/* ---- slots ---- */

/* CRC-16/XMODEM, by which Redis distributes keys. */
static unsigned crc16(struct str s)
{
    unsigned crc = 0;
    for (size_t i = 0; i < s.n; i++) {
        crc ^= (unsigned)(unsigned char)s.p[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    }
    return crc & 0xffff;
}

struct str redis_hash_tag(struct str key)
{
    str_cut(&key, '{');
    struct str tag = key.p != NULL ? str_cut(&key, '}') : STR_NONE;
    return key.p != NULL && tag.n > 0 ? tag : STR_NONE;
}

unsigned redis_slot(struct str key)
{
    struct str tag = redis_hash_tag(key);
    return crc16(tag.p != NULL ? tag : key) % REDIS_SLOTS;
}

struct redis_node *redis_cluster_node(struct redis_cluster *c, struct str key)
{
    return c->slots[redis_slot(key)];
}

struct redis_node *redis_cluster_any(struct redis_cluster *c)
{
    const struct redis *r = c->redis;
    list_each (l, &r->nodes)
        if (redis_node_is_up(list_item(l, struct redis_node, in)))
            return list_item(l, struct redis_node, in);
    return list_empty(&r->nodes) ? NULL : list_item(r->nodes.next, struct redis_node, in);
}

/* ---- nodes ---- */

static size_t count_nodes(const struct redis *r)
{
    size_t n = 0;
    list_each (l, &r->nodes)
        n++;
    return n;
}

/* The one at this place, new if need be; NULL: there are too many. */
static struct redis_node *node_at(struct redis *r, const struct redis_addr *addr)
{
    list_each (l, &r->nodes)
        if (redis_addr_eq(&list_item(l, struct redis_node, in)->addr, addr))
            return list_item(l, struct redis_node, in);
    if (count_nodes(r) == NODES_MAX)
        return NULL;
    struct redis_node *n = redis_node_new(r, addr);
    redis_node_connect(n);
    return n;
}

/* A server that does not know its own name is where the one is who told of it. */
static int redis_cluster_take_addr(struct str host, uint64_t port, const struct redis_addr *teller,
                                   struct redis_addr *out)
{
    if (host.n > REDIS_HOST_MAX || port == 0 || port > UINT16_MAX ||
        (host.n > 0 && memchr(host.p, '\0', host.n) != NULL))
        return -1;
    *out = (struct redis_addr){.port = (uint16_t)port};
    if (host.n > 0)
        memcpy(out->host, host.p, host.n);
    else
        memcpy(out->host, teller->host, sizeof out->host);
    return 0;
}

/* ---- redirections ---- */

struct redis_node *redis_cluster_redirect(struct redis_cluster *c, const struct redis_node *from,
                                          struct str text)
{
    uint64_t slot, port;
    struct redis_addr addr;
    bool is_moved = str_eq(str_cut(&text, ' '), STR("MOVED"));
    struct str slot_text = str_cut(&text, ' ');
    size_t colon = text.n;
    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    if (colon == 0 || num_parse(slot_text, REDIS_SLOTS - 1, &slot) != 0 ||
        num_parse(str_skip(text, colon), UINT16_MAX, &port) != 0 ||
        redis_cluster_take_addr(str_of(text.p, colon - 1), port, &from->addr, &addr) != 0)
        return NULL;
    struct redis_node *n = node_at(c->redis, &addr);
    if (n != NULL && is_moved)
        c->slots[slot] = n;
    if (is_moved)
        redis_cluster_refresh(c);
    return n;
}

/* ---- the map ---- */

struct slot_range {
    uint64_t first, last;
    struct redis_addr addr;
};

/* `first, last, [host, port, ...], replicas...` */
static int take_range(const struct redis_cluster *c, const struct redisReply *row,
                      struct slot_range *out)
{
    if (row->type != REDIS_REPLY_ARRAY || row->elements < 3 ||
        row->element[0]->type != REDIS_REPLY_INTEGER ||
        row->element[1]->type != REDIS_REPLY_INTEGER)
        return -1;
    const struct redisReply *server = row->element[2];
    long long first = row->element[0]->integer, last = row->element[1]->integer;
    if (first < 0 || last < first || last >= REDIS_SLOTS || server->type != REDIS_REPLY_ARRAY ||
        server->elements < HOST_AND_PORT || server->element[1]->type != REDIS_REPLY_INTEGER ||
        server->element[1]->integer < 0)
        return -1;
    out->first = (uint64_t)first;
    out->last = (uint64_t)last;
    return redis_cluster_take_addr(resp_text(server->element[0]),
                                   (uint64_t)server->element[1]->integer, &c->addr, &out->addr);
}

/* How many slots are somebody's; -1: this is not a map. */
static int take_map(struct redis_cluster *c, const struct redisReply *reply)
{
    struct slot_range range;
    int covered = 0;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements > REDIS_SLOTS)
        return -1;
    for (size_t i = 0; i < reply->elements; i++)
        if (take_range(c, reply->element[i], &range) != 0)
            return -1;
    list_each (l, &c->redis->nodes)
        list_item(l, struct redis_node, in)->n_slots = 0;
    memset(c->slots, 0, sizeof c->slots);
    for (size_t i = 0; i < reply->elements; i++) {
        take_range(c, reply->element[i], &range);
        struct redis_node *n = node_at(c->redis, &range.addr);
        for (uint64_t slot = range.first; n != NULL && slot <= range.last; slot++) {
            covered += c->slots[slot] == NULL;
            c->slots[slot] = n;
            n->n_slots++;
        }
    }
    return covered;
}

/* What waits for a server that has lost its slots, or is down, is sent where the map says now. */
static void follow_map(struct redis_cluster *c)
{
    struct redis *r = c->redis;
    list_each_safe (l, &r->nodes) {
        struct redis_node *n = list_item(l, struct redis_node, in);
        if (!redis_node_is_up(n))
            list_splice(&r->parked, &n->waiting);
        if (n->n_slots == 0)
            redis_node_free(n);
    }
    redis_dispatch_parked(r);
    redis_pubsub_settle(r);
}

/* ---- reading it ---- */

static void ask_again(struct redis_cluster *c, uint32_t after_ms)
{
    if (c->redis->stage == REDIS_RUNNING && !timer_running(&c->again))
        sched_start(&c->redis->loop->sched, &c->again, after_ms);
}

void redis_cluster_refresh(struct redis_cluster *c)
{
    if (c->asked == NULL)
        ask_again(c, REFRESH_MS);
    else
        c->is_wanted = true; /* what is on its way may be older than the reason */
}

static void redis_cluster_on_ready(void *ctx)
{
    struct redis_cluster *c = ctx;
    const struct str words[] = {STR("CLUSTER"), STR("SLOTS")};
    redis_link_put(c->asked, resp_encode(words, 2, NULL, 0), c);
}

static void redis_cluster_fail(struct redis_cluster *c, const char *why)
{
    char addr[REDIS_ADDR_TEXT];
    redis_addr_format(&c->addr, addr);
    if (redis_cluster_any(c) == NULL)
        redis_note(c->redis, false, addr, why);
    ask_again(c, redis_pause_next(&c->pause));
}

static void redis_cluster_on_reply(void *ctx, void *tag, const struct redisReply *reply)
{
    struct redis_cluster *c = ctx;
    redis_link_close(c->asked);
    c->asked = NULL;
    int covered = take_map(c, reply);
    if (covered <= 0) {
        redis_cluster_fail(c, covered < 0 ? "has no map of a cluster"
                                          : "is in a cluster without slots");
        return;
    }
    if (covered < REDIS_SLOTS) {
        ask_again(c, redis_pause_next(&c->pause));
    } else {
        c->pause.ms = 0;
        if (c->is_wanted)
            ask_again(c, REFRESH_MS);
    }
    c->is_wanted = false;
    follow_map(c);
}

static void redis_cluster_on_down(void *ctx, const char *why)
{
    struct redis_cluster *c = ctx;
    c->asked = NULL;
    redis_cluster_fail(c, why);
}

static const struct redis_link_ops link_ops = {redis_cluster_on_ready, redis_cluster_on_reply,
                                               redis_cluster_on_down};

/* Everybody has their turn: one alone may be cut off from the others and not know. Those that are
 * down are left out, unless the URL names them. */
static void choose_addr(struct redis_cluster *c)
{
    const struct redis_url *u = c->redis->url;
    size_t n_ready = 0;
    list_each (l, &c->redis->nodes)
        n_ready += redis_node_is_up(list_item(l, struct redis_node, in));
    size_t turn = c->next++ % (n_ready + u->n_addrs);
    if (turn >= n_ready) {
        c->addr = u->addrs[turn - n_ready];
        return;
    }
    list_each (l, &c->redis->nodes) {
        const struct redis_node *n = list_item(l, struct redis_node, in);
        if (redis_node_is_up(n) && turn-- == 0)
            c->addr = n->addr;
    }
}

static void redis_cluster_ask(struct redis_cluster *c)
{
    choose_addr(c);
    c->asked = redis_link_open(c->redis, &c->addr, REDIS_QUESTIONS, &link_ops, c);
}

static void redis_cluster_on_again(struct timer *t)
{
    struct redis_cluster *c = container_of(t, struct redis_cluster, again);
    if (c->asked == NULL)
        redis_cluster_ask(c);
}

/* ---- the whole ---- */

struct redis_cluster *redis_cluster_new(struct redis *r)
{
    struct redis_cluster *c = mem_zalloc(sizeof *c);
    c->redis = r;
    timer_init(&c->again, redis_cluster_on_again);
    redis_cluster_ask(c);
    return c;
}

void redis_cluster_free(struct redis_cluster *c)
{
    if (c == NULL)
        return;
    redis_link_close(c->asked);
    timer_stop(&c->again);
    free(c);
}
