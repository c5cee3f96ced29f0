// SPDX-License-Identifier: Apache-2.0
/* Telling subscriptions of changes: what an append pays for, and what a slice may cost. */
#include "unit/feature/subscriptions/subscription_world.h"

#include "feature/subscriptions/subscription_core.h"

static void create_many(struct world *w, const char *prefix, int n, const char *pattern)
{
    char id[32];
    struct subscription_config c = world_hook(pattern);
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "%s%d", prefix, i);
        assert_int_equal(world_create(w, id, &c), 201);
    }
}

static size_t queued(const struct world *w)
{
    size_t n = 0;
    list_each (l, &w->subs->notices.queue)
        n++;
    return n;
}

static void changed(struct world *w, const char *name)
{
    w->subs->watch.changed(&w->subs->watch, str_of_cstr(name));
}

/* One slice by hand; how many subscriptions were told. */
static uint64_t slice(struct world *w)
{
    struct sub_notices *ns = &w->subs->notices;
    uint64_t before = ns->touched;
    task_cancel(&ns->task);
    ns->task.run(&ns->task);
    return ns->touched - before;
}

static struct subscription *sub_named(struct world *w, const char *id)
{
    return map_get(&w->subs->by_id, str_of_cstr(id));
}

static void test_append_pays_for_one_entry(void **state)
{
    struct world *w = *state;
    create_many(w, "s", 600, "**/*");
    uint64_t touched = w->subs->notices.touched;
    for (int i = 0; i < 1000; i++) {
        changed(w, "events/a");
        changed(w, "events/b");
    }
    assert_int_equal(queued(w), 2);
    assert_int_equal(w->subs->notices.touched, touched);
    sched_drain(&w->sched);
    assert_in_range(w->subs->notices.touched - touched, 600, 2 * 600); /* or the second is news */
    assert_int_equal(queued(w), 0);
}

/* Who has a wake out is told no more: appends cost nothing then, and the next wake has it all. */
static void test_told_once(void **state)
{
    struct world *w = *state;
    create_many(w, "s", 50, "**/*");
    create_many(w, "t", 50, "events/*");
    struct str names[] = {STR("events/a")};
    struct subscription_config c = world_hook("");
    c.streams = names;
    c.n_streams = 1;
    assert_int_equal(world_create(w, "named", &c), 201);
    world_append(w, "events/a", "1");
    struct sub_notices *ns = &w->subs->notices;
    uint64_t touched = ns->touched;
    for (int i = 0; i < 50; i++) {
        world_append(w, "events/a", "2");
        world_append(w, "events/b", "2");
    }
    assert_true(ns->touched - touched <= 2); /* the tie, when its stream was looked at */
    assert_int_equal(ns->n_news, 2 * 2);
    struct offset tail = world_append(w, "events/a", "3");
    struct world_call a = {.call = {.id = STR("s7")}};
    assert_int_equal(world_do(w, subscription_attempt, &a), 0);
    struct world_call r = {.call = {.id = STR("s7"),
                                    .wake_id = a.call.view.wake_id,
                                    .generation = a.call.view.generation,
                                    .delivered = true,
                                    .finished = true}};
    assert_int_equal(world_do(w, subscription_report, &r), 0);
    world_forget(&r);
    world_forget(&a);
    a = (struct world_call){.call = {.id = STR("s7")}};
    assert_int_equal(world_do(w, subscription_attempt, &a), 0);
    assert_int_equal(a.call.view.n_streams, 2);
    world_same(world_stream(&a, "events/a")->tail, tail);
    world_forget(&a);
}

/* News are bounded; who misses some goes through its links. */
static void test_news_are_bounded(void **state)
{
    struct world *w = *state;
    char name[32];
    w->subs->notices.news_max = 10;
    create_many(w, "s", 3, "**/*");
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        world_append(w, name, "1");
        assert_true(w->subs->notices.n_news <= 10);
    }
    struct world_call a = {.call = {.id = STR("s1")}};
    for (int round = 0; round < 2; round++) {
        a = (struct world_call){.call = {.id = STR("s1")}};
        assert_int_equal(world_do(w, subscription_attempt, &a), 0);
        if (round == 1)
            break;
        struct world_call r = {.call = {.id = STR("s1"),
                                        .wake_id = a.call.view.wake_id,
                                        .generation = a.call.view.generation,
                                        .delivered = true,
                                        .finished = true}};
        assert_int_equal(world_do(w, subscription_report, &r), 0);
        world_forget(&r);
        world_forget(&a);
    }
    size_t pending = 0;
    for (size_t i = 0; i < a.call.view.n_streams; i++)
        pending += a.call.view.streams[i].has_pending;
    assert_int_equal(pending, 99);
    world_forget(&a);
}

/* Who missed news does not go by what it knew before. */
static void test_missed_news(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    w->subs->notices.news_max = 0;
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    assert_false(sub_named(w, "s")->listening);
    world_remove(w, "events/a");
    struct offset tail = world_append(w, "events/a", "22");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    world_same(world_stream(&claim, "events/a")->tail, tail);
    assert_int_equal(world_ack(w, &claim, "events/a", tail, true, NULL), 0);
    world_forget(&claim);
}

static void test_slices(void **state)
{
    struct world *w = *state;
    create_many(w, "s", 600, "**/*");
    struct str names[] = {STR("events/a")};
    struct subscription_config c = world_hook("");
    c.streams = names;
    c.n_streams = 1;
    char id[32];
    for (int i = 0; i < 400; i++) {
        snprintf(id, sizeof id, "named%d", i);
        assert_int_equal(world_create(w, id, &c), 201);
    }
    changed(w, "events/a");
    uint64_t all = 0, slices = 0;
    for (; queued(w) > 0; slices++) {
        uint64_t n = slice(w);
        assert_true(n <= SUB_SLICE);
        all += n;
    }
    assert_int_equal(all, 1000);
    assert_true(slices >= 4 && slices <= 6);
}

/* A name costs what it has to do with, however many others there are. */
static void test_only_those_concerned(void **state)
{
    struct world *w = *state;
    char id[32], pattern[32];
    for (int i = 0; i < 500; i++) {
        snprintf(id, sizeof id, "s%d", i);
        snprintf(pattern, sizeof pattern, "users/*/box-%d", i);
        struct subscription_config c = world_hook(pattern);
        assert_int_equal(world_create(w, id, &c), 201);
    }
    uint64_t touched = w->subs->notices.touched, visited = w->subs->patterns.visited;
    changed(w, "users/x/box-7");
    assert_true(slice(w) == 1);
    assert_int_equal(queued(w), 0);
    assert_int_equal(w->subs->notices.touched - touched, 1);
    assert_true(w->subs->patterns.visited - visited < 10);
}

/* While others have yet to be told of much, a claim finds what was appended before it. */
static void test_claim_does_not_wait(void **state)
{
    struct world *w = *state;
    char name[32];
    create_many(w, "s", 300, "**/*");
    struct subscription_config c = world_pull("mine/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "mine", &c), 201);
    world_append(w, "mine/a", "");
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        changed(w, name);
    }
    struct world_write add = {
        .op = {.name = STR("mine/a"), .data = STR("1"), .n_events = 1, .done = world_on_write}};
    struct world_call claim = {.call = {.id = STR("mine"), .worker = STR("me")}};
    store_write(w->store, &add.op);
    world_begin(w, subscription_claim, &claim);
    sched_drain(&w->sched);
    assert_int_equal(claim.result, 0);
    world_forget(&claim);
}

/* Nor does one that comes when a great many streams have just changed. */
static void test_claim_after_many_appends(void **state)
{
    enum { N = 1000 };
    struct world *w = *state;
    static struct world_write adds[N];
    static char names[N][32];
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct subscription_config c = world_pull("mine/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "mine", &c), 201);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%s/%d", i < N - 1 ? "events" : "mine", i);
        adds[i] = (struct world_write){.op = {.name = str_of_cstr(names[i]),
                                              .create = &config,
                                              .data = STR("1"),
                                              .n_events = 1,
                                              .done = world_on_write}};
        store_write(w->store, &adds[i].op);
    }
    struct world_call claim = {.call = {.id = STR("mine"), .worker = STR("me")}};
    world_begin(w, subscription_claim, &claim);
    sched_drain(&w->sched);
    assert_true(adds[N - 1].done);
    assert_int_equal(claim.result, 0);
    world_forget(&claim);
}

/* A stream that changes again after somebody has asked for what is in the queue, and before its
 * turn there, is news to those who asked. */
static void test_changed_again_in_the_queue(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("mine/*");
    struct world_call claim;
    world_append(w, "wakes", "");
    world_append(w, "mine/a", "1");
    struct sub_notices *ns = &w->subs->notices;
    for (int round = 0; round < 3; round++) {
        changed(w, "mine/a");
        task_cancel(&ns->task);
        if (round == 0) {
            assert_int_equal(world_create(w, "mine", &c), 201);
        } else {
            assert_int_equal(world_claim(w, "mine", "me", &claim), 0);
            struct offset tail = world_stream(&claim, "mine/a")->tail;
            assert_int_equal(world_ack(w, &claim, "mine/a", tail, true, NULL), 0);
            world_forget(&claim);
        }
        for (int i = 0; i < 10; i++)
            changed(w, "mine/a");
        assert_true(queued(w) <= 2);
        world_append(w, "mine/a", "2");
        while (queued(w) > 0)
            slice(w);
        sched_drain(&w->sched);
        assert_int_equal(sub_named(w, "mine")->state, SUBSCRIPTION_WAKING);
    }
}

/* More names than it goes through at once: it looks at its links instead. */
static void test_claim_behind_many_names(void **state)
{
    struct world *w = *state;
    char name[32];
    struct subscription_config c = world_pull("mine/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "mine", &c), 201);
    world_append(w, "mine/a", "");
    task_cancel(&w->subs->notices.task);
    struct subscription *sub = sub_named(w, "mine");
    changed(w, "mine/a");
    for (int i = 0; i < SUB_HEAR_MAX; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        changed(w, name);
    }
    sub_hear_queue(sub);
    assert_true(sub->behind);
    assert_int_equal(sub->hint_map.n, 0);
    changed(w, "mine/b");
    sub->behind = false;
    sub_hear_queue(sub); /* only what is new to it */
    assert_false(sub->behind);
    assert_int_equal(sub->hint_map.n, 1);
    sched_drain(&w->sched);
}

/* Hints of all together are bounded; what does not fit is found all the same. */
static void test_hints_of_all_are_bounded(void **state)
{
    struct world *w = *state;
    char name[32];
    w->subs->hints_all = 100;
    create_many(w, "s", 20, "**/*");
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        world_append(w, name, "1");
        assert_true(w->subs->n_hints <= 100 + 20 * SUB_HINTS_OWN);
    }
    size_t seen = 0;
    struct world_call c = {.call = {.id = STR("s7")}};
    assert_int_equal(world_do(w, subscription_get, &c), 0);
    world_forget(&c);
    for (int round = 0; round < 60; round++) {
        struct world_call a = {.call = {.id = STR("s7")}};
        if (world_do(w, subscription_attempt, &a) != 0)
            break;
        for (size_t i = 0; i < a.call.view.n_streams; i++)
            seen += a.call.view.streams[i].has_pending;
        struct world_call r = {.call = {.id = STR("s7"),
                                        .wake_id = a.call.view.wake_id,
                                        .generation = a.call.view.generation,
                                        .delivered = true,
                                        .finished = true}};
        assert_int_equal(world_do(w, subscription_report, &r), 0);
        world_forget(&r);
        world_forget(&a);
    }
    assert_int_equal(seen, 60);
}

/* Subscriptions come and go between slices; those that stay are told. */
static void test_members_come_and_go(void **state)
{
    struct world *w = *state;
    char id[32];
    create_many(w, "s", 700, "**/*");
    size_t n = 0;
    world_append(w, "events/a", "");
    changed(w, "events/a");
    slice(w);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "s%d", 17 * i);
        struct subscription *sub = sub_named(w, id);
        sub_adopt(sub, NULL, 0); /* as if it were deleted just now */
        sub_drop_if_unused(sub);
        n += sub_named(w, id) == NULL;
    }
    assert_true(n > 0);
    while (queued(w) > 0)
        slice(w);
    assert_int_equal(w->subs->patterns.found[0]->n_members, 660);
}

/* ---- what is asked of the store ---- */

static const struct store_ops *engine;
static struct {
    size_t exact, docs, lists, stats, puts, most;
} asked;

static void count_docs(struct store *st, struct store_docs *d)
{
    *(d->exact ? &asked.exact : &asked.docs) += 1;
    asked.most = d->limit > asked.most ? d->limit : asked.most;
    engine->docs(st, d);
}

static void count_list(struct store *st, struct store_list *l)
{
    asked.lists++;
    asked.most = l->limit > asked.most ? l->limit : asked.most;
    engine->list(st, l);
}

static void count_stat(struct store *st, struct store_stat *stat)
{
    asked.stats++;
    engine->stat(st, stat);
}

static void count_put(struct store *st, struct store_put *p)
{
    asked.puts++;
    asked.most = p->n_docs > asked.most ? p->n_docs : asked.most;
    engine->put(st, p);
}

static struct {
    struct store_stat *op;
    void (*done)(struct store_stat *st, int err);
    int err;
} held;

static void on_held_stat(struct store_stat *st, int err)
{
    held.err = err;
    if (!str_eq(st->name, STR("wakes")))
        held.done(st, err);
}

/* The answer for the wake stream waits until the test gives it. */
static void hold_stat(struct store *st, struct store_stat *stat)
{
    held.op = stat;
    held.done = stat->done;
    stat->done = on_held_stat;
    engine->stat(st, stat);
}

/* A wake stream that comes while the answer that there is none is on its way. */
static void test_wake_stream_comes(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    engine = w->store->ops;
    struct store_ops holding = *engine;
    holding.stat = hold_stat;
    w->store->ops = &holding;
    world_append(w, "events/a", "1");
    w->store->ops = engine;
    assert_true(str_eq(held.op->name, STR("wakes")));
    assert_int_equal(held.err, ERR_NOT_FOUND);
    world_append(w, "wakes", "");
    held.done(held.op, held.err);
    sched_drain(&w->sched);
    assert_int_equal(sub_named(w, "s")->state, SUBSCRIPTION_WAKING);
}

#define LINKS 1000

static void make_streams(struct world *w, const char *data)
{
    char name[32];
    for (int i = 0; i < LINKS; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        world_append(w, name, data);
    }
}

/* Links are made, and after a restart gone through, page by page: none is looked up by itself. */
static void test_pages_of_links(void **state)
{
    struct world *w = *state;
    struct store_ops counting;
    make_streams(w, "1");
    engine = w->store->ops;
    counting = *engine;
    counting.docs = count_docs;
    counting.list = count_list;
    counting.stat = count_stat;
    counting.put = count_put;
    w->store->ops = &counting;

    memset(&asked, 0, sizeof asked);
    create_many(w, "s", 1, "events/*");
    assert_true(asked.exact + asked.stats <= 4);
    assert_true(asked.lists <= LINKS / SUB_PAGE + 1);
    assert_true(asked.puts <= (LINKS / SUB_PAGE + 1) * (SUB_PAGE / SUB_PUT_DOCS) + 2);
    assert_true(asked.most <= SUB_PAGE);

    memset(&asked, 0, sizeof asked);
    world_restart(w);
    assert_true(asked.exact + asked.stats <= 6);
    assert_true(asked.docs >= LINKS / SUB_PAGE && asked.docs <= LINKS / SUB_PAGE + 3);
    assert_true(asked.lists <= LINKS / SUB_PAGE + 1);
    assert_int_equal(asked.puts, 0);
    assert_int_equal(w->due, 0);

    w->store->ops = engine;
    world_end(w); /* what happens while nobody looks is found, and costs its own lookups alone */
    world_append(w, "events/7", "2");
    world_append(w, "events/new", "1");
    world_remove(w, "events/8");
    world_remove(w, "events/9");
    world_append(w, "events/9", ""); /* born again, with nothing in it yet */
    memset(&asked, 0, sizeof asked);
    w->store->ops = &counting;
    world_start(w);
    assert_true(asked.exact + asked.stats <= 6 + 2 * 4);
    assert_int_equal(w->due, 1);
    w->store->ops = engine;
    assert_false(world_linked(w, "s0", "events/8").ok);
    assert_true(world_linked(w, "s0", "events/new").ok);
    assert_true(offset_is_zero(world_linked(w, "s0", "events/9").stream.acked));
    struct world_call a = {.call = {.id = STR("s0")}};
    assert_int_equal(world_do(w, subscription_attempt, &a), 0);
    assert_int_equal(a.call.view.n_streams, 2);
    assert_non_null(world_stream(&a, "events/7"));
    assert_non_null(world_stream(&a, "events/new"));
    world_forget(&a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_append_pays_for_one_entry),
        T(test_told_once),
        T(test_news_are_bounded),
        T(test_missed_news),
        T(test_slices),
        T(test_only_those_concerned),
        T(test_claim_does_not_wait),
        T(test_claim_after_many_appends),
        T(test_changed_again_in_the_queue),
        T(test_claim_behind_many_names),
        T(test_hints_of_all_are_bounded),
        T(test_members_come_and_go),
        T(test_wake_stream_comes),
        T(test_pages_of_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
