// SPDX-License-Identifier: Apache-2.0
/* redis_core.h -- what the files of the Redis client share; redis.h is for everybody else.
 *
 * redis.c       calls: what waits, deadlines, what an error means
 * redis_node.c  one server that takes calls: its link, made anew whenever it breaks
 * redis_link.c  one connection
 * redis_pubsub.c, redis_sentinel.c, redis_cluster.c  as they are called
 *
 * A call is in the list of deadlines from beginning to end, and besides in one of: a node's waiting
 * or sent calls, or the parked ones, which have no node yet or have to wait for a moment. */
#ifndef STORE_REDIS_CLIENT_REDIS_CORE_H
#define STORE_REDIS_CLIENT_REDIS_CORE_H

#include "base/map.h"
#include "base/sched.h"
#include "store/redis/client/redis.h"
#include "store/redis/client/redis_link.h"
#include "store/redis/client/redis_url.h"

#define REDIS_SHA_HEX 40

/* How long to wait before the next try: longer each time, and never as long as others do. */
struct redis_pause {
    uint32_t ms; /* of the last; 0: begin with the shortest */
};
uint32_t redis_pause_next(struct redis_pause *p);

enum redis_state {
    REDIS_WAITING, /* in a node's waiting, or parked */
    REDIS_SENT,
};

/*      connect        ready()         unfit for calls
 * DOWN ------> CONNECTING ------> READY ------> RETIRING
 *
 * From each of them back to DOWN when the link breaks or the place is another; a node that retires
 * drops its link itself, when all is answered. */
enum redis_node_state {
    REDIS_NODE_DOWN,
    REDIS_NODE_CONNECTING,
    REDIS_NODE_READY,
    REDIS_NODE_RETIRING, /* nothing more is sent */
};

struct redis_node {
    struct redis *redis;
    struct link in; /* redis->nodes */
    struct redis_addr addr;
    bool is_placed; /* place is known */
    enum redis_node_state state;
    struct redis_link *link;   /* NULL: it is down */
    const char *retiring_why;  /* static */
    struct link waiting, sent; /* struct redis_call */
    struct timer again;
    struct redis_pause pause;
    struct redis_pubsub *pubsub; /* NULL: nothing was ever subscribed to here */
    uint32_t n_slots;            /* of a cluster's */
};

static inline bool redis_node_is_up(const struct redis_node *n)
{
    return n->state == REDIS_NODE_READY || n->state == REDIS_NODE_RETIRING;
}

/* Whether calls get through, as was told last. */
enum redis_health {
    REDIS_UNTOLD,
    REDIS_UP,
    REDIS_DOWN,
};

enum redis_stage {
    REDIS_RUNNING,
    REDIS_STOPPING, /* takes no calls; the nodes are freed in a task of its own */
    REDIS_STOPPED,  /* all that is left is what the loop closes */
};

struct redis {
    struct redis_setup setup;
    struct loop *loop;
    const struct redis_url *url;
    struct tls *tls;                 /* NULL: none yet, or not used */
    char (*shas)[REDIS_SHA_HEX];     /* of the setup's scripts, in their order */
    struct link nodes;               /* one, unless it is a cluster */
    struct redis_sentinel *sentinel; /* NULL: not watched by Sentinels */
    struct redis_cluster *cluster;   /* NULL: none */
    struct map channels;             /* struct redis_channel, by kind and name */
    struct link deadlines;           /* every call, the next to end first */
    struct timer alarm;              /* of the first, or earlier */
    struct link parked;
    struct timer later; /* runs while calls are parked that are to be tried again */
    size_t pending;     /* bytes of all calls, and of forgotten ones still to be answered */
    size_t n_calls, n_links;
    enum redis_health health;
    enum redis_stage stage;
    struct task stop, done;
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

/* ---- redis.c ---- */

/* The loop's time, also within a callback that ended a long sleep. */
uint64_t redis_now_ms(const struct redis *r);

/* Of the command as it is sent next. */
struct block *redis_encode(const struct redis *r, const struct redis_call *c);

/* Ends it: not in any list afterwards, done() has been called. */
void redis_end(struct redis *r, struct redis_call *c, int err, const struct redisReply *reply,
               struct str run);

/* What a node got for a call, which is in no list of the node's any more. */
void redis_take_reply(struct redis_node *n, struct redis_call *c, const struct redisReply *reply);

/* Finds the call a node, or parks it. */
void redis_dispatch(struct redis *r, struct redis_call *c);

/* Tries all parked calls. */
void redis_dispatch_parked(struct redis *r);

/* Whether calls get through, as far as is known now. */
void redis_note(struct redis *r, bool up, const char *subject, const char *why);

/* Looks whether all is over. */
void redis_check_stopped(struct redis *r);

/* `host:port` or the path. */
#define REDIS_ADDR_TEXT (REDIS_HOST_MAX + 10)
void redis_addr_format(const struct redis_addr *p, char out[REDIS_ADDR_TEXT]);
bool redis_addr_eq(const struct redis_addr *a, const struct redis_addr *b);

/* ---- redis_node.c ---- */

/* place: NULL: to be found by Sentinels. */
struct redis_node *redis_node_new(struct redis *r, const struct redis_addr *addr);
/* Its calls are parked or, where they may have been done, ended. */
void redis_node_free(struct redis_node *n);

/* Connects now, unless it is connected or just about to be. */
void redis_node_connect(struct redis_node *n);
/* The server is another one now; what was sent to the old one is lost. */
void redis_node_move(struct redis_node *n, const struct redis_addr *addr);
/* asking: of a cluster, this server has the slot as good as taken over. */
void redis_node_take(struct redis_node *n, struct redis_call *c, bool asking);
/* A call that is sent has had its time; it is forgotten. */
void redis_node_forget(struct redis_node *n, struct redis_call *c);
/* The server is not fit for calls at present: what waits stays, and after a pause it is tried
 * again. why: static. */
void redis_node_retire(struct redis_node *n, const char *why);
/* Could not be reached, nor found: after a pause it is tried again. */
void redis_node_again(struct redis_node *n);

/* ---- redis_pubsub.c ---- */

struct redis_pubsub *redis_pubsub_new(struct redis_node *n);
void redis_pubsub_free(struct redis_pubsub *p); /* NULL is allowed; its channels are homeless */
/* The node's place is another. */
void redis_pubsub_move(struct redis_pubsub *p);
/* Every channel is subscribed to where it belongs, by now. */
void redis_pubsub_settle(struct redis *r);
void redis_pubsub_drop_all(struct redis *r);

/* ---- redis_sentinel.c ---- */

struct redis_sentinel *redis_sentinel_new(struct redis *r);
void redis_sentinel_free(struct redis_sentinel *s);
/* Where is the primary? It is told to the node by redis_node_move and redis_node_connect, or
 * redis_node_again. */
void redis_sentinel_ask(struct redis_sentinel *s);

/* ---- redis_cluster.c ---- */

#define REDIS_SLOTS 16384
/* What stands between the first `{` and the next `}`; p == NULL: nothing does. */
struct str redis_hash_tag(struct str key);
unsigned redis_slot(struct str key);

struct redis_cluster *redis_cluster_new(struct redis *r);
void redis_cluster_free(struct redis_cluster *c);
/* NULL: the map is not known, or has a hole there. */
struct redis_node *redis_cluster_node(struct redis_cluster *c, struct str key);
/* For channels that belong to no slot. */
struct redis_node *redis_cluster_any(struct redis_cluster *c);
/* The map is read again, soon. */
void redis_cluster_refresh(struct redis_cluster *c);
/* `MOVED slot host:port` or `ASK slot host:port`: the node it names; NULL: it makes no sense. */
struct redis_node *redis_cluster_redirect(struct redis_cluster *c, const struct redis_node *from,
                                          struct str text);

#endif
