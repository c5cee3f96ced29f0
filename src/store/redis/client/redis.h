// SPDX-License-Identifier: Apache-2.0
/* redis.h -- a client of Redis on the loop: of one server, of one that Sentinels watch, or of a
 * cluster.
 *
 * Loop thread only. A call completes exactly once, through done(), and never before redis_call has
 * returned. Calls that go to one node are sent in the order in which they were made, many at a time
 * (pipelined, one write for all of a turn), and nothing waits for an answer but the caller.
 *
 * The client connects by itself, again and again with growing, jittered pauses, and never gives up;
 * names are resolved off the loop. What is waiting is bounded in time (timeout_ms) and in bytes
 * (pending_max), so a Redis that is away costs neither memory nor a caller its patience.
 *
 * What it takes care of: AUTH, SELECT, scripts that the server has forgotten (NOSCRIPT), MOVED and
 * ASK and the map of slots, LOADING and TRYAGAIN and CLUSTERDOWN (asked again until the time is
 * over), READONLY and a Sentinel's word (the primary is looked for anew). */
#ifndef STORE_REDIS_CLIENT_REDIS_H
#define STORE_REDIS_CLIENT_REDIS_H

#include "base/list.h"
#include "base/sched.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct redis;
struct redisReply; /* hiredis's */

/* `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS, `unix:PATH` (and
 * `redis+unix://PATH`); `redis+sentinel://[user:password@]host:port,host:port/NAME[/db]` and
 * `redis+cluster://[..]host:port,host:port`, each also with `rediss+`. User and password may hold
 * %XX. Settings behind `?`: `ca=FILE` (trusted instead of the system's), `db=` (for `unix:`),
 * `prefix=` and `wait=`, which the store reads. */
struct redis_url;

/* 0 or ERR_SYNTAX with a sentence in why; the password is never in it. Freed with redis_url_free.
 */
int redis_url_parse(struct str text, struct redis_url **out, char *why, size_t size);
void redis_url_free(struct redis_url *u);
/* A setting behind `?`; p == NULL: not there. Lent. */
struct str redis_url_setting(const struct redis_url *u, struct str name);
bool redis_url_is_cluster(const struct redis_url *u);
/* As it may be shown: without the password. */
struct str redis_url_shown(const struct redis_url *u);

/* Kept by reference: static. */
struct redis_script {
    struct str name; /* for traces */
    struct str text;
};

enum redis_sent {
    REDIS_ONCE,  /* err says ERR_UPSTREAM when it may have been done, another when it was not */
    REDIS_AGAIN, /* may be done twice: sent again on a new connection until the time is over */
};

/* The caller embeds it and keeps it, and all it points to, alive until done(). */
struct redis_call {
    /* in. A script's keys come first in args, then its arguments; a plain command (script == NULL)
     * begins with its name. key: decides the node in a cluster (its {tag}, if it has one). */
    const struct redis_script *script;
    const struct str *args;
    size_t n_args, n_keys;
    struct str key;
    enum redis_sent sent;
    uint32_t timeout_ms; /* from redis_call on; 0: that of the setup */
    /* err: 0 and a reply, which is never an error of a kind that the client takes care of but may
     * be any other (REDIS_REPLY_ERROR); ERR_FULL (out of memory there, not done); ERR_UPSTREAM
     * (sent, and the connection broke or the time was over: it may have been done); ERR_AWAY (not
     * sent, or refused before it was done: no connection, read-only, too few replicas); ERR_BUSY
     * (not sent: too much is waiting); ERR_TOO_LARGE (not sent, and it never can be). reply is
     * lent; NULL where no server had the last word, and so is run: the run_id of the server that
     * answered, 40 characters, lent; it changes when Redis is started again and when another
     * becomes primary. */
    void (*done)(struct redis_call *c, int err, const struct redisReply *reply, struct str run);
    uint16_t tries; /* out: how often it was refused and sent again, behind calls made after it */
    /* private */
    struct redis *redis;
    struct link link, deadline;
    struct task task;
    struct redis_node *node;
    uint64_t deadline_ms, number;
    size_t bytes;
    uint8_t state;
    bool maybe_done, is_whole; /* is_whole: the script's text is sent with it */
};

struct redis_setup {
    struct loop *loop;
    const struct redis_url *url; /* kept */
    const struct redis_script *const *scripts;
    size_t n_scripts;
    uint32_t timeout_ms;
    size_t pending_max; /* bytes of calls that wait for their answers; more: ERR_BUSY at once */
    /* Whether calls get through; said when it changes, first when it is known. why: a sentence for
     * operators. */
    void (*changed)(void *ctx, bool up, struct str why);
    /* A message on a channel that is subscribed to. Lent. */
    void (*message)(void *ctx, struct str channel, struct str payload);
    /* From now on messages of this channel are told, and earlier ones may have been missed; of a
     * prefix, too. channel.p == NULL: on any channel, since a connection was made anew. */
    void (*missed)(void *ctx, struct str channel);
    /* Messages do not get through, for this reason (a sentence for operators), until missed() says
     * otherwise; said when it begins. May be NULL. */
    void (*pubsub_down)(void *ctx, struct str why);
    void *ctx;
};

struct redis *redis_new(const struct redis_setup *setup);
bool redis_is_up(const struct redis *r);

/* Ends what is under way with ERR_AWAY or ERR_UPSTREAM, later, and what is called from now on with
 * ERR_AWAY; stopped() comes from the schedule when all is over, and then redis_free is due. A name
 * that is just being resolved holds it up. */
void redis_stop(struct redis *r, void (*stopped)(void *ctx), void *ctx);
void redis_free(struct redis *r);

/* A call that had to be sent again (a forgotten script, a slot that has moved, a server that was
 * loading) is no longer before those that were made after it: who needs an order waits for done().
 */
void redis_call(struct redis *r, struct redis_call *c);

/* Channels, counted: each subscribe needs its unsubscribe. On a cluster a channel with a {tag} is a
 * sharded one (SSUBSCRIBE, so published with SPUBLISH). Made again after a reconnect. missed()
 * comes when the first subscribe of a channel has taken effect. The text is copied. */
void redis_subscribe(struct redis *r, struct str channel);
void redis_unsubscribe(struct redis *r, struct str channel);
/* All channels that begin so; not on a cluster, where nothing is promised for sharded ones. A
 * channel that is subscribed to besides is told twice. */
void redis_subscribe_prefix(struct redis *r, struct str prefix);

#endif
