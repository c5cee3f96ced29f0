// SPDX-License-Identifier: Apache-2.0
/* What the model cannot show of the store on Redis: two processes, a Redis that forgets, breaks
 * off, fills up or goes away, and what is left to it to expire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/store/redis/redis_store_world.h"

#define JUMP ((uint64_t)1 << 33)

/* ---- two processes ---- */

static void test_changes_reach_the_other_process(void **state)
{
    struct place *p = enter("");
    struct told one = {.watch = {.name = STR("s")}}, all = {0};
    make(p, "s", &plain);
    watch(p, p->b, &one);
    watch(p, p->b, &all);
    struct offset tail = append(p, "s", "hello");
    turn_until(p, &one.told);
    turn_until(p, &all.told);
    expect_read(p, "s", (struct offset){tail.life, 0}, "hello");

    one.told = all.told = false;
    assert_int_equal(do_remove(p, p->a, "s"), 0);
    turn_until(p, &one.told);
    turn_until(p, &all.told);
    look(p, "s", ERR_NOT_FOUND);
    store_unwatch(p->b, &one.watch);
    store_unwatch(p->b, &all.watch);
    leave(p);
}

static void on_list(struct store_list *l, int err)
{
    struct waited *w = container_of(l, struct waited, u.list);
    w->err = err;
    w->done = true;
    assert_int_equal(l->n_rows, 1);
    assert_true(str_eq(l->rows[0].name, l->prefix));
}

/* Whatever a name is made of, it is another than the others. */
static void test_names_of_any_bytes(void **state)
{
    static const struct str names[] = {STR_INIT("a}b"),           STR_INIT("{a}"),
                                       STR_INIT("%7D"),           STR_INIT("}"),
                                       STR_INIT("nul\0nul"),      STR_INIT("\xff\xff"),
                                       STR_INIT("sessions/k/in"), STR_INIT("sessions/")};
    struct place *p = enter("");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct store_write w = {.name = names[i], .create = &plain, .data = names[i]};
        struct told told = {.watch = {.name = names[i]}};
        watch(p, p->b, &told);
        assert_int_equal(do_write(p, p->a, &w), 0);
        assert_true(w.created);
        turn_until(p, &told.told);
        store_unwatch(p->b, &told.watch);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct waited read = {.u.read = {.name = names[i], .max_bytes = 99, .done = on_read}};
        read.u.read.from = READ_START;
        store_read(p->b, &read.u.read);
        turn_until(p, &read.done);
        assert_int_equal(read.err, 0);
        assert_true(str_eq(read.u.read.slices[0].bytes, names[i]));
        store_read_release(&read.u.read);
        if (str_eq(names[i], STR("sessions/")))
            continue; /* the prefix of another */
        struct waited list = {
            .u.list = {.prefix = names[i], .limit = 9, .reserved = true, .done = on_list}};
        store_list(p->b, &list.u.list);
        turn_until(p, &list.done);
        assert_int_equal(list.err, 0);
    }
    leave(p);
}

/* ---- a Redis that forgets ---- */

/* Back to what it was when it last saved, as a replica that had fallen behind would be. */
static void fall_back(struct place *p)
{
    redis_server_end(&p->server, SIGKILL);
    assert_true(redis_server_start(&p->server, NULL));
    talk_to(p);
}

static void save(struct place *p)
{
    freeReplyObject(redisCommand(p->raw, "SAVE"));
}

static void test_what_was_lost_is_a_gap(void **state)
{
    struct place *p = enter("");
    make(p, "s", &plain);
    struct offset one = append(p, "s", "one,");
    save(p);
    struct offset two = append(p, "s", "two,"), three = append(p, "s", "three,");
    fall_back(p);

    assert_int_equal(look(p, "s", 0).tail, one.pos);
    expect_gap(p, "s", two, GAP_UNKNOWN);
    expect_gap(p, "s", three, GAP_UNKNOWN);
    expect_read(p, "s", one, "");

    /* As long as what was lost, and longer: none of it is taken for it. */
    struct offset other = append(p, "s", "TWO,");
    append(p, "s", "THREE and more than that");
    uint64_t jumped = other.pos - 4;
    assert_true(jumped >= 2 * JUMP);
    expect_gap(p, "s", two, GAP_UNKNOWN);
    expect_gap(p, "s", three, GAP_UNKNOWN);
    expect_gap(p, "s", (struct offset){one.life, jumped - 1}, GAP_UNKNOWN);
    struct store_read r = expect_read(p, "s", one, "TWO,THREE and more than that");
    assert_int_equal(r.start, jumped);
    assert_int_equal(r.ordinal, 1);
    leave(p);
}

static void test_holes_are_read_across(void **state)
{
    struct place *p = enter("");
    make(p, "s", &plain);
    append(p, "s", "a");
    struct offset edge = append(p, "s", "b");
    save(p);
    append(p, "s", "lost");
    fall_back(p);
    /* Who was at the tail goes on. */
    struct store_write w = {.name = STR("s"), .data = STR("c"), .if_match = true, .match = edge};
    assert_int_equal(do_write(p, p->a, &w), 0);
    append(p, "s", "d");

    struct store_read r = {.from = READ_START};
    assert_int_equal(read_at(p, "s", &r), 0);
    expect_text(&r, "ab");
    assert_int_equal(r.next, edge.pos);
    r = expect_read(p, "s", (struct offset){edge.life, r.next}, "cd");
    assert_int_equal(r.next, r.info.tail);
    for (uint64_t i = 0; i <= 4; i++) {
        static const char *const from[] = {"ab", "b", "cd", "d", ""};
        r = (struct store_read){.from = READ_EVENT, .event = i};
        assert_int_equal(read_at(p, "s", &r), 0);
        assert_int_equal(r.ordinal, i);
        expect_text(&r, from[i]);
    }
    leave(p);
}

/* A hole is not made of bytes that count. */
static void test_holes_are_not_retained(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    c.retain.bytes = 8;
    make(p, "s", &c);
    append(p, "s", "aaaa");
    save(p);
    fall_back(p);
    append(p, "s", "bb");
    assert_int_equal(look(p, "s", 0).first, 0);
    append(p, "s", "cc");
    assert_int_equal(look(p, "s", 0).first, 0);
    append(p, "s", "dd");
    assert_int_equal(look(p, "s", 0).first_event, 1);
    leave(p);
}

/* ---- a connection that breaks ---- */

/* Those of the stores, while Redis cannot answer. */
static void break_connections(struct place *p)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in to = {0};
        socklen_t n = sizeof to;
        if (fd != p->raw->fd && getpeername(fd, (struct sockaddr *)&to, &n) == 0 &&
            to.sin_family == AF_INET && to.sin_port == htons(p->server.port))
            shutdown(fd, SHUT_RDWR);
    }
}

/* What is on its way is cut off, sometimes before Redis has got it. */
static void cut(struct place *p, unsigned turns)
{
    kill(p->server.pid, SIGSTOP);
    turn_for(p, turns);
    break_connections(p);
    turn_for(p, turns);
    kill(p->server.pid, SIGCONT);
}

static void test_a_write_cut_off_is_done_once(void **state)
{
    struct place *p = enter("");
    make(p, "s", &plain);
    for (uint64_t i = 1; i <= 20; i++) {
        struct waited op = {.u.write = {.name = STR("s"), .data = STR("x"), .done = on_write}};
        store_write(p->a, &op.u.write);
        cut(p, i % 5);
        turn_until(p, &op.done);
        assert_int_equal(op.err, 0);
        assert_int_equal(op.u.write.info.tail, i);
        assert_int_equal(op.u.write.info.events, i);
    }
    assert_int_equal(look(p, "s", 0).events, 20);
    leave(p);
}

static void test_others_cut_off_are_done_once(void **state)
{
    struct place *p = enter("");
    for (uint64_t i = 0; i < 6; i++) {
        struct doc_put doc = {.key = STR("d"), .value = STR("v"), .expect_version = i};
        struct waited put = {.u.put = {.docs = &doc, .n_docs = 1, .done = on_put}};
        struct waited made = {.u.write = {.name = STR("s"), .create = &plain, .done = on_write}};
        struct waited gone = {.u.remove = {.name = STR("s"), .done = on_remove}};
        store_put(p->a, &put.u.put);
        store_write(p->a, &made.u.write);
        cut(p, i % 3);
        turn_until(p, &put.done);
        turn_until(p, &made.done);
        assert_int_equal(put.err, 0);
        assert_int_equal(made.err, 0);
        assert_true(made.u.write.created);
        store_remove(p->a, &gone.u.remove);
        cut(p, i % 3);
        turn_until(p, &gone.done);
        assert_int_equal(gone.err, 0);
    }
    leave(p);
}

/* Far more than Redis remembers: they wait for each other. */
static void test_many_cut_off_at_once(void **state)
{
    enum { MANY = 500 };
    struct place *p = enter("");
    struct waited *ops = mem_zalloc(MANY * sizeof *ops);
    make(p, "s", &plain);
    for (size_t i = 0; i < MANY; i++) {
        ops[i].u.write = (struct store_write){.name = STR("s"), .data = STR("x"), .done = on_write};
        store_write(p->a, &ops[i].u.write);
    }
    for (unsigned i = 0; i < 4; i++)
        cut(p, 3);
    for (size_t i = 0; i < MANY; i++) {
        turn_until(p, &ops[i].done);
        assert_int_equal(ops[i].err, 0);
    }
    assert_int_equal(look(p, "s", 0).events, MANY);
    free(ops);
    leave(p);
}

/* One that is in doubt is asked about before many others have been done. */
static void test_one_in_doubt_among_many(void **state)
{
    enum { ROUNDS = 10, MANY = 600 };
    struct place *p = enter("");
    struct waited *ops = mem_zalloc(MANY * sizeof *ops);
    make(p, "s", &plain);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (size_t i = 0; i < MANY; i++) {
            ops[i] =
                (struct waited){.u.write = {.name = STR("s"), .data = STR("x"), .done = on_write}};
            store_write(p->a, &ops[i].u.write);
            if (i == 0)
                cut(p, 2);
        }
        for (size_t i = 0; i < MANY; i++) {
            turn_until(p, &ops[i].done);
            assert_int_equal(ops[i].err, 0);
        }
        assert_int_equal(look(p, "s", 0).events, round * MANY);
    }
    free(ops);
    leave(p);
}

/* What is said of it the second time is what was done the first time. */
static void test_what_was_there_before_was_not_made(void **state)
{
    struct place *p = enter("");
    struct producer_claim claim = {.id = STR("p")};
    struct store_write first = {.name = STR("s"), .create = &plain, .data = STR("x")};
    first.claim = claim;
    assert_int_equal(do_write(p, p->a, &first), 0);
    for (uint64_t i = 0; i < 10; i++) {
        struct waited same = {.u.write = {.name = STR("s"), .create = &plain, .done = on_write}};
        struct waited again = {.u.write = {.name = STR("s"), .data = STR("x"), .done = on_write}};
        again.u.write.claim = claim;
        store_write(p->a, &same.u.write);
        store_write(p->a, &again.u.write);
        cut(p, 1 + i % 4);
        turn_until(p, &same.done);
        turn_until(p, &again.done);
        assert_int_equal(same.err, 0);
        assert_false(same.u.write.created);
        assert_int_equal(again.err, 0);
        assert_true(again.u.write.duplicate);
    }
    leave(p);
}

static void test_away_and_back(void **state)
{
    struct place *p = enter("");
    make(p, "s", &plain);
    redis_server_end(&p->server, SIGKILL);
    struct waited op = {.u.write = {.name = STR("s"), .create = &plain, .done = on_write}};
    store_write(p->a, &op.u.write);
    turn_for(p, 100);
    assert_false(op.done);
    assert_true(redis_server_start(&p->server, NULL));
    turn_until(p, &op.done);
    assert_int_equal(op.err, 0);
    talk_to(p);
    leave(p);
}

/* ---- a Redis that refuses ---- */

static void configure(struct place *p, const char *name, const char *value)
{
    redisReply *r = redisCommand(p->raw, "CONFIG SET %s %s", name, value);
    assert_int_equal(r->type, REDIS_REPLY_STATUS);
    freeReplyObject(r);
}

static void expect_health(struct place *p, int err, const char *why)
{
    struct str said;
    assert_int_equal(store_health(p->a, &said), err);
    assert_non_null(memmem(said.p, said.n, why, strlen(why)));
}

static void await_health(struct place *p)
{
    struct str ignored;
    for (int i = 0; store_health(p->a, &ignored) != 0; i++) {
        assert_true(i < 500);
        turn_for(p, 10);
    }
}

static void test_full(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    c.ttl_s = 1000;
    make(p, "s", &c);
    append(p, "s", "x");
    configure(p, "maxmemory", "1");
    struct store_write w = {.name = STR("s"), .data = STR("y")};
    assert_int_equal(do_write(p, p->a, &w), ERR_FULL);
    expect_health(p, ERR_FULL, "OOM");
    assert_int_equal(p->a->refused[STORE_FULL], 1);
    struct store_read r = {.from = READ_START, .touch = true};
    assert_int_equal(read_at(p, "s", &r), 0);
    expect_text(&r, "x");
    assert_int_equal(look(p, "s", 0).tail, 1);
    configure(p, "maxmemory", "0");
    await_health(p); /* although nobody writes */
    assert_int_equal(append(p, "s", "y").pos, 2);
    leave(p);
}

static void test_too_few_replicas(void **state)
{
    struct place *p = enter("");
    make(p, "s", &plain);
    configure(p, "min-replicas-to-write", "1");
    struct store_write w = {.name = STR("s"), .data = STR("y")};
    assert_int_equal(do_write(p, p->a, &w), ERR_AWAY);
    expect_health(p, ERR_AWAY, "NOREPLICAS");
    configure(p, "min-replicas-to-write", "0");
    await_health(p);
    assert_int_equal(append(p, "s", "y").pos, 1);
    leave(p);
}

static void await_replica(struct place *p)
{
    for (int i = 0; ask(p, "SET x y") == 0 || ask(p, "WAIT 1 100") < 1; i++) {
        assert_true(i < 200);
        turn_for(p, 1); /* else the loop's clock stands still */
    }
    turn_for(p, 1);
}

static void start_replica(struct place *p, struct redis_server *replica)
{
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)p->server.port);
    const char *const more[] = {"--replicaof", "127.0.0.1", port, NULL};
    configure(p, "repl-diskless-sync-delay", "0");
    assert_true(redis_server_start(replica, more));
    await_replica(p);
}

/* A replica that is busy may be late for once; who writes asks again then. */
static struct store_write insist(struct place *p, struct store_write w)
{
    struct store_write again;
    int err = ERR_AWAY;
    for (int i = 0; i < 20 && err == ERR_AWAY; i++) {
        again = w;
        err = do_write(p, p->a, &again);
    }
    assert_int_equal(err, 0);
    return again;
}

/* Done, but not where it was to be: not acknowledged, and known when it comes again. */
static void test_waits_for_replicas(void **state)
{
    struct place *p = enter("&wait=1");
    struct store_write w = {
        .name = STR("s"), .create = &plain, .data = STR("x"), .claim = {.id = STR("p")}};
    assert_int_equal(do_write(p, p->a, &w), ERR_AWAY);
    assert_int_equal(look(p, "s", 0).tail, 1);
    w = (struct store_write){.name = STR("s"), .data = STR("x"), .claim = {.id = STR("p")}};
    assert_int_equal(do_write(p, p->a, &w), ERR_AWAY);
    assert_int_equal(look(p, "s", 0).tail, 1);

    struct redis_server replica = {0};
    start_replica(p, &replica);
    w = (struct store_write){.name = STR("s"), .data = STR("x"), .claim = {.id = STR("p")}};
    assert_true(insist(p, w).duplicate);
    w = insist(p, (struct store_write){.name = STR("s"), .data = STR("y")});
    assert_true(w.info.tail >
                2); /* a Redis with its first replica has a new name; nobody can tell why */
    redis_server_clean(&replica);
    leave(p);
}

/* Those here who wait for events see one that is there, whatever its writer was told. */
static void test_what_is_not_acknowledged_wakes(void **state)
{
    struct place *p = enter("&wait=1");
    struct told told = {.watch = {.name = STR("s")}};
    watch(p, p->a, &told);
    struct store_write w = {.name = STR("s"), .create = &plain, .data = STR("x")};
    assert_int_equal(do_write(p, p->a, &w), ERR_AWAY);
    turn_until(p, &told.told);
    store_unwatch(p->a, &told.watch);
    leave(p);
}

/* Also one that is done after it was given up. */
static void test_what_was_given_up_wakes(void **state)
{
    struct place *p = enter("");
    struct told told = {.watch = {.name = STR("s")}};
    make(p, "s", &plain);
    watch(p, p->a, &told);
    kill(p->server.pid, SIGSTOP);
    struct store_write w = {.name = STR("s"), .data = STR("x")};
    assert_int_equal(do_write(p, p->a, &w), ERR_AWAY);
    turn_for(p, 20);
    told.told = false;
    kill(p->server.pid, SIGCONT);
    turn_until(p, &told.told);
    expect_read(p, "s", (struct offset){0, 0}, "x");
    store_unwatch(p->a, &told.watch);
    leave(p);
}

/* Also when the write had to be asked about again, or was sent again behind the question. */
static void test_waits_for_what_was_sent_again(void **state)
{
    struct place *p = enter("&wait=1");
    struct redis_server replica = {0};
    start_replica(p, &replica);
    insist(p, (struct store_write){.name = STR("s"), .create = &plain});
    insist(p, (struct store_write){.name = STR("s"), .data = STR("x")});
    turn_for(p, 1500); /* the replica has said by itself that it is up to date */
    kill(replica.pid, SIGSTOP);
    freeReplyObject(redisCommand(p->raw, "SCRIPT FLUSH"));
    struct store_write w = {.name = STR("s"), .data = STR("z")};
    assert_int_equal(do_write(p, p->a, &w), ERR_AWAY);

    struct waited op = {.u.write = {.name = STR("s"), .data = STR("y"), .done = on_write}};
    store_write(p->a, &op.u.write);
    cut(p, 4);
    turn_until(p, &op.done);
    assert_int_equal(op.err, ERR_AWAY);

    kill(replica.pid, SIGCONT);
    await_replica(p);
    freeReplyObject(redisCommand(p->raw, "SCRIPT FLUSH"));
    insist(p, (struct store_write){.name = STR("s"), .data = STR("and on")});
    redis_server_clean(&replica);
    leave(p);
}

/* ---- what is left to Redis ---- */

static void test_redis_expires_streams(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    struct told told = {.watch = {.name = STR("s")}};
    c.ttl_s = 1;
    make(p, "s", &c);
    append(p, "s", "x");
    assert_int_equal(ask(p, "ZCARD t:{index}:names"), 1);
    assert_in_range(ask(p, "PTTL t:sse:state:{s}:s"), 1, 1000);
    watch(p, p->b, &told);
    turn_until(p, &told.told); /* that it is gone */
    look(p, "s", ERR_NOT_FOUND);
    assert_int_equal(ask(p, "ZCARD t:{index}:names"), 0);
    assert_int_equal(ask(p, "KEYS t:sse:*"), 0);
    store_unwatch(p->b, &told.watch);
    leave(p);
}

/* However many, their names go soon after them. */
static void test_names_of_expired_streams_go(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    c.ttl_s = 1;
    for (int i = 0; i < 500; i++)
        make(p, arena_printf(&p->arena, "s%d%c", i, 0).p, &c);
    make(p, "stays", &plain);
    for (int i = 0; ask(p, "ZCARD t:{index}:names") > 1; i++) {
        assert_true(i < 100);
        turn_for(p, 100);
    }
    assert_int_equal(ask(p, "ZCARD t:{index}:names"), 1);
    assert_int_equal(ask(p, "ZCARD t:{index}:terms"), 0);
    leave(p);
}

/* Redis had a wrong clock when it was last used: it would live for years. The next look sets that
 * right, also if it does not count as a use. */
static void test_wrong_clock_of_redis(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    c.ttl_s = 1000;
    make(p, "s", &c);
    ask(p, "HSET t:sse:state:{s}:s dies 32503680000000");
    ask(p, "PEXPIREAT t:sse:state:{s}:s 32503680000000");
    look(p, "s", 0);
    assert_in_range(ask(p, "PTTL t:sse:state:{s}:s"), 1, 1000 * 1000);
    leave(p);
}

static void test_forks_keep_what_they_need(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain, f = plain;
    c.ttl_s = 1000;
    make(p, "s", &c);
    struct offset at = append(p, "s", "shared,");
    append(p, "s", "not shared");
    f.fork_of = STR("s");
    f.fork_at = at;
    f.expires_ms = 32503680000000; /* far beyond its source's time */
    make(p, "f", &f);
    append(p, "f", "own");
    assert_int_equal(do_remove(p, p->a, "s"), 0);
    look(p, "s", ERR_DELETED);
    assert_in_range(ask(p, "PTTL t:sse:state:{s}:s"), 1000000, INT64_MAX);

    struct store_read r = {.from = READ_START};
    assert_int_equal(read_at(p, "f", &r), 0);
    expect_text(&r, "shared,own");
    assert_int_equal(do_remove(p, p->b, "f"), 0);
    look(p, "s", ERR_NOT_FOUND);
    assert_int_equal(ask(p, "KEYS t:sse:*"), 0);
    leave(p);
}

static void test_old_events_leave_redis(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    c.retain.events = 50;
    make(p, "s", &c);
    for (int i = 0; i < 2000; i++)
        append(p, "s", "an event of some size, so that it takes more than one node to hold them");
    struct stream_info info = look(p, "s", 0);
    assert_int_equal(info.events, 2000);
    assert_in_range(info.first_event, 2000 - 50 - 50 / 8, 2000 - 50);
    redisReply *keys = redisCommand(p->raw, "KEYS t:sse:buffer:*");
    assert_int_equal(keys->elements, 1);
    assert_in_range(ask(p, "XLEN %s", keys->element[0]->str), 50, 200);
    freeReplyObject(keys);
    expect_gap(p, "s", (struct offset){info.life, 72}, GAP_TRIMMED);
    leave(p);
}

/* An append of many events is several entries, which nobody can tell. */
static void test_a_large_append_is_whole(void **state)
{
    enum { EVENTS = 3000, EACH = 100 };
    struct place *p = enter("");
    static char data[EVENTS * EACH];
    static uint32_t ends[EVENTS];
    struct stream_config c = plain, f = plain;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)('a' + i / EACH % 26);
    for (uint32_t i = 0; i < EVENTS; i++)
        ends[i] = (i + 1) * EACH;
    c.content_type = STR("application/json");
    make(p, "s", &c);
    struct store_write w = {
        .name = STR("s"), .data = str_of(data, sizeof data), .ends = ends, .n_events = EVENTS};
    assert_int_equal(do_write(p, p->a, &w), 0);
    assert_int_equal(w.info.tail, sizeof data);
    assert_int_equal(w.info.events, EVENTS);

    struct store_read r = {.from = READ_EVENT, .event = 2345};
    assert_int_equal(read_at(p, "s", &r), 0);
    assert_int_equal(r.start, 2345 * EACH);
    assert_memory_equal(r.slices[0].bytes.p, data + r.start, r.slices[0].bytes.n);
    store_read_release(&r);
    f.content_type = STR_NONE;
    f.fork_of = STR("s");
    f.fork_at = (struct offset){w.info.life, 0};
    f.fork_sub = EVENTS - 1; /* of the one append */
    make(p, "f", &f);
    assert_int_equal(look(p, "f", 0).tail, sizeof data - EACH);
    assert_int_equal(look(p, "f", 0).events, EVENTS - 1);
    f.fork_sub = EVENTS + 1;
    w = (struct store_write){.name = STR("g"), .create = &f};
    assert_int_equal(do_write(p, p->a, &w), ERR_FORK_OFFSET);
    leave(p);
}

/* ---- settings ---- */

static void check_settings(const char *text, int expected)
{
    struct redis_url *url;
    char why[160] = "";
    assert_int_equal(redis_url_parse(str_of_cstr(text), &url, why, sizeof why), 0);
    assert_int_equal(redis_store_check(url, why, sizeof why), expected);
    assert_int_equal(why[0] != '\0', expected != 0);
    redis_url_free(url);
}

static void test_settings(void **state)
{
    check_settings("redis://localhost", 0);
    check_settings("redis://localhost?prefix=a.b-c_d:9&wait=2", 0);
    check_settings("redis://localhost?prefix=", 0);
    check_settings("redis://localhost?wait=17", ERR_SYNTAX);
    check_settings("redis://localhost?wait=no", ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_reach_the_other_process),
        cmocka_unit_test(test_names_of_any_bytes),
        cmocka_unit_test(test_what_was_lost_is_a_gap),
        cmocka_unit_test(test_holes_are_read_across),
        cmocka_unit_test(test_holes_are_not_retained),
        cmocka_unit_test(test_a_write_cut_off_is_done_once),
        cmocka_unit_test(test_others_cut_off_are_done_once),
        cmocka_unit_test(test_many_cut_off_at_once),
        cmocka_unit_test(test_one_in_doubt_among_many),
        cmocka_unit_test(test_what_was_there_before_was_not_made),
        cmocka_unit_test(test_away_and_back),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_too_few_replicas),
        cmocka_unit_test(test_waits_for_replicas),
        cmocka_unit_test(test_what_is_not_acknowledged_wakes),
        cmocka_unit_test(test_what_was_given_up_wakes),
        cmocka_unit_test(test_waits_for_what_was_sent_again),
        cmocka_unit_test(test_redis_expires_streams),
        cmocka_unit_test(test_names_of_expired_streams_go),
        cmocka_unit_test(test_wrong_clock_of_redis),
        cmocka_unit_test(test_forks_keep_what_they_need),
        cmocka_unit_test(test_old_events_leave_redis),
        cmocka_unit_test(test_a_large_append_is_whole),
        cmocka_unit_test(test_settings),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!redis_server_installed()) {
        print_message("redis-server is not installed: skipped\n");
        return 0;
    }
    return cmocka_run_group_tests_name("redis_store", tests, NULL, NULL);
}
