// SPDX-License-Identifier: Apache-2.0
/* The Redis client and Sentinels: scripted ones, then a real failover. */
#include "unit/store/redis/client/redis_world.h"

/* fakes[0] and fakes[1] are Sentinels, the others servers. */
static struct {
    struct world *world;
    size_t primary; /* whom the Sentinels name; 0: they know none */
} told;

static const char *sentinel_answer(struct fake *f, int conn, const struct redisReply *command)
{
    static char out[128];
    if (fake_is(command, 0, "SUBSCRIBE"))
        return "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n";
    assert_true(fake_is(command, 1, "get-master-addr-by-name") && fake_is(command, 2, "main"));
    if (told.primary == 0)
        return "*-1\r\n";
    char port[8];
    int n = snprintf(port, sizeof port, "%u", (unsigned)told.world->fakes[told.primary].port);
    snprintf(out, sizeof out, "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", n, port);
    return out;
}

static const char *server_answer(struct fake *f, int conn, const struct redisReply *command)
{
    static char out[8];
    snprintf(out, sizeof out, "+%d\r\n", (int)(f - told.world->fakes));
    return out;
}

static void start(struct world *w, size_t primary)
{
    char url[96];
    world_fakes(w, 4);
    told.world = w;
    told.primary = primary;
    for (size_t i = 0; i < 4; i++)
        w->fakes[i].answer = i < 2 ? sentinel_answer : server_answer;
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u,127.0.0.1:%u/main",
             (unsigned)w->fakes[0].port, (unsigned)w->fakes[1].port);
    world_connect(w, url, 5000, 1 << 20);
}

static void test_the_primary_is_asked_for(void **state)
{
    struct world *w = *state;
    struct ask a;
    start(w, 2);
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "2");
}

static void test_one_sentinel_is_enough(void **state)
{
    struct world *w = *state;
    struct ask a;
    world_fakes(w, 4);
    fake_refuse(&w->fakes[0]);
    start(w, 3);
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "3");
    assert_int_equal(w->downs, 0);
}

static void test_nobody_knows_the_name(void **state)
{
    struct world *w = *state;
    struct ask a;
    start(w, 0);
    WAIT_FOR(w, w->downs == 1);
    assert_non_null(memmem(w->why.p, w->why.n, "Sentinels", 9));
    told.primary = 2;
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "2");
}

static void test_the_primary_fails(void **state)
{
    struct world *w = *state;
    struct ask a;
    start(w, 2);
    ask_wait(w, &a, "GET a");
    fake_refuse(&w->fakes[2]);
    WAIT_FOR(w, w->downs == 1);
    told.primary = 3;
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "3");
}

static void test_what_is_named_is_a_replica(void **state)
{
    /* As long as it is one; the Sentinels were faster than it. */
    struct world *w = *state;
    struct ask a;
    world_fakes(w, 4);
    w->fakes[2].role = "slave";
    start(w, 2);
    WAIT_FOR(w, w->downs == 1);
    w->fakes[2].role = "master";
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "2");
}

static void test_switch_is_told(void **state)
{
    /* The old one still answers, as one that is cut off from the others would. */
    struct world *w = *state;
    struct ask a;
    char payload[64], out[160];
    start(w, 2);
    redis_subscribe(w->redis, STR("c"));
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "2");
    int sentinel = -1, conn = 0;
    WAIT_FOR(w, w->fakes[0].log.n > 0 || w->fakes[1].log.n > 0);
    world_for(w, 100);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < FAKE_CONNS; k++)
            if (w->fakes[i].conns[k].fd >= 0) {
                sentinel = i; /* questions are over, this one is watched */
                conn = k;
            }
    assert_true(sentinel >= 0);
    told.primary = 3;
    snprintf(payload, sizeof payload, "main 127.0.0.1 %u 127.0.0.1 %u", (unsigned)w->fakes[2].port,
             (unsigned)w->fakes[3].port);
    int n =
        snprintf(out, sizeof out, "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%zu\r\n%s\r\n",
                 strlen(payload), payload);
    fake_say(&w->fakes[sentinel], conn, out, (size_t)n);
    WAIT_FOR(w, w->fakes[3].accepted >= 2); /* calls and messages */
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "3");
}

/* ---- a real failover ---- */

static struct redis_server primary, replica, sentinel;

static int real_tear_down(void **state)
{
    int result = world_tear_down(state);
    redis_server_clean(&primary);
    redis_server_clean(&replica);
    redis_server_clean(&sentinel);
    return result;
}

static void start_sentinel(void)
{
    static char path[96];
    strcpy(sentinel.folder, "/tmp/tidemark-redis-XXXXXX");
    assert_non_null(mkdtemp(sentinel.folder));
    snprintf(path, sizeof path, "%s/sentinel.conf", sentinel.folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "sentinel monitor main 127.0.0.1 %u 1\n"
            "sentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 5000\n",
            (unsigned)primary.port);
    fclose(f);
    sentinel.port = 0;
    assert_true(redis_sentinel_start(&sentinel, path));
}

static void wait_until_says(const struct redis_server *s, const char *command, const char *text)
{
    char out[4096];
    for (int i = 0; i < 200; i++) {
        redis_server_cli(s, out, sizeof out, "%s", command);
        if (strstr(out, text) != NULL)
            return;
        usleep(50000);
    }
    fail_msg("%s never said %s", command, text);
}

static void test_real_failover(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    char port[8], url[96];
    if (!redis_server_installed()) {
        print_message("redis-server is not installed; skipped\n");
        skip();
    }
    primary.port = replica.port = 0;
    assert_true(redis_server_start(&primary, NULL));
    snprintf(port, sizeof port, "%u", (unsigned)primary.port);
    const char *const more[] = {"--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay",
                                "0",           NULL};
    assert_true(redis_server_start(&replica, more));
    wait_until_says(&primary, "INFO replication", "state=online");
    start_sentinel();
    wait_until_says(&sentinel, "SENTINEL replicas main", "role-reported");
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u/main", (unsigned)sentinel.port);
    world_connect(w, url, 9000, 1 << 20);
    redis_subscribe(w->redis, STR("c"));
    WAIT_FOR(w, w->missed_all == 1);
    ask_wait(w, &a, "SET a 1");
    ask_wait(w, &b, "WAIT 1 5000");
    assert_int_equal(b.integer, 1);
    redis_server_end(&primary, SIGKILL);
    for (int i = 0; i < 10; i++) {
        ask_start(w, &b, NULL, "GET a", REDIS_AGAIN, 9000);
        WAIT_FOR(w, b.ended);
        if (b.err == 0)
            break;
    }
    assert_int_equal(b.err, 0);
    assert_string_equal(b.text, "1");
    assert_string_not_equal(a.run, b.run);
    WAIT_FOR(w, w->missed_all == 2);
    ask_wait(w, &a, "PUBLISH c hello");
    WAIT_FOR(w, str_eq(buf_str(&w->messages), STR("c=hello;")));
}

#define REAL(test) cmocka_unit_test_setup_teardown(test, world_set_up, real_tear_down)
#define FAKE(test) cmocka_unit_test_setup_teardown(test, world_set_up, world_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE(test_the_primary_is_asked_for),
        FAKE(test_one_sentinel_is_enough),
        FAKE(test_nobody_knows_the_name),
        FAKE(test_the_primary_fails),
        FAKE(test_what_is_named_is_a_replica),
        FAKE(test_switch_is_told),
        REAL(test_real_failover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
