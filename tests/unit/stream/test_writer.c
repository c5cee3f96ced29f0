// SPDX-License-Identifier: Apache-2.0
/* The writer, and the recorder on it, over a store that loses answers: what is written is there
 * once, and nobody is blamed who did nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "feature/gateway/recorder.h"
#include "stream/writer.h"
#include "model/lossy.c"
#include "store/mem/mem_store.h"

#define NAME     "a/b"
#define SNAPSHOT NAME RECORDER_SNAPSHOT_SUFFIX
#define PATIENCE 30000

struct world {
    struct sched sched;
    struct store *store; /* the one that loses answers */
    struct writer writer;
    struct stream_config config;
    unsigned done;
    int err;
    struct recorder *recorder;
    enum end_reason end;
    int end_err;
};

static void on_done(struct writer *w, int err)
{
    struct world *o = container_of(w, struct world, writer);
    o->done++;
    o->err = err;
}

static void pass(struct world *o, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i += 10)
        sched_turn(&o->sched, o->sched.now_ms + 10, o->sched.wall_ms + 10);
}

static void init(struct world *o, uint64_t seed)
{
    *o = (struct world){.config = {.content_type = STR("text/event-stream"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE}};
    sched_init(&o->sched, 5000, 1700000000000);
    o->store = lossy_store_new(mem_store_new(&o->sched), seed);
    writer_init(&o->writer, PATIENCE, on_done);
}

static void deinit(struct world *o)
{
    pass(o, LOSSY_LATE_MS + 10);
    store_free(o->store);
}

static void start(struct world *o, struct store_write w)
{
    w.name = STR(NAME);
    o->done = 0;
    o->writer.write = w;
    writer_start(&o->writer, o->store);
}

static int finish(struct world *o)
{
    for (unsigned turns = 0; o->done == 0; turns++) {
        assert_true(turns < 20000);
        pass(o, 10);
    }
    assert_int_equal(o->done, 1);
    assert_false(o->writer.busy);
    return o->err;
}

static int write_it(struct world *o, struct store_write w)
{
    start(o, w);
    return finish(o);
}

static struct offset tail(const struct world *o)
{
    return (struct offset){o->writer.write.info.life, o->writer.write.info.tail};
}

static struct store_write event_at(struct offset at, const char *text)
{
    return (struct store_write){
        .data = str_of_cstr(text), .n_events = 1, .if_match = true, .match = at};
}

/* ---- behind its back ---- */

static void on_other(struct store_write *w, int err)
{
    w->call.result = err;
}

static void other(struct world *o, struct store_write w)
{
    w.name = STR(NAME);
    w.done = on_other;
    store_write(lossy_of(o->store)->inner, &w);
    sched_drain(&o->sched);
    assert_int_equal(w.call.result, 0);
}

struct seen {
    struct stream_info info;
    int err;
    char text[64 * 1024];
};

static void on_read(struct store_read *r, int err)
{
    r->call.result = err;
}

static const struct seen *look(struct world *o, const char *name)
{
    static struct seen seen;
    struct store_read r = {.name = str_of_cstr(name),
                           .from = READ_START,
                           .max_bytes = sizeof seen.text,
                           .done = on_read};
    size_t n = 0;
    seen = (struct seen){0};
    store_read(o->store, &r);
    sched_drain(&o->sched);
    for (uint32_t i = 0; i < r.n_slices; i++) {
        assert_true(n + r.slices[i].bytes.n < sizeof seen.text);
        memcpy(seen.text + n, r.slices[i].bytes.p, r.slices[i].bytes.n);
        n += r.slices[i].bytes.n;
    }
    seen.err = r.call.result;
    seen.info = r.info;
    store_read_release(&r);
    return &seen;
}

static void on_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    d->limit = d->n_rows > 0 ? d->rows[0].version : 0;
}

static uint64_t doc_version(struct world *o, const char *key)
{
    struct store_docs d = {.prefix = str_of_cstr(key), .exact = true, .limit = 1, .done = on_docs};
    store_docs(o->store, &d);
    sched_drain(&o->sched);
    return d.limit;
}

/* ---- one writer ---- */

static void test_each_fate(void **state)
{
    for (int fate = FATE_NOT_DONE; fate <= FATE_LATE; fate++) {
        struct world o;
        struct doc_put doc = {.key = STR("k"), .value = STR("1")};
        init(&o, 1);
        lossy_next(o.store, (enum fate)fate, 3);
        assert_int_equal(
            write_it(&o, (struct store_write){.create = &o.config, .docs = &doc, .n_docs = 1}), 0);
        assert_true(o.writer.write.created);
        assert_int_equal(doc_version(&o, "k"), 1);

        lossy_next(o.store, (enum fate)fate, 3);
        doc.expect_version = 1;
        struct store_write w = event_at(tail(&o), "one");
        w.docs = &doc;
        w.n_docs = 1;
        assert_int_equal(write_it(&o, w), 0);
        assert_false(o.writer.write.duplicate);
        assert_int_equal(tail(&o).pos, 3);
        assert_int_equal(doc_version(&o, "k"), 2);

        lossy_next(o.store, (enum fate)fate, 3);
        w = event_at(tail(&o), "two");
        w.close = true;
        w.end = END_FAILED;
        assert_int_equal(write_it(&o, w), 0);
        assert_int_equal(o.writer.write.info.end, END_FAILED);
        assert_int_equal(lossy_lost(o.store), 9);
        pass(&o, LOSSY_LATE_MS + 10); /* what comes late changes nothing */
        assert_string_equal(look(&o, NAME)->text, "onetwo");
        assert_int_equal(doc_version(&o, "k"), 2);
        deinit(&o);
    }
}

static void test_made_by_another(void **state)
{
    struct world o;
    init(&o, 1);
    other(&o, (struct store_write){.create = &o.config});
    lossy_next(o.store, FATE_NOT_DONE, 1);
    assert_int_equal(write_it(&o, (struct store_write){.create = &o.config}), 0);
    assert_false(o.writer.write.created);
    deinit(&o);
}

static void test_written_by_another(void **state)
{
    struct world o;
    init(&o, 1);
    write_it(&o, (struct store_write){.create = &o.config});
    lossy_next(o.store, FATE_NOT_DONE, 1);
    start(&o, event_at(tail(&o), "mine"));
    sched_drain(&o.sched);
    other(&o, (struct store_write){.data = STR("theirs"), .n_events = 1});
    assert_int_equal(finish(&o), ERR_TAIL_MOVED);
    assert_string_equal(look(&o, NAME)->text, "theirs");
    /* What went before is no trouble of the next: that is tried again. */
    pass(&o, 2 * PATIENCE);
    lossy_next(o.store, FATE_NOT_DONE, 1);
    o.writer.events = 1;
    assert_int_equal(write_it(&o, event_at((struct offset){tail(&o).life, 6}, "mine")), 0);
    assert_string_equal(look(&o, NAME)->text, "theirsmine");
    deinit(&o);
}

/* It was taken, and before anybody was told another has written behind it: the next write finds
 * that out. */
static void test_followed_by_another(void **state)
{
    struct world o;
    init(&o, 1);
    write_it(&o, (struct store_write){.create = &o.config});
    lossy_next(o.store, FATE_DONE, 1);
    start(&o, event_at(tail(&o), "mine"));
    sched_drain(&o.sched);
    other(&o, (struct store_write){.data = STR("theirs"), .n_events = 1});
    assert_int_equal(finish(&o), 0);
    assert_int_equal(o.writer.write.info.tail, 4);
    assert_int_equal(o.writer.write.info.events, 1);
    o.writer.events = 1;
    assert_int_equal(write_it(&o, event_at(tail(&o), "more")), ERR_TAIL_MOVED);
    assert_string_equal(look(&o, NAME)->text, "minetheirs");
    deinit(&o);
}

/* It was taken, and closed by another before anybody was told. */
static void test_closed_by_another(void **state)
{
    for (int fate = FATE_NOT_DONE; fate <= FATE_DONE; fate++) {
        struct world o;
        init(&o, 1);
        write_it(&o, (struct store_write){.create = &o.config});
        lossy_next(o.store, (enum fate)fate, 1);
        start(&o, event_at(tail(&o), "mine"));
        sched_drain(&o.sched);
        other(&o, (struct store_write){.close = true, .end = END_CANCELLED});
        assert_int_equal(finish(&o), fate == FATE_DONE ? 0 : ERR_CLOSED);
        assert_int_equal(o.writer.write.info.end, END_CANCELLED);
        assert_string_equal(look(&o, NAME)->text, fate == FATE_DONE ? "mine" : "");
        deinit(&o);
    }
}

/* With nothing to write, it does not matter who has closed it. */
static void test_closed_twice(void **state)
{
    struct world o;
    init(&o, 1);
    write_it(&o, (struct store_write){.create = &o.config});
    other(&o, (struct store_write){.close = true, .end = END_CANCELLED});
    assert_int_equal(write_it(&o, (struct store_write){.close = true, .end = END_COMPLETED}), 0);
    assert_int_equal(o.writer.write.info.end, END_CANCELLED);
    deinit(&o);
}

static void test_patience(void **state)
{
    struct world o;
    init(&o, 1);
    write_it(&o, (struct store_write){.create = &o.config});
    lossy_next(o.store, FATE_NOT_DONE, SIZE_MAX);
    uint64_t began = o.sched.now_ms;
    assert_int_equal(write_it(&o, event_at(tail(&o), "x")), ERR_AWAY);
    assert_in_range(o.sched.now_ms - began, PATIENCE, PATIENCE + 5000);
    assert_in_range(lossy_lost(o.store), 15, 50);
    began = o.sched.now_ms;
    assert_int_equal(write_it(&o, event_at(tail(&o), "x")),
                     ERR_AWAY); /* it has been lost already */
    assert_in_range(o.sched.now_ms - began, 0, 20);
    lossy_next(o.store, FATE_NOT_DONE, 0);
    assert_int_equal(write_it(&o, event_at((struct offset){0}, "x")), 0);
    deinit(&o);
}

static void test_stopped(void **state)
{
    struct world o;
    init(&o, 1);
    write_it(&o, (struct store_write){.create = &o.config});
    lossy_next(o.store, FATE_NOT_DONE, 2);
    start(&o, event_at(tail(&o), "x"));
    sched_drain(&o.sched);
    assert_true(writer_stop(&o.writer)); /* it waits */
    assert_false(o.writer.busy);
    pass(&o, 1000);
    assert_int_equal(o.done, 0);
    start(&o, event_at(tail(&o), "x"));
    assert_false(writer_stop(&o.writer)); /* it is under way */
    assert_int_equal(finish(&o), ERR_AWAY);
    assert_string_equal(look(&o, NAME)->text, "");
    deinit(&o);
}

/* A stream that so many processes have written remembers no more of them. */
static void test_too_many_before(void **state)
{
    struct world o;
    char id[16];
    init(&o, 1);
    write_it(&o, (struct store_write){.create = &o.config});
    for (int i = 0; i < STORE_PRODUCERS_MAX - 1; i++) {
        int n = snprintf(id, sizeof id, "p%d", i);
        other(&o, (struct store_write){
                      .data = STR("x"), .n_events = 1, .claim = {.id = str_of(id, (size_t)n)}});
    }
    o.store->author++; /* a process that comes later */
    struct store_write w = {.data = STR("y"), .n_events = 1};
    assert_int_equal(write_it(&o, w), 0);
    assert_int_equal(look(&o, NAME)->info.events, STORE_PRODUCERS_MAX);
    deinit(&o);
}

/* Where no answer gets lost no claims are kept. */
static void test_no_claims_without_need(void **state)
{
    struct world o;
    init(&o, 1);
    o.store->author = 0;
    write_it(&o, (struct store_write){.create = &o.config});
    assert_int_equal(o.writer.write.claim.id.n, 0);
    assert_int_equal(o.store->claimed, 0);
    deinit(&o);
}

/* ---- a recorder ---- */

static void on_started(void *ctx, int err)
{
    assert_int_equal(err, 0);
}

static void on_ended(void *ctx, enum end_reason end, int err)
{
    struct world *o = ctx;
    o->end = end;
    o->end_err = err;
}

static void begin_recorder(struct world *o, uint64_t create_retry_for_ms)
{
    static const struct doc_put doc = {.key = STR_INIT("k"), .value = STR_INIT("1")};
    struct recorder_config config = {.name = STR(NAME),
                                     .ttl_s = 900,
                                     .docs = &doc,
                                     .n_docs = 1,
                                     .folds = true,
                                     .create_retry_for_ms = create_retry_for_ms,
                                     .on = {.started = on_started, .ended = on_ended},
                                     .ctx = o};
    o->recorder = recorder_new(&o->sched, o->store, &config);
}

static void await_end(struct world *o)
{
    for (unsigned turns = 0; o->end == END_NONE; turns++) {
        assert_true(turns < 20000);
        pass(o, 10);
    }
    recorder_free(o->recorder);
}

static void recorder_loses_answers(struct rng *r)
{
    struct world o;
    struct buf want = {0};
    init(&o, rng_next(r));
    lossy_often(o.store, 30);
    begin_recorder(&o, RECORDER_RETRY_FOR_MS);
    uint64_t n = rng_below(r, 60);
    for (uint64_t i = 1; i <= n; i++) {
        buf_printf(&want, "id: %llu\ndata: x\n\n", (unsigned long long)i);
        assert_int_equal(recorder_event(o.recorder, STR_NONE, STR("x")), 1);
        if (rng_one_in(r, 3))
            pass(&o, rng_below(r, 300));
    }
    enum end_reason reason = rng_one_in(r, 2) ? END_FAILED : END_COMPLETED;
    if (reason == END_FAILED)
        buf_put(&want, STR(": broken\n\n"));
    recorder_end(o.recorder, reason, STR("broken"));
    await_end(&o);
    assert_int_equal(o.end, reason);
    assert_int_equal(o.end_err, 0);
    pass(&o, LOSSY_LATE_MS + 10);
    const struct seen *s = look(&o, NAME);
    assert_int_equal(s->info.end, reason);
    assert_int_equal(s->info.tail, want.n);
    if (want.n > 0)
        assert_memory_equal(s->text, want.p, want.n);
    s = look(&o, SNAPSHOT);
    assert_int_equal(s->err, n > 0 ? 0 : s->err);
    if (n > 0)
        assert_string_equal(s->text, "\"x\",");
    assert_int_equal(doc_version(&o, "k"), 1);
    buf_deinit(&want);
    deinit(&o);
}

static void test_recorder_loses_answers(void **state)
{
    seeds_run(300, recorder_loses_answers);
}

/* What was given up had been done, or is done while the end is written: the reason is the same. */
static void test_recorder_gives_up(void **state)
{
    for (int fate = FATE_NOT_DONE; fate <= FATE_LATE; fate++) {
        struct world o;
        init(&o, 7);
        begin_recorder(&o, 0);
        sched_drain(&o.sched);
        lossy_spare_closes(o.store);
        lossy_next(o.store, (enum fate)fate, SIZE_MAX);
        recorder_event(o.recorder, STR_NONE, STR("x"));
        await_end(&o);
        assert_int_equal(o.end, END_FAILED);
        const struct seen *s = look(&o, NAME);
        assert_string_equal(s->text, fate == FATE_NOT_DONE
                                         ? ": the store did not answer for 30 s\n\n"
                                         : "id: 1\ndata: x\n\n"
                                           ": the store did not answer for 30 s\n\n");
        deinit(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fate),
        cmocka_unit_test(test_made_by_another),
        cmocka_unit_test(test_written_by_another),
        cmocka_unit_test(test_followed_by_another),
        cmocka_unit_test(test_closed_by_another),
        cmocka_unit_test(test_closed_twice),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_too_many_before),
        cmocka_unit_test(test_no_claims_without_need),
        cmocka_unit_test_teardown(test_recorder_loses_answers, seeds_teardown),
        cmocka_unit_test(test_recorder_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
