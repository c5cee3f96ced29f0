// SPDX-License-Identifier: Apache-2.0
#include "unit/feature/subscriptions/subscription_world.h"

/* ---- create, confirm, delete ---- */

static void test_create_and_confirm(void **state)
{
    struct world *w = *state;
    struct str streams[] = {STR("x"), STR("y"), STR("x")}, turned[] = {STR("y"), STR("x")};
    struct subscription_config c = world_pull("events/*"), other = world_pull("events/**");
    c.streams = streams;
    c.n_streams = 3;
    assert_int_equal(world_create(w, "s", &c), 201);
    assert_int_equal(world_create(w, "s", &c), 200);
    c.streams = turned; /* the order of names says nothing, nor does the way we are reached */
    c.n_streams = 2;
    c.public_url = STR("http://there");
    assert_int_equal(world_create(w, "s", &c), 200);
    assert_int_equal(world_create(w, "s", &other), SUBSCRIPTION_SUBSCRIPTION_ALREADY_EXISTS);
    assert_int_equal(world_create(w, "t", &other), 201);

    struct world_call get = {.call = {.id = STR("s")}};
    assert_int_equal(world_do(w, subscription_get, &get), 0);
    assert_true(str_eq(get.call.view.config.public_url, STR("http://here")));
    assert_true(str_eq(get.call.view.config.pattern, STR("events/*")));
    assert_int_equal(get.call.view.config.lease_ttl_ms, 30000);
    assert_int_equal(get.call.view.created_ms, w->sched.wall_ms);
    assert_int_equal(get.call.view.n_streams, 2);
    world_forget(&get);
}

static void test_delete(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*"), other = world_pull("events/**");
    world_append(w, "wakes", "");
    world_append(w, "events/a", "1");
    assert_int_equal(world_create(w, "s", &c), 201);
    assert_int_equal(world_simple(w, subscription_delete, "s"), 0);
    assert_int_equal(world_simple(w, subscription_get, "s"), SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
    assert_int_equal(world_simple(w, subscription_delete, "s"), 0);
    world_append(w, "events/a", "2"); /* wakes nobody */
    assert_string_equal(world_text(w, "wakes"), "");
    /* the next of that name begins anew: at the tail */
    assert_int_equal(world_create(w, "s", &other), 201);
    assert_int_equal(world_linked(w, "s", "events/a").stream.acked.pos, 2);
    assert_string_equal(world_text(w, "wakes"), "");
}

static void on_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    assert_int_equal(d->n_rows, 0);
}

static void append_to_many(struct world *w)
{
    char name[32];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof name, "events/%d", i);
        world_append(w, name, "1");
    }
}

/* Has its turn again and again: what happened between two of them happened at once. */
struct look {
    struct task task;
    struct sched *sched;
    const struct world_call *call;
    size_t before, most;
};

static void look_run(struct task *t)
{
    struct look *l = container_of(t, struct look, task);
    size_t n = l->call->call.view.n_streams;
    if (n - l->before > l->most)
        l->most = n - l->before;
    l->before = n;
    if (l->call->result == WORLD_UNDONE)
        sched_post(l->sched, t);
}

static void test_many_links_are_shown_some_at_a_time(void **state)
{
    struct world *w = *state;
    append_to_many(w);
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_call get = {.call = {.id = STR("s")}};
    struct look look = {.sched = &w->sched, .call = &get};
    task_init(&look.task, look_run);
    world_begin(w, subscription_get, &get);
    sched_post(&w->sched, &look.task);
    sched_drain(&w->sched);
    assert_int_equal(get.result, 0);
    assert_int_equal(look.before, 600);
    assert_in_range(look.most, 1, 256);
    world_forget(&get);
}

static void test_many_links_are_deleted(void **state)
{
    struct world *w = *state;
    append_to_many(w);
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_call get = {.call = {.id = STR("s")}};
    assert_int_equal(world_do(w, subscription_get, &get), 0);
    assert_int_equal(get.call.view.n_streams, 600);
    assert_false(get.call.view.more);
    world_forget(&get);
    assert_int_equal(world_simple(w, subscription_delete, "s"), 0);

    struct store_docs docs = {.prefix = STR("sub/"), .limit = 1, .done = on_docs};
    docs.n_rows = 1;
    store_docs(w->store, &docs);
    sched_drain(&w->sched);
    assert_int_equal(docs.n_rows, 0);
}

/* ---- links ---- */

static void test_links(void **state)
{
    struct world *w = *state;
    struct offset old = world_append(w, "events/old", "123");
    struct str streams[] = {STR("named"), STR("events/old")};
    struct subscription_config c = world_hook("events/*");
    c.streams = streams;
    c.n_streams = 2;
    assert_int_equal(world_create(w, "s", &c), 201);

    struct world_link l = world_linked(w, "s", "events/old");
    assert_true(l.ok && l.stream.is_explicit);
    world_same(l.stream.acked, old);
    l = world_linked(w, "s", "named"); /* does not exist yet */
    assert_true(l.ok && l.stream.is_explicit && offset_is_zero(l.stream.acked));

    world_append(w, "events/new", "1");
    l = world_linked(w, "s", "events/new");
    assert_true(l.ok && !l.stream.is_explicit && offset_is_zero(l.stream.acked));
    world_append(w, "else/where", "1");
    assert_false(world_linked(w, "s", "else/where").ok);
}

static void test_link_and_unlink(void **state)
{
    struct world *w = *state;
    struct offset b = world_append(w, "b", "12");
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");

    struct str names[] = {STR("b"), STR("events/a"), STR("b")};
    struct world_call link = {.call = {.id = STR("s"), .streams = names, .n_streams = 3}};
    assert_int_equal(world_do(w, subscription_link, &link), 0);
    struct world_link l = world_linked(w, "s", "b");
    assert_true(l.ok && l.stream.is_explicit);
    world_same(l.stream.acked, b);
    l = world_linked(w, "s", "events/a"); /* keeps its position */
    assert_true(l.ok && l.stream.is_explicit && offset_is_zero(l.stream.acked));

    struct world_call unlink = {.call = {.id = STR("s"), .streams = names, .n_streams = 1}};
    assert_int_equal(world_do(w, subscription_unlink, &unlink), 0);
    assert_int_equal(world_do(w, subscription_unlink, &unlink), 0);
    assert_false(world_linked(w, "s", "b").ok);
    unlink.call.streams = names + 1; /* the pattern still has this one */
    assert_int_equal(world_do(w, subscription_unlink, &unlink), 0);
    l = world_linked(w, "s", "events/a");
    assert_true(l.ok && !l.stream.is_explicit);

    link.call.id = unlink.call.id = STR("none");
    assert_int_equal(world_do(w, subscription_link, &link), SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
    assert_int_equal(world_do(w, subscription_unlink, &unlink),
                     SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
}

static void test_unlinked_stream_wakes_nobody(void **state)
{
    struct world *w = *state;
    struct str names[] = {STR("b")};
    struct subscription_config c = world_hook("");
    c.streams = names;
    c.n_streams = 1;
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_call unlink = {.call = {.id = STR("s"), .streams = names, .n_streams = 1}};
    assert_int_equal(world_do(w, subscription_unlink, &unlink), 0);
    world_append(w, "b", "1");
    assert_int_equal(w->due, 0);
}

static void test_deleted_stream(void **state)
{
    struct world *w = *state;
    struct str names[] = {STR("named")};
    struct subscription_config c = world_pull("events/*");
    c.streams = names;
    c.n_streams = 1;
    world_append(w, "named", "12");
    world_append(w, "events/a", "12");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_remove(w, "named");
    world_remove(w, "events/a");
    assert_false(world_linked(w, "s", "events/a").ok);
    assert_true(world_linked(w, "s", "named").ok);

    /* born again: its events are all new, however short it is */
    struct offset a = world_append(w, "events/a", "1"), n = world_append(w, "named", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(claim.call.view.n_streams, 2);
    assert_true(world_stream(&claim, "named")->has_pending);
    assert_true(offset_is_zero(world_stream(&claim, "named")->acked));
    world_same(world_stream(&claim, "named")->tail, n);
    world_same(world_stream(&claim, "events/a")->tail, a);
    world_forget(&claim);
}

/* ---- pull ---- */

static void test_wake_event(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append_as(w, "wakes", "", "application/json");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    char want[256];
    snprintf(want, sizeof want,
             "{\"type\":\"wake\",\"subscription_id\":\"s\",\"stream\":\"events/a\","
             "\"generation\":1,\"ts\":%lld},",
             (long long)w->sched.wall_ms);
    assert_string_equal(world_text(w, "wakes"), want);
    world_append(w, "events/a", "2"); /* one wake at a time */
    world_append(w, "events/b", "2");
    assert_string_equal(world_text(w, "wakes"), want);
}

static void test_own_wake_stream_is_not_linked(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("**");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset tail = world_append(w, "a", "1");
    assert_false(world_linked(w, "s", "wakes").ok);
    struct world_call claim;
    bool next_wake = true;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(world_ack(w, &claim, "a", tail, true, &next_wake), 0);
    assert_false(next_wake);
    world_forget(&claim);
}

static void test_claim_ack_release(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_call claim, busy;
    assert_int_equal(world_claim(w, "s", "me", &claim), SUBSCRIPTION_NO_PENDING_WORK);
    struct offset tail = world_append(w, "events/a", "1");
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(claim.call.view.generation, 1); /* that of the wake event */
    assert_true(world_stream(&claim, "events/a")->has_pending);
    world_same(world_stream(&claim, "events/a")->tail, tail);

    assert_int_equal(world_claim(w, "s", "you", &busy), SUBSCRIPTION_ALREADY_CLAIMED);
    assert_true(str_eq(busy.call.view.holder, STR("me")));
    assert_int_equal(busy.call.view.generation, 1);
    world_forget(&busy);

    bool next_wake = true;
    assert_int_equal(world_ack(w, &claim, "events/a", tail, true, &next_wake), 0);
    assert_false(next_wake);
    world_same(world_linked(w, "s", "events/a").stream.acked, tail);
    assert_int_equal(world_ack(w, &claim, "events/a", tail, true, NULL), SUBSCRIPTION_FENCED);
    world_forget(&claim);
    assert_int_equal(world_claim(w, "s", "me", &claim), SUBSCRIPTION_NO_PENDING_WORK);

    world_append(w, "events/a", "2");
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(claim.call.view.generation, 2);
    world_same(world_stream(&claim, "events/a")->acked, tail);
    bool woke = false; /* what is given back wakes the next */
    assert_int_equal(
        world_ack_as(w, subscription_release, &claim, NULL, (struct offset){0}, false, &woke), 0);
    assert_true(woke);
    world_forget(&claim);
    assert_int_equal(world_claim(w, "s", "you", &claim), 0);
    assert_int_equal(claim.call.view.generation, 3);
    world_forget(&claim);
}

static void test_claim_in_the_turn_of_the_append(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    world_append(w, "events/a", "1");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_write ww = {
        .op = {.name = STR("events/a"), .data = STR("2"), .n_events = 1, .done = world_on_write}};
    struct world_call claim = {.call = {.id = STR("s"), .worker = STR("me")}};
    store_write(w->store, &ww.op);
    while (!ww.done) { /* and not a task more: nobody has looked at the subscription yet */
        struct task *t = list_item(w->sched.tasks.next, struct task, link);
        list_remove(&t->link);
        t->run(t);
    }
    assert_int_equal(world_do(w, subscription_claim, &claim), 0);
    world_forget(&claim);
}

static void test_done_with_more(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset one = world_append(w, "events/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    struct offset two = world_append(w, "events/a", "2");
    bool next_wake = false;
    assert_int_equal(world_ack(w, &claim, "events/a", one, true, &next_wake), 0);
    assert_true(next_wake);
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    world_forget(&claim);
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(world_ack(w, &claim, "events/a", two, true, &next_wake), 0);
    assert_false(next_wake);
    /* a stream that was never seen before counts as well */
    world_forget(&claim);
    world_append(w, "events/a", "3");
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    two = world_stream(&claim, "events/a")->tail;
    world_append(w, "events/b", "1");
    assert_int_equal(world_ack(w, &claim, "events/a", two, true, &next_wake), 0);
    assert_true(next_wake);
    world_forget(&claim);
}

static void test_fencing(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    assert_int_equal(world_create(w, "t", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call claim, other;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(world_claim(w, "t", "me", &other), 0);

    struct world_call bad = claim; /* the token of another subscription */
    bad.call.view.token = other.call.view.token;
    assert_int_equal(world_ack(w, &bad, "events/a", tail, true, NULL), SUBSCRIPTION_TOKEN_INVALID);
    char forged[256];
    struct str token = claim.call.view.token;
    for (size_t i = 0; i < token.n; i++) { /* no byte of it can be changed */
        memcpy(forged, token.p, token.n);
        forged[i] ^= 1;
        bad.call.view.token = str_of(forged, token.n);
        assert_int_equal(world_ack(w, &bad, "events/a", tail, true, NULL),
                         SUBSCRIPTION_TOKEN_INVALID);
    }
    bad.call.view.token = STR("");
    assert_int_equal(world_ack(w, &bad, "events/a", tail, true, NULL), SUBSCRIPTION_TOKEN_INVALID);

    bad = claim;
    bad.call.view.generation++;
    assert_int_equal(world_ack(w, &bad, "events/a", tail, true, NULL), SUBSCRIPTION_FENCED);
    bad = claim;
    bad.call.view.wake_id = other.call.view.wake_id;
    assert_int_equal(world_ack(w, &bad, "events/a", tail, true, NULL), SUBSCRIPTION_FENCED);
    assert_int_equal(world_ack(w, &claim, "events/a", tail, true, NULL), 0);
    world_forget(&claim);
    world_forget(&other);
}

static void test_ack_offsets(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset one = world_append(w, "events/a", "1"), two = world_append(w, "events/a", "2");
    struct offset beyond = {two.life, two.pos + 1}, alien = {two.life + 1, 0};
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(world_ack(w, &claim, "events/a", beyond, false, NULL),
                     SUBSCRIPTION_INVALID_OFFSET);
    assert_int_equal(world_ack(w, &claim, "events/a", alien, false, NULL),
                     SUBSCRIPTION_INVALID_OFFSET);
    assert_int_equal(world_ack(w, &claim, "events/x", one, false, NULL),
                     SUBSCRIPTION_INVALID_OFFSET);
    assert_int_equal(world_ack(w, &claim, "/events/a/", two, false, NULL), 0);
    assert_int_equal(world_ack(w, &claim, "events/a", one, false, NULL),
                     SUBSCRIPTION_INVALID_OFFSET);
    assert_int_equal(world_ack(w, &claim, "events/a", two, false, NULL), 0);
    world_same(world_linked(w, "s", "events/a").stream.acked, two);
    world_forget(&claim);
}

/* A worker may ack whatever it was told, even where there is nothing to ack. */
static void test_ack_of_quiet_streams(void **state)
{
    struct world *w = *state;
    struct str names[] = {STR("none"), STR("quiet")};
    struct subscription_config c = world_pull("events/*");
    c.streams = names;
    c.n_streams = 2;
    world_append(w, "wakes", "");
    world_append(w, "quiet", "1");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(claim.call.view.n_streams, 3);
    const struct subscription_stream *none = world_stream(&claim, "none");
    const struct subscription_stream *quiet = world_stream(&claim, "quiet");
    assert_int_equal(world_ack(w, &claim, "none", none->tail, false, NULL), 0);
    assert_int_equal(world_ack(w, &claim, "quiet", quiet->tail, false, NULL), 0);
    world_remove(w, "quiet");
    world_append(w, "quiet", "1"); /* another stream by now */
    assert_int_equal(world_ack(w, &claim, "quiet", quiet->tail, false, NULL), 0);
    bool next_wake = false;
    assert_int_equal(
        world_ack(w, &claim, "events/a", world_stream(&claim, "events/a")->tail, true, &next_wake),
        0);
    assert_true(next_wake);
    world_forget(&claim);
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_true(world_stream(&claim, "quiet")->has_pending);
    assert_true(offset_is_zero(world_stream(&claim, "quiet")->acked));
    world_forget(&claim);
}

static void test_acks_are_taken_together(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset a = world_append(w, "events/a", "1");
    world_append(w, "events/b", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    char text[OFFSET_TEXT];
    offset_format(a, text);
    struct subscription_ack acks[] = {{STR("events/a"), str_of(text, OFFSET_TEXT)},
                                      {STR("events/b"), STR("-1")}};
    struct world_call ack = {.call = {.id = STR("s"),
                                      .token = claim.call.view.token,
                                      .wake_id = claim.call.view.wake_id,
                                      .generation = claim.call.view.generation,
                                      .acks = acks,
                                      .n_acks = 2,
                                      .finished = true}};
    assert_int_equal(world_do(w, subscription_ack, &ack), SUBSCRIPTION_INVALID_OFFSET);
    assert_true(offset_is_zero(world_linked(w, "s", "events/a").stream.acked));
    acks[1] = acks[0]; /* the same stream twice is one ack */
    assert_int_equal(world_do(w, subscription_ack, &ack), 0);
    assert_true(ack.call.next_wake); /* b */
    world_same(world_linked(w, "s", "events/a").stream.acked, a);
    world_forget(&claim);
}

static void test_lease_runs_out(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call first, second;
    assert_int_equal(world_claim(w, "s", "me", &first), 0);
    world_pass(w, 29000);
    assert_int_equal(world_ack(w, &first, NULL, tail, false, NULL), 0); /* renews it */
    world_pass(w, 29000);
    assert_int_equal(world_claim(w, "s", "you", &second), SUBSCRIPTION_ALREADY_CLAIMED);
    world_forget(&second);
    assert_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    world_pass(w, 2000);
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    assert_int_equal(world_ack(w, &first, "events/a", tail, true, NULL), SUBSCRIPTION_FENCED);
    assert_int_equal(world_claim(w, "s", "you", &second), 0);
    assert_int_equal(second.call.view.generation, 2);
    assert_int_equal(world_ack(w, &second, "events/a", tail, true, NULL), 0);
    world_forget(&first);
    world_forget(&second);
}

static void test_lease_of_finished_work_runs_out_quietly(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(world_ack(w, &claim, "events/a", tail, false, NULL), 0);
    world_pass(w, 31000);
    assert_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    world_append(w, "events/a", "2");
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
    world_forget(&claim);
}

static void test_clock_set_back(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    world_forget(&claim);
    w->sched.wall_ms -= 24 * 3600 * 1000; /* the lease must not last a day */
    assert_int_equal(world_claim(w, "s", "you", &claim), 0);
    assert_int_equal(claim.call.view.generation, 2);
    world_forget(&claim);
}

static void test_missing_wake_stream(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    assert_int_equal(world_create(w, "t", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call claim; /* needs no event */
    assert_int_equal(world_claim(w, "s", "me", &claim), 0);
    assert_int_equal(world_ack(w, &claim, "events/a", tail, true, NULL), 0);
    world_forget(&claim);
    world_append(w, "wakes", ""); /* t has waited for it */
    assert_non_null(strstr(world_text(w, "wakes"), "\"subscription_id\":\"t\""));
    assert_null(strstr(world_text(w, "wakes"), "\"subscription_id\":\"s\""));
}

static void test_wake_for_nothing(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/*");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    world_remove(w, "events/a");
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), SUBSCRIPTION_NO_PENDING_WORK);
    world_append(w, "events/a", "1"); /* the worker went away empty-handed: wake it again */
    assert_non_null(strstr(world_text(w, "wakes"), "\"generation\":2"));
}

static void test_wrong_type(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct world_call claim;
    assert_int_equal(world_claim(w, "s", "me", &claim), SUBSCRIPTION_INVALID_REQUEST);
    assert_int_equal(world_simple(w, subscription_ack, "s"), SUBSCRIPTION_INVALID_REQUEST);
    assert_int_equal(world_simple(w, subscription_release, "s"), SUBSCRIPTION_INVALID_REQUEST);
    assert_int_equal(world_simple(w, subscription_callback, "s"), SUBSCRIPTION_TOKEN_INVALID);
    assert_int_equal(world_claim(w, "none", "me", &claim), SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
}

/* More than fits in one wake: it comes in several. */
static void test_many_pending(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_pull("events/**");
    world_append(w, "wakes", "");
    assert_int_equal(world_create(w, "s", &c), 201);
    char name[300];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "events/%0250d", i);
        world_append(w, name, "1");
    }
    int wakes = 0;
    size_t seen = 0;
    for (bool more = true; more; wakes++) {
        struct world_call claim;
        assert_int_equal(world_claim(w, "s", "me", &claim), 0);
        size_t n = claim.call.view.n_streams;
        struct subscription_ack acks[512];
        char texts[512][OFFSET_TEXT];
        for (size_t i = 0; i < n; i++) {
            assert_true(claim.call.view.streams[i].has_pending);
            offset_format(claim.call.view.streams[i].tail, texts[i]);
            acks[i] = (struct subscription_ack){claim.call.view.streams[i].path,
                                                str_of(texts[i], OFFSET_TEXT)};
        }
        struct world_call ack = {.call = {.id = STR("s"),
                                          .token = claim.call.view.token,
                                          .wake_id = claim.call.view.wake_id,
                                          .generation = claim.call.view.generation,
                                          .acks = acks,
                                          .n_acks = n,
                                          .finished = true}};
        assert_int_equal(world_do(w, subscription_ack, &ack), 0);
        more = ack.call.next_wake;
        seen += n;
        world_forget(&claim);
    }
    assert_int_equal(seen, 300);
    assert_true(wakes > 1);
}

/* ---- webhooks ---- */

static void report(struct world *w, const struct world_call *attempt, bool delivered, bool finished,
                   uint64_t retry_ms, bool *next_wake)
{
    struct world_call c = {.call = {.id = attempt->call.id,
                                    .wake_id = attempt->call.view.wake_id,
                                    .generation = attempt->call.view.generation,
                                    .delivered = delivered,
                                    .finished = finished,
                                    .retry_ms = retry_ms}};
    assert_int_equal(world_do(w, subscription_report, &c), 0);
    if (next_wake != NULL)
        *next_wake = c.call.next_wake;
}

static void attempt(struct world *w, const char *id, struct world_call *c)
{
    *c = (struct world_call){.call = {.id = str_of_cstr(id)}};
    assert_int_equal(world_do(w, subscription_attempt, c), 0);
}

static void test_delivery_done(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    struct offset quiet = world_append(w, "events/quiet", "1");
    assert_int_equal(world_create(w, "s", &c), 201);
    assert_int_equal(world_simple(w, subscription_attempt, "s"), SUBSCRIPTION_NO_PENDING_WORK);
    struct offset one = world_append(w, "events/a", "1");
    assert_int_equal(w->due, 1);
    struct world_call a;
    attempt(w, "s", &a);
    assert_true(str_eq(a.call.view.config.webhook_url, c.webhook_url));
    assert_true(str_eq(a.call.view.config.public_url, c.public_url));
    assert_int_equal(a.call.view.n_streams, 2);
    assert_true(str_eq(a.call.view.streams[0].path, STR("events/a"))); /* the pending one first */
    assert_true(a.call.view.streams[0].has_pending);
    assert_false(a.call.view.streams[1].has_pending);
    world_same(a.call.view.streams[1].tail, quiet);

    struct offset two = world_append(w, "events/a", "2"); /* after the wake was sent */
    assert_int_equal(w->due, 1);
    bool next_wake = false;
    report(w, &a, true, true, 0, &next_wake);
    assert_true(next_wake);
    assert_int_equal(w->due, 2);
    world_same(world_linked(w, "s", "events/a").stream.acked, one);
    report(w, &a, true, true, 0, NULL); /* of a wake that is over */
    world_same(world_linked(w, "s", "events/a").stream.acked, one);
    world_forget(&a);
    attempt(w, "s", &a);
    assert_int_equal(a.call.view.generation, 2);
    world_same(a.call.view.streams[0].tail, two);
    report(w, &a, true, true, 0, &next_wake);
    assert_false(next_wake);
    world_forget(&a);
}

static void test_delivery_callback(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call a;
    attempt(w, "s", &a);
    report(w, &a, true, false, 0, NULL);
    bool next_wake = true;
    assert_int_equal(world_ack_as(w, subscription_callback, &a, "events/a", tail, true, &next_wake),
                     0);
    assert_false(next_wake);
    assert_int_equal(world_ack_as(w, subscription_callback, &a, "events/a", tail, true, NULL),
                     SUBSCRIPTION_FENCED);
    world_forget(&a);

    world_append(w, "events/a", "2"); /* never called back: the lease runs out */
    attempt(w, "s", &a);
    report(w, &a, true, false, 0, NULL);
    w->due = 0;
    world_pass(w, 29000);
    assert_int_equal(w->due, 0);
    world_pass(w, 2000);
    assert_int_equal(w->due, 1);
    world_forget(&a);
    attempt(w, "s", &a);
    assert_int_equal(a.call.view.generation, 3);
    world_forget(&a);
}

static void test_callback_before_the_answer(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    struct offset tail = world_append(w, "events/a", "1");
    struct world_call a;
    attempt(w, "s", &a);
    assert_int_equal(world_ack_as(w, subscription_callback, &a, "events/a", tail, false, NULL), 0);
    report(w, &a, false, false, 1000, NULL); /* the answer got lost; the work goes on */
    w->due = 0;
    world_pass(w, 5000);
    assert_int_equal(w->due, 0);
    assert_int_equal(world_ack_as(w, subscription_callback, &a, NULL, tail, true, NULL), 0);
    world_forget(&a);
}

/* An attempt that had to wait for its place has all its time, too: nobody repeats it meanwhile. */
static void test_delivery_waits(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    assert_int_equal(w->due, 1);
    world_pass(w, 20000);
    assert_int_equal(world_simple(w, subscription_attempt, "s"), 0);
    world_pass(w, 20000);
    assert_int_equal(world_simple(w, subscription_attempt, "s"), SUBSCRIPTION_NO_PENDING_WORK);
    world_pass(w, 20000);
    assert_int_equal(world_simple(w, subscription_attempt, "s"), 0);
}

static void test_delivery_fails(void **state)
{
    struct world *w = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(w, "s", &c), 201);
    world_append(w, "events/a", "1");
    struct world_call a, get = {.call = {.id = STR("s")}};
    for (uint32_t i = 0; i < 3; i++) {
        attempt(w, "s", &a);
        assert_int_equal(a.call.view.generation, 1); /* the same wake each time */
        assert_int_equal(a.call.view.attempts, i);
        report(w, &a, false, false, 4000, NULL);
        world_forget(&a);
        w->due = 0;
        world_pass(w, 3900);
        assert_int_equal(w->due, 0);
        world_pass(w, 200);
        assert_int_equal(w->due, 1);
    }
    assert_int_equal(world_do(w, subscription_get, &get), 0);
    assert_true(get.call.view.failing);
    world_forget(&get);
    attempt(w, "s", &a);
    report(w, &a, true, true, 0, NULL);
    assert_int_equal(world_do(w, subscription_get, &get), 0);
    assert_false(get.call.view.failing);
    world_forget(&get);
    world_forget(&a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_create_and_confirm),
        T(test_delete),
        T(test_many_links_are_shown_some_at_a_time),
        T(test_many_links_are_deleted),
        T(test_links),
        T(test_link_and_unlink),
        T(test_unlinked_stream_wakes_nobody),
        T(test_deleted_stream),
        T(test_wake_event),
        T(test_own_wake_stream_is_not_linked),
        T(test_claim_ack_release),
        T(test_claim_in_the_turn_of_the_append),
        T(test_done_with_more),
        T(test_fencing),
        T(test_ack_offsets),
        T(test_ack_of_quiet_streams),
        T(test_acks_are_taken_together),
        T(test_lease_runs_out),
        T(test_lease_of_finished_work_runs_out_quietly),
        T(test_clock_set_back),
        T(test_missing_wake_stream),
        T(test_wake_for_nothing),
        T(test_wrong_type),
        T(test_many_pending),
        T(test_delivery_done),
        T(test_delivery_callback),
        T(test_callback_before_the_answer),
        T(test_delivery_waits),
        T(test_delivery_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
