// SPDX-License-Identifier: Apache-2.0
/* Two gateways over one store, as two processes have them; and a gateway whose store takes nothing.
 * The upstream is on the same loop, and says what it is told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "access/policy.h"
#include "feature/gateway/recorder.h"
#include "unit/feature/gateway/gateway_bench.h"

#include <limits.h>

/* ---- two processes ---- */

/* What one runs the other reads, live. */
static void test_read_elsewhere(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    struct client *c = member(b, 1, "GET", header(a, ID_HEADER), "");
    UNTIL(b, told(c, "id: 1\nevent: token\ndata: one\n\n"));
    caller_send(b->callers[0], TWO);
    UNTIL(b, told(c, "id: 2\ndata: two\ndata: lines\n\n"));
    caller_close(b->callers[0]);
    UNTIL(b, end_of(b, header(a, ID_HEADER), "") == END_COMPLETED);
    UNTIL(b, count_docs(b, "running/") == 0);
    assert_int_equal(b->n_callers, 1);
}

/* A stop reaches the upstream, whichever process is asked; the snapshot is made all the same. */
static void test_stopped_elsewhere(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    assert_int_equal(count_docs(b, "running/"), 1);
    struct str id = header(a, ID_HEADER);
    struct client *c = member(b, 1, "POST", id, "/stop");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"cancelled\""));
    UNTIL(b, b->callers[0]->gone);
    UNTIL(b, count_docs(b, "running/") == 0);
    UNTIL(b, end_of(b, id, RECORDER_SNAPSHOT_SUFFIX) == END_CANCELLED);
    assert_int_equal(end_of(b, id, ""), END_CANCELLED);
    c = member(b, 1, "POST", id, "/stop");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
}

/* Nor is it forgotten while the store does not answer. */
static void test_stopped_elsewhere_in_the_dark(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    struct client *c = member(b, 1, "POST", header(a, ID_HEADER), "/stop");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    b->stats_lost = 2;
    UNTIL(b, b->callers[0]->gone);
    assert_int_equal(b->stats_lost, 0);
}

/* While events come, the writes find it out. */
static void test_stopped_under_fire(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    struct str id = header(a, ID_HEADER);
    struct client *c = member(b, 1, "DELETE", id, "");
    for (int i = 0; i < 5000 && !b->callers[0]->gone; i++) {
        caller_send(b->callers[0], TWO);
        turns(b, 1);
    }
    assert_true(b->callers[0]->gone);
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"cancelled\""));
    UNTIL(b, end_of(b, id, RECORDER_SNAPSHOT_SUFFIX) == END_CANCELLED);
}

/* What comes behind a stop is wanted by nobody; but to send it was no fault of the upstream's. */
static void test_a_stop_is_no_error_of_the_upstream(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    struct str labels[] = {STR("/a"), STR("event_invalid")};
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    b->front->hold = true;
    b->stats_lost = UINT_MAX; /* so that the write finds out */
    caller_send(b->callers[0], TWO);
    UNTIL(b, !list_empty(&b->front->held));
    struct client *c = member(b, 1, "DELETE", header(a, ID_HEADER), "");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    facade_let_one(b->front);
    UNTIL(b, !list_empty(&b->front->held)); /* the snapshot */
    caller_send(b->callers[0], TWO);
    UNTIL(b, b->callers[0]->gone);
    b->stats_lost = 0;
    facade_let_go(b->front);
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"cancelled\""));
    assert_int_equal(metric_family_counter(g->failed_family, labels)->n, 0);
}

/* One key asks once, whichever processes it comes to. */
static void test_a_key_asks_once(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "Idempotency-Key: k\r\n", "{}");
    struct client *c = post(b, 1, "Idempotency-Key: k\r\n", "{}");
    UNTIL(b, told(a, "data: one") && told(c, "data: one"));
    assert_true(str_eq(header(a, ID_HEADER), header(c, ID_HEADER)));
    assert_int_equal(b->n_callers, 1);
}

/* What it gives is no stream: the key and all else is taken back. */
static void test_passing_leaves_nothing(void **state)
{
    struct bench *b = *state;
    b->reply = OTHER_HEAD "Content-Length: 2\r\n\r\n{}";
    struct client *a = post(b, 0, "Idempotency-Key: k\r\n", "{}");
    UNTIL(b, told(a, "{}"));
    UNTIL(b, count_docs(b, "running/") == 0);
    UNTIL(b, count_docs(b, "gateway-key/") == 0);
    assert_true(memmem(a->in.p, a->in.n, "Degraded: ", 10) == NULL);
}

static void test_a_chat_is_found_elsewhere(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{\"id\":\"chat 1\"}");
    UNTIL(b, told(a, "data: one"));
    UNTIL(b, count_docs(b, GATEWAY_CHATS) == 1);
    struct client *c = ask(b, 1, "GET /a/chat%201/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    UNTIL(b, told(c, "data: one"));
    struct client *none = ask(b, 1, "GET /a/another/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    UNTIL(b, told(none, "HTTP/1.1 204"));

    /* The newest counts, and its end is the end of it. */
    struct client *newer = post(b, 1, "", "{\"id\":\"chat 1\"}");
    UNTIL(b, told(newer, "data: one"));
    turns(b, 20);
    struct client *again = ask(b, 0, "GET /a/chat%201/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    UNTIL(b, told(again, "data: one"));
    assert_true(str_eq(header(again, ID_HEADER), header(newer, ID_HEADER)));
    caller_close(b->callers[1]);
    UNTIL(b, count_docs(b, GATEWAY_CHATS) == 0);
    struct client *over = ask(b, 0, "GET /a/chat%201/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    UNTIL(b, told(over, "HTTP/1.1 204"));
    assert_int_equal(count_docs(b, "running/"), 1); /* the older one */
}

/* By any process, whichever runs it; an id that is a generation's means that one. */
static void test_a_chat_is_stopped_elsewhere(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{\"id\":\"chat 1\"}");
    UNTIL(b, told(a, "data: one"));
    UNTIL(b, count_docs(b, GATEWAY_CHATS) == 1);
    struct client *c = ask(b, 1, "POST /a/chat%201/stop HTTP/1.1\r\nHost: localhost\r\n\r\n");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    UNTIL(b, told(a, "{\"type\":\"abort\"}"));
    UNTIL(b, b->callers[0]->gone);
    UNTIL(b, count_docs(b, GATEWAY_CHATS) == 0);
    c = ask(b, 1, "DELETE /a/chat%201/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    UNTIL(b, told(c, "HTTP/1.1 204"));

    struct client *older = post(b, 0, "", "{}");
    UNTIL(b, told(older, "data: one"));
    char body[100];
    struct str id = header(older, ID_HEADER);
    snprintf(body, sizeof body, "{\"id\":\"%.*s\"}", (int)id.n, id.p);
    struct client *chat = post(b, 0, "", body);
    UNTIL(b, told(chat, "data: one"));
    UNTIL(b, count_docs(b, GATEWAY_CHATS) == 1);
    c = member(b, 1, "POST", id, "/stop");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    UNTIL(b, told(older, "{\"type\":\"abort\"}"));
    assert_false(told(chat, "abort"));
}

static size_t n_drained;

static void note_drained(void *ctx)
{
    n_drained++;
}

/* What is under way comes to its end, and can be joined; nothing new begins. */
static void test_a_drain_waits(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, told(a, "data: one"));
    n_drained = 0;
    gateway_drain(g, note_drained, NULL);
    struct client *new = post(b, 0, "", "{}"), *newer = post(b, 0, "Idempotency-Key: n\r\n", "{}");
    UNTIL(b, told(new, "HTTP/1.1 503") && told(new, "Retry-After: 1\r\n"));
    UNTIL(b, told(newer, "HTTP/1.1 503") && told(newer, "\"code\":\"DRAINING\""));
    struct client *joins = post(b, 0, KEY, "{}");
    UNTIL(b, told(joins, "data: one"));
    assert_int_equal(n_drained, 0);
    caller_send(b->callers[0], TWO);
    UNTIL(b, told(a, "data: two") && told(joins, "data: two"));
    caller_close(b->callers[0]);
    UNTIL(b, n_drained == 1);
    assert_int_equal(end_of(b, header(a, ID_HEADER), ""), END_COMPLETED);
    assert_int_equal(b->n_callers, 1);
}

/* ---- the dead ---- */

struct made {
    struct store_write write;
    struct doc_put docs[2];
    struct stream_config config;
    char name[100], running[200], instance[64];
    bool done;
};

static void on_made(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
    container_of(w, struct made, write)->done = true;
}

/* What a process leaves behind that was killed while it ran this generation. */
static void leave_behind(struct bench *b, const char *instance, const char *id)
{
    struct made m = {.config = {.content_type = STR("text/event-stream"),
                                .ttl_s = STORE_TTL_NONE,
                                .expires_ms = STORE_TTL_NONE}};
    snprintf(m.name, sizeof m.name, GATEWAY_STREAMS "a/%s", id);
    snprintf(m.running, sizeof m.running, "running/%s/%s", instance, m.name);
    snprintf(m.instance, sizeof m.instance, "instances/%s", instance);
    m.docs[0] = (struct doc_put){.key = str_of_cstr(m.running), .value = STR("generation")};
    m.docs[1] = (struct doc_put){.key = str_of_cstr(m.instance), .value = STR("alive")};
    bool first = count_docs(b, m.instance) == 0;
    m.write = (struct store_write){.name = str_of_cstr(m.name),
                                   .create = &m.config,
                                   .docs = m.docs,
                                   .n_docs = first ? 2 : 1,
                                   .done = on_made};
    store_write(&b->front->store, &m.write);
    UNTIL(b, m.done);
}

#define GHOST "00000000000000aa"
#define DEAD  "11111111-1111-4111-8111-111111111111"
#define DEAD2 "22222222-2222-4222-8222-222222222222"

/* Those of the dead are closed, those of the living are not. */
static void test_orphans_of_the_dead(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    leave_behind(b, GHOST, DEAD);
    leave_behind(b, GHOST, DEAD2);
    struct client *c = member(b, 1, "GET", STR(DEAD), "");
    UNTIL(b, told(c, "event: resume"));
    uint64_t since = b->loop.sched.now_ms;
    UNTIL(b, told(c, "event: end\ndata: {\"reason\":\"orphaned\""));
    assert_true(b->loop.sched.now_ms - since >= (INSTANCE_LOOKS - 1) * BEAT_MS);
    UNTIL(b, end_of(b, STR(DEAD2), "") == END_ORPHANED);
    UNTIL(b, count_docs(b, "running/" GHOST) == 0);
    UNTIL(b, count_docs(b, "instances/" GHOST) == 0);
    since = b->loop.sched.now_ms;
    UNTIL(b, b->loop.sched.now_ms - since > 3 * INSTANCE_LOOKS * BEAT_MS);
    assert_int_equal(end_of(b, header(a, ID_HEADER), ""), END_NONE);
    assert_int_equal(count_docs(b, "running/"), 1);
}

/* ---- a store that takes nothing ---- */

static void test_degraded(void **state)
{
    struct bench *b = *state;
    static const int causes[] = {ERR_BUSY, ERR_IO, ERR_FULL, ERR_UPSTREAM};
    for (size_t i = 0; i < 4; i++) {
        b->refuse = causes[i];
        struct client *a = post(b, i % 2, "", "{}");
        UNTIL(b, told(a, "event: token\ndata: one\n\n"));
        assert_true(told(a, "X-Tidemark-Degraded: store\r\n"));
        assert_false(told(a, "X-Resume-Token: ") || told(a, "event: resume") || told(a, "id: "));
        caller_send(b->callers[i], TWO);
        UNTIL(b, told(a, "data: two\ndata: lines\n\n"));
        caller_close(b->callers[i]);
        UNTIL(b, told(a, "0\r\n\r\n"));
        assert_false(told(a, "event: end"));    /* it completed */
        b->sides[i % 2].gateway->failed_ms = 0; /* long ago: the next one tries */
    }
    assert_int_equal(count_docs(b, "running/"), 0);
}

/* A key that cannot be written must not ask: it could ask twice. */
static void test_no_degraded_keys(void **state)
{
    struct bench *b = *state;
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "Idempotency-Key: k\r\n", "{}");
    UNTIL(b, told(a, "HTTP/1.1 503"));
    assert_int_equal(b->n_callers, 0);
}

/* The next ones do not wait for a store that failed just now, but one a second tries it. */
static void test_recovers(void **state)
{
    struct bench *b = *state;
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "X-Tidemark-Degraded: "));
    b->refuse = 0;
    unsigned writes = b->front->n_writes;
    a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "X-Tidemark-Degraded: "));
    assert_int_equal(b->front->n_writes, writes);
    b->sides[0].gateway->failed_ms = 0;
    a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "event: resume"));
    UNTIL(b, told(a, "id: 1\n"));
    assert_false(told(a, "X-Tidemark-Degraded: "));
    a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "event: resume"));
}

static void test_degraded_failures(void **state)
{
    struct bench *b = *state;
    b->refuse = ERR_BUSY;
    b->reply = OTHER_HEAD "Content-Length: 2\r\n\r\n{}"; /* an answer of another kind */
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "HTTP/1.1 400") && told(a, "{}"));
    assert_true(told(a, "X-Tidemark-Degraded: store\r\n"));

    b->reply = NULL; /* none at all */
    a = post(b, 0, "", "{}");
    UNTIL(b, is_heard(b, 1));
    caller_close(b->callers[1]);
    UNTIL(b, told(a, "HTTP/1.1 502") && told(a, "\"code\":\"UPSTREAM_ERROR\""));
    assert_true(told(a, "X-Tidemark-Degraded: store\r\n"));

    b->reply = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
               "Content-Length: 1000\r\n\r\n" ONE; /* one that breaks off */
    a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    caller_close(b->callers[2]);
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"failed\""));
    UNTIL(b, b->sides[0].gateway->running.n == 0);
}

/* Whoever waits for the first event gets the same status, wherever; then the key is free. */
static void test_a_failure_is_told_to_all_who_wait(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct client *beside = post(b, 0, KEY, "{}"), *elsewhere = post(b, 1, KEY, "{}");
    UNTIL(b, !list_empty(&b->sides[1].gateway->awaits));
    turns(b, 20);
    assert_false(told(a, "HTTP") || told(beside, "HTTP") || told(elsewhere, "HTTP"));
    caller_close(b->callers[0]);
    UNTIL(b, told(a, "HTTP/1.1 502") && told(beside, "HTTP/1.1 502"));
    UNTIL(b, told(elsewhere, "HTTP/1.1 502"));
    assert_true(told(elsewhere, "the upstream hung up without an answer"));
    assert_int_equal(b->n_callers, 1);

    b->reply = SSE_HEAD ONE;
    a = post(b, 1, KEY, "{}");
    UNTIL(b, told(a, "HTTP/1.1 200") && told(a, "data: one"));
    assert_int_equal(b->n_callers, 2);
}

static void test_the_first_event_is_told_to_all_who_wait(void **state)
{
    struct bench *b = *state;
    b->reply = SSE_HEAD;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct client *elsewhere = post(b, 1, KEY, "{}");
    UNTIL(b, !list_empty(&b->sides[1].gateway->awaits));
    turns(b, 20);
    assert_false(told(a, "HTTP") || told(elsewhere, "HTTP"));
    caller_send(b->callers[0], ONE);
    UNTIL(b, told(a, "data: one") && told(elsewhere, "data: one"));
    assert_int_equal(b->n_callers, 1);
}

/* An answer of another kind is for who asked: the others ask themselves. */
static void test_who_waited_for_what_passes_asks(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct client *beside = post(b, 0, KEY, "{}"), *elsewhere = post(b, 1, KEY, "{}");
    UNTIL(b, !list_empty(&b->sides[1].gateway->awaits));
    b->reply = OTHER_HEAD "Content-Length: 2\r\n\r\n{}";
    caller_send(b->callers[0], b->reply);
    UNTIL(b, told(a, "HTTP/1.1 400") && told(beside, "HTTP/1.1 400"));
    UNTIL(b, told(elsewhere, "HTTP/1.1 400"));
    assert_in_range(b->n_callers, 2, 3);
}

/* But not any number of them, one after the other. */
static void test_who_waited_for_what_passes_with_many(void **state)
{
    struct bench *b = *state;
    struct client *waiting[6];
    size_t n = 0, refused = 0;
    b->reply = NULL;
    post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    for (size_t i = 0; i < 6; i++)
        waiting[i] = post(b, 0, KEY, "{}");
    turns(b, 50);
    b->reply = OTHER_HEAD "Content-Length: 2\r\n\r\n{}";
    caller_send(b->callers[0], b->reply);
    for (size_t i = 0; i < 6; i++) {
        UNTIL(b, told(waiting[i], "HTTP/1.1 400") || told(waiting[i], "Retry-After: 1"));
        refused += told(waiting[i], "HTTP/1.1 503");
        n += told(waiting[i], "HTTP/1.1 400");
    }
    assert_int_equal(n, 4);
    assert_int_equal(refused, 2);
}

/* A server that stops waits for nobody's first event. */
static void test_waiting_ends_with_the_server(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    hang_up(post(b, 1, KEY, "{}"));
    UNTIL(b, !list_empty(&b->sides[1].gateway->awaits));
}

static bool is_always(struct str body)
{
    return true;
}

/* Nor for the end of what another one runs, which somebody wants in one piece. */
static void test_waiting_for_the_whole_ends_with_the_server(void **state)
{
    struct bench *b = *state;
    struct side *s = &b->sides[1];
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, told(a, "data: one"));
    s->gateway->routes[0]->source.whole = is_always;
    hang_up(post(b, 1, KEY, "{}"));
    UNTIL(b, !list_empty(&s->gateway->wholes));
    http_close_all(&s->http);
    UNTIL(b, s->http.n_connections == 0);
    gateway_stop(s->gateway, note_stopped, &s->stopped);
    UNTIL(b, s->stopped);
    assert_int_equal(end_of(b, header(a, ID_HEADER), ""), END_NONE);
}

static struct gateway *make_in_the_dark(struct bench *b, struct client **a)
{
    b->front->late = true;
    *a = post(b, 0, KEY, "{}");
    UNTIL(b, !list_empty(&b->front->untold));
    return b->sides[0].gateway;
}

/* The store has made it, and then did not say so: who found its key is told as who asked is. */
static void test_who_waits_for_what_cannot_be_made(void **state)
{
    struct bench *b = *state;
    struct client *a, *beside;
    make_in_the_dark(b, &a);
    beside = post(b, 0, KEY, "{}");
    turns(b, 50);
    list_item(b->front->untold.next, struct facade_write, link)->err = ERR_AWAY;
    facade_tell_all(b->front);
    UNTIL(b, told(a, "HTTP/1.1 503"));
    UNTIL(b, told(beside, "HTTP/1.1 503"));
    assert_int_equal(b->n_callers, 0);
    UNTIL(b, count_docs(b, "running/") == 0); /* what was made is found, and closed */
}

/* Nobody was asked: the key must not lead to what a server that stops left. */
static void test_a_key_goes_with_what_was_never_asked(void **state)
{
    struct bench *b = *state;
    struct client *a;
    gateway_orphan(make_in_the_dark(b, &a));
    facade_tell_all(b->front);
    UNTIL(b, told(a, "HTTP/1.1 503") && told(a, "\"code\":\"ORPHANED\""));
    a = post(b, 1, KEY, "{}");
    UNTIL(b, told(a, "HTTP/1.1 200") && told(a, "data: one"));
    assert_int_equal(b->n_callers, 1);
}

/* The upstream has a body of its own: that of the request does not count while it thinks. */
static void test_bodies_are_let_go_of(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a =
        ask(b, 0, "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n{ ");
    UNTIL(b, b->sides[0].http.inflight_bytes == 2);
    assert_int_equal(write(a->fd, "}", 1), 1);
    UNTIL(b, is_heard(b, 0));
    assert_int_equal(b->sides[0].http.inflight_bytes, 0);
    caller_send(b->callers[0], SSE_HEAD ONE);
    UNTIL(b, told(a, "data: one"));
}

/* Nobody else can have it: with the client, the upstream's work is for nothing. */
static void test_degraded_goes_with_its_client(void **state)
{
    struct bench *b = *state;
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    hang_up(a);
    UNTIL(b, b->callers[0]->gone);
    UNTIL(b, b->sides[0].gateway->running.n == 0);

    b->reply = NULL;
    a = post(b, 0, "", "{}");
    UNTIL(b, is_heard(b, 1));
    hang_up(a);
    turns(b, 10);
    caller_send(b->callers[1], SSE_HEAD ONE);
    UNTIL(b, b->callers[1]->gone);
    UNTIL(b, b->sides[0].gateway->running.n == 0);
}

/* Nor does a stop wait for readers when the upstream has said all. */
static void test_a_stop_behind_the_end(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    struct buf big = {0};
    b->route.trim = ROUTE_TRIM_STRICT;
    b->route.buffer_max_events = 4;
    gateway_set_times(g, 0, 3600 * 1000);
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    buf_put(&big, STR("data: "));
    while (big.n < 8000)
        buf_putc(&big, 'x');
    buf_put(&big, STR("\n\n"));
    buf_putc(&big, '\0');
    for (int i = 0; i < 25; i++)
        caller_send(b->callers[0], big.p);
    turns(b, 50);
    caller_close(b->callers[0]);
    UNTIL(b, b->callers[0]->gone);
    turns(b, 50);
    assert_int_equal(g->running.n, 1); /* its end waits for a client that does not read */
    struct client *c = member(b, 0, "POST", header(a, ID_HEADER), "/stop");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"cancelled\""));
    buf_deinit(&big);
}

static void test_degraded_stop(void **state)
{
    struct bench *b = *state;
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    struct client *c = member(b, 0, "POST", header(a, ID_HEADER), "/stop");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"cancelled\""));
    UNTIL(b, b->callers[0]->gone);
}

/* The server is stopped while one waits for its upstream, and one is under way. */
static void test_degraded_drain(void **state)
{
    struct bench *b = *state;
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    b->reply = NULL;
    struct client *c = post(b, 0, "", "{}");
    UNTIL(b, is_heard(b, 1));
    gateway_orphan(b->sides[0].gateway);
    UNTIL(b, told(a, "event: end\ndata: {\"reason\":\"orphaned\""));
    UNTIL(b, told(c, "HTTP/1.1 503") && told(c, "\"code\":\"ORPHANED\""));
}

/* More than the client takes: the upstream waits. */
static void test_degraded_flow(void **state)
{
    struct bench *b = *state;
    struct buf big = {0};
    size_t n = 0;
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    while (big.n < 64 * 1024)
        buf_put(&big, STR("data: 0123456789\n\n"));
    buf_putc(&big, '\0');
    for (int i = 0; i < 100; i++) {
        caller_send(b->callers[0], big.p);
        n += strlen(big.p);
        turns(b, 3);
    }
    size_t waiting = uv_stream_get_write_queue_size((uv_stream_t *)&b->callers[0]->tcp);
    assert_true(waiting > 0);
    caller_send(b->callers[0], "data: last\n\n");
    UNTIL(b, told(a, "data: last\n\n"));
    assert_true(a->in.n > n);
    buf_deinit(&big);
}

/* ---- with access ---- */

static void add_caller(struct policy *policy, const char *name)
{
    uint8_t digest[SHA256_SIZE];
    char ignored[100];
    struct principal *p = principal_new();
    struct access_grants *g = arena_alloc(&p->arena, sizeof *g);
    *g = (struct access_grants){0};
    access_grants_add_line(g, &p->arena, STR("generate, stop route:**"), ignored, sizeof ignored);
    p->rights = (struct access_rights){.layers = {g}, .n = 1};
    p->name = p->sub = p->id = str_of_cstr(name);
    p->known = true;
    sha256(str_of_cstr(name), digest);
    policy_add_caller(policy, digest, p);
}

static int set_up_access(void **state)
{
    struct bench *b = bench_new(ROUTE_DIALECT_SSE);
    struct policy *policy = policy_new();
    policy->on = true;
    add_caller(policy, "ann");
    add_caller(policy, "bob");
    for (size_t i = 0; i < SIDES; i++) {
        struct side *s = &b->sides[i];
        s->guard = guard_new(&(struct guard_setup){.http = &s->http, .trace = &b->trace});
        guard_set_policy(s->guard, policy);
        s->http.guard = s->guard;
    }
    policy_unref(policy);
    *state = b;
    return 0;
}

#define ANN "Tidemark-Authorization: Bearer ann\r\n"
#define BOB "Tidemark-Authorization: Bearer bob\r\n"

static struct client *member_by(struct bench *b, size_t side, const char *method, struct str id,
                                const char *who)
{
    struct buf request = {0};
    buf_printf(&request, "%s /a/%.*s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method, (int)id.n,
               id.p, who);
    buf_putc(&request, '\0');
    struct client *c = ask(b, side, request.p);
    buf_deinit(&request);
    return c;
}

/* Another process knows whose it is without having been told. */
static void test_anothers_is_unknown_elsewhere(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, ANN, "{}");
    UNTIL(b, told(a, "data: one"));
    struct str id = header(a, ID_HEADER);
    struct client *bob = member_by(b, 1, "GET", id, BOB);
    UNTIL(b, told(bob, "404 Not Found"));
    bob = member_by(b, 1, "DELETE", id, BOB);
    UNTIL(b, told(bob, "404 Not Found"));
    assert_int_equal(end_of(b, id, ""), END_NONE);
    struct client *ann = member_by(b, 1, "GET", id, ANN);
    UNTIL(b, told(ann, "data: one"));
    struct client *stop = member_by(b, 1, "DELETE", id, ANN);
    UNTIL(b, told(stop, "\"cancelled\""));
}

/* The store did take it, and did not say so in time: what it made is found and closed. */
static void test_leftovers(void **state)
{
    struct bench *b = *state;
    leave_behind(b, "0000000000000000", DEAD); /* to see what is left alone */
    char own[64];
    struct str self = instances_name(b->sides[0].instances);
    snprintf(own, sizeof own, "%.*s", (int)self.n, self.p);
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    leave_behind(b, own, DEAD2);
    gateway_look_for_leftovers(b->sides[0].gateway);
    UNTIL(b, end_of(b, STR(DEAD2), "") == END_ORPHANED);
    assert_int_equal(end_of(b, header(a, ID_HEADER), ""), END_NONE);
    UNTIL(b, count_docs(b, "running/") <= 2);
    UNTIL(b, end_of(b, STR(DEAD), "") == END_ORPHANED); /* by its own instance's death */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_read_elsewhere),
        T(test_stopped_elsewhere),
        T(test_stopped_elsewhere_in_the_dark),
        T(test_stopped_under_fire),
        T(test_a_stop_is_no_error_of_the_upstream),
        T(test_a_key_asks_once),
        T(test_passing_leaves_nothing),
        cmocka_unit_test_setup_teardown(test_a_chat_is_found_elsewhere, set_up_chats, tear_down),
        cmocka_unit_test_setup_teardown(test_a_chat_is_stopped_elsewhere, set_up_chats, tear_down),
        T(test_a_drain_waits),
        T(test_orphans_of_the_dead),
        T(test_degraded),
        T(test_no_degraded_keys),
        T(test_recovers),
        T(test_a_failure_is_told_to_all_who_wait),
        T(test_the_first_event_is_told_to_all_who_wait),
        T(test_who_waited_for_what_passes_asks),
        T(test_who_waited_for_what_passes_with_many),
        T(test_waiting_ends_with_the_server),
        T(test_waiting_for_the_whole_ends_with_the_server),
        T(test_who_waits_for_what_cannot_be_made),
        T(test_a_key_goes_with_what_was_never_asked),
        T(test_bodies_are_let_go_of),
        T(test_degraded_failures),
        T(test_degraded_goes_with_its_client),
        T(test_a_stop_behind_the_end),
        T(test_degraded_stop),
        T(test_degraded_drain),
        T(test_degraded_flow),
        T(test_leftovers),
        cmocka_unit_test_setup_teardown(test_anothers_is_unknown_elsewhere, set_up_access,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("unit/gateway_shared", tests, NULL, NULL);
}
