// SPDX-License-Identifier: Apache-2.0
/* One process or two, workers that come and go, and a store whose answers take their time: whatever
 * the order, a wake has one holder, and in the end nothing is left unacknowledged. A failure names
 * its seed; SUBSCRIPTION_SEED=n runs that one alone, SUBSCRIPTION_RUNS=n as many from there on. */
#include "unit/feature/subscriptions/subscription_world.h"

#include "feature/subscriptions/subscription_core.h"
#include "store/mem/mem_store.h"

static uint64_t state_of_random;

static uint64_t pick(uint64_t n)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return (state_of_random >> 11) % n;
}

/* ---- a slow store ---- */

struct slow {
    struct store store;
    struct store *real;
};

struct slow_op {
    struct timer timer;
    struct slow *slow;
    void *op;
};

#define SLOW(verb)                                                                                 \
    static void forward_##verb(struct timer *t)                                                    \
    {                                                                                              \
        struct slow_op *o = container_of(t, struct slow_op, timer);                                \
        store_##verb(o->slow->real, o->op);                                                        \
        free(o);                                                                                   \
    }                                                                                              \
    static void slow_##verb(struct store *s, struct store_##verb *op)                              \
    {                                                                                              \
        struct slow *slow = container_of(s, struct slow, store);                                   \
        if (pick(3) == 0) {                                                                        \
            store_##verb(slow->real, op);                                                          \
            return;                                                                                \
        }                                                                                          \
        struct slow_op *o = mem_zalloc(sizeof *o);                                                 \
        o->slow = slow;                                                                            \
        o->op = op;                                                                                \
        timer_init(&o->timer, forward_##verb);                                                     \
        sched_start(s->sched, &o->timer, pick(60));                                                \
    }
SLOW(write)
SLOW(stat)
SLOW(list)
SLOW(docs)

/* A put may also be long done before it is told. */
struct slow_put {
    struct store_put put;
    struct store_put *of;
    struct timer timer;
    struct sched *sched;
    int err;
};

static void tell_put(struct timer *t)
{
    struct slow_put *s = container_of(t, struct slow_put, timer);
    struct store_put *of = s->of;
    int err = s->err;
    free(s);
    of->done(of, err);
}

static void on_slow_put(struct store_put *p, int err)
{
    struct slow_put *s = container_of(p, struct slow_put, put);
    s->err = err;
    timer_init(&s->timer, tell_put);
    sched_start(s->sched, &s->timer, pick(60));
}

static void slow_put(struct store *store, struct store_put *p)
{
    struct slow_put *s = mem_zalloc(sizeof *s);
    s->put = (struct store_put){.docs = p->docs, .n_docs = p->n_docs, .done = on_slow_put};
    s->of = p;
    s->sched = store->sched;
    store_put(container_of(store, struct slow, store)->real, &s->put);
}

static void slow_watch(struct store *s, struct store_watch *w)
{
    store_watch(container_of(s, struct slow, store)->real, w);
}

static void slow_unwatch(struct store *s, struct store_watch *w)
{
    store_unwatch(container_of(s, struct slow, store)->real, w);
}

static const struct store_ops slow_ops = {
    .write = slow_write,
    .stat = slow_stat,
    .list = slow_list,
    .docs = slow_docs,
    .put = slow_put,
    .watch = slow_watch,
    .unwatch = slow_unwatch,
};

/* ---- the play ---- */

#define SUBS     2
#define WORKERS  4
#define STREAMS  6
#define LEASE_MS 5000

struct play;

struct worker {
    struct play *play;
    struct world_call claim, ack;
    struct subscription_ack acks[STREAMS];
    char texts[STREAMS][OFFSET_TEXT];
    int sub;
    bool holds, busy, done_asked;
};

struct play {
    struct world w; /* its subs: the first process */
    struct slow slow;
    struct subscriptions *process[2];
    int n_processes;
    struct worker workers[WORKERS];
    uint64_t claimed[SUBS]; /* the latest generation */
    int acked;
};

static const char *const sub_ids[SUBS] = {"s0", "s1"};
static const char *const stream_names[STREAMS] = {"events/a", "events/b", "events/c/d",
                                                  "events/e", "named",    "events/new"};

static void settle(struct play *p, int ms)
{
    for (; ms > 0; ms -= 20)
        world_pass(&p->w, 20);
}

static struct subscriptions *some_process(struct play *p)
{
    return p->process[pick((uint64_t)p->n_processes)];
}

static void on_claimed(struct subscription_call *c, int result)
{
    struct worker *k = container_of(c, struct worker, claim.call);
    k->busy = false;
    k->holds = result == 0;
    if (result != 0) {
        assert_true(result == SUBSCRIPTION_ALREADY_CLAIMED ||
                    result == SUBSCRIPTION_NO_PENDING_WORK || result == ERR_BUSY ||
                    result == ERR_CANCELLED);
        subscription_call_deinit(c);
        return;
    }
    assert_true(c->view.generation > k->play->claimed[k->sub]); /* never given out twice */
    k->play->claimed[k->sub] = c->view.generation;
}

static void claim(struct play *p, struct worker *k, int sub)
{
    k->sub = sub;
    k->claim.call = (struct subscription_call){
        .id = str_of_cstr(sub_ids[k->sub]), .worker = STR("worker"), .done = on_claimed};
    k->busy = true;
    subscription_claim(some_process(p), &k->claim.call);
}

static void on_acked(struct subscription_call *c, int result)
{
    struct worker *k = container_of(c, struct worker, ack.call);
    bool newest = k->claim.call.view.generation == k->play->claimed[k->sub];
    k->busy = false;
    if (result == 0)
        assert_true(newest); /* who was overtaken can do nothing */
    else
        assert_true(result == SUBSCRIPTION_FENCED || result == SUBSCRIPTION_INVALID_OFFSET ||
                    result == ERR_BUSY || result == ERR_CANCELLED);
    k->play->acked += result == 0;
    if (result == SUBSCRIPTION_FENCED || (result == 0 && k->done_asked)) {
        k->holds = false;
        subscription_call_deinit(&k->claim.call);
    }
}

static void ack(struct play *p, struct worker *k, bool all, bool done)
{
    const struct subscription_view *v = &k->claim.call.view;
    size_t n = 0;
    for (size_t i = 0; i < v->n_streams; i++)
        if (all || pick(2)) {
            offset_format(v->streams[i].tail, k->texts[n]);
            k->acks[n] =
                (struct subscription_ack){v->streams[i].path, str_of(k->texts[n], OFFSET_TEXT)};
            n++;
        }
    k->done_asked = done;
    k->ack.call = (struct subscription_call){.id = k->claim.call.id,
                                             .token = v->token,
                                             .wake_id = v->wake_id,
                                             .generation = v->generation,
                                             .acks = k->acks,
                                             .n_acks = n,
                                             .finished = done,
                                             .done = on_acked};
    k->busy = true;
    subscription_ack(some_process(p), &k->ack.call);
}

/* With little room for anything, so that it is used up. */
static void start_process(struct play *p, int i)
{
    struct subscriptions *s = p->process[i] = subscriptions_new(&p->w.sched, &p->slow.store);
    subscriptions_set_refresh(s, 2000);
    s->hints_max = 1 + pick(8);
    s->hints_all = pick(8);
    s->notices.news_max = pick(8);
    s->notices.slice = 1 + pick(8);
}

static void restart_process(struct play *p, int i)
{
    struct world *w = &p->w;
    w->stopped = false;
    subscriptions_stop(p->process[i], world_on_stopped, w);
    settle(p, 400);
    assert_true(w->stopped);
    subscriptions_free(p->process[i]);
    start_process(p, i);
}

static void act(struct play *p)
{
    struct worker *k = &p->workers[pick(WORKERS)];
    const char *name = stream_names[pick(STREAMS)];
    switch (pick(12)) {
    case 0:
    case 1:
    case 2:
    case 3: world_append(&p->w, name, "x"); break;
    case 4:
        if (pick(4) == 0) { /* empty first, and a little later not */
            world_append(&p->w, name, "");
            settle(p, (int)pick(200));
            world_append(&p->w, name, "x");
        } else if (pick(4) == 0) {
            world_append(&p->w, name, "");
            world_remove(&p->w, name);
        }
        break;
    case 5:
        if (pick(4) == 0)
            restart_process(p, (int)pick((uint64_t)p->n_processes));
        break;
    case 6: settle(p, (int)pick(3000)); break;
    default:
        if (k->busy)
            settle(p, 20);
        else if (k->holds)
            ack(p, k, pick(2), pick(2));
        else
            claim(p, k, (int)pick(SUBS));
    }
}

static void wait_for_workers(struct play *p)
{
    for (int i = 0; i < WORKERS; i++)
        for (int n = 0; p->workers[i].busy; n++) {
            settle(p, 100);
            assert_true(n < 1000);
        }
}

static void forget_claims(struct play *p)
{
    for (int i = 0; i < WORKERS; i++)
        if (p->workers[i].holds) {
            subscription_call_deinit(&p->workers[i].claim.call);
            p->workers[i].holds = false;
        }
}

/* Whether the subscription is behind on any stream; *woken: a wake is out. */
static bool is_behind(struct play *p, int sub, bool *woken)
{
    struct world *w = &p->w;
    struct world_call get = {.call = {.id = str_of_cstr(sub_ids[sub])}};
    bool behind = false;
    w->subs = p->process[0];
    world_begin(w, subscription_get, &get);
    settle(p, 2000);
    assert_int_equal(get.result, 0);
    for (int i = 0; i < STREAMS; i++) {
        struct offset tail = world_append(w, stream_names[i], "");
        const struct subscription_stream *st = world_stream(&get, stream_names[i]);
        behind |= tail.pos > 0 && (st == NULL || sub_offset_cmp(st->acked, tail) < 0);
    }
    *woken = get.call.view.wake_id.n > 0;
    world_forget(&get);
    return behind;
}

/* When all leases are over, what is behind has been woken; one worker then takes all there is. */
static void finish(struct play *p)
{
    bool woken;
    wait_for_workers(p);
    forget_claims(p);
    settle(p, 2 * LEASE_MS + 5000);
    for (int s = 0; s < SUBS; s++)
        assert_true(!is_behind(p, s, &woken) || woken);
    struct worker *k = &p->workers[0];
    int idle = 0;
    for (int n = 0; idle < 4 * SUBS; n++) { /* until each has said often that it is done */
        claim(p, k, n % SUBS);
        wait_for_workers(p);
        idle = k->holds ? 0 : idle + 1;
        if (k->holds)
            ack(p, k, true, true);
        wait_for_workers(p);
        if (k->holds)
            forget_claims(p);
        settle(p, LEASE_MS / 4);
        assert_true(n < 500);
    }
    for (int s = 0; s < SUBS; s++)
        assert_true(!is_behind(p, s, &woken) && !woken);
}

/* Each generation is announced at most once. */
static void check_wakes(struct play *p)
{
    char *text = strdup(world_text(&p->w, "wakes"));
    for (int s = 0; s < SUBS; s++) {
        uint64_t last = 0;
        char key[64];
        snprintf(key, sizeof key, "\"subscription_id\":\"%s\"", sub_ids[s]);
        for (const char *at = text; (at = strstr(at, key)) != NULL; at++) {
            uint64_t g = strtoull(strstr(at, "\"generation\":") + 13, NULL, 10);
            assert_true(g > last);
            last = g;
        }
    }
    free(text);
}

static void run(uint64_t seed)
{
    struct play *p = mem_zalloc(sizeof *p);
    struct world *w = &p->w;
    state_of_random = seed * 0x9e3779b97f4a7c15u + 1;
    sched_init(&w->sched, 1000, 1800000000000);
    w->store = mem_store_new(&w->sched);
    p->slow = (struct slow){{.ops = &slow_ops, .sched = &w->sched}, w->store};
    world_append(w, "wakes", "");
    p->n_processes = 1 + (int)pick(2);
    for (int i = 0; i < p->n_processes; i++)
        start_process(p, i);
    for (int i = 0; i < WORKERS; i++)
        p->workers[i].play = p;
    settle(p, 1000);
    struct str named[] = {STR("named")};
    struct subscription_config c = world_pull("events/**");
    c.lease_ttl_ms = LEASE_MS;
    c.streams = named;
    c.n_streams = 1;
    for (int s = 0; s < SUBS; s++) {
        struct world_call create = {.call = {.id = str_of_cstr(sub_ids[s]), .config = &c}};
        w->subs = some_process(p);
        world_begin(w, subscription_create, &create);
        settle(p, 3000);
        assert_int_equal(create.result, 0);
        world_forget(&create);
    }
    for (int i = 0; i < 120; i++)
        act(p);
    finish(p);
    check_wakes(p);
    assert_true(p->acked > 0);
    for (int i = 0; i < p->n_processes; i++) {
        w->stopped = false;
        subscriptions_stop(p->process[i], world_on_stopped, w);
        settle(p, 400);
        assert_true(w->stopped);
        subscriptions_free(p->process[i]);
    }
    store_free(w->store);
    free(p);
}

static uint64_t seed_now; /* 0: all went well */

static uint64_t setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : fallback;
}

static void test_random(void **state)
{
    uint64_t from = setting("SUBSCRIPTION_SEED", 1);
    uint64_t runs = setting("SUBSCRIPTION_RUNS", from == 1 ? 40 : 1);
    for (seed_now = from; seed_now < from + runs; seed_now++)
        run(seed_now);
    seed_now = 0;
}

static int tell_seed(void **state)
{
    if (seed_now != 0)
        print_message("seed %llu\n", (unsigned long long)seed_now);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_random, tell_seed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
