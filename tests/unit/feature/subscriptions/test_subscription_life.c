// SPDX-License-Identifier: Apache-2.0
/* Subscriptions over restarts, failures of the store, and with a second process beside them. */
#include "unit/feature/subscriptions/subscription_world.h"

#include "feature/subscriptions/subscription_core.h"
#include "token/signer.h"

/* ---- restarts ---- */

static void test_restart(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    struct str names[] = {STR("named")};
    c.streams = names;
    c.n_streams = 1;
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s/\xc3\xa9 %", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call claim, busy;
    assert_int_equal(world_claim(w, "s/\xc3\xa9 %", "me", &claim), 0);

    world_restart(w);
    assert_int_equal(world_create(w, "s/\xc3\xa9 %", &c), 200);
    assert_int_equal(world_claim(w, "s/\xc3\xa9 %", "you", &busy), SUBSCRIPTION_ALREADY_CLAIMED);
    assert_true(str_eq(busy.call.view.holder, STR("me")));
    world_forget(&busy);
    /* the token of before is still good, and the same key signs */
    assert_int_equal(world_ack(w, &claim, "events/a", tail, true, NULL), 0);
    world_forget(&claim);
    world_same(world_linked(w, "s/\xc3\xa9 %", "events/a").stream.acked, tail);

    world_restart(w);
    world_append(w, "named", "1");
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
}

static void test_signing_key_stays(void **state)
{
    struct world *w = *state;
    assert_int_equal(world_simple(w, subscription_keys, ""), 0);
    char before[128], after[128];
    struct str kid = signer_kid(subscriptions_signer(w->subs));
    snprintf(before, sizeof before, "%.*s", (int)kid.n, kid.p);
    world_restart(w);
    kid = signer_kid(subscriptions_signer(w->subs));
    snprintf(after, sizeof after, "%.*s", (int)kid.n, kid.p);
    assert_string_equal(before, after);
}

static void test_what_happened_while_down(void **state)
{
    struct world *w = *state;
    struct str names[] = {STR("named")};
    struct subscription_config c = world_pull("events/*"), d = world_pull("");
    d.streams = names;
    d.n_streams = 1;
    world_append(w, "wakes", "");
    struct offset old = world_append(w, "events/old", "1");
    assert_int_equal(world_create(w, "c", &c), 201);
    assert_int_equal(world_create(w, "d", &d), 201);
    world_end(w);
    world_append(w, "events/old", "2");
    world_append(w, "events/new", "1");
    world_append(w, "named", "1");
    assert_string_equal(world_text(w, "wakes"), "");
    world_start(w);
    assert_non_null(strstr(world_text(w, "wakes"), "\"subscription_id\":\"c\""));
    assert_non_null(strstr(world_text(w, "wakes"), "\"subscription_id\":\"d\""));
    struct world_call claim;
    assert_int_equal(world_claim(w, "c", "me", &claim), 0);
    world_same(world_stream(&claim, "events/old")->acked, old);
    assert_true(offset_is_zero(world_stream(&claim, "events/new")->acked));
    assert_true(world_stream(&claim, "events/new")->has_pending);
    world_forget(&claim);
}

static void test_lease_over_restarts(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    world_forget(&claim);
    world_pass(w, 10000);
    world_restart(w);
    world_pass(w, 19000);
    assert_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    world_pass(w, 2000);
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    world_forget(&claim);
    world_end(w); /* and one that runs out while nobody is there */
    world_pass(w, 60000);
    world_start(w);
    world_pass(w, 20);
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":3"));
}

static void fail_delivery(struct world *w, uint64_t retry_ms)
{
    struct world_call a = {.call = {.id = STR("s")}}, r = {.call = {.id = STR("s")}};
    assert_int_equal(world_do(w, subscription_attempt, &a), 0);
    r.call.wake_id = a.call.view.wake_id;
    r.call.generation = a.call.view.generation;
    r.call.retry_ms = retry_ms;
    assert_int_equal(world_do(w, subscription_report, &r), 0);
    world_forget(&a);
}

static void test_retries_over_restarts(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    w->due = 0;
    world_restart(w); /* the delivery died with the process: again, at once */
    assert_int_equal(w->due, 1);
    fail_delivery(w, 8000);
    world_pass(w, 4000);
    w->due = 0;
    world_restart(w);
    world_pass(w, 3900);
    assert_int_equal(w->due, 0);
    assert_int_equal(world_simple(w, subscription_attempt, "s"), SUBSCRIPTION_NO_PENDING_WORK);
    world_pass(w, 200);
    assert_int_equal(w->due, 1);
}

/* ---- cut off at every point ---- */

/* Work in the background last. */
static struct link *next_task(struct world *w)
{
    return list_empty(&w->sched.tasks) ? w->sched.background.next : w->sched.tasks.next;
}

static bool run_tasks(struct world *w, int n)
{
    for (; n > 0 && next_task(w) != &w->sched.background; n--) {
        struct task *t = list_item(next_task(w), struct task, link);
        list_remove(&t->link);
        t->run(t);
    }
    return next_task(w) == &w->sched.background;
}

static void on_no_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    assert_int_equal(d->n_rows, 0);
}

static void cut_create(struct world *w, int tasks, bool *through)
{
    struct str names[] = {STR("a"), STR("b")};
    struct subscription_config c = world_pull("events/*"), other = world_pull("other/*");
    c.streams = names;
    c.n_streams = 2;
    struct world_call create = {.call = {.id = STR("s"), .config = &c}};
    world_begin(w, subscription_create, &create);
    *through = run_tasks(w, tasks);
    world_restart(w);
    assert_true(create.result == 0 || create.result == ERR_CANCELLED);
    world_forget(&create);
    if (create.result != 0) {
        /* not yet created, or not yet told */
        int result = world_simple(w, subscription_get, "s");
        assert_true(result == 0 || result == SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
        if (result != 0 && tasks % 2) { /* then another may take the name */
            assert_int_equal(world_create(w, "s", &other), 201);
            assert_false(world_linked(w, "s", "a").ok);
            return;
        }
        assert_int_equal(world_create(w, "s", &c), result == 0 ? 200 : 201);
    }
    assert_true(world_linked(w, "s", "a").stream.is_explicit);
    assert_true(world_linked(w, "s", "b").stream.is_explicit);
    assert_int_equal(world_linked(w, "s", "events/1").stream.acked.pos, 1);
    world_append(w, "events/2", "1");
    assert_non_null(strstr(world_text(w, "wakes"), "events/2"));
}

static void cut_delete(struct world *w, int tasks, bool *through)
{
    struct str names[] = {STR("a"), STR("b")};
    struct subscription_config c = world_pull("events/*");
    c.streams = names;
    c.n_streams = 2;
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_call del = {.call = {.id = STR("s")}};
    world_begin(w, subscription_delete, &del);
    *through = run_tasks(w, tasks);
    world_restart(w);
    int result = world_simple(w, subscription_get, "s");
    if (del.result == 0)
        assert_int_equal(result, SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
    if (result == 0)
        assert_true(world_linked(w, "s", "a").ok && world_linked(w, "s", "events/1").ok);
    if (result != 0) { /* whoever came next has finished it */
        struct store_docs docs = {.prefix = STR("sub/"), .limit = 1, .done = on_no_docs};
        store_docs(w->store, &docs);
        sched_drain(&w->sched);
    }
    assert_int_equal(world_simple(w, subscription_delete, "s"), 0);
    assert_int_equal(world_create(w, "s", &c), 201);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static void cut_ack(struct world *w, int tasks, bool *through)
{
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset one = world_append(w, "events/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    struct offset two = world_append(w, "events/a", "2");
    char text[OFFSET_TEXT];
    offset_format(one, text);
    struct subscription_ack ack = {STR("events/a"), str_of(text, OFFSET_TEXT)};
    struct world_call call = {.call = {.id = STR("s"),
                                       .token = claim.call.view.token,
                                       .wake_id = claim.call.view.wake_id,
                                       .generation = claim.call.view.generation,
                                       .acks = &ack,
                                       .n_acks = 1,
                                       .finished = true}};
    world_begin(w, subscription_ack, &call);
    *through = run_tasks(w, tasks);
    world_restart(w);
    /* all of it was written, or nothing: the ack, the end of the wake, the next one's event */
    bool acked = world_linked(w, "s", "events/a").stream.acked.pos == one.pos;
    assert_int_equal(count(world_text(w, "wakes"), "\"generation\":2"), acked ? 1 : 0);
    if (call.result == 0)
        assert_true(acked);
    int again = world_ack(w, &claim, "events/a", one, true, NULL);
    assert_int_equal(again, acked ? SUBSCRIPTION_FENCED : 0);
    world_forget(&claim);
    assert_int_equal(count(world_text(w, "wakes"), "\"generation\":2"), 1);
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(claim.call.view.generation, 2);
    assert_int_equal(world_ack(w, &claim, "events/a", two, true, NULL), 0);
    world_forget(&claim);
}

static void cut_append(struct world *w, int tasks, bool *through)
{
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_write ww = {
        .op = {.name = STR("events/1"), .data = STR("2"), .n_events = 1, .done = world_on_write}};
    store_write(w->store, &ww.op);
    *through = run_tasks(w, tasks);
    world_restart(w);
    assert_int_equal(count(world_text(w, "wakes"), "\"type\":\"wake\""), 1);
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(claim.call.view.generation, 1);
    world_forget(&claim);
}

static void test_cut_off_anywhere(void **state)
{
    static void (*const scenes[])(struct world *, int, bool *) = {cut_create, cut_delete, cut_ack,
                                                                  cut_append};
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        int tasks = 0;
        for (bool through = false; !through; tasks++) {
            void *fresh;
            world_setup(&fresh);
            world_append(fresh, "wakes", "");
            world_append(fresh, "events/1", "1");
            scenes[i](fresh, tasks, &through);
            world_teardown(&fresh);
            assert_true(tasks < 500);
        }
        assert_true(tasks > 3); /* there were points to be cut at */
    }
}

/* ---- a store that fails ---- */

struct fault {
    struct store store;
    struct store *real;
    int until; /* operations before the one that fails; < 0: none does */
    int err;
    int failed;
};

static bool faulty(struct store *s)
{
    struct fault *f = container_of(s, struct fault, store);
    bool now = f->until == 0;
    f->until -= f->until >= 0;
    f->failed += now;
    return now;
}

struct fault_task {
    struct task task;
    void *op;
    int err;
};

#define FAULTY(verb)                                                                               \
    static void fail_##verb(struct task *t)                                                        \
    {                                                                                              \
        struct fault_task *ft = container_of(t, struct fault_task, task);                          \
        struct store_##verb *op = ft->op;                                                          \
        int err = ft->err;                                                                         \
        free(ft);                                                                                  \
        op->done(op, err);                                                                         \
    }                                                                                              \
    static void fault_##verb(struct store *s, struct store_##verb *op)                             \
    {                                                                                              \
        struct fault *f = container_of(s, struct fault, store);                                    \
        if (!faulty(s)) {                                                                          \
            store_##verb(f->real, op);                                                             \
            return;                                                                                \
        }                                                                                          \
        struct fault_task *ft = mem_zalloc(sizeof *ft);                                            \
        ft->op = op;                                                                               \
        ft->err = f->err;                                                                          \
        task_init(&ft->task, fail_##verb);                                                         \
        sched_post(s->sched, &ft->task);                                                           \
    }
FAULTY(write)
FAULTY(stat)
FAULTY(list)
FAULTY(docs)
FAULTY(put)

static void fault_watch(struct store *s, struct store_watch *w)
{
    store_watch(container_of(s, struct fault, store)->real, w);
}

static void fault_unwatch(struct store *s, struct store_watch *w)
{
    store_unwatch(container_of(s, struct fault, store)->real, w);
}

static const struct store_ops fault_ops = {
    .write = fault_write,
    .stat = fault_stat,
    .list = fault_list,
    .docs = fault_docs,
    .put = fault_put,
    .watch = fault_watch,
    .unwatch = fault_unwatch,
};

/* Creates, appends, claims and acks until all is acknowledged; each step until it succeeds. */
static void work_it_off(struct world *w, struct fault *f)
{
    struct store *engine_store = &f->store;
    struct store *real = w->store;
    struct subscription_config c = world_pull("events/*");
    w->store = engine_store;
    world_start(w);
    w->store = real;
    int result = ERR_IO;
    for (int i = 0; i < 5 && result < 0; i++) {
        result = world_create(w, "s", &c);
        world_pass(w, 1100);
    }
    assert_true(result == 201 || result == 200);
    struct offset tail = world_append(w, "events/b", "1");
    world_append(w, "events/1", "2");
    struct world_call claim;
    result = 0;
    for (int i = 0; i < 10 && result != SUBSCRIPTION_NO_PENDING_WORK; i++) {
        result = world_claim(w, "s", "me", &claim);
        for (size_t k = 0; result == 0 && k < claim.call.view.n_streams; k++) {
            const struct subscription_stream *s = &claim.call.view.streams[k];
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)s->path.n, s->path.p);
            world_ack(w, &claim, name, s->tail, k + 1 == claim.call.view.n_streams, NULL);
        }
        world_forget(&claim);
        world_pass(w, 31000); /* a lease that nobody could end runs out */
    }
    assert_int_equal(result, SUBSCRIPTION_NO_PENDING_WORK);
    f->until = -1;
    world_same(world_linked(w, "s", "events/b").stream.acked, tail);
    assert_int_equal(world_linked(w, "s", "events/1").stream.acked.pos, 2);
    world_append(w, "events/b", "2");
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    world_forget(&claim);
    w->store = engine_store;
    world_end(w);
    w->store = real;
}

static void test_every_operation_fails_once(void **state)
{
    static const int errs[] = {ERR_IO, ERR_FULL, ERR_VERSION};
    for (size_t e = 0; e < sizeof errs / sizeof errs[0]; e++) {
        int failed = 1;
        for (int until = 0; failed; until++) {
            void *fresh;
            world_setup(&fresh);
            struct world *w = fresh;
            world_end(w);
            world_append(w, "wakes", "");
            world_append(w, "events/1", "1");
            struct fault f = {.store = {.ops = &fault_ops, .sched = &w->sched},
                              .real = w->store,
                              .until = until,
                              .err = errs[e]};
            work_it_off(w, &f);
            failed = f.failed;
            world_start(w);
            world_teardown(&fresh);
            assert_true(until < 500);
        }
    }
}

/* What happened while nobody looked is found, whatever fails on the way. */
static void test_look_fails_once(void **state)
{
    int failed = 1;
    for (int until = 0; failed; until++) {
        void *fresh;
        world_setup(&fresh);
        struct world *w = fresh;
        struct str names[] = {STR("named")};
        struct subscription_config c = world_pull("events/*");
        c.streams = names;
        c.n_streams = 1;
        world_append(w, "wakes", "");
        world_append(w, "events/a", "1");
        assert_int_equal(world_create(w, "s", &c), 201);
        world_end(w);
        world_append(w, "events/a", "2");
        world_append(w, "named", "1");
        struct store *real = w->store;
        struct fault f = {.store = {.ops = &fault_ops, .sched = &w->sched},
                          .real = real,
                          .until = until,
                          .err = ERR_IO};
        w->store = &f.store;
        world_start(w);
        for (int i = 0; i < 3; i++)
            world_pass(w, 1100);
        failed = f.failed;
        f.until = -1;
        struct world_call claim;
        assert_int_equal(world_claim(w, "s", "me", &claim), 0);
        assert_true(world_stream(&claim, "events/a")->has_pending);
        assert_true(world_stream(&claim, "named")->has_pending);
        world_forget(&claim);
        world_end(w);
        w->store = real;
        world_start(w);
        world_teardown(&fresh);
        assert_true(until < 500);
    }
}

static void on_heads(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    assert_int_equal(d->n_rows, 0);
}

/* A deletion that was cut off is finished after a restart, whatever fails on the way. */
static void test_finishing_a_deletion_fails_once(void **state)
{
    int failed = 1;
    for (int until = 0; failed; until++) {
        void *fresh;
        world_setup(&fresh);
        struct world *w = fresh;
        struct subscription_config c = world_pull("events/*");
        struct store *real = w->store;
        world_append(w, "events/a", "1");
        assert_int_equal(world_create(w, "s", &c), 201);
        world_end(w);
        struct fault f = {.store = {.ops = &fault_ops, .sched = &w->sched},
                          .real = real,
                          .until = -1,
                          .err = ERR_IO};
        w->store = &f.store;
        world_start(w);
        f.until = 3; /* the head says that it is being deleted; a link is not removed */
        assert_int_equal(world_simple(w, subscription_delete, "s"), ERR_IO);
        world_end(w);
        f.until = until;
        f.failed = 0;
        world_start(w);
        for (int i = 0; i < 3; i++)
            world_pass(w, 1100);
        failed = f.failed;
        assert_int_equal(w->subs->by_id.n, 0);
        struct store_docs heads = {.prefix = STR("sub/"), .limit = 1, .done = on_heads};
        store_docs(real, &heads);
        sched_drain(&w->sched);
        world_end(w);
        w->store = real;
        world_start(w);
        world_teardown(&fresh);
        assert_true(until < 500);
    }
}

/* As long as it is linked by its name, what happens to it is told. */
static void test_unlink_fails_once(void **state)
{
    int failed = 1;
    for (int until = 0; failed; until++) {
        void *fresh;
        world_setup(&fresh);
        struct world *w = fresh;
        struct str names[] = {STR("named")};
        struct subscription_config c = world_pull("");
        c.streams = names;
        c.n_streams = 1;
        struct store *real = w->store;
        world_append(w, "wakes", "");
        assert_int_equal(world_create(w, "s", &c), 201);
        world_end(w);
        struct fault f = {.store = {.ops = &fault_ops, .sched = &w->sched},
                          .real = real,
                          .until = -1,
                          .err = ERR_IO};
        w->store = &f.store;
        world_start(w);
        f.until = until;
        struct world_call unlink = {.call = {.id = STR("s"), .streams = names, .n_streams = 1}};
        int result = world_do(w, subscription_unlink, &unlink);
        world_forget(&unlink);
        failed = f.failed;
        f.until = -1;
        for (int i = 0; i < 3; i++)
            world_pass(w, 1100);
        w->store = real;
        world_append(w, "named", "1");
        struct world_call claim;
        assert_int_equal(world_claim(w, "s", "me", &claim),
                         result == 0 ? SUBSCRIPTION_NO_PENDING_WORK : 0);
        world_forget(&claim);
        world_end(w);
        world_start(w);
        world_teardown(&fresh);
        assert_true(until < 500);
    }
}

static void test_load_fails(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_end(w);
    struct store *real = w->store;
    struct fault f = {
        .store = {.ops = &fault_ops, .sched = &w->sched}, .real = real, .until = 0, .err = ERR_IO};
    w->store = &f.store;
    w->subs = subscriptions_new(&w->sched, w->store);
    struct world_call get = {.call = {.id = STR("s")}};
    assert_int_equal(world_do(w, subscription_get, &get), ERR_IO); /* not left waiting */
    world_pass(w, 1100);
    assert_int_equal(world_do(w, subscription_get, &get), 0);
    world_forget(&get);
    world_end(w);
    w->store = real;
    world_start(w);
}

/* ---- a second process ---- */

static void test_two_processes(void **state)
{
    struct world *w = *state;
    struct subscriptions *a = w->subs;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_start(w);
    struct subscriptions *b = w->subs;
    struct offset tail = {0};
    struct world_call claim, busy;
    for (uint64_t i = 1; i <= 20; i++) {
        tail = world_append(w, "events/x", "1");
        char name[32], want[32];
        snprintf(name, sizeof name, "events/%d", (int)i); /* both want to link this one */
        struct offset other = world_append(w, name, "1");
        snprintf(want, sizeof want, "\"generation\":%d,", (int)i);
        assert_int_equal(count(world_text(w, "wakes"), want), 1); /* one wake, not two */
        w->subs = i % 2 ? a : b;
        assert_int_equal(world_claim(w, "s", "me", &claim), 0);
        assert_int_equal(claim.call.view.generation, i);
        w->subs = i % 3 ? b : a;
        assert_int_equal(world_claim(w, "s", "you", &busy), SUBSCRIPTION_ALREADY_CLAIMED);
        world_forget(&busy);
        bool next_wake = true;
        assert_int_equal(world_ack(w, &claim, "events/x", tail, false, NULL), 0);
        w->subs = i % 2 ? b : a;
        assert_int_equal(world_ack(w, &claim, name, other, true, &next_wake), 0);
        assert_false(next_wake);
        world_forget(&claim);
    }
    w->subs = b;
    world_end(w);
    w->subs = a;
}

static void test_takeover(void **state)
{
    struct world *w = *state;
    struct subscriptions *a = w->subs;
    subscriptions_set_refresh(a, 5000);
    world_start(w);
    struct subscriptions *b = w->subs;
    subscriptions_set_refresh(b, 5000);
    world_append(w, "wakes", "");
    struct subscription_config c = world_pull("events/*"), h = world_hook("hooked/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    assert_int_equal(world_create(w, "h", &h), 201);
    assert_int_equal(world_create(w, "gone", &h), 201);
    world_append(w, "events/a", "1");
    world_append(w, "hooked/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    world_forget(&claim);
    world_end(w); /* b is no more; a has never heard of these */
    w->subs = a;
    w->due = 0;
    for (int i = 0; i < 20; i++)
        world_pass(w, 2000);
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    assert_true(w->due > 0);
    world_append(w, "events/new", "1");
    assert_true(world_linked(w, "s", "events/a").ok);

    world_start(w);
    b = w->subs;
    subscriptions_set_refresh(b, 5000);
    assert_int_equal(a->n_active, 3);
    assert_int_equal(world_simple(w, subscription_delete, "gone"), 0);
    w->subs = b;
    world_end(w);
    world_pass(w, 5100);
    assert_int_equal(a->n_active, 2);
    w->subs = a;
}

static int attempt(struct world *w, struct subscriptions *by, struct world_call *c)
{
    *c = (struct world_call){.call = {.id = STR("h")}};
    w->subs = by;
    return world_do(w, subscription_attempt, c);
}

/* Who began a wake delivers it; another process does not before its time is over, and neither
 * does it twice. */
static void test_one_delivers(void **state)
{
    struct world *w = *state;
    struct subscriptions *a = w->subs;
    subscriptions_set_refresh(a, 5000);
    struct subscription_config h = world_hook("hooked/*");
    assert_int_equal(world_create(w, "h", &h), 201);
    world_start(w);
    struct subscriptions *b = w->subs;
    subscriptions_set_refresh(b, 5000);
    w->due = 0;
    world_append(w, "hooked/a", "1");
    assert_int_equal(w->due, 1); /* one of them began it */
    struct subscription *at_a = map_get(&a->by_id, STR("h"));
    bool ours = at_a->delivery == SUB_DELIVERY_OURS;
    struct subscriptions *first = ours ? a : b, *other = ours ? b : a;
    struct str names[] = {STR("named")};
    struct world_call c, edit = {.call = {.id = STR("h"), .streams = names, .n_streams = 1}};
    assert_int_equal(attempt(w, other, &c), SUBSCRIPTION_NO_PENDING_WORK);
    w->subs = first;
    assert_int_equal(world_do(w, subscription_link, &edit), 0); /* changes nothing about that */
    world_forget(&edit);
    assert_int_equal(attempt(w, first, &c), 0);
    world_forget(&c);
    assert_int_equal(attempt(w, first, &c), SUBSCRIPTION_NO_PENDING_WORK);
    assert_int_equal(attempt(w, other, &c), SUBSCRIPTION_NO_PENDING_WORK);

    /* It has died with it: when the time is over, one of those that are left goes on. */
    for (int i = 0; i < 40; i++)
        world_pass(w, 1000);
    assert_int_equal(attempt(w, other, &c), 0);
    world_forget(&c);
    assert_int_equal(attempt(w, first, &c), SUBSCRIPTION_NO_PENDING_WORK);
    w->subs = b;
    world_end(w);
    w->subs = a;
}

/* ---- what an earlier one of the same id left behind ---- */

static void on_put_stale(struct store_put *p, int err)
{
    assert_int_equal(err, 0);
}

static void test_stale_links(void **state)
{
    struct world *w = *state;
    struct offset tail = world_append(w, "events/a", "123");
    struct subscription_link stale = {.is_explicit = true, .birth = 1, .life = tail.life};
    char text[SUBSCRIPTION_LINK_TEXT];
    subscription_link_format(&stale, text);
    struct str value = str_of(text, sizeof text);
    struct doc_put docs[] = {{.key = STR("sub/link/s/events/a"), .value = value},
                             {.key = STR("sub/link/s/events/new"), .value = value},
                             {.key = STR("sub/link/s/named"), .value = value},
                             {.key = STR("sub/link/s/other"), .value = value}};
    struct store_put put = {.docs = docs, .n_docs = 4, .done = on_put_stale};
    store_put(w->store, &put);
    sched_drain(&w->sched);
    struct str names[] = {STR("named")};
    struct subscription_config c = world_hook("events/*");
    c.streams = names;
    c.n_streams = 1;
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/new", "1");
    world_same(world_linked(w, "s", "events/a").stream.acked, tail);
    assert_false(world_linked(w, "s", "events/a").stream.is_explicit);
    assert_false(world_linked(w, "s", "events/new").stream.is_explicit);
    assert_true(world_linked(w, "s", "named").stream.is_explicit);
    assert_false(world_linked(w, "s", "other").ok);
    world_restart(w);
    assert_false(world_linked(w, "s", "other").ok);
}

/* ---- bounds ---- */

static void test_more_than_memory_holds(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    w->subs->hints_max = 4;
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    char name[32];
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        world_append(w, name, "1");
    }
    int wakes = 0, seen = 0;
    struct world_call claim;
    for (; world_claim(w, "s", "me", &claim) == 0; wakes++) {
        size_t n = claim.call.view.n_streams, last = 0;
        for (size_t i = 0; i < n; i++)
            if (claim.call.view.streams[i].has_pending)
                last = i;
        for (size_t i = 0; i <= last; i++) {
            const struct subscription_stream *s = &claim.call.view.streams[i];
            snprintf(name, sizeof name, "%.*s", (int)s->path.n, s->path.p);
            assert_int_equal(world_ack(w, &claim, name, s->tail, i == last, NULL), 0);
            seen++;
        }
        world_forget(&claim);
        assert_true(wakes < 100);
    }
    assert_int_equal(seen, 30);
    assert_true(wakes >= 7);
}

static void test_limits(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    w->subs->n_active += SUBSCRIPTION_MAX - 1;
    assert_int_equal(world_create(w, "t", &c), ERR_LIMIT);
    assert_int_equal(world_create(w, "s", &c), 200);
    w->subs->n_active -= SUBSCRIPTION_MAX - 1;
    assert_int_equal(world_create(w, "t", &c), 201);

    struct subscription *sub = map_get(&w->subs->by_id, STR("s"));
    sub->n_explicit += SUBSCRIPTION_EXPLICIT_MAX;
    struct str names[] = {STR("a")};
    struct world_call link = {.call = {.id = STR("s"), .streams = names, .n_streams = 1}};
    assert_int_equal(world_do(w, subscription_link, &link), ERR_LIMIT);
    sub->n_explicit -= SUBSCRIPTION_EXPLICIT_MAX;
    assert_int_equal(world_do(w, subscription_link, &link), 0);
}

static void test_calls_after_stop(void **state)
{
    struct world *w = *state;
    struct world_call before = {.call = {.id = STR("s")}}, after = {.call = {.id = STR("t")}};
    world_begin(w, subscription_get, &before);
    w->stopped = false;
    subscriptions_stop(w->subs, world_on_stopped, w);
    world_begin(w, subscription_get, &after);
    sched_drain(&w->sched);
    assert_int_equal(before.result, ERR_CANCELLED);
    assert_int_equal(after.result, ERR_CANCELLED);
    assert_true(w->stopped);
    subscriptions_free(w->subs);
    world_start(w);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_restart),
        T(test_signing_key_stays),
        T(test_what_happened_while_down),
        T(test_lease_over_restarts),
        T(test_retries_over_restarts),
        cmocka_unit_test(test_cut_off_anywhere),
        cmocka_unit_test(test_every_operation_fails_once),
        cmocka_unit_test(test_look_fails_once),
        cmocka_unit_test(test_unlink_fails_once),
        cmocka_unit_test(test_finishing_a_deletion_fails_once),
        T(test_load_fails),
        T(test_two_processes),
        T(test_takeover),
        T(test_one_delivers),
        T(test_stale_links),
        T(test_more_than_memory_holds),
        T(test_limits),
        T(test_calls_after_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
