// SPDX-License-Identifier: Apache-2.0
/* redis_world.h -- for tests of the Redis client: a loop, a client on it that notes what it is
 * told, and servers that say what the test wants, driven by hand in the same thread. */
#ifndef TESTS_REDIS_WORLD_H
#define TESTS_REDIS_WORLD_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/redis/client/redis.h"
#include "store/redis/client/resp.h"
#include "unit/store/redis/redis_server.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RUN_A      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define RUN_B      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* ---- a server that is none ---- */

#define FAKE_CONNS 16
struct fake_conn {
    int fd;     /* -1: free */
    int number; /* of all that were accepted: a place may be another's by now */
    struct resp *in;
};

struct fake {
    int listener; /* -1: refuses */
    uint16_t port;
    struct fake_conn conns[FAKE_CONNS];
    int accepted;
    const char *run, *role;
    struct buf log; /* every command but those of the introduction: its words, each with a `,` */
    bool is_silent;
    bool is_deaf; /* has the same answer to whatever comes */
    /* What is said to a command that is not of the introduction; NULL: nothing. */
    const char *(*answer)(struct fake *f, int conn, const struct redisReply *command);
    int n_asked; /* of those */
    /* Before the introduction is answered: what was held back has to come first. May be NULL. */
    void (*catch_up)(struct fake *f);
};

static inline void fake_listen(struct fake *f)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(f->port)};
    socklen_t n = sizeof sa;
    int one = 1;
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(f->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&sa, n), 0);
    assert_int_equal(listen(f->listener, 16), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&sa, &n), 0);
    f->port = ntohs(sa.sin_port);
}

static inline void fake_init(struct fake *f)
{
    *f = (struct fake){.run = RUN_A, .role = "master", .listener = -1};
    for (int i = 0; i < FAKE_CONNS; i++)
        f->conns[i].fd = -1;
    fake_listen(f);
}

static inline void fake_hang_up(struct fake *f)
{
    for (int i = 0; i < FAKE_CONNS; i++) {
        struct fake_conn *c = &f->conns[i];
        if (c->fd < 0)
            continue;
        close(c->fd);
        resp_free(c->in);
        c->fd = -1;
    }
}

/* Nobody can connect any more. */
static inline void fake_refuse(struct fake *f)
{
    if (f->listener >= 0)
        close(f->listener);
    f->listener = -1;
    fake_hang_up(f);
}

static inline void fake_deinit(struct fake *f)
{
    fake_refuse(f);
    buf_deinit(&f->log);
}

static inline void fake_say(struct fake *f, int conn, const char *bytes, size_t n)
{
    assert_int_equal(send(f->conns[conn].fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

static inline void fake_bulk(struct fake *f, int conn, const char *text)
{
    char out[512];
    int n = snprintf(out, sizeof out, "$%zu\r\n%s\r\n", strlen(text), text);
    fake_say(f, conn, out, (size_t)n);
}

static inline bool fake_is(const struct redisReply *command, size_t i, const char *word)
{
    return i < command->elements && strcasecmp(command->element[i]->str, word) == 0;
}

static inline bool fake_introduces(struct fake *f, int conn, const struct redisReply *c)
{
    static const char *const words[] = {"PING", "INFO", "SCRIPT"};
    char info[128];
    for (size_t i = 0; f->catch_up != NULL && i < sizeof words / sizeof *words; i++)
        if (fake_is(c, 0, words[i]))
            f->catch_up(f);
    if (fake_is(c, 0, "PING")) {
        fake_say(f, conn, "+PONG\r\n", 7);
    } else if (fake_is(c, 0, "INFO") && fake_is(c, 1, "server")) {
        snprintf(info, sizeof info, "# Server\r\nrun_id:%s\r\n", f->run);
        fake_bulk(f, conn, info);
    } else if (fake_is(c, 0, "INFO")) {
        snprintf(info, sizeof info, "# Replication\r\nrole:%s\r\n", f->role);
        fake_bulk(f, conn, info);
    } else if (fake_is(c, 0, "SCRIPT")) {
        fake_say(f, conn, "+OK\r\n", 5);
    } else {
        return false;
    }
    return true;
}

static inline void fake_take(struct fake *f, int conn, const struct redisReply *command)
{
    if (f->is_silent || fake_introduces(f, conn, command))
        return;
    f->n_asked++;
    for (size_t i = 0; i < command->elements; i++) {
        buf_put(&f->log, resp_text(command->element[i]));
        buf_putc(&f->log, i + 1 < command->elements ? ',' : ';');
    }
    const char *answer = f->answer != NULL ? f->answer(f, conn, command) : "+OK\r\n";
    if (answer != NULL)
        fake_say(f, conn, answer, strlen(answer));
}

static inline void fake_read(struct fake *f, int i)
{
    char bytes[4096];
    const struct redisReply *command;
    struct fake_conn *c = &f->conns[i];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        close(c->fd);
        resp_free(c->in);
        c->fd = -1;
        return;
    }
    if (n < 0)
        return;
    if (f->is_deaf) {
        fake_say(f, i, "-ERR Protocol error\r\n", 21);
        return;
    }
    assert_int_equal(resp_feed(c->in, str_of(bytes, (size_t)n)), 0);
    while (c->fd >= 0 && resp_next(c->in, &command) == 1)
        fake_take(f, i, command);
}

static inline void fake_turn(struct fake *f)
{
    int fd;
    while (f->listener >= 0 && (fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        int i = 0;
        while (f->conns[i].fd >= 0)
            assert_true(++i < FAKE_CONNS);
        f->conns[i] = (struct fake_conn){.fd = fd, .number = f->accepted, .in = resp_new(1 << 20)};
        f->accepted++;
    }
    for (int i = 0; i < FAKE_CONNS; i++)
        if (f->conns[i].fd >= 0)
            fake_read(f, i);
}

/* ---- the client ---- */

#define FAKES_MAX 4
struct world {
    struct loop loop;
    uv_timer_t alive; /* a loop without active handles would not turn */
    struct fake fakes[FAKES_MAX];
    size_t n_fakes;
    struct redis_url *url;
    struct redis *redis;
    int ups, downs, missed_all;
    struct buf why, messages, missed, pubsub_down;
    bool stopped;
};

static inline void world_changed(void *ctx, bool up, struct str why)
{
    struct world *w = ctx;
    if (up)
        w->ups++;
    else
        w->downs++;
    w->why.n = 0;
    buf_put(&w->why, why);
}

static inline void world_message(void *ctx, struct str channel, struct str payload)
{
    struct world *w = ctx;
    buf_printf(&w->messages, "%.*s=%.*s;", (int)channel.n, channel.p, (int)payload.n, payload.p);
}

static inline void world_missed(void *ctx, struct str channel)
{
    struct world *w = ctx;
    if (channel.p == NULL)
        w->missed_all++;
    else
        buf_printf(&w->missed, "%.*s;", (int)channel.n, channel.p);
}

static inline void world_deaf(void *ctx, struct str why)
{
    struct world *w = ctx;
    buf_put(&w->pubsub_down, why);
    buf_putc(&w->pubsub_down, '\n');
}

static inline void world_stopped(void *ctx)
{
    struct world *w = ctx;
    w->stopped = true;
}

static const struct redis_script script_get = {STR_INIT("get"), STR_INIT("return KEYS[1]")};
static const struct redis_script script_add = {
    STR_INIT("add"), STR_INIT("return redis.call('INCRBY', KEYS[1], ARGV[1])")};
static const struct redis_script *const world_scripts[] = {&script_get, &script_add};

static inline void world_turn(struct world *w)
{
    for (size_t i = 0; i < w->n_fakes; i++)
        fake_turn(&w->fakes[i]);
    uv_run(&w->loop.uv, UV_RUN_NOWAIT);
}

/* Until it holds; a test that waits ten seconds for it has failed. */
#define WAIT_FOR(w, condition)                                                                     \
    do {                                                                                           \
        uint64_t until_ = clock_mono_ms() + 10000;                                                 \
        while (!(condition)) {                                                                     \
            if (clock_mono_ms() > until_)                                                          \
                fail_msg("this never came: %s", #condition);                                       \
            world_turn(w);                                                                         \
            usleep(500);                                                                           \
        }                                                                                          \
    } while (0)

static inline void world_for(struct world *w, uint64_t ms)
{
    uint64_t until = clock_mono_ms() + ms;
    while (clock_mono_ms() < until) {
        world_turn(w);
        usleep(500);
    }
}

static inline void world_connect(struct world *w, const char *url, uint32_t timeout_ms,
                                 size_t pending_max)
{
    char why[200];
    if (redis_url_parse(str_of_cstr(url), &w->url, why, sizeof why) != 0)
        fail_msg("%s: %s", url, why);
    struct redis_setup setup = {.loop = &w->loop,
                                .url = w->url,
                                .scripts = world_scripts,
                                .n_scripts = 2,
                                .timeout_ms = timeout_ms,
                                .pending_max = pending_max,
                                .changed = world_changed,
                                .message = world_message,
                                .missed = world_missed,
                                .pubsub_down = world_deaf,
                                .ctx = w};
    w->redis = redis_new(&setup);
}

static inline void world_connect_fake(struct world *w, uint32_t timeout_ms)
{
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", (unsigned)w->fakes[0].port);
    world_connect(w, url, timeout_ms, 1 << 20);
}

static inline void on_world_alive(uv_timer_t *t)
{
}

static inline int world_set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    assert_int_equal(loop_init(&w->loop), 0);
    uv_timer_init(&w->loop.uv, &w->alive);
    uv_timer_start(&w->alive, on_world_alive, 1000, 1000);
    *state = w;
    return 0;
}

static inline void world_fakes(struct world *w, size_t n)
{
    for (; w->n_fakes < n; w->n_fakes++)
        fake_init(&w->fakes[w->n_fakes]);
}

static inline void world_stop(struct world *w)
{
    w->stopped = false;
    redis_stop(w->redis, world_stopped, w);
    WAIT_FOR(w, w->stopped);
    redis_free(w->redis);
    redis_url_free(w->url);
    w->redis = NULL;
}

static inline int world_tear_down(void **state)
{
    struct world *w = *state;
    if (w->redis != NULL)
        world_stop(w);
    for (size_t i = 0; i < w->n_fakes; i++)
        fake_deinit(&w->fakes[i]);
    uv_close((uv_handle_t *)&w->alive, NULL);
    loop_deinit(&w->loop);
    buf_deinit(&w->why);
    buf_deinit(&w->messages);
    buf_deinit(&w->missed);
    buf_deinit(&w->pubsub_down);
    free(w);
    return 0;
}

/* ---- a call ---- */

#define ASK_WORDS 6
struct ask {
    struct redis_call call;
    struct str words[ASK_WORDS];
    int ended, err;
    int type;
    long long integer;
    char text[256], run[41];
};

static inline void on_asked(struct redis_call *c, int err, const struct redisReply *reply,
                            struct str run)
{
    struct ask *a = container_of(c, struct ask, call);
    a->ended++;
    a->err = err;
    if (reply != NULL) {
        struct str text = resp_text(reply);
        a->type = reply->type;
        a->integer = reply->integer;
        snprintf(a->text, sizeof a->text, "%.*s", (int)text.n, text.n > 0 ? text.p : "");
    }
    snprintf(a->run, sizeof a->run, "%.*s", (int)run.n, run.n > 0 ? run.p : "");
}

/* The words of `line` are cut at spaces; the first key decides the node. */
static inline void ask_start(struct world *w, struct ask *a, const struct redis_script *script,
                             const char *line, enum redis_sent sent, uint32_t timeout_ms)
{
    struct str rest = str_of_cstr(line);
    *a = (struct ask){.call = {.script = script, .sent = sent, .timeout_ms = timeout_ms}};
    while (rest.n > 0)
        a->words[a->call.n_args++] = str_cut(&rest, ' ');
    a->call.args = a->words;
    a->call.n_keys = script != NULL ? 1 : 0;
    a->call.key = script != NULL ? a->words[0] : a->call.n_args > 1 ? a->words[1] : STR_NONE;
    a->call.done = on_asked;
    redis_call(w->redis, &a->call);
    assert_int_equal(a->ended, 0); /* never before the call has returned */
}

static inline void ask_wait(struct world *w, struct ask *a, const char *line)
{
    ask_start(w, a, NULL, line, REDIS_ONCE, 0);
    WAIT_FOR(w, a->ended);
}

#endif
