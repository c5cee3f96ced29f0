// SPDX-License-Identifier: Apache-2.0
/* redis_link.h -- one connection to one server: made, introduced (AUTH, SELECT, who are you), used,
 * and gone. It is never made anew; its owner opens another.
 *
 * A link that has nothing to do asks from time to time whether the server is still there. */
#ifndef STORE_REDIS_CLIENT_REDIS_LINK_H
#define STORE_REDIS_CLIENT_REDIS_LINK_H

#include "base/block.h"
#include "store/redis/client/redis_url.h"

#include <stdbool.h>
#include <stdint.h>

struct redis;
struct redis_link;
struct redisReply;

#define REDIS_WHY_MAX 256 /* bytes of a sentence */

enum redis_purpose {
    REDIS_CALLS,     /* a primary's: scripts are loaded, and a replica is refused */
    REDIS_MESSAGES,  /* replies answer nothing in particular: what a subscriber gets */
    REDIS_QUESTIONS, /* of Sentinels, or for the map of a cluster */
};

struct redis_link_ops {
    void (*ready)(void *ctx);
    /* In the order of the commands; tag is the command's, or NULL for one that was forgotten. Lent.
     */
    void (*reply)(void *ctx, void *tag, const struct redisReply *reply);
    /* Last call. why: a sentence without its subject, "cannot connect: ...". Lent. */
    void (*down)(void *ctx, const char *why);
};

/* Any of the ops may come from the loop as soon as this has returned. */
struct redis_link *redis_link_open(struct redis *r, const struct redis_addr *addr,
                                   enum redis_purpose purpose, const struct redis_link_ops *ops,
                                   void *ctx);

/* None of the ops is called any more; NULL is allowed. */
void redis_link_close(struct redis_link *l);

/* As if the connection had broken: down() is called before this returns. */
void redis_link_fail(struct redis_link *l, const char *why);

/* Once ready. Takes the command; the result is its number. tag: not NULL, of no use to a link for
 * messages. */
uint64_t redis_link_put(struct redis_link *l, struct block *command, void *tag);

/* The owner has lost interest in a reply that is still to come; until then the command's bytes
 * count as waiting. */
void redis_link_forget(struct redis_link *l, uint64_t number, size_t bytes);

/* How many replies are still to come. */
size_t redis_link_waiting(const struct redis_link *l);

/* A call's time is over without a reply: if nothing at all is heard for a second, the server is
 * taken for dead, and down() is called, maybe before this returns. */
void redis_link_suspect(struct redis_link *l);

/* The server's run_id, 40 characters, of a link for calls. */
struct str redis_link_run(const struct redis_link *l);

#endif
