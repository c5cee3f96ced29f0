// SPDX-License-Identifier: Apache-2.0
/* The Redis client against servers that are scripted to misbehave, and against real ones. */
#include "unit/store/redis/client/redis_world.h"

static bool logged(const struct fake *f, const char *text)
{
    return memmem(f->log.p, f->log.n, text, strlen(text)) != NULL;
}

static const char *confirm_subscription(struct fake *f, int conn, const struct redisReply *command)
{
    char out[256];
    const char *word = command->element[0]->str, *name = command->element[1]->str;
    int n = snprintf(out, sizeof out, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n:1\r\n", strlen(word),
                     word, strlen(name), name);
    fake_say(f, conn, out, (size_t)n);
    return NULL;
}

/* ---- what works ---- */

static void test_calls_are_answered_in_order(void **state)
{
    struct world *w = *state;
    struct ask a[3];
    world_fakes(w, 1);
    world_connect_fake(w, 5000);
    ask_start(w, &a[0], NULL, "SET k 1", REDIS_ONCE, 0); /* before there is a connection */
    WAIT_FOR(w, a[0].ended);
    ask_start(w, &a[1], NULL, "SET k 2", REDIS_ONCE, 0);
    ask_start(w, &a[2], &script_add, "k 3", REDIS_ONCE, 0);
    WAIT_FOR(w, a[1].ended && a[2].ended);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a[i].ended, 1);
        assert_int_equal(a[i].err, 0);
        assert_string_equal(a[i].text, "OK");
        assert_string_equal(a[i].run, RUN_A);
    }
    assert_true(logged(&w->fakes[0], "SET,k,1;SET,k,2;EVALSHA,"));
    assert_true(logged(&w->fakes[0], ",1,k,3;"));
    assert_int_equal(w->fakes[0].accepted, 1);
    assert_int_equal(w->ups, 1);
    assert_true(redis_is_up(w->redis));
}

static const char *half_answer(struct fake *f, int conn, const struct redisReply *command)
{
    return f->n_asked == 1 ? "$11\r\nhel" : NULL;
}

static void test_a_reply_in_pieces(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    world_fakes(w, 1);
    w->fakes[0].answer = half_answer;
    world_connect_fake(w, 5000);
    ask_start(w, &a, NULL, "GET a", REDIS_ONCE, 0);
    ask_start(w, &b, NULL, "GET b", REDIS_ONCE, 0);
    WAIT_FOR(w, w->fakes[0].n_asked == 2);
    const char *rest = "lo world\r\n:4";
    for (size_t i = 0; i < strlen(rest); i++) {
        assert_int_equal(a.ended, i > 9 ? 1 : 0);
        fake_say(&w->fakes[0], 0, rest + i, 1);
        world_for(w, 20);
    }
    assert_string_equal(a.text, "hello world");
    assert_int_equal(b.ended, 0);
    fake_say(&w->fakes[0], 0, "2\r\n", 3);
    WAIT_FOR(w, b.ended);
    assert_int_equal(b.integer, 42);
}

static const char *no_script(struct fake *f, int conn, const struct redisReply *command)
{
    return fake_is(command, 0, "EVALSHA") ? "-NOSCRIPT No matching script.\r\n" : "+done\r\n";
}

static void test_a_forgotten_script_is_sent_whole(void **state)
{
    struct world *w = *state;
    struct ask a;
    world_fakes(w, 1);
    w->fakes[0].answer = no_script;
    world_connect_fake(w, 5000);
    ask_start(w, &a, &script_get, "k", REDIS_ONCE, 0);
    WAIT_FOR(w, a.ended);
    assert_int_equal(a.err, 0);
    assert_string_equal(a.text, "done");
    assert_true(logged(&w->fakes[0], ";EVAL,return KEYS[1],1,k;"));
}

/* ---- what does not ---- */

static void test_refused_then_there(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    world_fakes(w, 1);
    fake_refuse(&w->fakes[0]);
    world_connect_fake(w, 5000);
    ask_start(w, &a, NULL, "SET a 1", REDIS_ONCE, 100);
    ask_start(w, &b, NULL, "SET b 1", REDIS_ONCE, 9000);
    WAIT_FOR(w, a.ended);
    assert_int_equal(a.err, ERR_AWAY); /* it was not sent */
    assert_int_equal(w->downs, 1);
    assert_false(redis_is_up(w->redis));
    assert_non_null(memmem(w->why.p, w->why.n, "refused", 7));
    fake_listen(&w->fakes[0]);
    WAIT_FOR(w, b.ended);
    assert_int_equal(b.err, 0);
    assert_int_equal(w->ups, 1);
}

static const char *hang_up_once(struct fake *f, int conn, const struct redisReply *command)
{
    if (f->n_asked > 3)
        return "+OK\r\n";
    if (f->n_asked == 3)
        fake_hang_up(f);
    return NULL;
}

static void test_a_broken_connection(void **state)
{
    /* What may be done twice is sent again, in its order and before what came later. */
    struct world *w = *state;
    struct ask a, b, c, d;
    world_fakes(w, 1);
    w->fakes[0].answer = hang_up_once;
    world_connect_fake(w, 5000);
    WAIT_FOR(w, w->ups == 1);
    ask_start(w, &a, NULL, "GET a", REDIS_AGAIN, 0);
    ask_start(w, &b, NULL, "SET b 1", REDIS_ONCE, 0);
    ask_start(w, &c, NULL, "GET c", REDIS_AGAIN, 0);
    WAIT_FOR(w, b.ended);
    assert_int_equal(b.err, ERR_UPSTREAM);
    ask_start(w, &d, NULL, "GET d", REDIS_ONCE, 0);
    WAIT_FOR(w, a.ended && c.ended && d.ended);
    assert_int_equal(a.err | c.err | d.err, 0);
    assert_true(logged(&w->fakes[0], "GET,a;SET,b,1;GET,c;GET,a;GET,c;GET,d;"));
    assert_int_equal(w->downs, 1);
    assert_int_equal(w->ups, 2);
}

static void test_dead_silence(void **state)
{
    /* The connection is there, and nobody answers: it is given up when a call's time is over. */
    struct world *w = *state;
    struct ask a, b;
    world_fakes(w, 1);
    world_connect_fake(w, 300);
    WAIT_FOR(w, w->ups == 1);
    w->fakes[0].is_silent = true;
    ask_start(w, &a, NULL, "SET a 1", REDIS_ONCE, 0);
    ask_start(w, &b, NULL, "GET b", REDIS_AGAIN, 9000);
    WAIT_FOR(w, a.ended);
    assert_int_equal(a.err, ERR_UPSTREAM);
    WAIT_FOR(w, w->downs == 1);
    w->fakes[0].is_silent = false;
    WAIT_FOR(w, b.ended);
    assert_int_equal(b.err, 0);
    assert_true(w->fakes[0].accepted >= 2);
}

static void test_silence_when_nothing_is_asked(void **state)
{
    /* The client asks by itself, calls and messages alike. */
    struct world *w = *state;
    world_fakes(w, 1);
    w->fakes[0].answer = confirm_subscription;
    world_connect_fake(w, 300);
    redis_subscribe(w->redis, STR("c"));
    WAIT_FOR(w, w->ups == 1 && w->missed_all == 1);
    w->fakes[0].is_silent = true;
    WAIT_FOR(w, w->downs == 1 && w->pubsub_down.n > 0);
    w->fakes[0].is_silent = false;
    WAIT_FOR(w, w->ups == 2 && w->missed_all == 2);
}

static void test_silence_instead_of_an_introduction(void **state)
{
    struct world *w = *state;
    world_fakes(w, 1);
    w->fakes[0].is_silent = true;
    world_connect_fake(w, 300);
    WAIT_FOR(w, w->downs == 1);
    w->fakes[0].is_silent = false;
    WAIT_FOR(w, w->ups == 1);
}

static const char *no_answer(struct fake *f, int conn, const struct redisReply *command)
{
    return NULL;
}

static void test_one_late_reply_is_no_silence(void **state)
{
    /* Others are answered meanwhile; the late one comes when nobody waits for it any more, and is
     * not taken for another's. */
    struct world *w = *state;
    struct ask slow, quick;
    world_fakes(w, 1);
    w->fakes[0].answer = no_answer;
    world_connect_fake(w, 5000);
    WAIT_FOR(w, w->ups == 1);
    ask_start(w, &slow, NULL, "GET slow", REDIS_ONCE, 200);
    WAIT_FOR(w, w->fakes[0].n_asked == 1);
    world_for(w, 20);
    fake_say(&w->fakes[0], 0, "$4\r\nla", 6); /* it is at it */
    WAIT_FOR(w, slow.ended);
    assert_int_equal(slow.err, ERR_UPSTREAM);
    ask_start(w, &quick, NULL, "GET quick", REDIS_ONCE, 0);
    world_for(w, 20);
    assert_int_equal(quick.ended, 0);
    fake_say(&w->fakes[0], 0, "te\r\n", 4);
    fake_say(&w->fakes[0], 0, "+quick\r\n", 8);
    WAIT_FOR(w, quick.ended);
    assert_int_equal(quick.err, 0);
    assert_int_equal(w->downs, 0);
    assert_int_equal(w->fakes[0].accepted, 1);
}

static void test_unfit_with_a_late_reply(void **state)
{
    /* The server is left when all is answered, also what nobody waits for any more. */
    struct world *w = *state;
    struct ask a, late;
    world_fakes(w, 1);
    w->fakes[0].answer = no_answer;
    world_connect_fake(w, 9000);
    WAIT_FOR(w, w->ups == 1);
    ask_start(w, &a, NULL, "GET a", REDIS_ONCE, 0);
    ask_start(w, &late, NULL, "GET late", REDIS_ONCE, 200);
    WAIT_FOR(w, w->fakes[0].n_asked == 2);
    world_for(w, 20);
    fake_say(&w->fakes[0], 0, "-LOADING soon\r\n", 15);
    WAIT_FOR(w, late.ended);
    assert_int_equal(late.err, ERR_UPSTREAM);
    assert_int_equal(w->fakes[0].accepted, 1);
    w->fakes[0].answer = NULL;
    fake_say(&w->fakes[0], 0, "+late\r\n", 7);
    WAIT_FOR(w, a.ended);
    assert_int_equal(a.err, 0);
    assert_string_equal(a.text, "OK");
    assert_int_equal(w->fakes[0].accepted, 2);
}

static const char *the_answer;
static const char *say_once(struct fake *f, int conn, const struct redisReply *command)
{
    return f->n_asked == 1 ? the_answer : "+fine\r\n";
}

static void answer_once(struct world *w, const char *answer, struct ask *a, enum redis_sent sent)
{
    world_fakes(w, 1);
    the_answer = answer;
    w->fakes[0].answer = say_once;
    world_connect_fake(w, 5000);
    ask_start(w, a, NULL, "SET k 1", sent, 0);
    WAIT_FOR(w, a->ended);
}

static void test_loading(void **state)
{
    struct ask a;
    answer_once(*state, "-LOADING Redis is loading the dataset in memory\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, 0);
    assert_string_equal(a.text, "fine");
}

static void test_read_only(void **state)
{
    struct world *w = *state;
    struct ask a;
    answer_once(w, "-READONLY You can't write against a read only replica.\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, 0); /* another has become the primary meanwhile */
    assert_int_equal(w->downs, 1);
    assert_int_equal(w->fakes[0].accepted, 2);
}

static void test_out_of_memory(void **state)
{
    struct ask a;
    answer_once(*state, "-OOM command not allowed when used memory > 'maxmemory'.\r\n", &a,
                REDIS_ONCE);
    assert_int_equal(a.err, ERR_FULL);
}

static void test_not_enough_replicas(void **state)
{
    struct ask a;
    answer_once(*state, "-NOREPLICAS Not enough good replicas to write.\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, ERR_AWAY);
}

static void test_other_errors_are_the_callers(void **state)
{
    struct ask a;
    answer_once(*state, "-WRONGTYPE Operation against a key\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.type, REDIS_REPLY_ERROR);
    assert_string_equal(a.text, "WRONGTYPE Operation against a key");
}

static void test_moved_without_a_cluster(void **state)
{
    /* Said by a server that is one of a cluster, to a client that was not told. */
    struct ask a;
    answer_once(*state, "-MOVED 1 127.0.0.1:1\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.type, REDIS_REPLY_ERROR);
}

static void test_garbage(void **state)
{
    struct world *w = *state;
    struct ask a;
    answer_once(w, "HTTP/1.1 400 Bad Request\r\n\r\n", &a, REDIS_AGAIN);
    assert_int_equal(a.err, 0); /* on the next connection */
    assert_string_equal(a.text, "fine");
    assert_int_equal(w->downs, 1);
}

static void test_giant_bulk_length(void **state)
{
    struct world *w = *state;
    struct ask a;
    answer_once(w, "$99999999999\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, ERR_UPSTREAM);
    assert_int_equal(w->downs, 1);
}

static void test_giant_array(void **state)
{
    struct ask a;
    answer_once(*state, "*2000000000\r\n", &a, REDIS_ONCE);
    assert_int_equal(a.err, ERR_UPSTREAM);
}

static void test_answers_nobody_asked_for(void **state)
{
    struct world *w = *state;
    struct ask a;
    world_fakes(w, 1);
    world_connect_fake(w, 5000);
    WAIT_FOR(w, w->ups == 1);
    fake_say(&w->fakes[0], 0, "+surprise\r\n", 11);
    WAIT_FOR(w, w->downs == 1); /* or the next call would get it */
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "OK");
}

static void test_a_replica_is_refused(void **state)
{
    struct world *w = *state;
    world_fakes(w, 1);
    w->fakes[0].role = "slave";
    world_connect_fake(w, 5000);
    WAIT_FOR(w, w->downs == 1);
    assert_non_null(memmem(w->why.p, w->why.n, "replica", 7));
    w->fakes[0].role = "master";
    w->fakes[0].run = RUN_B;
    struct ask a;
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.run, RUN_B);
}

static void test_what_waits_is_bounded(void **state)
{
    struct world *w = *state;
    struct ask a, b, c, d;
    char url[64];
    world_fakes(w, 1);
    fake_refuse(&w->fakes[0]);
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", (unsigned)w->fakes[0].port);
    world_connect(w, url, 200, 60);
    ask_start(w, &a, NULL, "SET key value", REDIS_ONCE, 0); /* 33 bytes */
    ask_start(w, &b, NULL, "SET key value", REDIS_ONCE, 0);
    world_turn(w);
    world_turn(w);
    assert_int_equal(a.ended, 0);
    assert_int_equal(b.ended, 1);
    assert_int_equal(b.err, ERR_BUSY);
    ask_start(w, &d, NULL, "SET key a-value-that-is-larger-than-all-that-may-wait", REDIS_ONCE, 0);
    WAIT_FOR(w, d.ended);
    assert_int_equal(d.err, ERR_TOO_LARGE);
    WAIT_FOR(w, a.ended);
    ask_start(w, &c, NULL, "SET key value", REDIS_ONCE, 0); /* there is room again */
    world_turn(w);
    world_turn(w);
    assert_int_equal(c.ended, 0);
    WAIT_FOR(w, c.ended);
}

static void test_deadlines_of_different_lengths(void **state)
{
    struct world *w = *state;
    struct ask a[3];
    world_fakes(w, 1);
    fake_refuse(&w->fakes[0]);
    world_connect_fake(w, 9000);
    ask_start(w, &a[0], NULL, "GET a", REDIS_ONCE, 0);
    ask_start(w, &a[1], NULL, "GET b", REDIS_ONCE, 400);
    ask_start(w, &a[2], NULL, "GET c", REDIS_ONCE, 50);
    WAIT_FOR(w, a[2].ended);
    assert_int_equal(a[1].ended, 0);
    WAIT_FOR(w, a[1].ended);
    assert_int_equal(a[0].ended, 0);
    world_stop(w);
    assert_int_equal(a[0].err, ERR_AWAY);
}

static void test_stopped_with_calls_under_way(void **state)
{
    struct world *w = *state;
    struct ask sent, waiting;
    world_fakes(w, 1);
    w->fakes[0].answer = no_answer;
    world_connect_fake(w, 5000);
    WAIT_FOR(w, w->ups == 1);
    ask_start(w, &sent, NULL, "SET slow 1", REDIS_ONCE, 0);
    WAIT_FOR(w, w->fakes[0].n_asked == 1);
    redis_stop(w->redis, world_stopped, w);
    ask_start(w, &waiting, NULL, "SET late 1", REDIS_ONCE, 0);
    WAIT_FOR(w, w->stopped);
    assert_int_equal(sent.err, ERR_UPSTREAM);
    assert_int_equal(waiting.err, ERR_AWAY);
    redis_free(w->redis);
    redis_url_free(w->url);
    w->redis = NULL;
}

static void test_stopped_while_connecting(void **state)
{
    struct world *w = *state;
    world_fakes(w, 1);
    for (int turns = 0; turns < 6; turns++) {
        world_connect_fake(w, 5000);
        for (int i = 0; i < turns; i++)
            world_turn(w);
        world_stop(w);
    }
    assert_true(w->stopped);
}

/* ---- messages ---- */

static void test_subscriptions_are_made_again(void **state)
{
    struct world *w = *state;
    struct fake *f;
    world_fakes(w, 1);
    f = &w->fakes[0];
    f->answer = confirm_subscription;
    world_connect_fake(w, 5000);
    redis_subscribe(w->redis, STR("one"));
    WAIT_FOR(w, w->missed_all == 1);
    redis_subscribe(w->redis, STR("two"));
    redis_subscribe(w->redis, STR("two"));
    redis_subscribe_prefix(w->redis, STR("a*b:"));
    WAIT_FOR(w, str_eq(buf_str(&w->missed), STR("two;a*b:;")));
    assert_true(str_eq(buf_str(&f->log), STR("subscribe,one;subscribe,two;psubscribe,a\\*b:*;")));
    redis_unsubscribe(w->redis, STR("two"));
    redis_unsubscribe(w->redis, STR("one"));
    WAIT_FOR(w, logged(f, "unsubscribe,one;"));
    f->log.n = 0;
    fake_hang_up(f);
    WAIT_FOR(w, w->missed_all == 2);
    assert_true(logged(f, "subscribe,two;"));
    assert_true(logged(f, "psubscribe,a\\*b:*;"));
    assert_false(logged(f, "one"));
}

/* ---- the real one ---- */

static struct redis_server server; /* one at a time */

static void need_server(const char *const *more)
{
    if (!redis_server_installed()) {
        print_message("redis-server is not installed; skipped\n");
        skip();
    }
    server.port = 0;
    assert_true(redis_server_start(&server, more));
}

static int real_tear_down(void **state)
{
    int result = world_tear_down(state);
    redis_server_clean(&server);
    return result;
}

static void connect_real(struct world *w, const char *format, uint32_t timeout_ms)
{
    char url[128];
    snprintf(url, sizeof url, format, (unsigned)server.port);
    world_connect(w, url, timeout_ms, 1 << 20);
}

static void test_real_calls(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    need_server(NULL);
    connect_real(w, "redis://127.0.0.1:%u/3", 5000);
    ask_start(w, &a, &script_add, "n 5", REDIS_ONCE, 0);
    ask_start(w, &b, &script_add, "n 6", REDIS_ONCE, 0);
    WAIT_FOR(w, a.ended && b.ended);
    assert_int_equal(a.integer, 5);
    assert_int_equal(b.integer, 11);
    assert_int_equal(strlen(a.run), 40);
    ask_wait(w, &a, "SCRIPT FLUSH");
    ask_start(w, &a, &script_add, "n 7", REDIS_ONCE, 0);
    WAIT_FOR(w, a.ended);
    assert_int_equal(a.integer, 18);
    ask_wait(w, &a, "CLIENT LIST");
    assert_int_equal(a.type, REDIS_REPLY_STRING);
}

static void test_real_passwords(void **state)
{
    static const char *const more[] = {"--requirepass", "o pen/%", NULL};
    struct world *w = *state;
    struct ask a;
    need_server(more);
    connect_real(w, "redis://:wrong@127.0.0.1:%u", 5000);
    WAIT_FOR(w, w->downs == 1);
    assert_non_null(memmem(w->why.p, w->why.n, "credentials", 11));
    world_stop(w);
    connect_real(w, "redis://:o%%20pen%%2F%%25@127.0.0.1:%u", 5000);
    ask_wait(w, &a, "SET a 1");
    assert_string_equal(a.text, "OK");
    world_stop(w);
    connect_real(w, "redis://default:o%%20pen%%2f%%25@127.0.0.1:%u", 5000);
    ask_wait(w, &a, "GET a");
    assert_string_equal(a.text, "1");
}

static void test_real_channels_forbidden(void **state)
{
    struct world *w = *state;
    struct ask a;
    char out[64];
    need_server(NULL);
    redis_server_cli(&server, out, sizeof out,
                     "ACL SETUSER tide on '>word' '~*' '+@all' resetchannels");
    assert_string_equal(out, "OK");
    connect_real(w, "redis://tide:word@127.0.0.1:%u", 5000);
    redis_subscribe(w->redis, STR("c"));
    WAIT_FOR(w, w->pubsub_down.n > 0);
    assert_non_null(memmem(w->pubsub_down.p, w->pubsub_down.n, "NOPERM", 6));
    assert_int_equal(w->missed_all, 0);
    ask_wait(w, &a, "SET a 1"); /* calls get through */
    assert_string_equal(a.text, "OK");
    redis_server_cli(&server, out, sizeof out, "ACL SETUSER tide '&*'");
    WAIT_FOR(w, w->missed_all == 1);
    ask_wait(w, &a, "PUBLISH c hello");
    WAIT_FOR(w, str_eq(buf_str(&w->messages), STR("c=hello;")));
}

static void test_real_unix_socket(void **state)
{
    struct world *w = *state;
    struct ask a;
    char url[128];
    static char folder[64], path[96];
    strcpy(folder, "/tmp/tidemark-redis-XXXXXX");
    assert_non_null(mkdtemp(folder));
    strcpy(server.folder, folder);
    snprintf(path, sizeof path, "%s/socket", folder);
    const char *const more[] = {"--unixsocket", path, NULL};
    need_server(more);
    snprintf(url, sizeof url, "unix:%s?db=2", path);
    world_connect(w, url, 5000, 1 << 20);
    redis_subscribe(w->redis, STR("c"));
    WAIT_FOR(w, w->missed_all == 1);
    ask_wait(w, &a, "PUBLISH c hello");
    WAIT_FOR(w, str_eq(buf_str(&w->messages), STR("c=hello;")));
    assert_true(str_starts(redis_url_shown(w->url), STR("unix:/tmp/")));
}

static void test_real_restart(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    need_server(NULL);
    connect_real(w, "redis://127.0.0.1:%u", 9000);
    redis_subscribe(w->redis, STR("c"));
    WAIT_FOR(w, w->missed_all == 1);
    ask_wait(w, &a, "SET a 1");
    redis_server_end(&server, SIGKILL);
    WAIT_FOR(w, w->downs == 1);
    ask_start(w, &b, NULL, "SET a 2", REDIS_ONCE, 0);
    world_for(w, 50);
    assert_int_equal(b.ended, 0);
    assert_true(redis_server_start(&server, NULL));
    WAIT_FOR(w, b.ended);
    assert_int_equal(b.err, 0);
    assert_int_equal(strlen(b.run), 40);
    assert_string_not_equal(a.run, b.run); /* another run of Redis */
    WAIT_FOR(w, w->missed_all == 2);
    ask_wait(w, &a, "PUBLISH c again");
    WAIT_FOR(w, str_eq(buf_str(&w->messages), STR("c=again;")));
}

static void test_real_stopped_for_a_while(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    need_server(NULL);
    connect_real(w, "redis://127.0.0.1:%u", 300);
    ask_wait(w, &a, "SET a 1");
    kill(server.pid, SIGSTOP);
    ask_start(w, &a, NULL, "INCR a", REDIS_ONCE, 0);
    ask_start(w, &b, NULL, "GET b", REDIS_AGAIN, 9000);
    WAIT_FOR(w, a.ended && w->downs == 1);
    assert_int_equal(a.err, ERR_UPSTREAM);
    kill(server.pid, SIGCONT);
    WAIT_FOR(w, b.ended);
    assert_int_equal(b.err, 0);
    assert_int_equal(w->ups, 2);
}

/* Those who test at the same time may take a port from one another, but no server. */
static void test_real_server_of_another(void **state)
{
    need_server(NULL);
    struct redis_server other = {.port = server.port};
    bool started = redis_server_start(&other, NULL);
    redis_server_clean(&other);
    assert_false(started);
}

#define REAL(test) cmocka_unit_test_setup_teardown(test, world_set_up, real_tear_down)
#define FAKE(test) cmocka_unit_test_setup_teardown(test, world_set_up, world_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE(test_calls_are_answered_in_order),
        FAKE(test_a_reply_in_pieces),
        FAKE(test_a_forgotten_script_is_sent_whole),
        FAKE(test_refused_then_there),
        FAKE(test_a_broken_connection),
        FAKE(test_dead_silence),
        FAKE(test_silence_when_nothing_is_asked),
        FAKE(test_silence_instead_of_an_introduction),
        FAKE(test_one_late_reply_is_no_silence),
        FAKE(test_unfit_with_a_late_reply),
        FAKE(test_loading),
        FAKE(test_read_only),
        FAKE(test_out_of_memory),
        FAKE(test_not_enough_replicas),
        FAKE(test_other_errors_are_the_callers),
        FAKE(test_moved_without_a_cluster),
        FAKE(test_garbage),
        FAKE(test_giant_bulk_length),
        FAKE(test_giant_array),
        FAKE(test_answers_nobody_asked_for),
        FAKE(test_a_replica_is_refused),
        FAKE(test_what_waits_is_bounded),
        FAKE(test_deadlines_of_different_lengths),
        FAKE(test_stopped_with_calls_under_way),
        FAKE(test_stopped_while_connecting),
        FAKE(test_subscriptions_are_made_again),
        REAL(test_real_calls),
        REAL(test_real_passwords),
        REAL(test_real_channels_forbidden),
        REAL(test_real_unix_socket),
        REAL(test_real_restart),
        REAL(test_real_stopped_for_a_while),
        REAL(test_real_server_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
