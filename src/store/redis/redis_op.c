// SPDX-License-Identifier: Apache-2.0
/* redis_op.c -- calls on their way: sent, sent again, waited for; and what comes back. */
#include "base/err.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/redis/redis_store_core.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRY_MS        50
#define HOPS_MAX        3
#define HEED_MS         120000 /* longer than Redis has anything on its way */
#define WAIT_TIMEOUT_MS "500"  /* others wait behind it, and longer silence looks like death */

/* Writes of one tag: Redis remembers the last ones of a process. So no more may be under way, and
 * while one is in doubt none may be added: it is to be asked about before it is forgotten. */
struct tag_writes {
    size_t n; /* under way */
    size_t n_doubtful;
    struct link waiting;
    size_t tag_n;
    char tag[];
};

static struct tag_writes *tag_writes_of(struct redis_store *rs, struct str tag)
{
    struct tag_writes *g = map_get(&rs->tag_writes, tag);
    if (g != NULL)
        return g;
    g = mem_zalloc(sizeof *g + tag.n);
    list_init(&g->waiting);
    g->tag_n = tag.n;
    memcpy(g->tag, tag.p, tag.n);
    map_put(&rs->tag_writes, str_of(g->tag, g->tag_n), g);
    return g;
}

static void pass_on(struct rop *r);

static bool tag_writes_have_room(const struct tag_writes *g)
{
    return g->n < REDIS_TAG_WRITES && g->n_doubtful == 0;
}

static void tag_writes_add(struct tag_writes *g, const struct rop *r)
{
    g->n++;
    g->n_doubtful += r->doubtful;
}

/* True: it may go. Otherwise it goes when its turn has come. */
static bool tag_writes_enter(struct rop *r)
{
    if (r->tag.p == NULL)
        return true;
    r->writes = tag_writes_of(r->rs, r->tag);
    if (!tag_writes_have_room(r->writes)) {
        list_push(&r->writes->waiting, &r->tag_link);
        return false;
    }
    tag_writes_add(r->writes, r);
    return true;
}

static void doubt(struct rop *r)
{
    r->writes->n_doubtful += !r->doubtful;
    r->doubtful = true;
}

static void tag_writes_leave(struct rop *r)
{
    struct tag_writes *g = r->writes;
    struct redis_store *rs = r->rs;
    if (g == NULL)
        return;
    r->writes = NULL;
    g->n--;
    g->n_doubtful -= r->doubtful;
    while (!list_empty(&g->waiting) && tag_writes_have_room(g)) {
        struct rop *next = list_item(g->waiting.next, struct rop, tag_link);
        list_remove(&next->tag_link);
        tag_writes_add(g, next);
        pass_on(next);
    }
    if (g->n == 0) {
        map_remove(&rs->tag_writes, str_of(g->tag, g->tag_n));
        free(g);
    }
}

/* Also from callbacks of a loop that has slept: their turn has yet to come. */
static uint64_t redis_op_now_ms(const struct redis_store *rs)
{
    const struct sched *s = &rs->loop->sched;
    uint64_t awake_ms = s->awake_ms(s);
    return awake_ms > s->now_ms ? awake_ms : s->now_ms;
}

static void redis_op_on_disconnected(void *ctx)
{
    struct redis_store *rs = ctx;
    if (rs->asked != rs->redis)
        redis_stop(rs->asked, rs->stopped, rs->stopped_ctx);
    else
        rs->stopped(rs->stopped_ctx);
}

void rstore_disconnect(struct redis_store *rs)
{
    redis_stop(rs->redis, redis_op_on_disconnected, rs);
}

/* What a write met counts until one is taken: see rstore_probe. */
static void note_write(struct redis_store *rs, const struct rop *r, int err)
{
    if (err != 0 && err != ERR_AWAY && err != ERR_FULL && err != ERR_IO)
        return;
    rs->refusal = err;
    snprintf(rs->refusal_why, sizeof rs->refusal_why, "%s", r->said);
}

static void redis_op_end(struct rop *r, int err)
{
    struct redis_store *rs = r->rs;
    tag_writes_leave(r);
    if (r->doubtful && err != 0)
        rs->heeds_own_ms = redis_op_now_ms(rs) + HEED_MS;
    store_count(&rs->store, err);
    if (r->tag.p != NULL)
        note_write(rs, r, err);
    r->finish(r, err);
    rop_free(r);
    rs->n_ops--;
    if (rs->n_ops == 0 && rs->stopping)
        rstore_disconnect(rs);
}

/* ---- what Redis says of itself ---- */

static int redis_op_error_of(const char *text)
{
    static const struct {
        const char *begins;
        int err;
    } rows[] = {{"OOM", ERR_FULL},         {"MISCONF", ERR_IO},      {"READONLY", ERR_AWAY},
                {"NOREPLICAS", ERR_AWAY},  {"MASTERDOWN", ERR_AWAY}, {"BUSY", ERR_BUSY},
                {"CLUSTERDOWN", ERR_AWAY}, {"LOADING", ERR_AWAY},    {"TRYAGAIN", ERR_AWAY}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(text, rows[i].begins, strlen(rows[i].begins)) == 0)
            return rows[i].err;
    return ERR_IO;
}

/* An error of a command within a script stands behind the script's own words. */
static int reply_error(const struct redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return 0;
    const char *inner = strstr(reply->str, "-OOM");
    return inner != NULL ? ERR_FULL : redis_op_error_of(reply->str);
}

/* ---- sending ---- */

static bool in_time(const struct rop *r)
{
    return redis_op_now_ms(r->rs) < r->deadline_ms && !r->rs->stopping;
}

static void redis_op_retry(struct timer *t)
{
    pass_on(container_of(t, struct rop, retry));
}

/* Whether it was done is not known: Redis is asked, by doing it again under the same number. */
static bool redis_op_try_again(struct rop *r)
{
    if (!r->doubtful || !in_time(r))
        return false;
    sched_start(&r->rs->loop->sched, &r->retry, RETRY_MS);
    return true;
}

/* By its WAIT, which so has waited for less. A WAIT is for all that was done when the command
 * before it on its connection was: asking again is enough. */
static bool was_overtaken(const struct rop *r)
{
    return r->tag.p != NULL && r->rs->wait > 0 && r->sent_err == 0 && r->err == 0 &&
           r->waits_err == 0 && r->call.tries > 0;
}

/* Too much waits for one that is away: that is no overload of ours. */
static int not_answered(int err)
{
    return err == ERR_UPSTREAM || err == ERR_BUSY ? ERR_AWAY : err;
}

static void redis_op_follow(struct rop *r);

static void redis_op_conclude(struct rop *r)
{
    if (r->moves) {
        redis_op_follow(r);
        return;
    }
    if (r->tag.p != NULL && r->sent_err == ERR_UPSTREAM)
        doubt(r);
    if (was_overtaken(r)) {
        pass_on(r);
        return;
    }
    if ((r->sent_err == ERR_UPSTREAM || ERR_IS_PASSING(r->sent_err)) && redis_op_try_again(r))
        return;
    int err = r->sent_err != 0 ? r->sent_err : r->err;
    if (err == 0 && r->waits_err != 0) {
        err = r->waits_err;
        doubt(r); /* it was done, but nobody may rely on it */
    }
    redis_op_end(r, err == ERR_BUSY && redis_is_up(r->rs->redis) ? err : not_answered(err));
}

/* ---- on a cluster: where is it? ---- */

/* That of the stream it is about, also where a script answers for several. */
static struct str status_of(const struct redisReply *reply)
{
    const struct redisReply *first = reply_item(reply, 0);
    return first->type == REDIS_REPLY_ARRAY ? reply_str(first, 0) : reply_str(reply, 0);
}

/* It is to be asked for under another tag. */
static bool is_elsewhere(struct rop *r, const struct redisReply *reply)
{
    struct str status = status_of(reply);
    if (r->name.p == NULL || r->hops >= HOPS_MAX)
        return false;
    if (str_eq(status, STR("MOVED"))) {
        r->family = arena_dup(&r->arena, reply_str(reply, 1));
        r->nonce = arena_dup(&r->arena, reply_str(reply, 2));
        r->is_guess = false;
        redis_family_learn(r->rs, r->name, r->family);
        return true;
    }
    if (r->is_guess && str_eq(status, STR("NOT_FOUND"))) {
        redis_family_forget(r->rs, r->name);
        r->family = STR_NONE;
        r->is_guess = false;
        return true;
    }
    return false;
}

static void redis_op_follow(struct rop *r)
{
    tag_writes_leave(r);
    r->hops++;
    r->moves = false;
    r->fill(r);
    if (tag_writes_enter(r))
        pass_on(r);
}

static void redis_op_on_done(struct redis_call *c, int err, const struct redisReply *reply,
                             struct str run)
{
    struct rop *r = container_of(c, struct rop, call);
    r->sent_err = err;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        snprintf(r->said, sizeof r->said, "%s", reply->str);
    if (err == 0)
        r->err = reply_error(reply);
    r->moves = err == 0 && r->err == 0 && r->rs->cluster && is_elsewhere(r, reply);
    if (err == 0 && r->err == 0 && !r->moves)
        r->err = r->take(r, reply);
    if (--r->n_under_way == 0)
        redis_op_conclude(r);
}

static void redis_op_on_waited(struct redis_call *c, int err, const struct redisReply *reply,
                               struct str run)
{
    struct rop *r = container_of(c, struct rop, waits);
    bool enough = err == 0 && reply->type == REDIS_REPLY_INTEGER && reply->integer >= r->rs->wait;
    r->waits_err = enough ? 0 : ERR_AWAY;
    if (!enough)
        snprintf(r->said, sizeof r->said, "too few replicas have confirmed a write");
    if (--r->n_under_way == 0)
        redis_op_conclude(r);
}

/* Behind the write, on the same connection. */
static void send_wait(struct rop *r)
{
    r->wait_args[0] = STR("WAIT");
    r->wait_args[1] = arena_printf(&r->arena, "%u", r->rs->wait);
    r->wait_args[2] = STR(WAIT_TIMEOUT_MS);
    r->waits = (struct redis_call){.args = r->wait_args,
                                   .n_args = 3,
                                   .key = r->call.key,
                                   .sent = REDIS_ONCE,
                                   .done = redis_op_on_waited};
    r->n_under_way++;
    redis_call(r->rs->redis, &r->waits);
}

static void pass_on(struct rop *r)
{
    uint64_t now = redis_op_now_ms(r->rs);
    r->err = r->waits_err = 0;
    r->said[0] = '\0';
    r->call = (struct redis_call){.script = r->script,
                                  .args = r->args,
                                  .n_args = r->n_args,
                                  .n_keys = r->n_keys,
                                  .key = r->args[r->script == NULL ? 1 : 0],
                                  .sent = r->tag.p == NULL ? REDIS_AGAIN : REDIS_ONCE,
                                  .done = redis_op_on_done};
    r->call.timeout_ms = now < r->deadline_ms ? (uint32_t)(r->deadline_ms - now) : 1;
    r->n_under_way = 1;
    redis_call(r->tag.p == NULL ? r->rs->asked : r->rs->redis, &r->call);
    if (r->tag.p != NULL && r->rs->wait > 0)
        send_wait(r);
}

void rop_send(struct rop *r)
{
    struct redis_store *rs = r->rs;
    rs->n_ops++;
    r->deadline_ms = redis_op_now_ms(rs) + REDIS_TIMEOUT_MS;
    timer_init(&r->retry, redis_op_retry);
    if (r->fill != NULL)
        r->fill(r);
    if (tag_writes_enter(r))
        pass_on(r);
}

/* ---- replies ---- */

const struct redisReply *reply_item(const struct redisReply *array, size_t i)
{
    static const struct redisReply none = {.type = REDIS_REPLY_NIL};
    bool there = array->type == REDIS_REPLY_ARRAY && i < array->elements;
    return there ? array->element[i] : &none;
}

int64_t reply_i64(const struct redisReply *array, size_t i)
{
    const struct redisReply *item = reply_item(array, i);
    return item->type == REDIS_REPLY_INTEGER ? item->integer : 0;
}

uint64_t reply_u64(const struct redisReply *array, size_t i)
{
    int64_t v = reply_i64(array, i);
    return v < 0 ? 0 : (uint64_t)v;
}

struct str reply_str(const struct redisReply *array, size_t i)
{
    const struct redisReply *item = reply_item(array, i);
    return item->type == REDIS_REPLY_STRING ? str_of(item->str, (size_t)item->len) : STR_NONE;
}

/* Scripts call errors by their names. */
int reply_status(struct str status)
{
    for (int err = 0; err > -64; err--)
        if (str_eq(str_of_cstr(err_name(err)), status))
            return err;
    return ERR_IO;
}

bool reply_info(struct arena *a, const struct redisReply *array, struct stream_info *out)
{
    enum {
        LIFE,
        FIRST,
        TAIL,
        FIRST_EVENT,
        EVENTS,
        TYPE,
        TTL,
        EXPIRES,
        KEEP,
        END = KEEP + 3,
        BYTES,
        N
    };
    if (array->type != REDIS_REPLY_ARRAY || array->elements != N)
        return false;
    *out = (struct stream_info){
        .life = reply_u64(array, LIFE),
        .first = reply_u64(array, FIRST),
        .tail = reply_u64(array, TAIL),
        .first_event = reply_u64(array, FIRST_EVENT),
        .events = reply_u64(array, EVENTS),
        .bytes = reply_u64(array, BYTES),
        .content_type = arena_dup(a, reply_str(array, TYPE)),
        .ttl_s = reply_i64(array, TTL),
        .expires_ms = reply_i64(array, EXPIRES),
        .retain = {reply_u64(array, KEEP), reply_u64(array, KEEP + 1), reply_u64(array, KEEP + 2)}};
    uint64_t reason = reply_u64(array, END);
    out->end = reason <= END_EXPIRED ? (enum end_reason)reason : END_FAILED;
    return true;
}

int reply_write(struct rop *r, const struct redisReply *reply, struct store_write *w)
{
    enum { STATUS, EPOCH, SEQ, EXPECTED, CREATED, TAIL, EVENTS, INFO };
    struct str status = reply_str(reply, STATUS);
    if (reply_i64(reply, EPOCH) >= 0)
        w->producer = (struct producer_state){reply_u64(reply, EPOCH), reply_u64(reply, SEQ)};
    w->expected_seq = reply_u64(reply, EXPECTED);
    w->created = reply_u64(reply, CREATED) == 1;
    w->duplicate = str_eq(status, STR("DUPLICATE"));
    reply_info(&r->arena, reply_item(reply, INFO), &w->info);
    w->info.tail = reply_u64(reply, TAIL);
    w->info.events = reply_u64(reply, EVENTS);
    if (w->duplicate || str_eq(status, STR("SAME")))
        return 0;
    return str_eq(status, STR("BAD_DATA")) ? w->data_err : reply_status(status);
}
