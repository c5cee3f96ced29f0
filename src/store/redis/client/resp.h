// SPDX-License-Identifier: Apache-2.0
/* resp.h -- what goes to Redis and what comes back (RESP version 2).
 *
 * Commands are arrays of bulk strings. Replies are decoded by hiredis's reader, which is told what
 * they may cost: a reply is at most as large as the decoder was made for, counted with the objects
 * it becomes, however its bytes are cut; depth is at most 7 (the reader's own limit). A length that
 * breaks the bound is refused when it is read, not when its bytes have come. */
#ifndef STORE_REDIS_CLIENT_RESP_H
#define STORE_REDIS_CLIENT_RESP_H

#include "base/block.h"
#include "base/str.h"

#include <hiredis/hiredis.h>

#define RESP_COMMAND_MAX ((size_t)1 << 30)

/* The bytes of a command of these words: first head, then args. More than RESP_COMMAND_MAX must not
 * be encoded. */
size_t resp_size(const struct str *head, size_t n_head, const struct str *args, size_t n_args);
struct block *resp_encode(const struct str *head, size_t n_head, const struct str *args,
                          size_t n_args);

/* Decodes the replies of one connection. */
struct resp;

struct resp *resp_new(size_t reply_max);
void resp_free(struct resp *r); /* NULL is allowed */

/* 0, or ERR_SYNTAX with a sentence in resp_why: this peer does not speak RESP, or says too much.
 * After that nothing is decoded any more. */
int resp_feed(struct resp *r, struct str bytes);

/* 1: the next reply, lent until the next call; 0: more bytes are needed; ERR_SYNTAX as above. */
int resp_next(struct resp *r, const struct redisReply **reply);
const char *resp_why(const struct resp *r);

/* The text of a string, status or error; p == NULL for anything else. Lent as the reply is. */
struct str resp_text(const struct redisReply *reply);

/* Whether it is an error whose first word is this. */
bool resp_is_error(const struct redisReply *reply, struct str word);

#endif
