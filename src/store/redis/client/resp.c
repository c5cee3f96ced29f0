// SPDX-License-Identifier: Apache-2.0
#include "store/redis/client/resp.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a line: a status, an error, a number or a length. */
#define LINE_MAX_BYTES (64 * 1024)

/* ---- commands ---- */

static size_t digits_of(size_t v)
{
    char text[NUM_TEXT_MAX];
    return num_format(v, text);
}

static size_t words_size(const struct str *words, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += 1 + digits_of(words[i].n) + 2 + words[i].n + 2;
    return size;
}

size_t resp_size(const struct str *head, size_t n_head, const struct str *args, size_t n_args)
{
    return 1 + digits_of(n_head + n_args) + 2 + words_size(head, n_head) + words_size(args, n_args);
}

static char *put_length(char *at, char kind, size_t n)
{
    *at++ = kind;
    at += num_format(n, at);
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

static char *put_words(char *at, const struct str *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        at = put_length(at, '$', words[i].n);
        if (words[i].n > 0)
            memcpy(at, words[i].p, words[i].n);
        at += words[i].n;
        *at++ = '\r';
        *at++ = '\n';
    }
    return at;
}

struct block *resp_encode(const struct str *head, size_t n_head, const struct str *args,
                          size_t n_args)
{
    size_t size = resp_size(head, n_head, args, n_args);
    must(size <= RESP_COMMAND_MAX);
    /* num_format writes no more than the digits, but wants room for all there can be. */
    struct block *b = block_new((uint32_t)size + NUM_TEXT_MAX);
    char *at = put_length(b->bytes, '*', n_head + n_args);
    at = put_words(at, head, n_head);
    at = put_words(at, args, n_args);
    b->n = (uint32_t)(at - b->bytes);
    must(b->n == size);
    return b;
}

/* ---- replies ---- */

struct resp {
    redisReader *reader;
    struct arena memory; /* of the reply that is being read or has been lent */
    struct arena_cache spare;
    size_t max, cost; /* of that reply */
    bool lent;
    const char *why; /* NULL: all is well */
};

/* hiredis calls these while it reads; NULL makes it stop with an error. */

static redisReply *new_reply(const redisReadTask *task, int type, size_t more)
{
    struct resp *r = task->privdata;
    size_t cost = sizeof(redisReply) + more;
    if (more > r->max || r->max - r->cost < cost) {
        r->why = "a reply is larger than what is taken";
        return NULL;
    }
    r->cost += cost;
    redisReply *reply = arena_alloc(&r->memory, sizeof *reply);
    *reply = (redisReply){.type = type};
    if (task->parent != NULL) {
        redisReply *parent = task->parent->obj;
        parent->element[task->idx] = reply;
    }
    return reply;
}

static void *resp_new_string(const redisReadTask *task, char *text, size_t n)
{
    redisReply *reply = new_reply(task, task->type, n + 1);
    if (reply == NULL)
        return NULL;
    struct resp *r = task->privdata;
    reply->str = arena_alloc(&r->memory, n + 1);
    memcpy(reply->str, text, n);
    reply->str[n] = '\0';
    reply->len = n;
    return reply;
}

static void *resp_new_array(const redisReadTask *task, int elements)
{
    must(elements >= 0);
    struct resp *r = task->privdata;
    /* What its elements will cost at least, so that a large number alone takes no memory. */
    redisReply *reply =
        new_reply(task, REDIS_REPLY_ARRAY, (size_t)elements * sizeof(struct redisReply *));
    if (reply == NULL || elements == 0)
        return reply;
    size_t n = (size_t)elements * sizeof *reply->element;
    reply->element = arena_alloc(&r->memory, n);
    memset(reply->element, 0, n);
    reply->elements = (size_t)elements;
    return reply;
}

static void *resp_new_integer(const redisReadTask *task, long long v)
{
    redisReply *reply = new_reply(task, REDIS_REPLY_INTEGER, 0);
    if (reply != NULL)
        reply->integer = v;
    return reply;
}

static void *resp_new_nil(const redisReadTask *task)
{
    return new_reply(task, REDIS_REPLY_NIL, 0);
}

static void resp_free_nothing(void *reply)
{
    /* the arena goes as a whole */
}

static const redisReplyObjectFunctions functions = {
    resp_new_string, resp_new_array, resp_new_integer, resp_new_nil, resp_free_nothing};

struct resp *resp_new(size_t reply_max)
{
    struct resp *r = mem_zalloc(sizeof *r);
    /* The reader only calls them. */
    r->reader = redisReaderCreateWithFunctions((redisReplyObjectFunctions *)(uintptr_t)&functions);
    if (r->reader == NULL)
        abort(); /* as mem_alloc does */
    r->reader->privdata = r;
    r->max = reply_max;
    r->memory.cache = &r->spare;
    return r;
}

void resp_free(struct resp *r)
{
    if (r == NULL)
        return;
    redisReaderFree(r->reader);
    arena_deinit(&r->memory);
    arena_cache_deinit(&r->spare);
    free(r);
}

const char *resp_why(const struct resp *r)
{
    return r->why;
}

static int resp_refuse(struct resp *r, const char *why)
{
    if (r->why == NULL)
        r->why = why;
    return ERR_SYNTAX;
}

int resp_feed(struct resp *r, struct str bytes)
{
    if (r->why != NULL)
        return ERR_SYNTAX;
    /* What has not been decoded is a part of one reply, since all whole ones are taken first. */
    if (r->reader->len - r->reader->pos + bytes.n > r->max + LINE_MAX_BYTES + bytes.n)
        return resp_refuse(r, "a reply is larger than what is taken");
    if (redisReaderFeed(r->reader, bytes.p, bytes.n) != REDIS_OK)
        return resp_refuse(r, "there is no memory for a reply");
    return 0;
}

/* The reader waits for a line, or for as many bytes as a bulk string says it has: is it worth it?
 * It has taken the byte that says which. */
static int judge_rest(struct resp *r)
{
    const redisReader *reader = r->reader;
    struct str rest = str_of(reader->buf + reader->pos, reader->len - reader->pos);
    struct str seen = str_of(rest.p, rest.n < LINE_MAX_BYTES ? rest.n : LINE_MAX_BYTES);
    const char *end = seen.n > 0 ? memmem(seen.p, seen.n, "\r\n", 2) : NULL;
    if (end == NULL)
        return seen.n == LINE_MAX_BYTES ? resp_refuse(r, "a line does not end") : 0;
    uint64_t length;
    bool is_bulk = reader->ridx >= 0 && reader->rstack[reader->ridx].type == REDIS_REPLY_STRING;
    if (is_bulk && num_parse(str_of(rest.p, (size_t)(end - rest.p)), r->max, &length) != 0)
        return resp_refuse(r, "a reply is larger than what is taken");
    return 0;
}

int resp_next(struct resp *r, const struct redisReply **reply)
{
    void *got = NULL;
    if (r->lent) {
        arena_deinit(&r->memory);
        r->cost = 0;
        r->lent = false;
    }
    if (r->why != NULL)
        return ERR_SYNTAX;
    if (redisReaderGetReply(r->reader, &got) != REDIS_OK)
        return resp_refuse(r, "the answer is not of Redis's protocol");
    if (got == NULL)
        return judge_rest(r);
    r->lent = true;
    *reply = got;
    return 1;
}

struct str resp_text(const struct redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS &&
        reply->type != REDIS_REPLY_ERROR)
        return STR_NONE;
    return str_of(reply->str, reply->len);
}

bool resp_is_error(const struct redisReply *reply, struct str word)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    struct str text = resp_text(reply);
    return str_eq(str_cut(&text, ' '), word);
}
