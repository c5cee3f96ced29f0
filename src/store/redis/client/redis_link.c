// SPDX-License-Identifier: Apache-2.0
/* redis_link.c -- one connection, from the first try to its end.
 *
 *     DIALING     no socket yet
 *        | connected
 *     GREETING    TLS, then the introduction: AUTH, SELECT, INFO, scripts, PING
 *        | the server has answered all of it; ready()
 *     READY       takes commands
 *
 * Each of them is followed by OVER: redis_link_close, or a failure and then down(). The memory goes
 * when the dial has ended, or the connection is closed. */
#include "store/redis/client/redis_link.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "net/conn.h"
#include "net/dial.h"
#include "net/loop.h"
#include "store/redis/client/redis_core.h"
#include "store/redis/client/resp.h"
#include "net/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONNECT_MS 2000
#define HELLO_MS   2000
#define IDLE_MS    5000 /* of silence before the server is asked whether it is there ... */
#define PING_MS    3000 /* ... and how long it has to answer */
#define SILENCE_MS 1000 /* that a call whose time is over takes for death */
#define REPLY_MAX  ((size_t)256 << 20) /* larger than any that a call may ask for */

enum link_state {
    LINK_DIALING,
    LINK_GREETING,
    LINK_READY,
    LINK_OVER, /* the owner knows, or does not care */
};

/* What a command was for that no owner sent. */
enum step {
    STEP_NONE, /* an owner's */
    STEP_AUTH,
    STEP_SELECT,
    STEP_SERVER,
    STEP_ROLE,
    STEP_SCRIPT,
    STEP_HELLO, /* the last of them */
    STEP_PING,
};

/* A reply that is to come. */
struct slot {
    void *tag; /* NULL: forgotten, or a step */
    size_t bytes;
    enum step step;
};

struct redis_link {
    struct redis *redis;
    enum redis_purpose purpose;
    const struct redis_link_ops *ops;
    void *ctx;
    struct redis_addr addr;
    enum link_state state;
    struct dial *dial; /* while there is no connection */
    struct conn conn;
    struct resp *resp;
    struct slot *slots; /* a ring of the replies to come */
    size_t first, n, cap;
    uint64_t number; /* of the first */
    struct timer watch;
    uint64_t last_read_ms, asked_ms;
    uint64_t busy_ms;   /* since when there has been something to wait for */
    size_t n_forgotten; /* of the slots */
    bool is_suspect;
    char run[REDIS_SHA_HEX];
};

/* ---- its end ---- */

static void free_link(struct redis_link *l)
{
    struct redis *r = l->redis;
    resp_free(l->resp);
    free(l->slots);
    free(l);
    r->n_links--;
    redis_check_stopped(r);
}

static void stop_expecting(struct redis_link *l)
{
    for (size_t i = 0; i < l->n; i++)
        l->redis->pending -= l->slots[(l->first + i) % l->cap].bytes;
    l->n = 0;
}

void redis_link_close(struct redis_link *l)
{
    if (l == NULL || l->state == LINK_OVER)
        return;
    bool is_dialing = l->state == LINK_DIALING;
    l->state = LINK_OVER;
    timer_stop(&l->watch);
    stop_expecting(l);
    if (is_dialing)
        dial_cancel(l->dial);
    else
        conn_close(&l->conn);
}

void redis_link_fail(struct redis_link *l, const char *why)
{
    if (l->state == LINK_OVER)
        return;
    redis_link_close(l);
    l->ops->down(l->ctx, why);
}

/* ---- commands and replies ---- */

static uint64_t expect(struct redis_link *l, void *tag, enum step step)
{
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 64 : l->cap * 2;
        struct slot *slots = mem_alloc(cap * sizeof *slots);
        for (size_t i = 0; i < l->n; i++)
            slots[i] = l->slots[(l->first + i) % l->cap];
        free(l->slots);
        l->slots = slots;
        l->cap = cap;
        l->first = 0;
    }
    if (l->n == 0)
        l->busy_ms = redis_now_ms(l->redis);
    l->slots[(l->first + l->n) % l->cap] = (struct slot){.tag = tag, .step = step};
    return l->number + l->n++;
}

uint64_t redis_link_put(struct redis_link *l, struct block *command, void *tag)
{
    conn_put_take(&l->conn, command);
    return l->purpose == REDIS_MESSAGES ? 0 : expect(l, tag, STEP_NONE);
}

void redis_link_forget(struct redis_link *l, uint64_t number, size_t bytes)
{
    must(number >= l->number && number < l->number + l->n);
    struct slot *s = &l->slots[(l->first + (number - l->number)) % l->cap];
    s->tag = NULL;
    s->bytes = bytes;
    l->n_forgotten++;
    l->redis->pending += bytes;
}

size_t redis_link_waiting(const struct redis_link *l)
{
    return l->n;
}

/* How long nothing has been heard of what is waited for. */
static uint64_t silence_ms(const struct redis_link *l)
{
    uint64_t since = l->last_read_ms > l->busy_ms ? l->last_read_ms : l->busy_ms;
    return l->n > 0 ? redis_now_ms(l->redis) - since : 0;
}

void redis_link_suspect(struct redis_link *l)
{
    uint64_t ms = silence_ms(l);
    if (ms >= SILENCE_MS) {
        redis_link_fail(l, "does not answer");
        return;
    }
    l->is_suspect = true;
    sched_start(&l->redis->loop->sched, &l->watch, SILENCE_MS - ms);
}

struct str redis_link_run(const struct redis_link *l)
{
    return str_of(l->run, sizeof l->run);
}

/* ---- the introduction ---- */

static void redis_link_say(struct redis_link *l, const struct str *words, size_t n, enum step step)
{
    conn_put_take(&l->conn, resp_encode(words, n, NULL, 0));
    if (step != STEP_PING || l->purpose != REDIS_MESSAGES)
        expect(l, NULL, step);
}
#define SAY(l, step, ...)                                                                          \
    redis_link_say((l), (const struct str[]){__VA_ARGS__},                                         \
                   sizeof((const struct str[]){__VA_ARGS__}) / sizeof(struct str), (step))

static void get_to_know(struct redis_link *l)
{
    const struct redis *r = l->redis;
    const struct redis_url *u = r->url;
    if (l->purpose == REDIS_CALLS) {
        char db[16];
        snprintf(db, sizeof db, "%u", (unsigned)u->db);
        if (u->db != 0)
            SAY(l, STEP_SELECT, STR("SELECT"), str_of_cstr(db));
        SAY(l, STEP_SERVER, STR("INFO"), STR("server"));
        SAY(l, STEP_ROLE, STR("INFO"), STR("replication"));
        for (size_t i = 0; i < r->setup.n_scripts; i++)
            SAY(l, STEP_SCRIPT, STR("SCRIPT"), STR("LOAD"), r->setup.scripts[i]->text);
    }
    SAY(l, STEP_HELLO, STR("PING"));
}

/* Who has not been let in yet may not say much: Redis would hang up on the scripts before it says
 * what is wrong with the password. */
static void introduce(struct redis_link *l)
{
    const struct redis_url *u = l->redis->url;
    if (u->password.p == NULL)
        get_to_know(l);
    else if (u->user.p != NULL)
        SAY(l, STEP_AUTH, STR("AUTH"), u->user, u->password);
    else
        SAY(l, STEP_AUTH, STR("AUTH"), u->password);
}

/* The value of `name:value` in what INFO says. */
static struct str info_value(struct str info, struct str name)
{
    while (info.p != NULL) {
        struct str value = str_cut(&info, '\n'), key = str_cut(&value, ':');
        if (str_eq(key, name) && value.n > 0 && value.p[value.n - 1] == '\r')
            return str_of(value.p, value.n - 1);
    }
    return STR_NONE;
}

static void fail_with(struct redis_link *l, const char *what, const struct redisReply *reply)
{
    char why[REDIS_WHY_MAX];
    struct str text = resp_text(reply);
    snprintf(why, sizeof why, "%s: %.*s", what, (int)(text.n < 160 ? text.n : 160),
             text.n > 0 ? text.p : "an answer that makes no sense");
    redis_link_fail(l, why);
}

static void take_server(struct redis_link *l, const struct redisReply *reply)
{
    struct str run = info_value(resp_text(reply), STR("run_id"));
    if (run.n != sizeof l->run)
        fail_with(l, "does not say who it is", reply);
    else
        memcpy(l->run, run.p, run.n);
}

static void take_role(struct redis_link *l, const struct redisReply *reply)
{
    struct str role = info_value(resp_text(reply), STR("role"));
    /* A cluster's own words tell where to go; a replica in it may be about to take over. */
    if (l->redis->cluster == NULL && !str_eq(role, STR("master")))
        redis_link_fail(l, "is a replica, which takes no writes");
}

static void get_ready(struct redis_link *l)
{
    l->state = LINK_READY;
    sched_start(&l->redis->loop->sched, &l->watch, IDLE_MS);
    l->ops->ready(l->ctx);
}

static void take_step(struct redis_link *l, enum step step, const struct redisReply *reply)
{
    bool failed = reply->type == REDIS_REPLY_ERROR;
    switch (step) {
    case STEP_AUTH:
        /* Sentinels often have no password where the servers have one; what they say next tells. */
        if (failed && (l->purpose == REDIS_CALLS || l->redis->sentinel == NULL))
            fail_with(l, "refuses the credentials", reply);
        else
            get_to_know(l);
        break;
    case STEP_SELECT:
        if (failed)
            fail_with(l, "refuses the database", reply);
        break;
    case STEP_SERVER: take_server(l, reply); break;
    case STEP_ROLE: take_role(l, reply); break;
    case STEP_HELLO:
        if (failed)
            fail_with(l, "is not ready", reply);
        else
            get_ready(l);
        break;
    case STEP_SCRIPT: /* one that could not be loaded is sent whole when it is called */
    case STEP_PING:
    case STEP_NONE: break;
    }
}

static void take_reply(struct redis_link *l, const struct redisReply *reply)
{
    if (l->state == LINK_READY && l->purpose == REDIS_MESSAGES) {
        l->ops->reply(l->ctx, NULL, reply);
        return;
    }
    if (l->n == 0) {
        redis_link_fail(l, "answers what nobody asked");
        return;
    }
    struct slot s = l->slots[l->first];
    l->first = (l->first + 1) % l->cap;
    l->n--;
    l->number++;
    l->redis->pending -= s.bytes;
    if (s.step != STEP_NONE) {
        take_step(l, s.step, reply);
    } else {
        l->n_forgotten -= s.tag == NULL;
        l->ops->reply(l->ctx, s.tag, reply);
    }
}

/* ---- the connection ---- */

static struct redis_link *link_of(struct conn *c)
{
    return container_of(c, struct redis_link, conn);
}

static void fail_conn(struct redis_link *l, const char *why)
{
    char text[REDIS_WHY_MAX];
    const char *tls = conn_tls_why(&l->conn);
    if (tls != NULL)
        snprintf(text, sizeof text, "TLS failed: %s", tls);
    redis_link_fail(l, tls != NULL ? text : why);
}

static void redis_link_on_readable(struct conn *c)
{
    struct redis_link *l = link_of(c);
    char *into = l->redis->loop->scratch;
    ssize_t n = conn_read(c, into, LOOP_SCRATCH);
    if (n == CONN_AGAIN)
        return;
    if (n <= 0) {
        fail_conn(l, n == 0 ? "closed the connection" : "broke the connection");
        return;
    }
    l->last_read_ms = redis_now_ms(l->redis);
    const struct redisReply *reply;
    int got = resp_feed(l->resp, str_of(into, (size_t)n));
    while (got >= 0 && l->state != LINK_OVER && (got = resp_next(l->resp, &reply)) == 1)
        take_reply(l, reply);
    if (got < 0)
        redis_link_fail(l, resp_why(l->resp));
}

static void redis_link_on_drained(struct conn *c)
{
}

static void redis_link_on_stalled(struct conn *c)
{
}

static void redis_link_on_failed(struct conn *c)
{
    fail_conn(link_of(c), "broke the connection");
}

static void redis_link_on_closed(struct conn *c)
{
    free_link(link_of(c));
}

static const struct conn_ops conn_ops = {redis_link_on_readable, redis_link_on_drained,
                                         redis_link_on_stalled, redis_link_on_failed,
                                         redis_link_on_closed};

/* What is trusted is read when it is first needed, and again until it can be. */
static int start_tls(struct redis_link *l, char *why, size_t size)
{
    struct redis *r = l->redis;
    struct str ca = redis_url_setting(r->url, STR("ca")); /* ends with a NUL */
    if (r->tls == NULL)
        r->tls = tls_new_client(ca.p, NULL, why, size);
    if (r->tls == NULL)
        return ERR_SYNTAX;
    snprintf(why, size, "TLS cannot be set up");
    return conn_start_tls_to(&l->conn, r->tls, l->addr.host);
}

static void redis_link_on_connected(void *ctx, int fd, const char *why)
{
    struct redis_link *l = ctx;
    l->dial = NULL;
    if (fd >= 0 && conn_init(&l->conn, l->redis->loop, fd, &conn_ops) != 0) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        if (l->state != LINK_OVER)
            l->ops->down(l->ctx, why);
        free_link(l);
        return;
    }
    char text[REDIS_WHY_MAX];
    l->state = LINK_GREETING;
    if (l->redis->url->tls && start_tls(l, text, sizeof text) != 0) {
        redis_link_fail(l, text);
        return;
    }
    conn_want_read(&l->conn, true);
    sched_start(&l->redis->loop->sched, &l->watch, HELLO_MS);
    introduce(l);
}

/* ---- whether it is still there ---- */

static void redis_link_on_watch(struct timer *t)
{
    struct redis_link *l = container_of(t, struct redis_link, watch);
    uint64_t now = redis_now_ms(l->redis), silent_ms = now - l->last_read_ms;
    if (l->state != LINK_READY || (l->is_suspect && silence_ms(l) >= SILENCE_MS)) {
        redis_link_fail(l, "does not answer");
        return;
    }
    l->is_suspect = false;
    bool asked = l->asked_ms > l->last_read_ms;
    bool is_mute = l->purpose == REDIS_QUESTIONS && l->n > 0 && silent_ms >= IDLE_MS;
    if ((asked && now - l->asked_ms >= PING_MS) || is_mute) {
        redis_link_fail(l, "does not answer any more");
        return;
    }
    /* Where calls wait, it is their patience that counts. */
    if (!asked && silent_ms >= IDLE_MS &&
        (l->n == l->n_forgotten || l->purpose == REDIS_MESSAGES)) {
        SAY(l, STEP_PING, STR("PING"));
        l->asked_ms = now;
    }
    sched_start(&l->redis->loop->sched, &l->watch,
                silent_ms < IDLE_MS ? IDLE_MS - silent_ms : PING_MS);
}

struct redis_link *redis_link_open(struct redis *r, const struct redis_addr *addr,
                                   enum redis_purpose purpose, const struct redis_link_ops *ops,
                                   void *ctx)
{
    struct redis_link *l = mem_zalloc(sizeof *l);
    l->redis = r;
    l->purpose = purpose;
    l->ops = ops;
    l->ctx = ctx;
    l->addr = *addr;
    l->resp = resp_new(REPLY_MAX);
    timer_init(&l->watch, redis_link_on_watch);
    r->n_links++;
    l->dial = dial_new(r->loop, addr->host, addr->port, CONNECT_MS, redis_link_on_connected, l);
    return l;
}
