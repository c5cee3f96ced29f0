// SPDX-License-Identifier: Apache-2.0
/* What is done at the start, and when another process has been at work: however many subscriptions
 * there are, some at a time. */
#include "unit/feature/subscriptions/subscription_world.h"

#include "feature/subscriptions/subscription_core.h"

#define MANY  200
#define SLICE 64

/* Has its turn again and again: what changed between two of them changed at once. */
struct look {
    struct task task;
    struct sched *sched;
    size_t (*count)(const struct look *l);
    const struct subscriptions *subs;
    const struct world_call *calls;
    size_t until, last, most, turns;
};

static void look_run(struct task *t)
{
    struct look *l = container_of(t, struct look, task);
    size_t n = l->count(l), changed = n > l->last ? n - l->last : l->last - n;
    if (changed > l->most)
        l->most = changed;
    l->last = n;
    if (n != l->until && l->turns++ < 100000)
        sched_post(l->sched, t);
}

static void look_begin(struct look *l, struct world *w, size_t (*count)(const struct look *l),
                       size_t until)
{
    l->sched = &w->sched;
    l->subs = w->subs;
    l->count = count;
    l->until = until;
    l->last = count(l);
    task_init(&l->task, look_run);
    sched_post(&w->sched, &l->task);
}

static size_t count_active(const struct look *l)
{
    return l->subs->n_active;
}

static size_t count_ended(const struct look *l)
{
    size_t n = 0;
    for (size_t i = 0; i < MANY; i++)
        n += l->calls[i].result != WORLD_UNDONE;
    return n;
}

static void create_many(struct world *w, const struct subscription_config *c)
{
    char id[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(world_create(w, id, c), 201);
    }
}

static size_t most_loaded(struct world *w)
{
    struct look look = {0};
    world_end(w);
    w->subs = subscriptions_new(&w->sched, w->store);
    look_begin(&look, w, count_active, MANY);
    sched_drain(&w->sched);
    assert_int_equal(look.last, MANY);
    return look.most;
}

/* Large heads are fewer: what takes long is their JSON. */
static void test_heads_are_read_some_at_a_time(void **state)
{
    struct world *w = *state;
    static char url[2000];
    struct subscription_config c = world_hook("events/*");
    create_many(w, &c);
    size_t small = most_loaded(w);
    assert_in_range(small, 1, 8);
    for (int i = 0; i < MANY; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(world_simple(w, subscription_delete, id), 0);
    }
    memset(url, 'x', sizeof url);
    memcpy(url, "http://127.0.0.1/", 17);
    c.webhook_url = str_of(url, sizeof url);
    c.description = str_of(url, 1024);
    create_many(w, &c);
    assert_in_range(most_loaded(w), 1, small - 1);
}

/* ---- calls that wait for the load ---- */

/* No document can be read. */
struct broken {
    struct store store, *real;
};

static void broken_run(struct task *t)
{
    struct store_docs *d = container_of(t, struct store_docs, call.task);
    d->done(d, ERR_IO);
}

static void broken_docs(struct store *s, struct store_docs *d)
{
    store_post(s, &d->call, broken_run);
}

static void broken_watch(struct store *s, struct store_watch *w)
{
    store_watch(container_of(s, struct broken, store)->real, w);
}

static void broken_unwatch(struct store *s, struct store_watch *w)
{
    store_unwatch(container_of(s, struct broken, store)->real, w);
}

static void begin_many(struct world *w, struct world_call *calls, char (*ids)[16])
{
    for (int i = 0; i < MANY; i++) {
        snprintf(ids[i], sizeof ids[i], "s%d", i);
        calls[i] = (struct world_call){.call = {.id = str_of_cstr(ids[i])}};
        world_begin(w, subscription_get, &calls[i]);
    }
}

static void test_a_failed_load_is_told_to_some_at_a_time(void **state)
{
    static const struct store_ops ops = {
        .docs = broken_docs, .watch = broken_watch, .unwatch = broken_unwatch};
    struct world *w = *state;
    static struct world_call calls[MANY];
    static char ids[MANY][16];
    struct store *real = w->store;
    struct broken broken = {.store = {.ops = &ops, .sched = &w->sched}, .real = real};
    struct look look = {.calls = calls};
    world_end(w);
    w->subs = subscriptions_new(&w->sched, &broken.store);
    begin_many(w, calls, ids);
    look_begin(&look, w, count_ended, MANY);
    sched_drain(&w->sched);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(calls[i].result, ERR_IO);
    assert_in_range(look.most, 1, SLICE);
    assert_int_equal(w->subs->by_id.n, 0);
    world_end(w);
    world_start(w);
}

static void test_calls_that_came_before_the_load(void **state)
{
    struct world *w = *state;
    static struct world_call calls[MANY];
    static char ids[MANY][16];
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s7", &c), 201);
    world_end(w);
    w->subs = subscriptions_new(&w->sched, w->store);
    begin_many(w, calls, ids);
    sched_drain(&w->sched);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(calls[i].result, i == 7 ? 0 : SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
        world_forget(&calls[i]);
    }
    assert_int_equal(w->subs->by_id.n, 1);
}

/* It stops before the load has come to them. */
static void test_stopped_while_calls_wait(void **state)
{
    struct world *w = *state;
    static struct world_call calls[MANY];
    static char ids[MANY][16];
    world_end(w);
    w->subs = subscriptions_new(&w->sched, w->store);
    begin_many(w, calls, ids);
    world_restart(w);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(calls[i].result, ERR_CANCELLED);
}

/* ---- another process ---- */

static void test_what_another_has_deleted_goes_some_at_a_time(void **state)
{
    struct world *w = *state;
    struct subscriptions *a = w->subs;
    struct subscription_config c = world_pull("events/*");
    create_many(w, &c);
    world_start(w); /* b */
    for (int i = 1; i < MANY; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(world_simple(w, subscription_delete, id), 0);
    }
    world_end(w);
    w->subs = a;
    assert_int_equal(a->n_active, MANY);
    struct look look = {0};
    subscriptions_set_refresh(a, 5000);
    look_begin(&look, w, count_active, 1);
    world_pass(w, 6000);
    assert_int_equal(look.last, 1);
    assert_in_range(look.most, 1, SLICE);
    assert_int_equal(a->by_id.n, 1);
    world_pass(w, 6000); /* and stays */
    assert_int_equal(a->n_active, 1);
}

/* ---- owners ---- */

static int create_owned(struct world *w, const char *id, const char *owner)
{
    struct subscription_config c = world_pull("events/*");
    c.owner = str_of_cstr(owner);
    struct world_call call = {.call = {.id = str_of_cstr(id), .config = &c, .most_owned = 2}};
    int result = world_do(w, subscription_create, &call);
    world_forget(&call);
    return result;
}

static void test_owners_are_counted(void **state)
{
    struct world *w = *state;
    assert_int_equal(create_owned(w, "a", "one"), 0);
    assert_int_equal(create_owned(w, "b", "one"), 0);
    assert_int_equal(create_owned(w, "c", "one"), SUBSCRIPTION_QUOTA);
    assert_int_equal(create_owned(w, "c", "other"), 0);
    world_restart(w);
    assert_int_equal(subs_owned(w->subs, STR("one")), 2);
    assert_int_equal(create_owned(w, "d", "one"), SUBSCRIPTION_QUOTA);
    assert_int_equal(world_simple(w, subscription_delete, "a"), 0);
    assert_int_equal(create_owned(w, "d", "one"), 0);
    assert_int_equal(create_owned(w, "e", "one"), SUBSCRIPTION_QUOTA);
    assert_int_equal(world_simple(w, subscription_delete, "b"), 0);
    assert_int_equal(world_simple(w, subscription_delete, "d"), 0);
    assert_int_equal(subs_owned(w->subs, STR("one")), 0);
    assert_int_equal(w->subs->owners.n, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_heads_are_read_some_at_a_time),
        T(test_a_failed_load_is_told_to_some_at_a_time),
        T(test_calls_that_came_before_the_load),
        T(test_stopped_while_calls_wait),
        T(test_what_another_has_deleted_goes_some_at_a_time),
        T(test_owners_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
