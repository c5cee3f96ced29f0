// SPDX-License-Identifier: Apache-2.0
/* crash_make.h -- operations made up at random and started. */
#ifndef FAULT_CRASH_MAKE_H
#define FAULT_CRASH_MAKE_H

#include "fault/crash_run.h"

#define UNDER_WAY  40 /* operations at once */
#define TURNS_MAX  5000
#define START_WALL 1700000000000
#define LONG_TTL_S 1000000

/* ---- starting them ---- */

static struct op *op_new(struct run *r, enum op_kind kind)
{
    struct op *op = mem_zalloc(sizeof *op);
    op->kind = kind;
    op->run = r;
    list_init(&op->link);
    list_init(&op->change);
    return op;
}

static void start(struct op *op)
{
    struct run *r = op->run;
    list_remove(&op->link);
    list_remove(&op->change);
    op->applied = op->acked = op->done = false;
    list_push(&r->under_way, &op->link);
    r->n_under_way++;
    switch (op->kind) {
    case OP_WRITE:
        op->u.write.done = on_written;
        store_write(r->store, &op->u.write);
        break;
    case OP_REMOVE:
        op->u.remove.done = on_removed;
        store_remove(r->store, &op->u.remove);
        break;
    case OP_PUT:
        op->u.put.done = on_put;
        store_put(r->store, &op->u.put);
        break;
    case OP_READ:
        op->u.read.done = on_read;
        store_read(r->store, &op->u.read);
        break;
    case OP_STAT:
        op->u.stat.done = on_stat;
        store_stat(r->store, &op->u.stat);
        break;
    case OP_LIST:
        op->u.list.done = on_list;
        store_list(r->store, &op->u.list);
        break;
    case OP_DOCS:
        op->u.docs.done = on_docs;
        store_docs(r->store, &op->u.docs);
        break;
    }
}

static void wait_for_all(struct run *r)
{
    for (int i = 0; i < TURNS_MAX && r->n_under_way > 0; i++)
        pass_turn(r);
    if (r->n_under_way == 0)
        return;
    fprintf(stderr, "%zu operations are never answered\n", r->n_under_way);
    abort(); /* there is no way to free them */
}

/* ---- making operations up ---- */

static struct str own_name(struct op *op)
{
    return arena_dup(&op->arena, names[rng_below(&op->run->rng, COUNT(names))]);
}

static size_t draw_size(struct run *r)
{
    struct rng *rng = &r->rng;
    if (rng_one_in(rng, r->bulky ? 30 : 150))
        return rng_between(rng, 20000, 110000);
    return rng_one_in(rng, 8) ? rng_between(rng, 500, 4000) : rng_between(rng, 1, 40);
}

static void add_events_to(struct op *op)
{
    struct run *r = op->run;
    struct store_write *w = &op->u.write;
    uint32_t n = rng_one_in(&r->rng, 3) ? (uint32_t)rng_between(&r->rng, 2, EVENTS_MAX) : 1;
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        op->ends[i] = total += (uint32_t)draw_size(r);
    char *bytes = arena_alloc(&op->arena, total);
    struct rng fill = {++r->serial};
    for (uint32_t i = 0; i < total; i++)
        bytes[i] = (char)rng_next(&fill);
    w->data = str_of(bytes, total);
    if (total > EXTENT_BYTES_MAX && !rng_one_in(&r->rng, 3)) {
        op->block = w->block = block_of(w->data);
        w->data = str_of(op->block->bytes, total);
    }
    w->n_events = n;
    w->ends = n == 1 ? NULL : op->ends;
}

static void close_with(struct op *op)
{
    op->u.write.close = true;
    op->u.write.end = (enum end_reason)rng_between(&op->run->rng, END_COMPLETED, END_ORPHANED);
}

/* As a client does that has several requests under way. */
static void add_claim_to(struct op *op)
{
    struct run *r = op->run;
    struct producer_claim *c = &op->u.write.claim;
    const struct oracle_stream *s = oracle_find(&r->oracle, op->u.write.name);
    c->id = producers[rng_below(&r->rng, COUNT(producers))];
    const struct producer_state *p = s == NULL ? NULL : oracle_producer(s, c->id);
    c->epoch = p == NULL ? 0 : p->epoch;
    c->seq = p == NULL ? 0 : p->seq + 1;
    list_each (l, &r->under_way) {
        const struct op *other = list_item(l, struct op, link);
        const struct producer_claim *its = &other->u.write.claim;
        if (other->kind != OP_WRITE || !str_eq(its->id, c->id) ||
            !str_eq(other->u.write.name, op->u.write.name) || its->epoch < c->epoch)
            continue;
        c->epoch = its->epoch;
        c->seq = its->seq + 1;
    }
    if (rng_one_in(&r->rng, 15)) {
        c->epoch++;
        c->seq = 0;
    } else if (c->seq > 0 && rng_one_in(&r->rng, 10)) {
        c->seq--;
    }
}

static uint64_t version_soon(const struct run *r, struct str key)
{
    uint64_t version = oracle_doc_version(&r->oracle, key);
    list_each (l, &r->under_way) {
        const struct op *op = list_item(l, struct op, link);
        size_t n;
        const struct doc_put *puts = puts_of(op, &n);
        for (size_t i = 0; i < n; i++)
            if (str_eq(puts[i].key, key))
                version = puts[i].value.p == NULL ? 0 : DOC_NEXT(puts[i].expect_version);
    }
    return version;
}

static size_t add_puts_to(struct op *op)
{
    struct run *r = op->run;
    size_t n = rng_between(&r->rng, 1, DOCS_MAX), first = rng_below(&r->rng, COUNT(keys));
    for (size_t i = 0; i < n; i++) {
        struct doc_put *p = &op->puts[i];
        p->key = keys[(first + i) % COUNT(keys)];
        p->expect_version = version_soon(r, p->key);
        if (rng_one_in(&r->rng, 10))
            p->expect_version ^= 1;
        p->value = arena_printf(&op->arena, "v%llu", (unsigned long long)++r->serial);
        if (rng_one_in(&r->rng, 5))
            p->value = STR_NONE;
    }
    return n;
}

static void make_append(struct op *op)
{
    struct rng *rng = &op->run->rng;
    struct store_write *w = &op->u.write;
    if (rng_percent(rng, 97))
        add_events_to(op);
    if (w->data.n == 0 || rng_one_in(rng, 40))
        close_with(op);
    if (rng_percent(rng, 50))
        add_claim_to(op);
    if (rng_one_in(rng, 8))
        w->seq = arena_printf(&op->arena, "%010llu", (unsigned long long)++op->run->serial);
    if (rng_one_in(rng, 10)) {
        w->docs = op->puts;
        w->n_docs = add_puts_to(op);
    }
}

static void make_fork(struct op *op)
{
    struct run *r = op->run;
    struct stream_config *c = &op->config;
    const struct oracle_stream *s = NULL;
    for (int tries = 0; tries < 6 && s == NULL; tries++)
        s = oracle_find(&r->oracle, names[rng_below(&r->rng, COUNT(names))]);
    if (s == NULL || str_eq(s->name->text, op->u.write.name))
        return;
    c->fork_of = arena_dup(&op->arena, s->name->text);
    c->content_type = STR_NONE;
    c->fork_at_tail = rng_one_in(&r->rng, 3);
    if (c->fork_at_tail)
        return;
    c->fork_at = (struct offset){s->life, event_start(s, rng_below(&r->rng, s->n_events + 1))};
    if (rng_one_in(&r->rng, 4))
        c->fork_sub = rng_between(&r->rng, 1, 3);
}

static void make_create(struct op *op)
{
    struct rng *rng = &op->run->rng;
    struct store_write *w = &op->u.write;
    w->create = &op->config;
    op->config = (struct stream_config){.content_type = types[rng_below(rng, COUNT(types))],
                                        .ttl_s = STORE_TTL_NONE,
                                        .expires_ms = STORE_TTL_NONE};
    if (rng_one_in(rng, 4))
        op->config.ttl_s = LONG_TTL_S;
    else if (rng_one_in(rng, 4))
        op->config.expires_ms = START_WALL + LONG_TTL_S * 1000ll;
    if (rng_one_in(rng, 4))
        op->config.retain.events = rng_between(rng, 1, 30);
    if (rng_one_in(rng, 6))
        op->config.retain.bytes = rng_between(rng, 100, 30000);
    if (rng_one_in(rng, 6))
        op->config.retain.age_ms = LONG_TTL_S * 1000ull;
    if (rng_percent(rng, op->run->restless ? 80 : 30))
        make_fork(op);
    if (rng_percent(rng, 40))
        add_events_to(op);
    if (rng_one_in(rng, 5))
        w->claim = (struct producer_claim){producers[0], rng_below(rng, 2), 0};
    if (rng_one_in(rng, 20))
        close_with(op);
    if (rng_one_in(rng, 8)) {
        w->docs = op->puts;
        w->n_docs = add_puts_to(op);
    }
}

static void start_write(struct run *r)
{
    struct op *op = op_new(r, OP_WRITE);
    op->u.write.name = own_name(op);
    bool there = oracle_find(&r->oracle, op->u.write.name) != NULL;
    if (rng_percent(&r->rng, there ? 6 : 70))
        make_create(op);
    else
        make_append(op);
    start(op);
}

static void start_remove(struct run *r)
{
    struct op *op = op_new(r, OP_REMOVE);
    op->u.remove.name = own_name(op);
    start(op);
    if (rng_one_in(&r->rng, 2)) { /* he whose answer is late asks again */
        struct op *again = op_new(r, OP_REMOVE);
        again->u.remove.name = arena_dup(&again->arena, op->u.remove.name);
        start(again);
    }
}

static void start_put(struct run *r)
{
    struct op *op = op_new(r, OP_PUT);
    op->u.put.docs = op->puts;
    op->u.put.n_docs = add_puts_to(op);
    start(op);
}

static void start_read(struct run *r)
{
    struct reader *reader = &r->readers[rng_below(&r->rng, READERS)];
    if (reader->busy)
        return;
    struct op *op = op_new(r, OP_READ);
    op->judged_at = r->n_changes;
    struct store_read *read = &op->u.read;
    if (reader->at.life == 0)
        reader->name = rng_below(&r->rng, COUNT(names));
    read->name = names[reader->name];
    read->from = reader->at.life == 0 ? READ_START : READ_AT;
    read->at = reader->at;
    read->max_bytes = rng_between(&r->rng, 1, 20000);
    read->touch = rng_one_in(&r->rng, 2);
    op->reader = reader;
    reader->busy = true;
    start(op);
}

static void start_look(struct run *r)
{
    static const enum op_kind kinds[] = {OP_STAT, OP_LIST, OP_DOCS};
    struct op *op = op_new(r, kinds[rng_below(&r->rng, COUNT(kinds))]);
    if (op->kind == OP_STAT)
        op->u.stat.name = own_name(op);
    else if (op->kind == OP_LIST)
        op->u.list.limit = SIZE_MAX;
    else
        op->u.docs.limit = SIZE_MAX;
    start(op);
}

static void start_something(struct run *r)
{
    uint64_t at = rng_below(&r->rng, 100);
    if (r->n_under_way >= UNDER_WAY)
        return;
    if (at < (r->restless ? 53 : 62))
        start_write(r);
    else if (at < 65)
        start_remove(r);
    else if (at < 71)
        start_put(r);
    else if (at < 93)
        start_read(r);
    else
        start_look(r);
}

#endif
