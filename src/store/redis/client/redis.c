// SPDX-License-Identifier: Apache-2.0
#include "store/redis/client/redis.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"
#include "base/rand.h"
#include "net/loop.h"
#include "store/redis/client/redis_core.h"
#include "store/redis/client/resp.h"
#include "net/tls.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define PAUSE_FIRST_MS 50
#define PAUSE_MOST_MS  2000
#define LATER_MS       50 /* before a call is tried again that somebody asked us to try again */
#define TRIES_MAX      1000

uint64_t redis_now_ms(const struct redis *r)
{
    uint64_t turn = r->loop->sched.now_ms, awake = uv_now(&r->loop->uv);
    return awake > turn ? awake : turn;
}

uint32_t redis_pause_next(struct redis_pause *p)
{
    uint32_t ms = p->ms == 0 ? PAUSE_FIRST_MS : p->ms * 2;
    p->ms = ms < PAUSE_MOST_MS ? ms : PAUSE_MOST_MS;
    return p->ms / 2 + (uint32_t)(rand_u64() % (p->ms / 2 + 1));
}

void redis_addr_format(const struct redis_addr *p, char out[REDIS_ADDR_TEXT])
{
    bool is_v6 = strchr(p->host, ':') != NULL;
    if (p->port == 0)
        snprintf(out, REDIS_ADDR_TEXT, "%s", p->host);
    else
        snprintf(out, REDIS_ADDR_TEXT, is_v6 ? "[%s]:%u" : "%s:%u", p->host, (unsigned)p->port);
}

bool redis_addr_eq(const struct redis_addr *a, const struct redis_addr *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* ---- what is sent ---- */

/* The script's words before its keys: EVALSHA sha n, or EVAL text n. */
struct head {
    struct str words[3];
    size_t n;
    char n_keys[NUM_TEXT_MAX];
};

static struct str sha_of(const struct redis *r, const struct redis_script *script)
{
    for (size_t i = 0; i < r->setup.n_scripts; i++)
        if (r->setup.scripts[i] == script)
            return str_of(r->shas[i], REDIS_SHA_HEX);
    assert(!"a script of the setup's");
    return STR_NONE;
}

static void make_head(const struct redis *r, const struct redis_call *c, struct head *h)
{
    h->n = 0;
    if (c->script == NULL)
        return;
    h->words[0] = c->is_whole ? STR("EVAL") : STR("EVALSHA");
    h->words[1] = c->is_whole ? c->script->text : sha_of(r, c->script);
    h->words[2] = str_of(h->n_keys, num_format(c->n_keys, h->n_keys));
    h->n = 3;
}

struct block *redis_encode(const struct redis *r, const struct redis_call *c)
{
    struct head h;
    make_head(r, c, &h);
    return resp_encode(h.words, h.n, c->args, c->n_args);
}

static size_t redis_size_of(const struct redis *r, const struct redis_call *c)
{
    struct head h;
    make_head(r, c, &h);
    return resp_size(h.words, h.n, c->args, c->n_args);
}

/* Of a call that is not done now: it may have been when it was sent before. */
static int refusal(const struct redis_call *c, int err)
{
    return c->maybe_done ? ERR_UPSTREAM : err;
}

/* ---- deadlines ---- */

static void redis_arm(struct redis *r)
{
    if (list_empty(&r->deadlines) || timer_running(&r->alarm))
        return;
    uint64_t due = list_item(r->deadlines.next, struct redis_call, deadline)->deadline_ms;
    uint64_t now = redis_now_ms(r);
    sched_start(&r->loop->sched, &r->alarm, due > now ? due - now : 0);
}

/* Sorted; most calls have the same patience, and find their place at the end at once. */
static void add_deadline(struct redis *r, struct redis_call *c)
{
    struct link *before = r->deadlines.prev;
    while (before != &r->deadlines &&
           list_item(before, struct redis_call, deadline)->deadline_ms > c->deadline_ms)
        before = before->prev;
    list_push(before->next, &c->deadline);
    if (r->deadlines.next == &c->deadline)
        timer_stop(&r->alarm);
    redis_arm(r);
}

/* A server that is silent is taken for dead, and with it what else was sent there. */
static void expire(struct redis *r, struct redis_call *c)
{
    struct redis_node *n = c->node;
    bool was_sent = c->state == REDIS_SENT;
    if (was_sent)
        redis_node_forget(n, c);
    redis_end(r, c, was_sent ? ERR_UPSTREAM : refusal(c, ERR_AWAY), NULL, STR_NONE);
    if (was_sent && redis_node_is_up(n))
        redis_link_suspect(n->link);
}

static void redis_on_alarm(struct timer *t)
{
    struct redis *r = container_of(t, struct redis, alarm);
    uint64_t now = redis_now_ms(r);
    while (!list_empty(&r->deadlines)) {
        struct redis_call *c = list_item(r->deadlines.next, struct redis_call, deadline);
        if (c->deadline_ms > now)
            break;
        expire(r, c);
    }
    redis_arm(r);
}

/* ---- a call ---- */

void redis_end(struct redis *r, struct redis_call *c, int err, const struct redisReply *reply,
               struct str run)
{
    list_remove(&c->deadline);
    list_remove(&c->link);
    r->pending -= c->bytes;
    r->n_calls--;
    c->done(c, err, reply, run);
    redis_check_stopped(r);
}

/* More than could ever be waiting: there is no use in trying it again. */
static bool is_too_large(const struct redis *r, size_t bytes)
{
    return bytes > RESP_COMMAND_MAX || bytes > r->setup.pending_max;
}

static void redis_refuse(struct task *t)
{
    struct redis_call *c = container_of(t, struct redis_call, task);
    struct redis *r = c->redis;
    int err = r->stage != REDIS_RUNNING              ? ERR_AWAY
              : is_too_large(r, redis_size_of(r, c)) ? ERR_TOO_LARGE
                                                     : ERR_BUSY;
    redis_end(r, c, err, NULL, STR_NONE);
}

static void park(struct redis *r, struct redis_call *c)
{
    c->node = NULL;
    c->state = REDIS_WAITING;
    list_push(&r->parked, &c->link);
}

/* Of those parked. */
static void try_later(struct redis *r)
{
    if (!timer_running(&r->later))
        sched_start(&r->loop->sched, &r->later, LATER_MS);
}

static struct redis_node *only_node(const struct redis *r)
{
    return list_item(r->nodes.next, struct redis_node, in);
}

void redis_dispatch(struct redis *r, struct redis_call *c)
{
    struct redis_node *n =
        r->cluster == NULL ? only_node(r) : redis_cluster_node(r->cluster, c->key);
    if (n != NULL)
        redis_node_take(n, c, false);
    else
        park(r, c);
}

void redis_dispatch_parked(struct redis *r)
{
    struct link parked;
    list_init(&parked);
    list_splice(&parked, &r->parked);
    while (!list_empty(&parked)) {
        struct redis_call *c = list_item(parked.next, struct redis_call, link);
        list_remove(&c->link);
        redis_dispatch(r, c);
    }
}

static void redis_on_later(struct timer *t)
{
    redis_dispatch_parked(container_of(t, struct redis, later));
}

void redis_call(struct redis *r, struct redis_call *c)
{
    uint32_t timeout_ms = c->timeout_ms != 0 ? c->timeout_ms : r->setup.timeout_ms;
    c->redis = r;
    c->node = NULL;
    c->tries = 0;
    c->maybe_done = c->is_whole = false;
    list_init(&c->link);
    list_init(&c->deadline);
    task_init(&c->task, redis_refuse);
    c->state = REDIS_WAITING;
    c->bytes = redis_size_of(r, c);
    c->deadline_ms = redis_now_ms(r) + timeout_ms;
    r->n_calls++;
    if (r->stage != REDIS_RUNNING || is_too_large(r, c->bytes) ||
        r->pending > r->setup.pending_max || c->bytes > r->setup.pending_max - r->pending) {
        c->bytes = 0;
        sched_post(&r->loop->sched, &c->task);
        return;
    }
    r->pending += c->bytes;
    add_deadline(r, c);
    redis_dispatch(r, c);
}

/* ---- what an error means ---- */

enum meaning {
    FOR_CALLER,
    SEND_WHOLE, /* the script is not known there any more */
    UNFIT,      /* the server takes no calls at present, and this one has not been done */
    TRY_LATER,  /* nor has this */
    MOVED_AWAY,
    ASK_THERE,
    IS_FULL,
    NOT_TAKEN, /* and will not be for a while */
};

struct rule {
    struct str word;
    enum meaning meaning;
    bool in_cluster; /* only there; others have to be told */
    const char *why; /* of UNFIT */
};
static const struct rule rules[] = {
    {STR_INIT("NOSCRIPT"), SEND_WHOLE, false, NULL},
    {STR_INIT("LOADING"), UNFIT, false, "is loading its data"},
    {STR_INIT("READONLY"), UNFIT, false, "is a replica, which takes no writes"},
    {STR_INIT("MASTERDOWN"), UNFIT, false, "is a replica without its primary"},
    {STR_INIT("NOAUTH"), UNFIT, false, "wants credentials"},
    {STR_INIT("BUSY"), TRY_LATER, false, NULL},
    {STR_INIT("TRYAGAIN"), TRY_LATER, true, NULL},
    {STR_INIT("CLUSTERDOWN"), TRY_LATER, true, NULL},
    {STR_INIT("MOVED"), MOVED_AWAY, true, NULL},
    {STR_INIT("ASK"), ASK_THERE, true, NULL},
    {STR_INIT("OOM"), IS_FULL, false, NULL},
    {STR_INIT("NOREPLICAS"), NOT_TAKEN, false, NULL},
    {STR_INIT("MISCONF"), NOT_TAKEN, false, NULL},
};

static const struct rule for_caller = {STR_INIT(""), FOR_CALLER, false, NULL};

static const struct rule *rule_of(const struct redisReply *reply, bool is_cluster)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return &for_caller;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (resp_is_error(reply, rules[i].word) && (is_cluster || !rules[i].in_cluster))
            return &rules[i];
    return &for_caller;
}

static void redirect(struct redis_node *n, struct redis_call *c, const struct redisReply *reply,
                     bool asking)
{
    struct redis *r = n->redis;
    struct redis_node *there = redis_cluster_redirect(r->cluster, n, resp_text(reply));
    if (there != NULL) {
        redis_node_take(there, c, asking);
        return;
    }
    park(r, c);
    try_later(r);
}

static void send_whole(struct redis_node *n, struct redis_call *c)
{
    c->is_whole = true;
    c->bytes += c->script->text.n;
    n->redis->pending += c->script->text.n;
    redis_node_take(n, c, false);
}

void redis_take_reply(struct redis_node *n, struct redis_call *c, const struct redisReply *reply)
{
    struct redis *r = n->redis;
    const struct rule *rule = rule_of(reply, r->cluster != NULL);
    struct str run = redis_link_run(n->link);
    enum meaning m = rule->meaning;
    if (m != FOR_CALLER && m != IS_FULL && ++c->tries > TRIES_MAX)
        m = NOT_TAKEN;
    switch (m) {
    case FOR_CALLER: redis_end(r, c, 0, reply, run); break;
    case SEND_WHOLE:
        /* With EVAL there is nothing to be unknown: this is the script's own error. */
        if (c->script == NULL || c->is_whole) {
            redis_end(r, c, 0, reply, run);
            break;
        }
        send_whole(n, c);
        break;
    case UNFIT:
        c->state = REDIS_WAITING;
        list_push(&n->waiting, &c->link);
        redis_node_retire(n, rule->why);
        break;
    case TRY_LATER:
        park(r, c);
        if (r->cluster != NULL)
            redis_cluster_refresh(r->cluster);
        try_later(r);
        break;
    case MOVED_AWAY:
    case ASK_THERE: redirect(n, c, reply, m == ASK_THERE); break;
    case IS_FULL: redis_end(r, c, refusal(c, ERR_FULL), reply, run); break;
    case NOT_TAKEN: redis_end(r, c, refusal(c, ERR_AWAY), reply, run); break;
    }
}

/* ---- the whole ---- */

static void sha1_hex(struct str text, char out[REDIS_SHA_HEX])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    must(EVP_Digest(text.p, text.n, sum, &n, EVP_sha1(), NULL) == 1 && n * 2 == REDIS_SHA_HEX);
    hex_encode(sum, n, out);
}

void redis_note(struct redis *r, bool up, const char *subject, const char *why)
{
    enum redis_health health = up ? REDIS_UP : REDIS_DOWN;
    if (r->stage != REDIS_RUNNING || r->health == health)
        return;
    char text[REDIS_ADDR_TEXT + REDIS_WHY_MAX];
    r->health = health;
    snprintf(text, sizeof text, "%s %s", subject, why);
    if (r->setup.changed != NULL)
        r->setup.changed(r->setup.ctx, up, up ? STR("connected") : str_of_cstr(text));
}

bool redis_is_up(const struct redis *r)
{
    return r->health == REDIS_UP;
}

static void redis_notify_stopped(struct task *t)
{
    struct redis *r = container_of(t, struct redis, done);
    if (r->n_calls == 0) /* or one came in the same turn, and its end comes back here */
        r->stopped(r->stopped_ctx);
}

void redis_check_stopped(struct redis *r)
{
    if (r->stage == REDIS_STOPPED && r->n_calls == 0 && r->n_links == 0)
        sched_post(&r->loop->sched, &r->done);
}

/* Apart from redis_stop, which may be called by those whom the nodes are just calling. */
static void redis_on_stop(struct task *t)
{
    struct redis *r = container_of(t, struct redis, stop);
    timer_stop(&r->alarm);
    timer_stop(&r->later);
    redis_sentinel_free(r->sentinel);
    while (!list_empty(&r->nodes))
        redis_node_free(only_node(r));
    redis_cluster_free(r->cluster);
    while (!list_empty(&r->deadlines)) {
        struct redis_call *c = list_item(r->deadlines.next, struct redis_call, deadline);
        redis_end(r, c, refusal(c, ERR_AWAY), NULL, STR_NONE);
    }
    r->stage = REDIS_STOPPED;
    redis_check_stopped(r);
}

struct redis *redis_new(const struct redis_setup *setup)
{
    struct redis *r = mem_zalloc(sizeof *r);
    r->setup = *setup;
    r->loop = setup->loop;
    r->url = setup->url;
    r->shas = mem_zalloc((setup->n_scripts + 1) * sizeof *r->shas);
    for (size_t i = 0; i < setup->n_scripts; i++)
        sha1_hex(setup->scripts[i]->text, r->shas[i]);
    list_init(&r->nodes);
    list_init(&r->deadlines);
    list_init(&r->parked);
    timer_init(&r->alarm, redis_on_alarm);
    timer_init(&r->later, redis_on_later);
    task_init(&r->stop, redis_on_stop);
    task_init(&r->done, redis_notify_stopped);
    map_init(&r->channels);
    if (r->url->kind == REDIS_CLUSTER) {
        r->cluster = redis_cluster_new(r);
    } else if (r->url->kind == REDIS_SENTINEL) {
        redis_node_new(r, NULL);
        r->sentinel = redis_sentinel_new(r);
    } else {
        redis_node_connect(redis_node_new(r, &r->url->addrs[0]));
    }
    return r;
}

void redis_stop(struct redis *r, void (*stopped)(void *ctx), void *ctx)
{
    r->stage = REDIS_STOPPING;
    r->stopped = stopped;
    r->stopped_ctx = ctx;
    sched_post(&r->loop->sched, &r->stop);
}

void redis_free(struct redis *r)
{
    must(r->n_calls == 0 && r->n_links == 0);
    redis_pubsub_drop_all(r);
    map_deinit(&r->channels);
    tls_unref(r->tls);
    free(r->shas);
    free(r);
}
