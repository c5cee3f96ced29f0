// SPDX-License-Identifier: Apache-2.0
/* session_bench.h -- what tests of the session engine stand on: clients that speak and read the
 * wire by themselves, check numbers and MACs of all events, and write down what they are told; and
 * a front to a store that refuses and holds as told. To be included after cmocka.h. */
#ifndef UNIT_SESSION_BENCH_H
#define UNIT_SESSION_BENCH_H

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/sessions/session.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- the wire ---- */

static inline void wire_put_number(struct buf *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_putc(out, (char)(v | 0x80));
    buf_putc(out, (char)v);
}

static inline void wire_put_bytes(struct buf *out, uint32_t field, struct str bytes)
{
    wire_put_number(out, (uint64_t)field << 3 | 2);
    wire_put_number(out, bytes.n);
    buf_put(out, bytes);
}

struct wire_field {
    uint32_t no;
    uint64_t number;
    struct str bytes;
};

static inline uint64_t wire_take_number(struct str *rest)
{
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(rest->n > 0 && shift < 64);
        uint8_t c = (uint8_t)rest->p[0];
        *rest = str_skip(*rest, 1);
        v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return v;
    }
}

static inline bool wire_next(struct str *rest, struct wire_field *out)
{
    if (rest->n == 0)
        return false;
    uint64_t tag = wire_take_number(rest);
    *out = (struct wire_field){.no = (uint32_t)(tag >> 3)};
    if ((tag & 7) == 0) {
        out->number = wire_take_number(rest);
        return true;
    }
    assert_int_equal(tag & 7, 2);
    uint64_t n = wire_take_number(rest);
    assert_true(n <= rest->n);
    out->bytes = str_of(rest->p, n);
    *rest = str_skip(*rest, n);
    return true;
}

/* The last one of that number. Empty: there is none. */
static inline struct wire_field wire_find(struct str message, uint32_t no)
{
    struct wire_field f, found = {0};
    while (wire_next(&message, &f))
        if (f.no == no)
            found = f;
    return found;
}

/* ---- requests ---- */

static inline void request_put_chunk(struct buf *out, enum session_service service, uint32_t seqno,
                                     struct str text)
{
    struct buf conversation = {0}, request = {0}, chunk = {0};
    if (service == SESSION_AISERVER) {
        wire_put_bytes(&conversation, 1, text);
        wire_put_bytes(&request, 1, buf_str(&conversation));
        wire_put_bytes(&chunk, 1, buf_str(&request));
    } else {
        buf_put(&chunk, text);
    }
    wire_put_bytes(out, 1, buf_str(&chunk));
    wire_put_number(out, 5 << 3);
    wire_put_number(out, seqno);
    buf_deinit(&conversation);
    buf_deinit(&request);
    buf_deinit(&chunk);
}

/* ---- clients ---- */

#define CHAT_MAC_FIELD (3 + 1 + SESSION_MAC_SIZE)
#define OWN_MAC_FIELD  (1 + 1 + SESSION_MAC_SIZE)

/* One client and its connection, if it has one. What it knows stays when it disconnects. */
struct visitor {
    struct session_client client;
    struct sessions *const *all; /* they may be others after a restart */
    const char *key;
    uint8_t secret[SESSION_SECRET_SIZE];
    enum session_service service;
    struct session_keys *keys; /* for the chain alone */
    bool here;
    bool idle_hands; /* takes nothing by itself when it is told that there is something */
    bool goes_when_settled;
    /* of this connection */
    bool welcomed, degraded, over;
    unsigned n_ready, n_settled;
    /* of all of them */
    uint64_t seen; /* events */
    uint8_t mac[SESSION_MAC_SIZE];
    struct buf welcome, acks, events; /* "0 1 ", "1=text 2=text " */
    /* May be NULL. */
    void (*acked)(struct visitor *v, uint32_t seqno);
    void (*told)(struct visitor *v, uint64_t id, struct str content, struct str chunk);
    /* What it found to be wrong with an event. NULL: the test fails. */
    void (*wrong)(struct visitor *v, const char *why);
};

static inline void visitor_check(struct visitor *v, bool right, const char *why)
{
    if (!right && v->wrong == NULL)
        fail_msg("%s: %s", v->key, why);
    else if (!right)
        v->wrong(v, why);
}

static inline void visitor_check_mac(struct visitor *v, struct str chunk)
{
    size_t field = v->service == SESSION_AISERVER ? CHAT_MAC_FIELD : OWN_MAC_FIELD;
    uint8_t sent[SESSION_MAC_SIZE];
    assert_true(chunk.n > field);
    assert_int_equal(session_get_mac(chunk, sent), 0);
    session_chain(v->keys, v->mac, str_of(chunk.p, chunk.n - field), v->mac);
    visitor_check(v, memcmp(sent, v->mac, sizeof sent) == 0, "an event's MAC does not fit");
}

static inline void visitor_take_event(struct visitor *v, struct str chunk)
{
    struct str id_text = wire_find(chunk, 7).bytes, content;
    uint64_t id;
    if (v->service == SESSION_AISERVER)
        content = wire_find(wire_find(chunk, 2).bytes, 1).bytes;
    else
        content = wire_find(chunk, 1).bytes;
    assert_int_equal(num_parse_canonical(id_text, UINT64_MAX, &id), 0);
    visitor_check(v, id == v->seen + 1, "an event's number does not follow");
    visitor_check_mac(v, chunk);
    v->seen = id;
    buf_printf(&v->events, "%" PRIu64 "=%.*s ", id, content.n < 100 ? (int)content.n : 100,
               content.n > 0 ? content.p : "");
    if (v->told != NULL)
        v->told(v, id, content, chunk);
}

static inline void visitor_take_message(struct visitor *v, struct str message)
{
    struct wire_field f;
    assert_true(wire_next(&message, &f));
    assert_int_equal(message.n, 0);
    assert_true(f.no == 3 || v->welcomed); /* the welcome goes before all else */
    if (f.no == 3) {
        assert_false(v->welcomed);
        v->welcomed = true;
        v->degraded = wire_find(f.bytes, 2).number != 0;
        v->welcome.n = 0;
        buf_put(&v->welcome, wire_find(f.bytes, 1).bytes);
    } else if (f.no == 4) {
        buf_printf(&v->acks, "%" PRIu64 " ", f.number);
        if (v->acked != NULL)
            v->acked(v, (uint32_t)f.number);
    } else {
        assert_int_equal(f.no, 1);
        visitor_take_event(v, f.bytes);
    }
}

/* One message. False: there is none now. */
static inline bool visitor_take(struct visitor *v)
{
    struct buf message = {0};
    enum session_next next = session_next(&v->client, &message);
    if (next == SESSION_NEXT_MESSAGE)
        visitor_take_message(v, buf_str(&message));
    else
        assert_int_equal(message.n, 0);
    v->over = next == SESSION_NEXT_OVER;
    buf_deinit(&message);
    return next == SESSION_NEXT_MESSAGE;
}

static inline void visitor_ready(struct session_client *c)
{
    struct visitor *v = container_of(c, struct visitor, client);
    v->n_ready++;
    while (!v->idle_hands && v->here && visitor_take(v))
        ;
}

static inline void visitor_disconnect(struct visitor *v)
{
    if (v->here)
        session_disconnect(&v->client);
    v->here = false;
}

static inline void visitor_settled(struct session_client *c)
{
    struct visitor *v = container_of(c, struct visitor, client);
    v->n_settled++;
    if (v->goes_when_settled)
        visitor_disconnect(v);
}

static inline void visitor_init(struct visitor *v, struct sessions *const *all, const char *key,
                                enum session_service service, uint8_t secret)
{
    static const uint8_t no_salt[SESSION_SALT_SIZE];
    *v = (struct visitor){.all = all, .key = key, .service = service};
    memset(v->secret, secret, sizeof v->secret);
    v->keys = session_keys_new(v->secret, no_salt, str_of_cstr(key));
}

static inline void visitor_deinit(struct visitor *v)
{
    visitor_disconnect(v);
    session_keys_free(v->keys);
    buf_deinit(&v->welcome);
    buf_deinit(&v->acks);
    buf_deinit(&v->events);
    *v = (struct visitor){0};
}

static inline void visitor_connect_at(struct visitor *v, uint64_t position)
{
    static const struct session_client_ops client_ops = {.ready = visitor_ready,
                                                         .settled = visitor_settled};
    visitor_disconnect(v);
    v->welcomed = v->degraded = v->over = false;
    v->n_ready = v->n_settled = 0;
    v->client = (struct session_client){.ops = &client_ops};
    v->here = true;
    session_connect(*v->all, &v->client,
                    &(struct session_hello){.key = str_of_cstr(v->key),
                                            .secret = v->secret,
                                            .position = position,
                                            .service = v->service});
}

/* With what it has seen, as the real ones do. */
static inline void visitor_connect(struct visitor *v)
{
    visitor_connect_at(v, v->seen);
}

static inline void visitor_say(struct visitor *v, uint32_t seqno, struct str text)
{
    struct buf request = {0};
    request_put_chunk(&request, v->service, seqno, text);
    session_receive(&v->client, buf_str(&request));
    buf_deinit(&request);
}

static inline void visitor_abort(struct visitor *v)
{
    session_receive(&v->client, STR("\x12\0"));
}

static inline void visitor_close(struct visitor *v)
{
    session_receive(&v->client, STR("\x1a\0"));
}

/* ---- a store that refuses and holds ---- */

struct facade {
    struct store store;
    struct store *inner;
    /* Not 0: the operation is answered with that. verb: "write", "docs" ... May be NULL. */
    int (*judge)(void *ctx, const char *verb, struct str name);
    /* Each write when it comes, and when it is done. May be NULL. */
    void (*asked)(void *ctx, const struct store_write *w);
    void (*written)(void *ctx, const struct store_write *w, int err);
    void *ctx;
    bool hold; /* writes of data */
    bool late; /* writes are done, but who asked for them is not told */
    struct link held, untold;
    unsigned n_writes;
};

static inline struct facade *facade_of(struct store *s)
{
    return container_of(s, struct facade, store);
}

static inline int facade_judge(struct store *s, const char *verb, struct str name)
{
    struct facade *f = facade_of(s);
    return f->judge == NULL ? 0 : f->judge(f->ctx, verb, name);
}

#define FACADE_VERB(verb, member)                                                                  \
    static inline void facade_answer_##verb(struct task *t)                                        \
    {                                                                                              \
        struct store_##verb *op = container_of(t, struct store_##verb, call.task);                 \
        op->done(op, op->call.result);                                                             \
    }                                                                                              \
    static inline void facade_##verb(struct store *s, struct store_##verb *op)                     \
    {                                                                                              \
        op->call.result = facade_judge(s, #verb, member);                                          \
        if (op->call.result == 0) {                                                                \
            store_##verb(facade_of(s)->inner, op);                                                 \
            return;                                                                                \
        }                                                                                          \
        task_init(&op->call.task, facade_answer_##verb);                                           \
        sched_post(s->sched, &op->call.task);                                                      \
    }
FACADE_VERB(remove, op->name)
FACADE_VERB(stat, op->name)
FACADE_VERB(read, op->name)
FACADE_VERB(list, op->prefix)
FACADE_VERB(docs, op->prefix)
FACADE_VERB(put, op->docs[0].key)

struct facade_write {
    struct store_write inner;
    struct store_write *outer;
    struct facade *front;
    struct link link; /* among those held, or untold */
    struct task task; /* answers a refusal */
    int err;
};

static inline void facade_tell(struct facade_write *fw)
{
    struct store_write *outer = fw->outer;
    int err = fw->err;
    list_remove(&fw->link);
    free(fw);
    outer->done(outer, err);
}

static inline void facade_tell_all(struct facade *f)
{
    f->late = false;
    while (!list_empty(&f->untold))
        facade_tell(list_item(f->untold.next, struct facade_write, link));
}

static inline void facade_written(struct store_write *w, int err)
{
    struct facade_write *fw = container_of(w, struct facade_write, inner);
    struct facade *f = fw->front;
    w->done = fw->outer->done;
    *fw->outer = *w;
    fw->err = err;
    if (f->written != NULL)
        f->written(f->ctx, fw->outer, err);
    if (f->late)
        list_push(&f->untold, &fw->link);
    else
        facade_tell(fw);
}

static inline void facade_refuse(struct task *t)
{
    struct facade_write *fw = container_of(t, struct facade_write, task);
    facade_written(&fw->inner, fw->err);
}

static inline void facade_write(struct store *s, struct store_write *w)
{
    struct facade *f = facade_of(s);
    struct facade_write *fw = mem_zalloc(sizeof *fw);
    f->n_writes++;
    *fw = (struct facade_write){.inner = *w, .outer = w, .front = f};
    fw->inner.done = facade_written;
    list_init(&fw->link);
    task_init(&fw->task, facade_refuse);
    if (f->asked != NULL)
        f->asked(f->ctx, w);
    fw->err = facade_judge(s, "write", w->name);
    if (fw->err != 0)
        sched_post(s->sched, &fw->task);
    else if (f->hold && w->data.n > 0)
        list_push(&f->held, &fw->link);
    else
        store_write(f->inner, &fw->inner);
}

/* The one that has been held longest. */
static inline void facade_let_one(struct facade *f)
{
    struct facade_write *fw = list_item(f->held.next, struct facade_write, link);
    assert_false(list_empty(&f->held));
    list_remove(&fw->link);
    store_write(f->inner, &fw->inner);
}

static inline void facade_let_go(struct facade *f)
{
    f->hold = false;
    while (!list_empty(&f->held))
        facade_let_one(f);
}

static inline void facade_watch(struct store *s, struct store_watch *w)
{
    store_watch(facade_of(s)->inner, w);
}

static inline void facade_unwatch(struct store *s, struct store_watch *w)
{
    store_unwatch(facade_of(s)->inner, w);
}

static inline void facade_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    store_stop(facade_of(s)->inner, stopped, ctx);
}

static inline void facade_free(struct store *s)
{
    struct facade *f = facade_of(s);
    assert_true(list_empty(&f->held) && list_empty(&f->untold));
    store_free(f->inner);
    free(f);
}

static inline int facade_health(struct store *s, struct str *why)
{
    return store_health(facade_of(s)->inner, why);
}

/* Takes the inner one over. */
static inline struct facade *facade_new(struct store *inner)
{
    static const struct store_ops facade_ops = {.write = facade_write,
                                                .remove = facade_remove,
                                                .stat = facade_stat,
                                                .read = facade_read,
                                                .list = facade_list,
                                                .docs = facade_docs,
                                                .put = facade_put,
                                                .watch = facade_watch,
                                                .unwatch = facade_unwatch,
                                                .health = facade_health,
                                                .stop = facade_stop,
                                                .free = facade_free};
    struct facade *f = mem_zalloc(sizeof *f);
    f->store = (struct store){.ops = &facade_ops, .sched = inner->sched};
    f->inner = inner;
    list_init(&f->held);
    list_init(&f->untold);
    return f;
}

#endif
