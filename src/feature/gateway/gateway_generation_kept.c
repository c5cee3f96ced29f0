// SPDX-License-Identifier: Apache-2.0
/* gateway_generation_kept.c -- an answer that is no stream of events, and is kept: whoever comes
 * again with its key gets it, and whoever lost it.
 *
 * It is collected, and written as one event with the end of its stream: there is either all of it,
 * or nothing. Before that nobody gets any of it. What is too large to be collected is passed on to
 * who asked, and its key is free. */
#include "base/mem.h"
#include "feature/gateway/gateway_generation_core.h"
#include "feature/gateway/stored_answer.h"

#include <stdlib.h>

#define COLLECTED_MAX (256 * 1024 * 1024) /* of all generations together */
#define TOUCHES       20                  /* in the time to live of a stream */

/* Half an answer must not be kept for a whole one. */
bool generation_keeps(const struct generation *gen, const struct source_head *head)
{
    return (gen->key.key.n > 0 || gen->keeps) && !gen->degraded && head->marked &&
           head->status >= 200 && head->status < 300;
}

void generation_want_kept(struct generation *gen)
{
    gen->keeps = true;
}

/* ---- its stream must not expire while the answer comes, for nothing is written to it ---- */

struct touch {
    struct store_read read;
    struct gateway *gateway;
    struct arena arena;
};

static void gateway_generation_on_touched(struct store_read *read, int err)
{
    struct touch *t = container_of(read, struct touch, read);
    struct gateway *g = t->gateway;
    if (err == 0)
        store_read_release(read);
    arena_deinit(&t->arena);
    free(t);
    gateway_end(g);
}

static void touch_stream(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    struct touch *t = mem_zalloc(sizeof *t);
    t->gateway = g;
    t->read = (struct store_read){.name = arena_dup(&t->arena, gen->name),
                                  .from = READ_TAIL,
                                  .max_bytes = 1,
                                  .touch = true,
                                  .done = gateway_generation_on_touched};
    gen->touched_ms = g->setup.sched->now_ms;
    gateway_begin(g);
    store_read(g->setup.store, &t->read);
}

/* The source is silent for nine tenths of that time at most. */
static void touch_in_time(struct generation *gen)
{
    uint64_t ttl_ms = (uint64_t)gateway_ttl_s(gen->route->config) * 1000;
    if (gen->route->gateway->setup.sched->now_ms - gen->touched_ms >= ttl_ms / TOUCHES)
        touch_stream(gen);
}

/* ---- collecting ---- */

static void copy_head(struct generation *gen, const struct source_head *head)
{
    struct header *headers = arena_alloc(&gen->arena, (head->n_headers + 1) * sizeof *headers);
    for (size_t i = 0; i < head->n_headers; i++)
        headers[i] = (struct header){arena_dup(&gen->arena, head->headers[i].name),
                                     arena_dup(&gen->arena, head->headers[i].value)};
    gen->head = *head;
    gen->head.headers = headers;
}

void generation_begin_keeping(struct generation *gen, const struct source_head *head)
{
    gen->state = KEEPING;
    copy_head(gen, head);
    stored_answer_put_head(&gen->kept, head->status, head->headers, head->n_headers);
    gen->kept_head = gen->kept.n;
    touch_stream(gen);
}

void generation_drop_kept(struct generation *gen)
{
    gen->route->gateway->kept_bytes -= gen->kept_counted;
    gen->kept_counted = 0;
    buf_deinit(&gen->kept);
}

/* Nobody is there for it any more. The source is in the middle of its data: it is freed a task
 * later. */
static void leave_kept(struct generation *gen)
{
    gen->state = ENDING;
    gen->end = END_CANCELLED;
    sched_post(gen->route->gateway->setup.sched, &gen->over);
}

/* It is passed on instead, from its beginning. */
static void stop_keeping(struct generation *gen)
{
    gateway_event(&gen->route->gateway->events, ANSWER_UNRECORDED, 1,
                  TRACE_STR("request_id", gen->id), TRACE_STR("route", gen->route->path));
    generation_begin_passing(gen, &gen->head);
    if (gen->forward != NULL)
        forward_data(gen->forward, str_skip(buf_str(&gen->kept), gen->kept_head));
    else
        leave_kept(gen);
    generation_drop_kept(gen);
}

bool generation_keep(struct generation *gen, struct str data)
{
    struct gateway *g = gen->route->gateway;
    size_t body = gen->kept.n - gen->kept_head;
    if (data.n > STORED_ANSWER_BODY_MAX - body || data.n > COLLECTED_MAX - g->kept_bytes) {
        stop_keeping(gen);
        return gen->forward != NULL && forward_data(gen->forward, data);
    }
    buf_put(&gen->kept, data);
    gen->kept_counted += data.n;
    g->kept_bytes += data.n;
    touch_in_time(gen);
    return true;
}

void generation_end_keeping(struct generation *gen)
{
    gen->taken = true;
    recorder_take_whole(gen->recorder, &gen->kept);
}
