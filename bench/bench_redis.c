// SPDX-License-Identifier: Apache-2.0
/* Servers over one Redis: what they do together, what Redis does for an append, and what a stream
 * to which nothing happens takes of its memory. */
#include "bench_pump.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdlib.h>

#define STREAMS    64
#define READERS    200
#define IDLE       10000
#define EVENT_SIZE 48
#define PART       0.5 /* of `--seconds`, for each figure */

/* ---- asking Redis ---- */

/* The answer to a command in hiredis's form, or NULL, which fails the swarm. */
static redisReply *ask_redis(struct bench *b, const char *command, ...)
{
    redisContext *c = redisConnect("127.0.0.1", ntohs(b->redis.at.sin_port));
    va_list args;
    va_start(args, command);
    redisReply *reply = c && !c->err ? redisvCommand(c, command, args) : NULL;
    va_end(args);
    if (c)
        redisFree(c);
    if (reply && reply->type != REDIS_REPLY_ERROR)
        return reply;
    swarm_fail(&b->swarm, "Redis does not do this: %s", command);
    freeReplyObject(reply);
    return NULL;
}

/* The number behind `field` in the line of a section of INFO that begins with `line`; 0 if there is
 * none. */
static double redis_info(struct bench *b, const char *section, const char *line, const char *field)
{
    redisReply *reply = ask_redis(b, "INFO %s", section);
    const char *at = reply && reply->str ? strstr(reply->str, line) : NULL;
    const char *value = at ? strstr(at, field) : NULL;
    double number = value ? strtod(value + strlen(field), NULL) : 0;
    freeReplyObject(reply);
    return number;
}

static double calls(struct bench *b)
{
    return redis_info(b, "commandstats", "cmdstat_evalsha:", "calls=");
}

/* Commands of every kind, those within scripts as well. */
static double commands(struct bench *b)
{
    redisReply *reply = ask_redis(b, "INFO commandstats");
    double sum = 0;
    for (const char *at = reply ? reply->str : NULL; at && (at = strstr(at, "calls="));)
        sum += strtod(at += strlen("calls="), NULL);
    freeReplyObject(reply);
    return sum;
}

static double slow(struct bench *b)
{
    redisReply *reply = ask_redis(b, "SLOWLOG LEN");
    double n = reply ? (double)reply->integer : 0;
    freeReplyObject(reply);
    return n;
}

/* ---- the phases ---- */

/* Whether a Redis of ours is there; some figures are of it alone. */
static bool has_redis(struct bench *b, const char *phase)
{
    if (b->redis.pid > 0)
        return true;
    progress("%s is for a Redis: it is left out", phase);
    return false;
}

static void report_calls(struct bench *b, double appends, double cpu_seconds)
{
    struct report *r = &b->report;
    double n = calls(b), all = commands(b);
    row_note(report_add(r, "redis-calls", n / appends), "64 creates are among them");
    report_add(r, "redis-commands", (all - n) / n);
    struct row *row =
        report_add(r, "redis-script",
                   redis_info(b, "latencystats", "latency_percentiles_usec_evalsha:", "p99="));
    row_note(row, "SLOWLOG has %.0f calls of 10 ms and more", slow(b));
    report_add(r, "redis-cpu", cpu_seconds * 1e6 / appends);
}

/* What an append costs Redis. */
static void count_calls(struct bench *b)
{
    const uint64_t appends = 10000;
    freeReplyObject(ask_redis(b, "CONFIG RESETSTAT"));
    freeReplyObject(ask_redis(b, "SLOWLOG RESET"));
    uint64_t cpu = server_cpu_ns(&b->redis);
    run_appends(b, NULL, appends);
    if (!b->swarm.failed)
        report_calls(b, (double)appends, (double)(server_cpu_ns(&b->redis) - cpu) / 1e9);
}

void phase_redis_1(struct bench *b)
{
    double seconds = b->seconds * PART;
    measure_appends(b, "redis-1", TYPE_BYTES, 1, 1, 1, seconds);
    measure_appends(b, "redis-64", TYPE_BYTES, STREAMS, 64, 1, seconds);
    if (b->redis.pid > 0)
        count_calls(b);
    measure_fanout(b, "redis-fanout", READERS, seconds);
}

void phase_redis_2(struct bench *b)
{
    double seconds = b->seconds * PART;
    if (!has_redis(b, "redis-2"))
        return;
    bench_second(b);
    measure_appends(b, "redis-two-64", TYPE_BYTES, STREAMS, 64, 1, seconds);
    measure_fanout(b, "redis-two-fanout", READERS, seconds);
}

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_JSON, buf_str(arg));
}

/* For a minute Redis remembers of each stream what was done there last; it is made to forget. */
void phase_redis_idle(struct bench *b)
{
    static const char forget[] = "for _, k in ipairs(redis.call('KEYS', '*:ops:*')) do "
                                 "redis.call('DEL', k) end return 0";
    struct buf body = {0};
    if (!has_redis(b, "redis-idle"))
        return;
    progress("redis-idle: creating %d streams", IDLE);
    double none = redis_info(b, "memory", "used_memory:", ":");
    event_put_json(&body, 0, EVENT_SIZE);
    pump_each(b, "redis-idle", IDLE, put_create, &body, 201, "creating a stream");
    buf_deinit(&body);
    double young = redis_info(b, "memory", "used_memory:", ":");
    freeReplyObject(ask_redis(b, "EVAL %s 0", forget));
    double idle = redis_info(b, "memory", "used_memory:", ":");
    if (b->swarm.failed)
        return;
    row_note(report_add(&b->report, "redis-idle", (idle - none) / IDLE),
             "%d streams of one event of %d bytes", IDLE, EVENT_SIZE);
    report_add(&b->report, "redis-young", (young - none) / IDLE);
}
