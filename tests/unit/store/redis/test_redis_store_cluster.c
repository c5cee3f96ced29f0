// SPDX-License-Identifier: Apache-2.0
/* The store on a cluster of three: what crosses slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/store/redis/redis_store_world.h"

static struct place *place;

static int set_up(void **state)
{
    place = enter_cluster();
    return 0;
}

static int tear_down(void **state)
{
    leave(place);
    return 0;
}

/* Old events go where nobody writes, and so does the name of a fork that its source's time is over
 * for. */
static void test_time_passes(void **state)
{
    enum { HOUR_MS = 3600 * 1000 };
    struct place *p = place;
    struct sched clock;
    struct store *s = open_with_clock(p, &clock);
    struct stream_config aged = plain, brief = plain, fork = plain;
    aged.retain.age_ms = HOUR_MS;
    brief.ttl_s = HOUR_MS / 1000;
    fork.fork_of = STR("brief");
    fork.fork_at_tail = true;
    struct store_write all[] = {{.name = STR("aged"), .create = &aged},
                                {.name = STR("aged"), .data = STR("x")},
                                {.name = STR("brief"), .create = &brief},
                                {.name = STR("its fork"), .create = &fork}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(do_write(p, s, &all[i]), 0);
    char out[64];
    for (int i = 0; i < 10; i++)
        pass(p, &clock, HOUR_MS / 4);
    assert_int_equal(look(p, "aged", 0).first_event, 1);
    redis_server_cli(&p->cluster.servers[0], out, sizeof out, "-c ZCARD t:{index}:names");
    assert_string_equal(out, "1");
    close_store(p, s);
}

static void make_fork(struct place *p, const char *name, const char *of)
{
    struct stream_config c = plain;
    c.fork_of = str_of_cstr(of);
    c.fork_at_tail = true;
    make(p, name, &c);
}

/* Neither the source nor what was called so before is where this process thinks it is. */
static void test_all_hints_are_old(void **state)
{
    struct place *p = place;
    make(p, "old 1", &plain);
    make(p, "old 2", &plain);
    make(p, "new", &plain);
    make_fork(p, "origin", "old 1");
    append(p, "origin", "x"); /* learns where it is */
    assert_int_equal(do_remove(p, p->b, "origin"), 0);
    struct stream_config c = plain;
    c.fork_of = STR("new");
    c.fork_at_tail = true;
    struct store_write w = {.name = STR("origin"), .create = &c, .data = STR("y")};
    assert_int_equal(do_write(p, p->b, &w), 0);
    make_fork(p, "branch", "old 2");
    assert_int_equal(do_remove(p, p->b, "branch"), 0);
    make_fork(p, "branch", "origin");
    assert_int_equal(look(p, "branch", 0).tail, 1);
}

/* A fork is kept where its source is; who watches it need not know. */
static void test_forks_wake_the_other_process(void **state)
{
    struct place *p = place;
    for (int i = 0; i < 20; i++) {
        struct arena a = {0};
        const char *source = arena_printf(&a, "source %d%c", i, 0).p;
        const char *name = arena_printf(&a, "fork %d%c", i, 0).p;
        struct told told = {.watch = {.name = str_of_cstr(name)}};
        make(p, source, &plain);
        append(p, source, "inherited,");
        make_fork(p, name, source);
        watch(p, p->b, &told);
        look(p, name, 0); /* learns where it is */
        turn_for(p, 20);
        told.told = false;
        append(p, name, "own");
        turn_until(p, &told.told);
        struct store_read r = {.from = READ_START};
        assert_int_equal(read_at(p, name, &r), 0);
        expect_text(&r, "inherited,own");
        store_unwatch(p->b, &told.watch);
        assert_int_equal(do_remove(p, p->b, name), 0);
        look(p, name, ERR_NOT_FOUND);
        /* The name is free for one that is kept elsewhere, which the other process is to notice. */
        make(p, name, &plain);
        assert_int_equal(look(p, name, 0).tail, 0);
        arena_deinit(&a);
    }
}

static void test_all_streams_are_heard_of(void **state)
{
    struct place *p = place;
    struct told all = {0};
    make(p, "before", &plain);
    watch(p, p->b, &all);
    for (int i = 0; i < 5; i++) {
        append(p, "before", "x");
        turn_until(p, &all.told);
        all.told = false;
    }
    store_unwatch(p->b, &all.watch);
}

static void on_docs(struct store_docs *d, int err)
{
    struct waited *w = container_of(d, struct waited, u.docs);
    w->err = err;
    w->done = true;
    assert_int_equal(d->n_rows, d->limit);
}

static void expect_docs(struct place *p, const char *prefix, size_t n)
{
    struct waited op = {.u.docs = {.prefix = str_of_cstr(prefix), .limit = n, .done = on_docs}};
    store_docs(p->b, &op.u.docs);
    turn_until(p, &op.done);
    assert_int_equal(op.err, 0);
    assert_false(op.u.docs.more);
}

/* Documents of other slots are written with a stream, or it is not. */
static void test_documents_of_other_slots(void **state)
{
    struct place *p = place;
    struct doc_put docs[] = {{.key = STR("doc/1"), .value = STR("1")},
                             {.key = STR("doc/2"), .value = STR("2")},
                             {.key = STR("doc/3"), .value = STR("3")}};
    struct store_write w = {.name = STR("with docs"), .create = &plain, .docs = docs, .n_docs = 3};
    docs[2].expect_version = 7;
    assert_int_equal(do_write(p, p->a, &w), ERR_VERSION);
    look(p, "with docs", ERR_NOT_FOUND);
    expect_docs(p, "doc/", 0);
    docs[2].expect_version = 0;
    assert_int_equal(do_write(p, p->a, &w), 0);
    assert_true(w.created);
    expect_docs(p, "doc/", 3);

    struct waited put = {.u.put = {.docs = docs, .n_docs = 3, .done = on_put}};
    for (int i = 0; i < 3; i++)
        docs[i] = (struct doc_put){.key = docs[i].key, .expect_version = DOC_NEXT(0)};
    store_put(p->a, &put.u.put);
    turn_until(p, &put.done);
    assert_int_equal(put.err, 0);
    expect_docs(p, "doc/", 0);
}

/* The first try got no further than the stream, or than some of the documents: the same write does
 * the rest, and what is written is not taken for somebody else's. */
static void test_the_same_write_again(void **state)
{
    struct place *p = place;
    struct doc_put docs[] = {{.key = STR("doc/1"), .value = STR("1")},
                             {.key = STR("doc/2"), .value = STR("2")},
                             {.key = STR("doc/3"), .value = STR("3")}};
    for (size_t done = 0; done <= 3; done++) {
        char name[] = "again 0";
        name[6] = (char)('0' + done);
        struct store_write w = {.name = str_of_cstr(name),
                                .create = &plain,
                                .docs = docs,
                                .n_docs = done,
                                .claim = {.id = STR("me"), .epoch = 1}};
        assert_int_equal(do_write(p, p->a, &w), 0);
        w.n_docs = 3;
        w.again = true;
        assert_int_equal(do_write(p, p->a, &w), 0);
        assert_true(w.created);
        expect_docs(p, "doc/", 3);
        w.docs = &(struct doc_put){.key = STR("doc/2"), .value = STR("another's")};
        w.n_docs = 1;
        w.claim.epoch = 2;
        w.name = STR("other");
        assert_int_equal(do_write(p, p->a, &w), ERR_VERSION);
        struct waited put = {.u.put = {.n_docs = 3, .done = on_put}};
        struct doc_put gone[3];
        for (size_t i = 0; i < 3; i++)
            gone[i] = (struct doc_put){.key = docs[i].key, .expect_version = DOC_NEXT(0)};
        put.u.put.docs = gone;
        store_put(p->a, &put.u.put);
        turn_until(p, &put.done);
        assert_int_equal(put.err, 0);
    }
}

static void put_value(struct place *p, struct str key, const char *value, uint64_t version)
{
    struct doc_put doc = {.key = key, .value = str_of_cstr(value), .expect_version = version};
    struct waited put = {.u.put = {.docs = &doc, .n_docs = 1, .done = on_put}};
    store_put(p->a, &put.u.put);
    turn_until(p, &put.done);
    assert_int_equal(put.err, 0);
}

/* A stream that an earlier write has made is not taken back because the document of that write has
 * changed since, or because it is there. */
static void test_made_before(void **state)
{
    struct place *p = place;
    struct stream_config fork = plain;
    fork.fork_of = STR("kept at");
    fork.fork_at_tail = true;
    make(p, "kept at", &plain);
    const struct stream_config *configs[] = {&plain, &fork};
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "made before" : "fork made before";
        struct str key = i == 0 ? STR("made/1") : STR("made/2");
        struct doc_put doc = {.key = key, .value = STR("1")};
        struct store_write first = {.name = str_of_cstr(name),
                                    .create = configs[i],
                                    .docs = &doc,
                                    .n_docs = 1,
                                    .claim = {.id = STR("me"), .epoch = 1}};
        struct store_write w = first;
        assert_int_equal(do_write(p, p->a, &w), 0);
        append(p, name, "x");
        w = first;
        assert_int_equal(do_write(p, p->a, &w), 0);
        assert_true(w.created && w.duplicate);
        assert_int_equal(look(p, name, 0).events, 1);
        put_value(p, key, "2", DOC_NEXT(0));
        w = first;
        w.again = true;
        assert_int_equal(do_write(p, p->a, &w), ERR_VERSION);
        assert_int_equal(look(p, name, 0).events, 1);
    }
}

/* Two at once, of one name: one of them is made. */
static void test_forks_made_at_once(void **state)
{
    struct place *p = place;
    make(p, "s1", &plain);
    make(p, "s2", &plain);
    append(p, "s2", "x");
    for (int i = 0; i < 10; i++) {
        struct stream_config c[2] = {plain, plain};
        struct waited ops[2] = {0};
        struct store *stores[2] = {p->a, p->b};
        for (int k = 0; k < 2; k++) {
            c[k].fork_of = k == 0 ? STR("s1") : STR("s2");
            c[k].fork_at_tail = true;
            ops[k].u.write =
                (struct store_write){.name = STR("twice"), .create = &c[k], .done = on_write};
            store_write(stores[k], &ops[k].u.write);
        }
        turn_until(p, &ops[0].done);
        turn_until(p, &ops[1].done);
        assert_int_equal(ops[0].u.write.created + ops[1].u.write.created, 1);
        const struct waited *made = ops[0].u.write.created ? &ops[0] : &ops[1];
        assert_int_equal(look(p, "twice", 0).life, made->u.write.info.life);
        assert_int_equal(do_remove(p, p->a, "twice"), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_passes),
        cmocka_unit_test(test_all_hints_are_old),
        cmocka_unit_test(test_forks_wake_the_other_process),
        cmocka_unit_test(test_all_streams_are_heard_of),
        cmocka_unit_test(test_documents_of_other_slots),
        cmocka_unit_test(test_the_same_write_again),
        cmocka_unit_test(test_made_before),
        cmocka_unit_test(test_forks_made_at_once),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!redis_server_installed()) {
        print_message("redis-server is not installed: skipped\n");
        return 0;
    }
    return cmocka_run_group_tests_name("redis_store_cluster", tests, set_up, tear_down);
}
