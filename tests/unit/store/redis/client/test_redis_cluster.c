// SPDX-License-Identifier: Apache-2.0
/* The Redis client in a cluster: slots, redirections, maps that change; scripted servers first,
 * then three real ones. */
#include "store/redis/client/redis_core.h"
#include "unit/store/redis/client/redis_world.h"

/* ---- slots ---- */

static void test_slots(void **state)
{
    /* CLUSTER KEYSLOT of a real server says the same. */
    assert_int_equal(redis_slot(STR("123456789")), 0x31c3);
    assert_int_equal(redis_slot(STR("")), 0);
    assert_int_equal(redis_slot(STR("foo")), 12182);
    assert_int_equal(redis_slot(STR("{user1000}.following")), redis_slot(STR("user1000")));
    assert_int_equal(redis_slot(STR("a{foo}{bar}")), 12182);
    assert_int_not_equal(redis_slot(STR("foo{}{bar}")), redis_slot(STR("bar")));
    assert_int_equal(redis_slot(STR("foo{{bar}}zap")), redis_slot(STR("{bar")));
}

/* ---- servers that are none ---- */

/* Which of the fakes has the slots up to here. */
struct share {
    unsigned last;
    size_t fake;
};

static struct {
    struct world *world;
    struct share shares[4];
    size_t n_shares;
    const char *once; /* the next answer of the first fake to anything else */
} cluster;

static void say_map(struct fake *f, int conn)
{
    char out[1024];
    unsigned first = 0;
    int n = snprintf(out, sizeof out, "*%zu\r\n", cluster.n_shares);
    for (size_t i = 0; i < cluster.n_shares; i++) {
        const struct share *s = &cluster.shares[i];
        n += snprintf(out + n, sizeof out - (size_t)n,
                      "*3\r\n:%u\r\n:%u\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", first, s->last,
                      (unsigned)cluster.world->fakes[s->fake].port);
        first = s->last + 1;
    }
    fake_say(f, conn, out, (size_t)n);
}

static const char *answer(struct fake *f, int conn, const struct redisReply *command)
{
    if (fake_is(command, 0, "CLUSTER")) {
        say_map(f, conn);
        return NULL;
    }
    if (fake_is(command, 0, "ASKING"))
        return "+OK\r\n";
    const char *once = cluster.once;
    if (f == &cluster.world->fakes[0] && once != NULL) {
        cluster.once = NULL;
        return once;
    }
    static char name[8];
    snprintf(name, sizeof name, "+%d\r\n", (int)(f - cluster.world->fakes));
    return name;
}

static void start(struct world *w, size_t n)
{
    char url[64];
    world_fakes(w, n);
    cluster.world = w;
    cluster.n_shares = 0;
    cluster.once = NULL;
    for (size_t i = 0; i < n; i++) {
        w->fakes[i].answer = answer;
        cluster.shares[cluster.n_shares++] = (struct share){i + 1 < n ? 8000 : 16383, i};
    }
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%u", (unsigned)w->fakes[0].port);
    world_connect(w, url, 5000, 1 << 20);
}

static int asked(struct world *w, size_t fake, const char *text)
{
    const struct buf *log = &w->fakes[fake].log;
    int n = 0;
    const char *at = log->p, *end = log->p + log->n;
    while (at != NULL && (at = memmem(at, (size_t)(end - at), text, strlen(text))) != NULL) {
        n++;
        at++;
    }
    return n;
}

static void test_calls_go_where_their_slot_is(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    start(w, 2);
    ask_start(w, &a, NULL, "GET {user1000}.x", REDIS_ONCE, 0); /* 3443, before there is a map */
    ask_start(w, &b, NULL, "GET foo", REDIS_ONCE, 0);          /* 12182 */
    WAIT_FOR(w, a.ended && b.ended);
    assert_string_equal(a.text, "0");
    assert_string_equal(b.text, "1");
    assert_true(redis_is_up(w->redis));
}

static void test_moved(void **state)
{
    struct world *w = *state;
    struct ask a;
    char moved[64];
    start(w, 2);
    ask_wait(w, &a, "GET {user1000}.x");
    assert_string_equal(a.text, "0");
    snprintf(moved, sizeof moved, "-MOVED 3443 127.0.0.1:%u\r\n", (unsigned)w->fakes[1].port);
    cluster.once = moved;
    cluster.shares[0].last = 3000; /* and the map says so, too */
    int maps = asked(w, 0, "CLUSTER") + asked(w, 1, "CLUSTER");
    ask_wait(w, &a, "SET {user1000}.x 1");
    assert_int_equal(a.err, 0);
    assert_string_equal(a.text, "1");
    ask_wait(w, &a, "GET {user1000}.x"); /* at once there */
    assert_string_equal(a.text, "1");
    WAIT_FOR(w, asked(w, 0, "CLUSTER") + asked(w, 1, "CLUSTER") > maps);
    assert_int_equal(asked(w, 0, "SET,"), 1);
}

static void test_ask(void **state)
{
    struct world *w = *state;
    struct ask a;
    char ask[64];
    start(w, 2);
    ask_wait(w, &a, "GET foo"); /* there is a connection to the other one, too */
    snprintf(ask, sizeof ask, "-ASK 3443 127.0.0.1:%u\r\n", (unsigned)w->fakes[1].port);
    cluster.once = ask;
    ask_wait(w, &a, "SET {user1000}.x 1");
    assert_string_equal(a.text, "1");
    assert_int_equal(asked(w, 1, "ASKING;SET,{user1000}.x,1;"), 1);
    ask_wait(w, &a, "GET {user1000}.x"); /* the slot is where it was */
    assert_string_equal(a.text, "0");
}

static void test_try_again(void **state)
{
    struct world *w = *state;
    struct ask a;
    start(w, 1);
    cluster.once = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    ask_wait(w, &a, "SET {user1000}.x 1");
    assert_string_equal(a.text, "0");
    assert_int_equal(asked(w, 0, "SET,"), 2);
    cluster.once = "-CLUSTERDOWN The cluster is down\r\n";
    ask_wait(w, &a, "SET {user1000}.x 2");
    assert_string_equal(a.text, "0");
}

static void test_nonsense_redirections(void **state)
{
    static const char *const answers[] = {
        "-MOVED\r\n",
        "-MOVED 1\r\n",
        "-MOVED x 127.0.0.1:1\r\n",
        "-MOVED 16384 127.0.0.1:1\r\n",
        "-MOVED 1 127.0.0.1:0\r\n",
        "-MOVED 1 127.0.0.1\r\n",
        "-ASK 1 :99999\r\n",
    };
    struct world *w = *state;
    struct ask a;
    start(w, 1);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        cluster.once = answers[i];
        ask_wait(w, &a, "GET {user1000}.x");
        assert_int_equal(a.err, 0);
        assert_string_equal(a.text, "0");
    }
}

static void test_a_server_that_died(void **state)
{
    /* The map says after a while that another has its slots; what waited goes there. */
    struct world *w = *state;
    struct ask a;
    start(w, 2);
    ask_wait(w, &a, "GET foo");
    assert_string_equal(a.text, "1");
    fake_refuse(&w->fakes[1]);
    world_for(w, 50);
    ask_start(w, &a, NULL, "SET foo 1", REDIS_ONCE, 0);
    world_for(w, 50);
    assert_int_equal(a.ended, 0);
    assert_true(redis_is_up(w->redis)); /* the other half is */
    cluster.shares[1].fake = 0;
    WAIT_FOR(w, a.ended);
    assert_int_equal(a.err, 0);
    assert_string_equal(a.text, "0");
}

static void test_not_a_map(void **state)
{
    struct world *w = *state;
    world_fakes(w, 1); /* says OK to everything */
    char url[64];
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%u", (unsigned)w->fakes[0].port);
    world_connect(w, url, 300, 1 << 20);
    struct ask a;
    ask_wait(w, &a, "GET a");
    assert_int_equal(a.err, ERR_AWAY);
    assert_int_equal(w->downs, 1);
    assert_non_null(memmem(w->why.p, w->why.n, "map", 3));
}

/* ---- three real ones ---- */

#define SERVERS 4 /* three with slots, and maybe one that waits for the first to fail */
static struct redis_server servers[SERVERS];
static char buses[SERVERS][8];

static int real_tear_down(void **state)
{
    int result = world_tear_down(state);
    for (int i = 0; i < SERVERS; i++)
        redis_server_clean(&servers[i]);
    return result;
}

static void wait_until_says(int server, const char *command, const char *text)
{
    char out[4096];
    for (int i = 0; i < 200; i++) {
        redis_server_cli(&servers[server], out, sizeof out, "%s", command);
        if (strstr(out, text) != NULL)
            return;
        usleep(50000);
    }
    fail_msg("%s never said %s", command, text);
}

static void cli_ok(int server, const char *format, ...)
{
    char command[256], out[256];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    redis_server_cli(&servers[server], out, sizeof out, "%s", command);
    assert_string_equal(out, "OK");
}

static void start_server(int i)
{
    snprintf(buses[i], sizeof buses[i], "%u", (unsigned)redis_server_free_port());
    const char *const more[] = {"--cluster-enabled",
                                "yes",
                                "--cluster-port",
                                buses[i],
                                "--cluster-node-timeout",
                                "1000",
                                "--repl-diskless-sync-delay",
                                "0",
                                NULL};
    servers[i].port = 0;
    assert_true(redis_server_start(&servers[i], more));
}

static void make_cluster(int n)
{
    static const char *const ranges[] = {"0 5000", "5001 10000", "10001 16383"};
    char known[32], id[64];
    if (!redis_server_installed()) {
        print_message("redis-server is not installed; skipped\n");
        skip();
    }
    for (int i = 0; i < n; i++)
        start_server(i);
    for (int i = 0; i < 3; i++)
        cli_ok(i, "CLUSTER ADDSLOTSRANGE %s", ranges[i]);
    for (int i = 0; i < n; i++)
        cli_ok(i, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
    for (int i = 1; i < n; i++)
        cli_ok(0, "CLUSTER MEET 127.0.0.1 %u %s", (unsigned)servers[i].port, buses[i]);
    snprintf(known, sizeof known, "cluster_known_nodes:%d", n);
    for (int i = 0; i < n; i++) {
        wait_until_says(i, "CLUSTER INFO", known);
        wait_until_says(i, "CLUSTER INFO", "cluster_state:ok");
    }
    if (n == 3)
        return;
    redis_server_cli(&servers[0], id, sizeof id, "CLUSTER MYID");
    cli_ok(3, "CLUSTER REPLICATE %s", id);
    wait_until_says(3, "INFO replication", "master_link_status:up");
    wait_until_says(1, "CLUSTER NODES", " slave ");
}

static void connect_real(struct world *w)
{
    char url[128];
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:1,127.0.0.1:%u",
             (unsigned)servers[2].port);
    world_connect(w, url, 8000, 1 << 20);
}

static void test_real_keys_and_slots(void **state)
{
    struct world *w = *state;
    static struct ask asks[200];
    char keys[200][32], out[64];
    make_cluster(3);
    connect_real(w);
    for (int i = 0; i < 200; i++) {
        snprintf(keys[i], sizeof keys[i], "{tag %d}:x", i);
        asks[i] = (struct ask){.call = {.script = &script_add,
                                        .n_args = 2,
                                        .n_keys = 1,
                                        .key = str_of_cstr(keys[i]),
                                        .done = on_asked}};
        asks[i].words[0] = str_of_cstr(keys[i]);
        asks[i].words[1] = STR("7");
        asks[i].call.args = asks[i].words;
        redis_call(w->redis, &asks[i].call);
    }
    for (int i = 0; i < 200; i++) {
        WAIT_FOR(w, asks[i].ended);
        assert_int_equal(asks[i].err, 0);
        assert_int_equal(asks[i].integer, 7);
        assert_int_equal(strlen(asks[i].run), 40);
    }
    for (int i = 0; i < 5; i++) {
        redis_server_cli(&servers[0], out, sizeof out, "CLUSTER KEYSLOT '%s'", keys[i]);
        assert_int_equal(atoi(out), redis_slot(str_of_cstr(keys[i])));
    }
}

/* A subscription takes a moment, and nothing that was published before is heard. */
static void publish_until_heard(struct world *w, const char *command, const char *heard)
{
    struct ask a;
    w->messages.n = 0;
    for (int i = 0; i < 100 && w->messages.n == 0; i++) {
        ask_wait(w, &a, command);
        assert_int_equal(a.err, 0);
        world_for(w, 30);
    }
    assert_true(str_starts(buf_str(&w->messages), str_of_cstr(heard)));
}

static void test_real_migration(void **state)
{
    /* A slot with one key there and one not yet: ASK; then MOVED. Messages follow. */
    struct world *w = *state;
    struct ask a;
    char ids[3][64], out[64];
    make_cluster(3);
    connect_real(w);
    ask_wait(w, &a, "SET {user1000}.a 1"); /* 3443, the first one's */
    assert_string_equal(a.text, "OK");
    redis_subscribe(w->redis, STR("wake:{user1000}"));
    redis_subscribe(w->redis, STR("plain"));
    publish_until_heard(w, "SPUBLISH wake:{user1000} one", "wake:{user1000}=one;");
    publish_until_heard(w, "PUBLISH plain two", "plain=two;");
    for (int i = 0; i < 3; i++)
        redis_server_cli(&servers[i], ids[i], sizeof ids[i], "CLUSTER MYID");
    redis_server_cli(&servers[1], out, sizeof out, "CLUSTER SETSLOT 3443 IMPORTING %s", ids[0]);
    redis_server_cli(&servers[0], out, sizeof out, "CLUSTER SETSLOT 3443 MIGRATING %s", ids[1]);
    ask_wait(w, &a, "SET {user1000}.b 2"); /* ASK */
    assert_string_equal(a.text, "OK");
    ask_wait(w, &a, "GET {user1000}.a");
    assert_string_equal(a.text, "1");
    redis_server_cli(&servers[0], out, sizeof out,
                     "MIGRATE 127.0.0.1 %u '' 0 5000 KEYS '{user1000}.a'",
                     (unsigned)servers[1].port);
    assert_string_equal(out, "OK");
    for (int i = 2; i >= 0; i--)
        redis_server_cli(&servers[i], out, sizeof out, "CLUSTER SETSLOT 3443 NODE %s", ids[1]);
    ask_wait(w, &a, "GET {user1000}.a"); /* MOVED */
    assert_string_equal(a.text, "1");
    publish_until_heard(w, "SPUBLISH wake:{user1000} three", "wake:{user1000}=three;");
}

static void test_real_failover(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    make_cluster(4);
    connect_real(w);
    ask_wait(w, &a, "SET {user1000}.a 1");
    assert_string_equal(a.text, "OK");
    wait_until_says(3, "INFO keyspace", "keys=1"); /* what it has not got would be lost */
    redis_subscribe(w->redis, STR("wake:{user1000}"));
    publish_until_heard(w, "SPUBLISH wake:{user1000} one", "wake:{user1000}=one;");
    redis_server_end(&servers[0], SIGKILL);
    ask_wait(w, &b, "SET foo 1"); /* of another server: goes on */
    assert_string_equal(b.text, "OK");
    for (int i = 0; i < 5; i++) {
        ask_start(w, &b, NULL, "GET {user1000}.a", REDIS_AGAIN, 8000);
        WAIT_FOR(w, b.ended);
        if (b.err == 0)
            break;
    }
    assert_int_equal(b.err, 0);
    assert_string_equal(b.text, "1");
    assert_string_not_equal(a.run, b.run);
    publish_until_heard(w, "SPUBLISH wake:{user1000} two", "wake:{user1000}=two;");
}

#define REAL(test) cmocka_unit_test_setup_teardown(test, world_set_up, real_tear_down)
#define FAKE(test) cmocka_unit_test_setup_teardown(test, world_set_up, world_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        FAKE(test_calls_go_where_their_slot_is),
        FAKE(test_moved),
        FAKE(test_ask),
        FAKE(test_try_again),
        FAKE(test_nonsense_redirections),
        FAKE(test_a_server_that_died),
        FAKE(test_not_a_map),
        REAL(test_real_keys_and_slots),
        REAL(test_real_migration),
        REAL(test_real_failover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
