// SPDX-License-Identifier: Apache-2.0
/* The session engine over the store in memory, through a front that refuses and holds as told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/units.h"
#include "feature/sessions/session_core.h"
#include "feature/sessions/session_view.h"
#include "store/mem/mem_store.h"
#include "unit/feature/sessions/session_bench.h"

#define START_MONO    5000
#define START_WALL    1700000000000
#define LIFETIME_MS   (2 * HOUR_MS)
#define HOLD_MS       (10 * MINUTE_MS)
#define LINGER_MS     (60 * SECOND_MS) /* as in session.c */
#define LATE_CHUNK_MS (2 * SECOND_MS)  /* as in session_next.c */
#define STEP_MS       100
#define LONG_STEP_MS  (10 * SECOND_MS) /* within a round of the schedule's wheel */
#define RIGHT         0x11             /* bytes of secrets */
#define WRONG         0x22

/* An engine, what it stands on, and a backend that is operated by hand. */
struct desk {
    struct sched sched;
    struct facade *front;
    struct feeds feeds;
    struct session_backend by_hand;
    struct sessions_setup setup;
    struct sessions *all;
    bool stopped;
    struct session_reply *reply; /* of by_hand: one of them, if several sessions have some */
    struct buf starts;           /* "seqno=chunk+last_id " with `+` if an answer had begun */
    unsigned n_stops, n_rooms;
    int refuse; /* operations of this kind are answered so; 0: none is */
    const char *refuse_verb, *refuse_end;
    unsigned refuse_left;
};

/* ---- time ---- */

static void turn(struct desk *d, uint64_t ms)
{
    sched_turn(&d->sched, d->sched.now_ms + ms, d->sched.wall_ms + (int64_t)ms);
}

static void pass(struct desk *d, uint64_t ms)
{
    uint64_t step_ms = ms > HOUR_MS ? LONG_STEP_MS : STEP_MS;
    for (; ms > step_ms; ms -= step_ms)
        turn(d, step_ms);
    turn(d, ms);
    turn(d, SCHED_TICK_MS);
}

static void settle(struct desk *d)
{
    pass(d, SCHED_TICK_MS);
}

/* ---- the store's moods ---- */

static bool ends_with(struct str s, const char *end)
{
    size_t n = strlen(end);
    return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

static int judge(void *ctx, const char *verb, struct str name)
{
    struct desk *d = ctx;
    if (d->refuse_left == 0 || strcmp(verb, d->refuse_verb) != 0 || !ends_with(name, d->refuse_end))
        return 0;
    d->refuse_left--;
    return d->refuse;
}

static void refuse(struct desk *d, const char *verb, const char *end, int err, unsigned times)
{
    d->refuse_verb = verb;
    d->refuse_end = end;
    d->refuse = err;
    d->refuse_left = times;
}

/* ---- the backend ---- */

static void hand_start(void *ctx, struct session_reply *reply)
{
    struct desk *d = ctx;
    if (d->reply == NULL)
        d->reply = reply;
    buf_printf(&d->starts, "%u=%.*s%s%.*s ", reply->seqno, (int)reply->chunk.n,
               reply->chunk.n > 0 ? reply->chunk.p : "", reply->begun ? "+" : "",
               (int)reply->last_id.n, reply->last_id.n > 0 ? reply->last_id.p : "");
}

static void hand_stop(void *ctx, struct session_reply *reply)
{
    struct desk *d = ctx;
    if (reply == d->reply)
        d->reply = NULL;
    d->n_stops++;
}

static void hand_room(void *ctx, struct session_reply *reply)
{
    struct desk *d = ctx;
    assert_ptr_equal(reply, d->reply);
    d->n_rooms++;
}

static int answer(struct desk *d, const char *text, const char *id)
{
    assert_non_null(d->reply);
    return session_reply_event(d->reply, str_of_cstr(text), true, str_of_cstr(id));
}

static void end_job(struct desk *d, enum end_reason end, const char *message)
{
    struct session_reply *reply = d->reply;
    assert_non_null(reply);
    d->reply = NULL;
    session_reply_end(reply, end, str_of_cstr(message));
}

static void assert_starts(struct desk *d, const char *expected)
{
    buf_putc(&d->starts, '\0');
    assert_string_equal(d->starts.p, expected);
    d->starts.n--;
}

/* ---- the engine ---- */

enum backend { ECHO, BY_HAND, WORKERS };

static struct desk *desk_new(enum backend backend)
{
    struct desk *d = mem_zalloc(sizeof *d);
    sched_init(&d->sched, START_MONO, START_WALL);
    d->front = facade_new(mem_store_new(&d->sched));
    d->front->judge = judge;
    d->front->ctx = d;
    feeds_init(&d->feeds, &d->front->store);
    d->by_hand = (struct session_backend){hand_start, hand_stop, hand_room, d};
    d->setup = (struct sessions_setup){.sched = &d->sched,
                                       .store = &d->front->store,
                                       .feeds = &d->feeds,
                                       .backend = backend == ECHO      ? &session_echo
                                                  : backend == BY_HAND ? &d->by_hand
                                                                       : NULL,
                                       .lifetime_ms = LIFETIME_MS,
                                       .key_hold_ms = HOLD_MS,
                                       .max_open = 100,
                                       .max_bytes = 16 * 1024 * 1024};
    d->all = sessions_new(&d->setup);
    return d;
}

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void stop(struct desk *d)
{
    d->stopped = false;
    sessions_stop(d->all, note_stopped, &d->stopped);
    assert_false(d->stopped); /* never from within */
    settle(d);
    assert_true(d->stopped);
    assert_null(d->reply);
    sessions_free(d->all);
    d->all = NULL;
}

static void restart(struct desk *d)
{
    stop(d);
    d->all = sessions_new(&d->setup);
}

static void desk_free(struct desk *d)
{
    if (d->all != NULL)
        stop(d);
    feeds_deinit(&d->feeds);
    store_free(&d->front->store);
    buf_deinit(&d->starts);
    free(d);
}

/* ---- clients ---- */

static struct visitor visit(struct desk *d, const char *key, uint8_t secret)
{
    struct visitor v;
    visitor_init(&v, &d->all, key, SESSION_TIDEMARK, secret);
    return v;
}

static void come(struct desk *d, struct visitor *v)
{
    visitor_connect(v);
    settle(d);
}

static void leave(struct desk *d, struct visitor *v)
{
    visitor_disconnect(v);
    settle(d);
}

static void say(struct desk *d, struct visitor *v, uint32_t seqno, const char *text)
{
    visitor_say(v, seqno, str_of_cstr(text));
    settle(d);
}

static void assert_text(struct buf *b, const char *expected)
{
    buf_putc(b, '\0');
    assert_string_equal(b->p, expected);
    b->n--;
}

#define assert_acks(v, expected)   assert_text(&(v)->acks, expected)
#define assert_events(v, expected) assert_text(&(v)->events, expected)

static void assert_over(const struct visitor *v, enum session_over over)
{
    assert_true(v->over);
    assert_int_equal(v->client.over, over);
}

static void assert_ended(const struct visitor *v, enum end_reason end, bool aborted)
{
    assert_over(v, SESSION_ENDED);
    assert_int_equal(v->client.end, end);
    assert_int_equal(v->client.aborted, aborted);
}

static void assert_message(const struct visitor *v, const char *begins)
{
    if (!str_starts(v->client.message, str_of_cstr(begins)) || v->client.message.n == 0)
        fail_msg("%.*s", (int)v->client.message.n, v->client.message.p);
}

/* Someone with the right key, from the start: what a session holds. */
static void assert_holds(struct desk *d, const char *key, const char *events)
{
    struct visitor v = visit(d, key, RIGHT);
    come(d, &v);
    assert_true(v.welcomed);
    assert_events(&v, events);
    visitor_deinit(&v);
}

/* ---- looking from outside ---- */

struct looking {
    struct sessions_show show;
    struct session_row row;
    int err;
};

static void on_shown(struct sessions_show *s, int err)
{
    struct looking *l = container_of(s, struct looking, show);
    l->err = err;
    l->row = s->row;
}

static struct looking look(struct desk *d, const char *key)
{
    struct looking l = {.show = {.all = d->all, .key = str_of_cstr(key), .done = on_shown},
                        .err = 1};
    sessions_show(&l.show);
    settle(d);
    assert_int_not_equal(l.err, 1);
    return l;
}

/* ---- what clients are told ---- */

static void speak_with_echo(enum session_service service)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v;
    visitor_init(&v, &d->all, "talk", service, RIGHT);
    come(d, &v);
    assert_true(v.welcomed && !v.degraded && !v.over);
    assert_text(&v.welcome, "welcome");
    say(d, &v, 0, "hello");
    assert_acks(&v, "0 ");
    assert_events(&v, "1=hello ");
    say(d, &v, 1, "again");
    say(d, &v, 2, "");
    assert_acks(&v, "0 1 2 ");
    assert_events(&v, "1=hello 2=again 3= ");
    leave(d, &v);
    come(d, &v); /* at its position */
    assert_text(&v.welcome, "welcome back");
    assert_events(&v, "1=hello 2=again 3= ");
    say(d, &v, 3, "more");
    assert_events(&v, "1=hello 2=again 3= 4=more ");

    restart(d);
    assert_over(&v, SESSION_DRAINING);
    come(d, &v);
    say(d, &v, 4, "on");
    assert_acks(&v, "0 1 2 3 4 ");
    assert_events(&v, "1=hello 2=again 3= 4=more 5=on ");
    struct visitor late;
    visitor_init(&late, &d->all, "talk", service, RIGHT);
    come(d, &late);
    assert_events(&late, "1=hello 2=again 3= 4=more 5=on ");
    visitor_deinit(&v);
    visitor_deinit(&late);
    desk_free(d);
}

static void test_both_services(void **state)
{
    speak_with_echo(SESSION_TIDEMARK);
    speak_with_echo(SESSION_AISERVER);
}

static void test_other_service(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), other;
    visitor_init(&other, &d->all, "talk", SESSION_AISERVER, RIGHT);
    come(d, &v);
    come(d, &other);
    assert_over(&other, SESSION_MALFORMED);
    assert_message(&other, "this idempotency key belongs");
    assert_false(v.over);
    say(d, &v, 0, "undisturbed");
    assert_events(&v, "1=undisturbed ");
    visitor_deinit(&v);
    visitor_deinit(&other);
    desk_free(d);
}

static void test_early_messages(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a")); /* before anything is known of it */
    visitor_say(&v, 1, STR("b"));
    visitor_close(&v);
    assert_int_equal(session_settled(&v.client), 0);
    settle(d);
    assert_acks(&v, "0 1 ");
    assert_events(&v, "1=a 2=b ");
    assert_int_equal(session_settled(&v.client), 3);
    assert_true(v.n_settled > 0);
    assert_ended(&v, END_COMPLETED, false);
    visitor_deinit(&v);
    desk_free(d);
}

/* ---- seqnos ---- */

static void test_gaps_and_duplicates(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 7, "seven");
    say(d, &v, 0, "zero");
    say(d, &v, UINT32_MAX, "last");
    assert_acks(&v, "7 0 4294967295 ");
    assert_events(&v, "1=seven 2=zero 3=last ");
    say(d, &v, 0, "zero"); /* acknowledged again, not answered */
    say(d, &v, 7, "other");
    assert_acks(&v, "7 0 4294967295 0 7 ");
    restart(d);
    come(d, &v);
    say(d, &v, UINT32_MAX, "last");
    say(d, &v, 1, "one");
    assert_acks(&v, "7 0 4294967295 0 7 4294967295 1 ");
    assert_events(&v, "1=seven 2=zero 3=last 4=one ");
    visitor_deinit(&v);
    assert_holds(d, "talk", "1=seven 2=zero 3=last 4=one ");
    desk_free(d);
}

static void test_duplicates_in_flight(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), newer = visit(d, "talk", RIGHT);
    come(d, &v);
    d->front->hold = true;
    say(d, &v, 0, "a");
    say(d, &v, 0, "a");
    say(d, &v, 1, "b"); /* waits for the write that is under way */
    say(d, &v, 1, "b");
    pass(d, SECOND_MS);
    assert_acks(&v, "");
    assert_int_equal(session_settled(&v.client), 0);
    facade_let_one(d->front);
    settle(d);
    assert_acks(&v, "0 0 ");
    assert_in_range(session_settled(&v.client), 1, 2);

    come(d, &newer);
    assert_over(&v, SESSION_REPLACED);
    say(d, &newer, 1, "b");
    pass(d, SECOND_MS);
    assert_acks(&newer, ""); /* it is not durable, whoever said it */
    assert_int_equal(session_settled(&newer.client), 0);
    facade_let_go(d->front);
    settle(d);
    assert_true(str_starts(buf_str(&newer.acks), STR("1 ")));
    assert_int_equal(session_settled(&newer.client), 1);
    assert_events(&newer, "1=a 2=b ");
    assert_acks(&v, "0 0 ");
    visitor_deinit(&v);
    visitor_deinit(&newer);
    desk_free(d);
}

/* Two early messages that need two writes: the first one's being durable says nothing of the
 * second. */
static void test_settled_only_when_durable(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    char *much = mem_zalloc(SESSION_PENDING_MAX);
    memset(much, 'x', SESSION_PENDING_MAX);
    d->front->hold = true;
    visitor_connect(&v);
    visitor_say(&v, 0, str_of(much, SESSION_PENDING_MAX));
    visitor_say(&v, 1, str_of(much, SESSION_PENDING_MAX));
    settle(d);
    assert_true(v.welcomed);
    facade_let_one(d->front);
    settle(d);
    assert_acks(&v, "0 ");
    assert_int_equal(session_settled(&v.client), 1);
    facade_let_go(d->front);
    settle(d);
    assert_int_equal(session_settled(&v.client), 2);
    free(much);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_goes_when_settled(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    v.goes_when_settled = true;
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a")); /* early, and needs no write */
    settle(d);
    assert_int_equal(v.n_settled, 1);
    assert_false(v.here);
    visitor_connect(&v);
    visitor_say(&v, 1, STR("b"));
    settle(d);
    assert_int_equal(v.n_settled, 1);
    visitor_deinit(&v);
    assert_holds(d, "talk", "1=a 2=b ");
    desk_free(d);
}

/* One that goes as soon as its chunk is safe: the backend gets that all the same. */
static void test_answered_when_gone(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    v.goes_when_settled = true;
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a"));
    settle(d);
    assert_false(v.here);
    assert_starts(d, "0=a ");
    restart(d); /* again, when it was there before */
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a"));
    settle(d);
    assert_false(v.here);
    assert_starts(d, "0=a 0=a ");
    end_job(d, END_COMPLETED, "");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_too_many_gaps(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    for (uint32_t i = 0; i < SESSION_RANGES_MAX; i++) {
        visitor_say(&v, 2 * i, STR(""));
        if (i % 100 == 0)
            settle(d);
    }
    settle(d);
    assert_false(v.over);
    say(d, &v, 3, ""); /* closes one */
    assert_false(v.over);
    say(d, &v, 2 * SESSION_RANGES_MAX + 2, "");
    say(d, &v, 2 * SESSION_RANGES_MAX + 10, "");
    assert_over(&v, SESSION_MALFORMED);
    assert_message(&v, "the seqnos have too many gaps");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_max_bytes(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    char text[600] = {0};
    memset(text, 'x', sizeof text - 1);
    stop(d);
    d->setup.max_bytes = 1000;
    d->all = sessions_new(&d->setup);
    come(d, &v);
    say(d, &v, 0, text);
    say(d, &v, 1, text);
    assert_acks(&v, "0 ");
    assert_over(&v, SESSION_MALFORMED);
    assert_message(&v, "the session holds as many bytes");
    visitor_deinit(&v);
    desk_free(d);
}

/* ---- secrets ---- */

static void test_wrong_secret(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), thief = visit(d, "talk", WRONG);
    come(d, &v);
    visitor_connect(&thief);
    visitor_say(&thief, 0, STR("mine")); /* is not heard */
    visitor_abort(&thief);
    settle(d);
    assert_over(&thief, SESSION_WRONG_SECRET);
    assert_false(thief.welcomed || v.over);
    say(d, &v, 0, "hello");
    assert_acks(&v, "0 ");
    assert_events(&v, "1=hello ");
    leave(d, &v);
    come(d, &thief); /* in memory still */
    assert_over(&thief, SESSION_WRONG_SECRET);
    restart(d);
    come(d, &thief);
    assert_over(&thief, SESSION_WRONG_SECRET);
    visitor_connect_at(&thief, 9); /* nor is it told that it holds less */
    settle(d);
    assert_over(&thief, SESSION_WRONG_SECRET);
    come(d, &v);
    assert_false(v.over);
    visitor_deinit(&v);
    visitor_deinit(&thief);
    assert_holds(d, "talk", "1=hello ");
    desk_free(d);
}

static void test_two_at_once(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor a = visit(d, "talk", RIGHT), b = visit(d, "talk", RIGHT),
                   thief = visit(d, "talk", WRONG);
    for (int i = 0; i < 2; i++) { /* created, then read back */
        visitor_connect(&a);
        visitor_connect(&thief);
        visitor_connect(&b);
        visitor_say(&a, 0, STR("a"));
        visitor_say(&b, 1, STR("b"));
        settle(d);
        assert_over(&a, SESSION_REPLACED);
        assert_over(&thief, SESSION_WRONG_SECRET);
        assert_false(b.over);
        assert_events(&b, "1=a 2=b ");
        restart(d);
    }
    visitor_deinit(&a);
    visitor_deinit(&b);
    visitor_deinit(&thief);
    desk_free(d);
}

static void test_creator_goes(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor a = visit(d, "talk", WRONG), b = visit(d, "talk", RIGHT);
    visitor_connect(&a);
    visitor_connect(&b);
    visitor_disconnect(&a); /* before anything is created */
    settle(d);
    assert_true(b.welcomed);
    visitor_connect(&a);
    visitor_disconnect(&a);
    visitor_deinit(&b);
    b = visit(d, "nobody", RIGHT);
    visitor_connect(&b);
    visitor_disconnect(&b); /* and so nobody is left */
    settle(d);
    assert_int_equal(look(d, "nobody").err, ERR_NOT_FOUND);
    visitor_deinit(&a);
    visitor_deinit(&b);
    desk_free(d);
}

/* ---- what is wrong with messages ---- */

static void test_malformed(void **state)
{
    static const struct {
        struct str message;
        const char *why;
    } cases[] = {
        {STR_INIT("\x0a\0"), "a client_chunk needs a seqno"},
        {STR_INIT("\xff\xff\xff"), "a message is neither"},
        {STR_INIT(""), "a message is neither"},
        {STR_INIT("\x28\0"), "a message is neither"},
        {STR_INIT("\x0a\x05x"), "a message is neither"},
    };
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        come(d, &v);
        session_receive(&v.client, cases[i].message);
        visitor_say(&v, 0, STR("too late"));
        settle(d);
        assert_over(&v, SESSION_MALFORMED);
        assert_message(&v, cases[i].why);
        assert_acks(&v, "");
        visitor_connect(&v); /* the same, early */
        visitor_say(&v, 100 + (uint32_t)i, STR("x"));
        session_receive(&v.client, cases[i].message);
        settle(d);
        assert_over(&v, SESSION_MALFORMED);
        assert_message(&v, cases[i].why);
    }
    come(d, &v);
    say(d, &v, 0, "well");
    assert_acks(&v, "0 ");
    assert_events(&v, "1=x 2=x 3=x 4=x 5=x 6=well ");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_malformed_is_let_go(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    session_receive(&v.client, STR("garbage"));
    settle(d);
    assert_over(&v, SESSION_MALFORMED);
    leave(d, &v);
    assert_false(look(d, "talk").row.key_held);
    pass(d, LINGER_MS);
    assert_int_equal(sessions_open(d->all), 0);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_chunk_after_close(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    visitor_close(&v);
    visitor_close(&v); /* twice is once */
    say(d, &v, 0, "a");
    assert_acks(&v, "0 0 ");
    assert_false(v.over);
    say(d, &v, 1, "b");
    assert_over(&v, SESSION_MALFORMED);
    assert_message(&v, "a new client_chunk came after close");
    come(d, &v);
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_ended(&v, END_COMPLETED, false);
    assert_int_equal(look(d, "talk").row.in.events, 2);
    assert_starts(d, "0=a ");
    visitor_deinit(&v);
    desk_free(d);
}

static void on_appended(struct store_write *w, int err)
{
    *(int *)w->content_type.p = err;
}

/* A worker's last word. */
static void work(struct desk *d, const char *key, const char *text)
{
    struct buf contents = {0};
    int err = 1;
    struct store_write w = {.content_type = str_of((const char *)&err, sizeof err),
                            .close = true,
                            .end = END_COMPLETED,
                            .done = on_appended};
    session_content_put(&contents, true, str_of_cstr(text));
    sessions_view_ops.write_out(d->all, str_of_cstr(key), &w, buf_str(&contents));
    settle(d);
    assert_int_equal(err, 0);
    buf_deinit(&contents);
}

/* Whoever comes back hears of it as whoever stayed, behind all that there is. */
static void test_chunk_after_the_end(void **state)
{
    static const char *messages[] = {"a new client_chunk came after close",
                                     "a new client_chunk came after the end of the session"};
    for (int by_worker = 0; by_worker < 2; by_worker++) {
        struct desk *d = desk_new(by_worker ? WORKERS : BY_HAND);
        struct visitor v = visit(d, "talk", RIGHT);
        come(d, &v);
        say(d, &v, 0, "a");
        if (by_worker) {
            work(d, "talk", "x");
        } else {
            visitor_close(&v);
            answer(d, "x", "");
            end_job(d, END_COMPLETED, "");
        }
        settle(d);
        leave(d, &v);
        for (int how = 0; how < 3; how++) {
            struct visitor late = visit(d, "talk", RIGHT);
            if (how == 2)
                restart(d);
            visitor_connect(&late);
            if (how > 0)
                settle(d); /* it has been told all but that this is the end */
            assert_false(late.over);
            visitor_say(&late, 0, STR("a"));
            visitor_say(&late, 1, STR("b"));
            settle(d);
            assert_acks(&late, "0 ");
            assert_events(&late, "1=x ");
            assert_over(&late, SESSION_MALFORMED);
            assert_message(&late, messages[by_worker]);
            assert_int_equal(session_settled(&late.client), 1); /* of two that were said */
            visitor_deinit(&late);
        }
        assert_int_equal(look(d, "talk").row.in.events, by_worker ? 1 : 2);
        visitor_deinit(&v);
        desk_free(d);
    }
}

/* Nobody is kept waiting who has said that nothing comes, and the others not for long. */
static void test_last_word(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    visitor_close(&v);
    settle(d);
    assert_ended(&v, END_COMPLETED, false);
    for (int how = 0; how < 3; how++) {
        come(d, &v);
        assert_false(v.over);
        if (how == 0)
            visitor_close(&v);
        else if (how == 1)
            session_half_close(&v.client);
        else
            pass(d, LATE_CHUNK_MS);
        settle(d);
        assert_ended(&v, END_COMPLETED, false);
    }
    visitor_deinit(&v);
    desk_free(d);
}

/* ---- positions ---- */

static void test_gap(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), lost = visit(d, "talk", RIGHT);
    visitor_connect_at(&lost, 1);
    settle(d);
    assert_over(&lost, SESSION_UNKNOWN);
    assert_int_equal(look(d, "talk").err, ERR_NOT_FOUND);
    come(d, &v);
    visitor_connect_at(&lost, 1);
    settle(d);
    assert_over(&lost, SESSION_GAP);
    assert_int_equal(lost.client.earliest, 0);
    assert_int_equal(lost.client.latest, 0);
    say(d, &v, 0, "a");
    say(d, &v, 1, "b");
    visitor_connect_at(&lost, UINT64_MAX);
    settle(d);
    assert_over(&lost, SESSION_GAP);
    assert_int_equal(lost.client.earliest, 1);
    assert_int_equal(lost.client.latest, 2);
    assert_false(lost.welcomed || v.over);
    restart(d);
    visitor_connect_at(&lost, 3);
    settle(d);
    assert_over(&lost, SESSION_GAP);
    assert_int_equal(lost.client.latest, 2);
    come(d, &v);
    assert_false(v.over);
    visitor_deinit(&v);
    visitor_deinit(&lost);
    desk_free(d);
}

/* An event may be seen before the engine is told that it was written. */
static void test_position_ahead_of_the_writer(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    d->front->late = true;
    answer(d, "x", "");
    settle(d);
    assert_events(&v, "1=x ");
    come(d, &v);
    assert_true(v.welcomed && !v.over);
    facade_tell_all(d->front);
    answer(d, "y", "");
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_events(&v, "1=x 2=y ");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_retention_of_the_server(void **state)
{
    struct desk *d = desk_new(ECHO);
    d->front->inner->retain = (struct retain){.events = 2, .bytes = 200, .age_ms = 1000};
    struct visitor v = visit(d, "k", RIGHT);
    come(d, &v);
    for (uint32_t i = 0; i < 5; i++) {
        say(d, &v, i, "a chunk of some length");
        pass(d, 500);
    }
    pass(d, 5000);
    restart(d);
#define SAID(n) n "=a chunk of some length "
    assert_holds(d, "k", SAID("1") SAID("2") SAID("3") SAID("4") SAID("5"));
#undef SAID
    visitor_deinit(&v);
    desk_free(d);
}

static void test_expired(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), thief = visit(d, "talk", WRONG);
    come(d, &v);
    say(d, &v, 0, "a");
    pass(d, 2 * LIFETIME_MS); /* is nothing to one who is there */
    say(d, &v, 1, "b");
    assert_events(&v, "1=a 2=b ");
    leave(d, &v);
    pass(d, LIFETIME_MS - 10 * MINUTE_MS);
    come(d, &v);
    assert_false(v.over);
    leave(d, &v);
    pass(d, LIFETIME_MS + MINUTE_MS);
    come(d, &v);
    assert_over(&v, SESSION_EXPIRED);
    assert_false(v.welcomed);
    come(d, &thief);
    assert_over(&thief, SESSION_WRONG_SECRET);
    visitor_connect(&v); /* both at once, and one who comes while it is looked for */
    visitor_connect(&thief);
    settle(d);
    assert_over(&v, SESSION_EXPIRED);
    assert_over(&thief, SESSION_WRONG_SECRET);
    visitor_connect_at(&v, 0);
    settle(d);
    assert_over(&v, SESSION_EXPIRED);
    assert_true(look(d, "talk").row.expired);

    pass(d, DAY_MS - 30 * MINUTE_MS);
    come(d, &thief);
    assert_over(&thief, SESSION_WRONG_SECRET);
    pass(d, HOUR_MS); /* the sweep has been there */
    come(d, &v);
    assert_over(&v, SESSION_UNKNOWN);
    assert_int_equal(look(d, "talk").err, ERR_NOT_FOUND);
    come(d, &thief); /* anybody's again */
    say(d, &thief, 0, "new");
    assert_events(&thief, "1=new ");
    visitor_deinit(&v);
    visitor_deinit(&thief);
    desk_free(d);
}

/* Whoever joins while the store is asked has not been checked with the first. */
static void test_wrong_secret_while_expired_is_read(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), thief = visit(d, "talk", WRONG);
    come(d, &v);
    leave(d, &v);
    pass(d, LIFETIME_MS + MINUTE_MS);
    refuse(d, "read", "/in", ERR_NOT_FOUND, 0);
    visitor_connect(&v);
    for (bool joined = false; !v.over && !joined;) {
        /* one task after the other, until the document has been found */
        struct link *l = d->sched.tasks.next;
        assert_true(l != &d->sched.tasks);
        struct task *t = list_item(l, struct task, link);
        list_remove(l);
        t->run(t);
        struct session *s = session_find(d->all, STR("talk"));
        joined = s != NULL && s->keys != NULL;
        if (joined)
            visitor_connect(&thief);
    }
    settle(d);
    assert_over(&v, SESSION_EXPIRED);
    assert_over(&thief, SESSION_WRONG_SECRET);
    visitor_deinit(&v);
    visitor_deinit(&thief);
    desk_free(d);
}

/* ---- ends ---- */

static void test_abort(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT), other = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    assert_int_equal(answer(d, "half", ""), 1);
    say(d, &v, 1, "b");
    visitor_abort(&v);
    assert_non_null(d->reply); /* until it is durable */
    settle(d);
    assert_int_equal(d->n_stops, 1);
    assert_events(&v, "1=half ");
    assert_ended(&v, END_CANCELLED, true);
    come(d, &other); /* hears of it later */
    assert_events(&other, "1=half ");
    assert_ended(&other, END_CANCELLED, false);
    restart(d);
    come(d, &other);
    visitor_say(&other, 2, STR("c")); /* is of no use any more */
    settle(d);
    assert_ended(&other, END_CANCELLED, false);
    assert_acks(&other, "");
    assert_starts(d, "0=a ");
    visitor_deinit(&v);
    visitor_deinit(&other);
    desk_free(d);
}

static void test_abort_from_elsewhere(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT), other = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    assert_int_equal(answer(d, "half", ""), 1);
    settle(d);
    visitor_connect(&other);
    visitor_abort(&other); /* alone, as clients do */
    settle(d);
    assert_over(&v, SESSION_REPLACED);
    assert_ended(&other, END_CANCELLED, true);
    assert_int_equal(d->n_stops, 1);
    come(d, &v);
    assert_ended(&v, END_CANCELLED, false);
    visitor_deinit(&v);
    visitor_deinit(&other);
    desk_free(d);
}

/* The abort is durable, the end is not. */
static void test_abort_survives(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    refuse(d, "write", "/out", ERR_IO, 1);
    visitor_abort(&v);
    settle(d);
    assert_over(&v, SESSION_FAILED);
    restart(d);
    come(d, &v);
    assert_ended(&v, END_CANCELLED, false);
    assert_starts(d, "0=a ");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_close(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    visitor_close(&v);
    settle(d);
    assert_false(v.over);
    assert_int_equal(answer(d, "x", ""), 1);
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_events(&v, "1=x ");
    assert_ended(&v, END_COMPLETED, false);
    for (int i = 0; i < 2; i++) {
        come(d, &v);
        assert_true(v.welcomed);
        pass(d, LATE_CHUNK_MS);
        assert_ended(&v, END_COMPLETED, false);
        say(d, &v, 0, "a"); /* to one that is over: nothing happens */
        restart(d);
    }
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a"));
    visitor_close(&v);
    settle(d);
    assert_ended(&v, END_COMPLETED, false);
    assert_starts(d, "0=a ");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_close_alone(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    visitor_connect(&v);
    visitor_close(&v);
    settle(d);
    assert_true(v.welcomed);
    assert_ended(&v, END_COMPLETED, false);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_half_close(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    say(d, &v, 1, "b");
    session_half_close(&v.client);
    settle(d);
    assert_false(v.over);
    answer(d, "x", "");
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_false(v.over); /* there is another chunk */
    end_job(d, END_COMPLETED, "");
    assert_false(v.over);
    settle(d);
    assert_events(&v, "1=x ");
    assert_over(&v, SESSION_IDLE);
    come(d, &v); /* the session is as it was */
    say(d, &v, 2, "c");
    assert_starts(d, "0=a 1=b 2=c ");
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_false(v.over);
    session_half_close(&v.client);
    settle(d);
    assert_over(&v, SESSION_IDLE);
    visitor_connect(&v); /* says nothing at all */
    session_half_close(&v.client);
    settle(d);
    assert_over(&v, SESSION_IDLE);
    visitor_deinit(&v);
    desk_free(d);
}

/* Who sends no more is told of the end, not that all is answered. */
static void test_half_close_before_the_end(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    session_half_close(&v.client);
    end_job(d, END_FAILED, "no luck");
    settle(d);
    assert_ended(&v, END_FAILED, false);
    assert_message(&v, "no luck");
    visitor_deinit(&v);
    desk_free(d);
}

/* ---- the store's moods ---- */

static void degrade_with(const char *verb, const char *end, int err)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    refuse(d, verb, end, err, 1);
    come(d, &v);
    assert_true(v.welcomed && v.degraded);
    assert_int_equal(sessions_degraded(d->all), 1);
    assert_message(&(struct visitor){.client.message = buf_str(&v.welcome)}, "welcome; this");
    say(d, &v, 0, "a");
    assert_acks(&v, "0 ");
    assert_events(&v, "1=a ");
    assert_int_equal(look(d, "talk").err, ERR_NOT_FOUND);
    leave(d, &v);
    settle(d);
    assert_int_equal(sessions_open(d->all), 0); /* nobody can come back to it */
    struct visitor again = visit(d, "talk", WRONG);
    come(d, &again);
    assert_true(again.welcomed && !again.degraded);
    assert_int_equal(sessions_degraded(d->all), 1);
    say(d, &again, 0, "new");
    assert_events(&again, "1=new ");
    visitor_deinit(&v);
    visitor_deinit(&again);
    desk_free(d);
}

static void test_degraded(void **state)
{
    static const int errs[] = {ERR_IO, ERR_FULL, ERR_BUSY, ERR_AWAY, ERR_LIMIT};
    for (size_t i = 0; i < sizeof errs / sizeof *errs; i++) {
        degrade_with("write", "/out", errs[i]);
        degrade_with("write", "/in", errs[i]);
        degrade_with("docs", "session/talk", errs[i]);
    }
}

/* An old session of a client that cannot be had: it is told so, and begins anew; also when it comes
 * back to what was made for it meanwhile. */
static void test_degraded_forgets_positions(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT), again = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    say(d, &v, 1, "b");
    leave(d, &v);
    restart(d);
    refuse(d, "docs", "session/talk", ERR_IO, 1);
    visitor_connect_at(&v, 2);
    v.seen = 0;
    memset(v.mac, 0, sizeof v.mac);
    settle(d);
    assert_true(v.welcomed && v.degraded);
    visitor_connect_at(&again, 2);
    settle(d);
    assert_true(again.welcomed && again.degraded);
    say(d, &again, 2, "c");
    assert_events(&again, "1=c ");
    visitor_deinit(&v);
    visitor_deinit(&again);
    settle(d);
    assert_holds(d, "talk", "1=a 2=b "); /* as it was */
    desk_free(d);
}

static void test_degraded_ends(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    refuse(d, "write", "/out", ERR_IO, 1);
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a"));
    visitor_close(&v);
    settle(d);
    assert_true(v.degraded);
    assert_acks(&v, "0 ");
    assert_events(&v, "1=a ");
    assert_ended(&v, END_COMPLETED, false);
    visitor_deinit(&v);
    desk_free(d);
}

/* Workers would not find it. */
static void test_workers_are_not_degraded(void **state)
{
    struct desk *d = desk_new(WORKERS);
    struct visitor v = visit(d, "talk", RIGHT);
    refuse(d, "write", "/out", ERR_IO, 1);
    come(d, &v);
    assert_over(&v, SESSION_FAILED);
    assert_int_equal(v.client.err, ERR_IO);
    come(d, &v);
    assert_true(v.welcomed && !v.degraded);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_too_many(void **state)
{
    struct desk *d = desk_new(ECHO);
    stop(d);
    d->setup.max_open = 2;
    d->all = sessions_new(&d->setup);
    struct visitor a = visit(d, "a", RIGHT), b = visit(d, "b", RIGHT), c = visit(d, "c", RIGHT),
                   e = visit(d, "e", RIGHT);
    come(d, &a);
    leave(d, &a);
    come(d, &b);
    come(d, &c); /* in the place of a, which nobody needs */
    assert_true(c.welcomed && !c.degraded);
    assert_int_equal(sessions_open(d->all), 2);
    come(d, &a); /* is there, but not in memory, and cannot be degraded */
    assert_over(&a, SESSION_BUSY);
    come(d, &e); /* can be */
    assert_true(e.welcomed && e.degraded);
    visitor_deinit(&a);
    a = visit(d, "f", RIGHT);
    come(d, &a);
    assert_over(&a, SESSION_BUSY);
    leave(d, &e); /* makes room for another degraded one */
    settle(d);
    come(d, &a);
    assert_true(a.welcomed && a.degraded);
    leave(d, &b);
    come(d, &e);
    assert_true(e.welcomed);
    say(d, &c, 0, "hello"); /* all the while */
    assert_events(&c, "1=hello ");
    visitor_deinit(&a);
    visitor_deinit(&b);
    visitor_deinit(&c);
    visitor_deinit(&e);
    desk_free(d);
}

static void test_busy_store_is_waited_for(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    refuse(d, "write", "/in", ERR_BUSY, 5);
    say(d, &v, 0, "a");
    visitor_say(&v, 1, STR("b")); /* meanwhile */
    assert_acks(&v, "");
    pass(d, 20 * SECOND_MS);
    assert_int_equal(d->refuse_left, 0);
    assert_acks(&v, "0 1 ");
    assert_events(&v, "1=a 2=b ");
    refuse(d, "write", "/out", ERR_FULL, 5);
    say(d, &v, 2, "c");
    assert_acks(&v, "0 1 2 ");
    assert_events(&v, "1=a 2=b ");
    pass(d, 20 * SECOND_MS);
    assert_events(&v, "1=a 2=b 3=c ");
    visitor_deinit(&v);
    assert_holds(d, "talk", "1=a 2=b 3=c ");
    desk_free(d);
}

static void test_patience_ends(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    refuse(d, "write", "/in", ERR_FULL, 1000);
    say(d, &v, 0, "a");
    pass(d, 50 * SECOND_MS);
    assert_false(v.over);
    pass(d, 20 * SECOND_MS);
    assert_over(&v, SESSION_FAILED);
    assert_int_equal(v.client.err, ERR_FULL);
    assert_acks(&v, "");
    refuse(d, "write", "/in", 0, 0);
    visitor_connect(&v);
    visitor_say(&v, 0, STR("a"));
    settle(d);
    assert_acks(&v, "0 ");
    visitor_deinit(&v);
    assert_holds(d, "talk", "1=a ");
    desk_free(d);
}

static void test_failing_store(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    refuse(d, "write", "/in", ERR_IO, 1);
    visitor_say(&v, 1, STR("b"));
    visitor_say(&v, 2, STR("c"));
    settle(d);
    assert_over(&v, SESSION_FAILED);
    assert_int_equal(v.client.err, ERR_IO);
    assert_acks(&v, "0 ");
    assert_int_equal(session_settled(&v.client), 1);
    restart(d);
    visitor_connect(&v);
    visitor_say(&v, 1, STR("b"));
    settle(d);
    assert_acks(&v, "0 1 ");
    assert_events(&v, "1=a 2=b ");
    refuse(d, "write", "/out", ERR_IO, 1);
    say(d, &v, 2, "c"); /* durable, but its answer is not */
    assert_acks(&v, "0 1 2 ");
    assert_events(&v, "1=a 2=b ");
    assert_over(&v, SESSION_FAILED);
    restart(d);
    come(d, &v);
    assert_events(&v, "1=a 2=b 3=c ");
    visitor_deinit(&v);
    desk_free(d);
}

/* Somebody else writes the stream: the copy is thrown away and read anew. */
static void on_foreign(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
}

static void test_stream_that_moved(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    struct looking l = look(d, "talk");
    struct session_keys *keys = session_find(d->all, STR("talk"))->keys;
    struct buf record = {0};
    session_seal(keys, SESSION_IN, l.row.in.events, SESSION_RECORD_CHUNK, 9, STR("foreign"),
                 &record);
    struct store_write w = {.name = STR("sessions/talk/in"),
                            .data = buf_str(&record),
                            .n_events = 1,
                            .done = on_foreign};
    store_write(d->front->inner, &w);
    settle(d);
    say(d, &v, 1, "b");
    assert_over(&v, SESSION_FAILED);
    assert_int_equal(v.client.err, ERR_TAIL_MOVED);
    assert_acks(&v, "0 ");
    visitor_connect(&v);
    visitor_say(&v, 1, STR("b"));
    settle(d);
    assert_acks(&v, "0 1 ");
    assert_events(&v, "1=a 2=foreign 3=b ");
    buf_deinit(&record);
    visitor_deinit(&v);
    desk_free(d);
}

static void on_removed(struct store_remove *r, int err)
{
    assert_int_equal(err, 0);
}

/* Its stream is taken away under a client that waits for events. */
static void test_stream_that_is_gone(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    struct store_remove r = {.name = STR("sessions/talk/out"), .done = on_removed};
    store_remove(d->front->inner, &r);
    settle(d);
    assert_over(&v, SESSION_EXPIRED);
    leave(d, &v);
    assert_false(look(d, "talk").row.key_held);
    pass(d, LINGER_MS);
    assert_int_equal(sessions_open(d->all), 0);
    come(d, &v);
    assert_over(&v, SESSION_EXPIRED);
    visitor_deinit(&v);
    desk_free(d);
}

/* The copy is thrown away while an answer is being written: what is there is read when that is
 * over, or the backend would be asked again for what has been answered. */
static void test_last_write_is_waited_for(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    d->front->hold = true;
    answer(d, "x", "");
    end_job(d, END_COMPLETED, "");
    settle(d);
    refuse(d, "write", "/in", ERR_TAIL_MOVED, 1);
    say(d, &v, 1, "b");
    assert_over(&v, SESSION_FAILED);
    visitor_connect(&v);
    visitor_say(&v, 1, STR("b"));
    pass(d, SECOND_MS);
    assert_false(v.welcomed || v.over);
    facade_let_go(d->front);
    settle(d);
    assert_events(&v, "1=x ");
    assert_acks(&v, "0 1 ");
    assert_starts(d, "0=a 1=b ");
    end_job(d, END_COMPLETED, "");
    visitor_deinit(&v);
    desk_free(d);
}

/* ---- jobs ---- */

static void test_back_pressure(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    char *text = mem_zalloc(64 * 1024 + 1);
    unsigned n = 0;
    memset(text, 'x', 64 * 1024);
    come(d, &v);
    say(d, &v, 0, "a");
    d->front->hold = true;
    while (answer(d, text, "") == 1)
        n++;
    assert_int_equal(n, SESSION_PENDING_MAX / (64 * 1024) - 1);
    settle(d);
    assert_int_equal(d->n_rooms, 0);
    assert_int_equal(v.seen, 0);
    facade_let_go(d->front);
    settle(d);
    assert_int_equal(d->n_rooms, 1);
    assert_int_equal(v.seen, n + 1);
    end_job(d, END_COMPLETED, "");
    free(text);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_answers_that_are_none(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v;
    visitor_init(&v, &d->all, "talk", SESSION_AISERVER, RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    assert_int_equal(session_reply_event(d->reply, STR("\xff"), true, STR_NONE), ERR_SYNTAX);
    assert_int_equal(session_reply_event(d->reply, STR("\x12\x7f"), false, STR_NONE), ERR_SYNTAX);
    char *huge = mem_zalloc(17 * 1024 * 1024);
    assert_int_equal(session_reply_event(d->reply, str_of(huge, 17 * 1024 * 1024), true, STR_NONE),
                     ERR_TOO_LARGE);
    free(huge);
    assert_int_equal(session_reply_event(d->reply, STR("\x12\x04\x0a\x02hi"), false, STR_NONE), 1);
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_events(&v, "1=hi ");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_failed_answer(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    answer(d, "half", "");
    end_job(d, END_FAILED, "the upstream is on fire");
    settle(d);
    for (int i = 0; i < 3; i++) {
        assert_events(&v, "1=half ");
        assert_ended(&v, END_FAILED, false);
        assert_message(&v, "the upstream is on fire");
        if (i == 1)
            restart(d);
        come(d, &v);
    }
    assert_starts(d, "0=a ");
    visitor_deinit(&v);
    desk_free(d);
}

/* An answer that a stop has cut off goes on behind what there is of it. */
static void test_answer_goes_on(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    say(d, &v, 1, "b");
    answer(d, "one", "id-1");
    answer(d, "two", "id-2");
    settle(d);
    restart(d);
    assert_int_equal(d->n_stops, 1);
    come(d, &v);
    assert_starts(d, "0=a 0=a+id-2 ");
    answer(d, "three", "");
    settle(d);
    restart(d);
    come(d, &v);
    assert_starts(d, "0=a 0=a+id-2 0=a+ ");
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_starts(d, "0=a 0=a+id-2 0=a+ 1=b ");
    end_job(d, END_COMPLETED, ""); /* without a word */
    settle(d);
    restart(d);
    come(d, &v);
    assert_null(d->reply);
    assert_events(&v, "1=one 2=two 3=three ");
    visitor_deinit(&v);
    assert_holds(d, "talk", "1=one 2=two 3=three ");
    desk_free(d);
}

/* A crash may make the backend see one chunk again, the one that it has not answered for good. */
static void test_one_answer_at_a_time(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    say(d, &v, 1, "b");
    d->front->hold = true;
    answer(d, "x", "");
    end_job(d, END_COMPLETED, "");
    pass(d, SECOND_MS);
    assert_starts(d, "0=a ");
    facade_let_go(d->front);
    settle(d);
    assert_starts(d, "0=a 1=b ");
    end_job(d, END_COMPLETED, "");
    visitor_deinit(&v);
    desk_free(d);
}

/* The client has gone; the answer is made all the same. */
static void test_nobody_listens(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    visitor_say(&v, 0, STR("a"));
    visitor_say(&v, 1, STR("b"));
    leave(d, &v);
    assert_starts(d, "0=a ");
    answer(d, "x", "");
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_starts(d, "0=a 1=b ");
    pass(d, LIFETIME_MS - MINUTE_MS); /* however long it takes, within a session's life */
    answer(d, "y", "");
    assert_true(look(d, "talk").row.key_held);
    end_job(d, END_COMPLETED, "");
    settle(d);
    assert_false(look(d, "talk").row.key_held);
    come(d, &v);
    assert_events(&v, "1=x 2=y ");
    visitor_deinit(&v);
    desk_free(d);
}

/* ---- looking, keeping, stopping ---- */

struct listing {
    struct sessions_list list;
    struct buf text;
    int err;
};

static void on_listed(struct sessions_list *l, int err)
{
    struct listing *li = container_of(l, struct listing, list);
    li->err = err;
    for (size_t i = 0; err == 0 && i < l->n_rows; i++) {
        const struct session_row *r = &l->rows[i];
        buf_printf(&li->text, "%.*s/%d/%d/%" PRIu64 " ", (int)r->key.n, r->key.p, (int)r->service,
                   r->connected, r->answered);
    }
    if (l->more)
        buf_put(&li->text, STR("..."));
}

static void assert_lists(struct desk *d, const char *prefix, const char *after, size_t limit,
                         const char *expected)
{
    struct listing l = {.list = {.all = d->all,
                                 .prefix = str_of_cstr(prefix),
                                 .after = str_of_cstr(after),
                                 .limit = limit,
                                 .done = on_listed},
                        .err = 1};
    sessions_list(&l.list);
    settle(d);
    assert_int_equal(l.err, 0);
    assert_text(&l.text, expected);
    buf_deinit(&l.text);
}

static void test_list_and_show(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor a = visit(d, "a", RIGHT), b = visit(d, "ab", RIGHT), c;
    visitor_init(&c, &d->all, "b", SESSION_AISERVER, RIGHT);
    assert_lists(d, "", "", 10, "");
    come(d, &a);
    say(d, &a, 0, "x");
    say(d, &a, 1, "y");
    come(d, &b);
    leave(d, &b);
    come(d, &c);
    assert_lists(d, "", "", 10, "a/1/1/2 ab/1/0/0 b/2/1/0 ");
    assert_lists(d, "a", "", 10, "a/1/1/2 ab/1/0/0 ");
    assert_lists(d, "", "a", 1, "ab/1/0/0 ...");
    assert_lists(d, "", "b", 10, "");
    struct looking l = look(d, "a");
    assert_int_equal(l.err, 0);
    assert_int_equal(l.row.in.events, 2);
    assert_int_equal(l.row.out.events, 2);
    assert_int_equal(l.row.answered, 2);
    assert_int_equal(l.row.out.end, END_NONE);
    assert_true(l.row.connected && l.row.key_held && !l.row.expired);
    assert_in_range(l.row.created_ms, START_WALL, START_WALL + 1000);
    assert_int_equal(look(d, "c").err, ERR_NOT_FOUND);
    visitor_deinit(&a);
    visitor_deinit(&b);
    visitor_deinit(&c);
    desk_free(d);
}

static void test_key_is_wiped(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    assert_true(look(d, "talk").row.key_held);
    leave(d, &v);
    struct looking l = look(d, "talk");
    assert_false(l.row.key_held || l.row.connected);
    assert_int_equal(sessions_open(d->all), 1);
    pass(d, LINGER_MS / 2);
    come(d, &v); /* it is known again by the client's secret */
    say(d, &v, 1, "b");
    assert_events(&v, "1=a 2=b ");
    visitor_close(&v);
    settle(d);
    assert_ended(&v, END_COMPLETED, false);
    assert_false(look(d, "talk").row.key_held); /* though it is still connected */
    leave(d, &v);
    pass(d, LINGER_MS);
    assert_int_equal(sessions_open(d->all), 0);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_key_is_held_for_workers(void **state)
{
    struct desk *d = desk_new(WORKERS);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    assert_acks(&v, "0 ");
    session_half_close(&v.client);
    settle(d);
    assert_false(v.over); /* only a worker knows when all is answered */
    leave(d, &v);
    pass(d, HOLD_MS - MINUTE_MS);
    assert_true(look(d, "talk").row.key_held);
    pass(d, 2 * MINUTE_MS);
    assert_false(look(d, "talk").row.key_held);
    assert_int_equal(sessions_open(d->all), 0);
    visitor_connect(&v);
    visitor_abort(&v);
    settle(d);
    assert_ended(&v, END_CANCELLED, true);
    leave(d, &v);
    assert_false(look(d, "talk").row.key_held); /* nothing is left to do */
    visitor_deinit(&v);
    desk_free(d);
}

/* What a worker appends that cannot be sealed changes nothing, not even how long the key is held.
 */
static void test_bad_append_of_a_worker(void **state)
{
    struct desk *d = desk_new(WORKERS);
    struct visitor v;
    struct buf contents = {0};
    int err = 1;
    struct store_write w = {.content_type = str_of((const char *)&err, sizeof err),
                            .done = on_appended};
    visitor_init(&v, &d->all, "talk", SESSION_AISERVER, RIGHT);
    come(d, &v);
    leave(d, &v);
    session_content_put(&contents, true, STR("\xff")); /* no text */
    sessions_view_ops.write_out(d->all, STR("talk"), &w, buf_str(&contents));
    settle(d);
    assert_int_equal(err, ERR_SYNTAX);
    assert_true(look(d, "talk").row.key_held);
    pass(d, HOLD_MS + MINUTE_MS);
    assert_false(look(d, "talk").row.key_held);
    assert_int_equal(sessions_open(d->all), 0);
    buf_deinit(&contents);
    visitor_deinit(&v);
    desk_free(d);
}

/* The session is in memory still, but not in the store any more. */
static void test_short_lifetime(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    stop(d);
    d->setup.lifetime_ms = LINGER_MS / 6;
    d->all = sessions_new(&d->setup);
    come(d, &v);
    say(d, &v, 0, "a");
    leave(d, &v);
    pass(d, LINGER_MS / 2);
    visitor_connect(&v);
    visitor_say(&v, 1, STR("b"));
    settle(d);
    assert_over(&v, SESSION_EXPIRED);
    assert_false(v.welcomed);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_drain(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT), late = visit(d, "late", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    sessions_drain(d->all);
    settle(d);
    assert_over(&v, SESSION_DRAINING);
    come(d, &late);
    assert_over(&late, SESSION_DRAINING);
    answer(d, "x", ""); /* what is under way comes to its end */
    end_job(d, END_COMPLETED, "");
    settle(d);
    restart(d);
    assert_int_equal(d->n_stops, 0);
    come(d, &v);
    assert_events(&v, "1=x ");
    visitor_deinit(&v);
    visitor_deinit(&late);
    desk_free(d);
}

static void run_tasks(struct desk *d, int n)
{
    for (; n > 0 && !list_empty(&d->sched.tasks); n--) {
        struct task *t = list_item(d->sched.tasks.next, struct task, link);
        list_remove(&t->link);
        t->run(t);
    }
}

/* At each point of a session's life, with everything under way that there can be. */
static void test_stop_at_any_time(void **state)
{
    for (int at = 0; at < 60; at++) {
        struct desk *d = desk_new(at % 2 == 0 ? ECHO : BY_HAND);
        struct visitor v = visit(d, "talk", RIGHT), w = visit(d, "other", RIGHT);
        if (at % 4 >= 2)
            refuse(d, "write", "other/out", ERR_IO, 1); /* degraded */
        visitor_connect(&v);
        visitor_connect(&w);
        for (uint32_t i = 0; i < 3; i++) {
            visitor_say(&v, i, STR("x"));
            visitor_say(&w, i, STR("y"));
        }
        visitor_close(&w);
        run_tasks(d, at);
        if (at % 3 == 0)
            visitor_disconnect(&v);
        stop(d);
        assert_true(!v.here || v.over);
        visitor_deinit(&v);
        visitor_deinit(&w);
        desk_free(d);
    }
}

enum { MANY = 3000, PIECE = 32 };

static char many_names[MANY][32];

static struct visitor *come_many(struct desk *d)
{
    struct visitor *all = mem_alloc(MANY * sizeof *all);
    stop(d);
    d->setup.max_open = MANY;
    d->all = sessions_new(&d->setup);
    for (int i = 0; i < MANY; i++) {
        snprintf(many_names[i], sizeof many_names[i], "talk-%d", i);
        all[i] = visit(d, many_names[i], RIGHT);
        visitor_connect(&all[i]);
    }
    settle(d);
    assert_int_equal(sessions_open(d->all), MANY);
    return all;
}

static void leave_many(struct visitor *all)
{
    for (int i = 0; i < MANY; i++)
        visitor_deinit(&all[i]);
    free(all);
}

static int count_told(const struct desk *d)
{
    int n = 0;
    list_each (l, &d->all->told)
        n++;
    return n;
}

static int count_over(const struct visitor *all)
{
    int n = 0;
    for (int i = 0; i < MANY; i++)
        n += all[i].over;
    return n;
}

/* So many that what holds them gets smaller meanwhile. */
static void test_stop_of_many(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor *all = come_many(d);
    stop(d);
    leave_many(all);
    desk_free(d);
}

/* Nobody else waits until all have been told. Some end by themselves in between, told or not. */
static void test_drain_of_many(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor *all = come_many(d);
    sessions_drain(d->all);
    assert_in_range(count_told(d), 1, PIECE);
    for (int i = 0; i < MANY; i += 7) {
        visitor_disconnect(&all[i]);
        session_kill(session_find(d->all, str_of_cstr(many_names[i])), SESSION_FAILED, ERR_IO);
    }
    while (!list_empty(&d->sched.tasks)) {
        int before = count_told(d);
        run_tasks(d, 1);
        assert_true(count_told(d) <= before + PIECE);
    }
    for (int i = 0; i < MANY; i++)
        assert_true(i % 7 == 0 || all[i].over);
    stop(d);
    leave_many(all);
    desk_free(d);
}

/* The same of a stop, also of one that comes before all have been told. */
static void test_stop_while_draining(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor *all = come_many(d);
    sessions_drain(d->all);
    run_tasks(d, 3);
    d->stopped = false;
    sessions_stop(d->all, note_stopped, &d->stopped);
    assert_in_range(sessions_open(d->all), MANY - 2 * PIECE, MANY - 1);
    while (!d->stopped && !list_empty(&d->sched.tasks)) {
        uint64_t before = sessions_open(d->all);
        run_tasks(d, 1);
        assert_true(d->stopped || sessions_open(d->all) + PIECE >= before);
    }
    assert_true(d->stopped);
    assert_int_equal(count_over(all), MANY);
    sessions_free(d->all);
    d->all = NULL;
    leave_many(all);
    desk_free(d);
}

/* While it is read back: one that is dead has no key to read with. */
static void test_stop_while_loading(void **state)
{
    for (int at = 0; at < 20; at++) {
        struct desk *d = desk_new(ECHO);
        struct visitor v = visit(d, "talk", RIGHT);
        come(d, &v);
        say(d, &v, 0, "a");
        restart(d);
        visitor_connect(&v);
        run_tasks(d, at);
        stop(d);
        assert_over(&v, SESSION_DRAINING);
        visitor_deinit(&v);
        desk_free(d);
    }
}

static void test_stop_with_writes_under_way(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    d->front->hold = true;
    answer(d, "x", "");
    visitor_say(&v, 1, STR("b"));
    settle(d);
    sessions_stop(d->all, note_stopped, &d->stopped);
    settle(d);
    assert_false(d->stopped); /* what the store has not answered is waited for */
    assert_over(&v, SESSION_DRAINING);
    assert_acks(&v, "0 ");
    facade_let_go(d->front);
    settle(d);
    assert_true(d->stopped);
    sessions_free(d->all);
    d->all = sessions_new(&d->setup);
    visitor_connect(&v);
    visitor_say(&v, 1, STR("b"));
    settle(d);
    assert_acks(&v, "0 1 ");
    assert_events(&v, "1=x ");
    assert_starts(d, "0=a 0=a+ ");
    end_job(d, END_COMPLETED, "");
    visitor_deinit(&v);
    desk_free(d);
}

static void test_slow_client(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    v.idle_hands = true;
    come(d, &v);
    assert_false(v.welcomed);
    for (uint32_t i = 0; i < SESSION_ACKS_MAX; i++)
        visitor_say(&v, 0, STR("a"));
    settle(d);
    assert_false(session_room(&v.client)); /* its acknowledgements fill up */
    unsigned told = v.n_ready;
    v.idle_hands = false;
    visitor_ready(&v.client);
    assert_true(session_room(&v.client));
    assert_true(v.n_ready > told);
    settle(d);
    assert_events(&v, "1=a ");
    visitor_deinit(&v);
    desk_free(d);
}

/* Who was told that there is no room waits to be told that there is, whether or not anything is
 * written meanwhile. */
static void test_room_behind_acks_is_told(void **state)
{
    struct desk *d = desk_new(ECHO);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    v.idle_hands = true;
    for (uint32_t i = 0; i < 2 * SESSION_ACKS_MAX; i++)
        visitor_say(&v, 0, STR("a"));
    settle(d);
    assert_false(session_room(&v.client));
    unsigned told = v.n_ready;
    while (visitor_take(&v))
        ;
    assert_true(session_room(&v.client));
    assert_int_equal(v.n_ready, told);
    settle(d);
    assert_int_equal(v.n_ready, told + 1);
    visitor_deinit(&v);
    desk_free(d);
}

static void check_next_ack(struct visitor *v, uint32_t seqno)
{
    static uint32_t expected;
    expected = seqno == 0 ? 0 : expected + 1;
    assert_int_equal(seqno, expected);
}

/* Acknowledgements keep their order before a client that never takes all of them. */
static void test_acks_in_order(void **state)
{
    struct desk *d = desk_new(WORKERS);
    struct visitor v = visit(d, "talk", RIGHT);
    uint32_t n = 0;
    v.idle_hands = true;
    v.acked = check_next_ack;
    come(d, &v);
    while (n < 3 * SESSION_ACKS_MAX)
        visitor_say(&v, n++, STR("a"));
    settle(d);
    for (uint32_t i = 0; i < 8 * SESSION_ACKS_MAX; i++) {
        assert_true(visitor_take(&v));
        say(d, &v, n++, "a");
    }
    while (visitor_take(&v))
        n--;
    assert_int_equal(n, 8 * SESSION_ACKS_MAX - 1); /* the welcome was the first that it took */
    visitor_deinit(&v);
    desk_free(d);
}

static void on_asked(struct store_write *w, int err)
{
    assert_int_equal(err, ERR_TAIL_MOVED);
    w->if_match = false; /* whoever reads it now reads what is gone */
    free(w);
}

/* A worker's precondition that does not hold is its own affair, and what it asked with is its own
 * again once it is answered. */
static void test_workers_precondition(void **state)
{
    struct desk *d = desk_new(WORKERS);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    struct store_write *asked = mem_zalloc(sizeof *asked);
    *asked = (struct store_write){
        .name = STR("sessions/talk/out"), .if_match = true, .match = {1, 999}, .done = on_asked};
    struct buf contents = {0};
    session_content_put(&contents, true, STR("answer"));
    sessions_view_ops.write_out(d->all, STR("talk"), asked, buf_str(&contents));
    buf_deinit(&contents);
    settle(d);
    assert_false(v.over);
    say(d, &v, 0, "a");
    assert_acks(&v, "0 ");
    visitor_deinit(&v);
    desk_free(d);
}

/* A backend that never answers does not keep a session for good which its client has left. */
static void test_left_with_a_job(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    come(d, &v);
    say(d, &v, 0, "a");
    pass(d, 2 * LIFETIME_MS);
    assert_int_equal(d->n_stops, 0); /* its client is there */
    leave(d, &v);
    pass(d, LIFETIME_MS / 2);
    assert_int_equal(d->n_stops, 0);
    answer(d, "some", "1"); /* it is at work */
    pass(d, LIFETIME_MS / 2 + LIFETIME_MS / 4);
    assert_int_equal(d->n_stops, 0);
    pass(d, LIFETIME_MS);
    assert_int_equal(d->n_stops, 1);
    assert_int_equal(sessions_open(d->all), 0);
    pass(d, LIFETIME_MS);
    visitor_connect(&v);
    settle(d);
    assert_over(&v, SESSION_EXPIRED);
    visitor_deinit(&v);
    desk_free(d);
}

/* Nobody can come back to a degraded session: the backend need not go on. Nor does it leave
 * anything that a next one of its name would stumble over. */
static void test_degraded_is_left_with_a_job(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    for (unsigned i = 0; i < 3; i++) {
        struct visitor v = visit(d, "talk", RIGHT);
        refuse(d, "docs", "", ERR_IO, 1);
        come(d, &v);
        assert_true(v.degraded);
        say(d, &v, 0, "a");
        answer(d, "one", "");
        if (i == 1)
            end_job(d, END_COMPLETED, ""); /* its being complete is under way */
        leave(d, &v);
        settle(d);
        assert_int_equal(sessions_open(d->all), 0);
        assert_null(d->reply);
        visitor_deinit(&v);
    }
    assert_int_equal(d->n_stops, 2);
    desk_free(d);
}

/* A store that takes nothing, and clients that say much: what waits is bounded for all of them
 * together, and they come back when it is written. */
static void test_too_much_is_said(void **state)
{
    enum { SIZE = 8 * 1024 * 1024, COUNT = SESSION_SAID_MAX / SIZE + 2 };
    struct desk *d = desk_new(WORKERS);
    struct visitor *v = mem_zalloc(COUNT * sizeof *v);
    char keys[COUNT][8];
    char *text = mem_zalloc(SIZE);
    struct str large = str_of(text, SIZE);
    unsigned n_busy = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof keys[i], "talk%u", i);
        v[i] = visit(d, keys[i], RIGHT);
        come(d, &v[i]);
    }
    d->front->hold = true;
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % 2 == 0)
            visitor_connect(&v[i]); /* it is said early */
        visitor_say(&v[i], 0, large);
        settle(d);
        n_busy += v[i].over && v[i].client.over == SESSION_BUSY;
        assert_true(d->all->said <= SESSION_SAID_MAX);
    }
    assert_in_range(n_busy, 2, 4);
    assert_over(&v[COUNT - 1], SESSION_BUSY);
    assert_message(&v[COUNT - 1], "too much waits");
    facade_let_go(d->front);
    settle(d);
    assert_int_equal(d->all->said, 0);
    come(d, &v[COUNT - 1]);
    visitor_say(&v[COUNT - 1], 0, large);
    settle(d);
    for (unsigned i = 0; i < COUNT; i++) {
        if (!v[i].over)
            assert_acks(&v[i], "0 ");
        visitor_deinit(&v[i]);
    }
    assert_int_equal(d->all->said, 0);
    free(text);
    free(v);
    desk_free(d);
}

/* One large message, answered, does not cost its memory for as long as its client stays. */
static void test_large_chunk_is_let_go(void **state)
{
    struct desk *d = desk_new(BY_HAND);
    struct visitor v = visit(d, "talk", RIGHT);
    char *text = mem_zalloc(64 * 1024 + 1);
    memset(text, 'x', 64 * 1024);
    come(d, &v);
    for (uint32_t i = 0; i < 2; i++) {
        say(d, &v, i, text);
        assert_int_equal(d->reply->chunk.n, 64 * 1024);
        if (i == 0)
            end_job(d, END_COMPLETED, "");
        else
            visitor_abort(&v);
        settle(d);
        assert_true(session_find(d->all, STR("talk"))->chunk.cap <= SESSION_KEEP_MAX);
    }
    free(text);
    visitor_deinit(&v);
    desk_free(d);
}

static void test_keys(void **state)
{
    char long_key[SESSION_KEY_MAX + 2] = {0};
    memset(long_key, 'k', SESSION_KEY_MAX + 1);
    assert_false(session_key_valid(str_of_cstr(long_key)));
    assert_true(session_key_valid(str_of(long_key, SESSION_KEY_MAX)));
    assert_true(session_key_valid(STR("0a7b-~!")));
    assert_false(session_key_valid(STR("")));
    assert_false(session_key_valid(STR("a/b")));
    assert_false(session_key_valid(STR("a%2f")));
    assert_false(session_key_valid(STR("a b")));
    assert_false(session_key_valid(STR("\xc3\xa4")));
    assert_false(session_key_valid(STR("a\x7f")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_services),
        cmocka_unit_test(test_other_service),
        cmocka_unit_test(test_early_messages),
        cmocka_unit_test(test_gaps_and_duplicates),
        cmocka_unit_test(test_duplicates_in_flight),
        cmocka_unit_test(test_settled_only_when_durable),
        cmocka_unit_test(test_goes_when_settled),
        cmocka_unit_test(test_answered_when_gone),
        cmocka_unit_test(test_too_many_gaps),
        cmocka_unit_test(test_max_bytes),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_creator_goes),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_is_let_go),
        cmocka_unit_test(test_chunk_after_close),
        cmocka_unit_test(test_chunk_after_the_end),
        cmocka_unit_test(test_last_word),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_position_ahead_of_the_writer),
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_retention_of_the_server),
        cmocka_unit_test(test_wrong_secret_while_expired_is_read),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_from_elsewhere),
        cmocka_unit_test(test_abort_survives),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_close_alone),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_half_close_before_the_end),
        cmocka_unit_test(test_degraded),
        cmocka_unit_test(test_degraded_forgets_positions),
        cmocka_unit_test(test_degraded_ends),
        cmocka_unit_test(test_workers_are_not_degraded),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_busy_store_is_waited_for),
        cmocka_unit_test(test_patience_ends),
        cmocka_unit_test(test_failing_store),
        cmocka_unit_test(test_stream_that_moved),
        cmocka_unit_test(test_stream_that_is_gone),
        cmocka_unit_test(test_last_write_is_waited_for),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_answers_that_are_none),
        cmocka_unit_test(test_failed_answer),
        cmocka_unit_test(test_answer_goes_on),
        cmocka_unit_test(test_one_answer_at_a_time),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_list_and_show),
        cmocka_unit_test(test_key_is_wiped),
        cmocka_unit_test(test_key_is_held_for_workers),
        cmocka_unit_test(test_bad_append_of_a_worker),
        cmocka_unit_test(test_short_lifetime),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_stop_at_any_time),
        cmocka_unit_test(test_stop_of_many),
        cmocka_unit_test(test_drain_of_many),
        cmocka_unit_test(test_stop_while_draining),
        cmocka_unit_test(test_stop_while_loading),
        cmocka_unit_test(test_stop_with_writes_under_way),
        cmocka_unit_test(test_slow_client),
        cmocka_unit_test(test_room_behind_acks_is_told),
        cmocka_unit_test(test_acks_in_order),
        cmocka_unit_test(test_workers_precondition),
        cmocka_unit_test(test_left_with_a_job),
        cmocka_unit_test(test_degraded_is_left_with_a_job),
        cmocka_unit_test(test_too_much_is_said),
        cmocka_unit_test(test_large_chunk_is_let_go),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests_name("unit/session", tests, NULL, NULL);
}
