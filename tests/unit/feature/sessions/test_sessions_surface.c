// SPDX-License-Identifier: Apache-2.0
#include "session_surface_world.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define CHAT     "/aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotent"
#define APPEND   "/aiserver.v1.BidiService/BidiAppend"

static void assert_refused(const struct rpc *r, int code, size_t details)
{
    assert_true(r->ended);
    assert_int_equal(r->code, code);
    assert_int_equal(r->n_details, details);
    if (details > 0)
        assert_string_equal(r->details[0], SESSION_ERROR_DETAILS_TYPE);
}

/* ---- order ---- */

static void test_window_puts_in_order(void **state)
{
    struct session_window w = {0};
    char items[20];
    assert_null(session_window_peek(&w));
    for (size_t i = 17; i-- > 0;) {
        assert_int_equal(session_window_place(&w, i), WINDOW_TAKEN);
        assert_null(session_window_put(&w, i, &items[i]));
    }
    assert_int_equal(session_window_place(&w, 17), WINDOW_AHEAD);
    assert_ptr_equal(session_window_put(&w, 3, &items[18]), &items[3]);
    assert_ptr_equal(session_window_put(&w, 3, &items[3]), &items[18]);
    for (size_t i = 0; i < 17; i++) {
        assert_ptr_equal(session_window_peek(&w), &items[i]);
        session_window_advance(&w);
        assert_int_equal(session_window_place(&w, i), WINDOW_STALE);
    }
    assert_null(session_window_peek(&w));
    assert_int_equal(session_window_place(&w, 33), WINDOW_TAKEN);
    assert_int_equal(session_window_place(&w, 34), WINDOW_AHEAD);
    assert_int_equal(session_window_place(&w, UINT64_MAX), WINDOW_AHEAD);
}

static void test_window_gives_all_back(void **state)
{
    struct session_window w = {.next = 5};
    int a, b;
    session_window_put(&w, 7, &a);
    session_window_put(&w, 21, &b);
    assert_ptr_equal(session_window_put(&w, 7, NULL), &a);
    assert_ptr_equal(session_window_take(&w), &b);
    assert_null(session_window_take(&w));
}

/* ---- headers ---- */

static void test_headers_that_are_wrong(void **state)
{
    static const struct {
        struct ask ask;
        const char *says;
    } wrong[] = {
        {{.key = "a/b", .secret = SECRET}, "x-idempotency-key"},
        {{.key = "k", .position = "-1", .secret = SECRET}, "x-idempotency-event-id"},
        {{.key = "k", .position = "1x", .secret = SECRET}, "x-idempotency-event-id"},
        {{.key = "k", .position = "18446744073709551616", .secret = SECRET},
         "x-idempotency-event-id"},
        {{.key = "k"}, "x-idempotent-encryption-key"},
        {{.key = "k", .secret = SECRET "=="}, "x-idempotent-encryption-key"},
        {{.key = "k", .secret = "short"}, "x-idempotent-encryption-key"},
        {{.secret = "short"}, "x-idempotent-encryption-key"},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct ask a = wrong[i].ask;
        a.path = CHAT;
        struct rpc *r = ask_with(&a);
        assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
        assert_non_null(strstr(r->message, wrong[i].says));
    }
    assert_int_equal(world->sessions.n, 0);
}

static void test_headers_say_hello(void **state)
{
    static const struct {
        const char *position;
        uint64_t means;
    } rows[] = {{NULL, 0}, {"", 0}, {"0", 0}, {"17", 17}, {"18446744073709551615", UINT64_MAX}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        ask_with(&(struct ask){
            .path = CHAT, .key = "some-key", .position = rows[i].position, .secret = SECRET});
        assert_int_equal(visit()->hello.position, rows[i].means);
        assert_true(str_eq(visit()->hello.key, STR("some-key")));
        assert_int_equal(visit()->hello.service, SESSION_AISERVER);
        for (int j = 0; j < SESSION_SECRET_SIZE; j++)
            assert_int_equal(visit()->secret[j], j);
    }
}

/* Of whatever kind, and whether they need it or not. */
static void test_secret_is_wiped_from_requests(void **state)
{
    static const char *paths[] = {CHAT, CHAT "SSE", CHAT "Poll", APPEND};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct rpc *r = ask(paths[i]);
        struct str value = request_header(r->x->request, STR("x-idempotent-encryption-key"));
        assert_int_equal(value.n, 43);
        for (size_t j = 0; j < value.n; j++)
            assert_int_equal(value.p[j], 0);
    }
}

/* Who sends what is no message, by any path, is told that coming back with it is pointless. */
static void test_faults_stop_clients(void **state)
{
    static const char *paths[] = {CHAT, CHAT "SSE", CHAT "Poll", APPEND};
    struct arena a = {0};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct rpc_status status = {.code = GRPC_RESOURCE_EXHAUSTED, .message = STR("too long")};
        const struct rpc_ops *ops = ask(paths[i])->setup.ops;
        assert_non_null(ops->fault);
        ops->fault(&status, &a);
        assert_int_equal(status.n_details, 1);
        assert_true(str_eq(status.details[0].type, STR("aiserver.v1.ErrorDetails")));
        assert_non_null(
            memmem(status.details[0].value.p, status.details[0].value.n, "too long", 8));
    }
    arena_deinit(&a);
}

static void test_paths(void **state)
{
    static const struct {
        const char *path;
        int kind; /* -1: none */
    } rows[] = {
        {CHAT, RPC_BIDI},
        {CHAT "SSE", RPC_SERVER_STREAM},
        {CHAT "Poll", RPC_SERVER_STREAM},
        {APPEND, RPC_UNARY},
        {"/tidemark.v1.SessionService/Stream", RPC_BIDI},
        {"/tidemark.v1.SessionService/StreamSSE", RPC_SERVER_STREAM},
        {"/tidemark.v1.SessionService/StreamPoll", RPC_SERVER_STREAM},
        {"/tidemark.v1.SessionService/Append", RPC_UNARY},
        {"/tidemark.v1.SessionService/StreamX", -1},
        {"/tidemark.v1.SessionService/", -1},
        {"/aiserver.v1.ChatService/WarmChat", -1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        begun_status = 0;
        struct rpc *r = ask(rows[i].path);
        assert_int_equal(r == NULL ? -1 : (int)r->setup.kind, rows[i].kind);
        assert_int_equal(begun_status, r == NULL ? 404 : 0);
    }
}

/* ---- calls that go both ways ---- */

static void test_call_says_while_there_is_room(void **state)
{
    struct rpc *r = ask(CHAT);
    peer_says(r, STR("a"));
    peer_says(r, STR("b"));
    visit()->no_room = true;
    peer_says(r, STR("c"));
    assert_false(r->wanted);
    visit()->no_room = false;
    visit()->client->ops->ready(visit()->client);
    peer_says(r, STR("d"));
    assert_string_equal(visit()->said, "abcd");
    r->setup.ops->half_closed(r);
    assert_true(visit()->half_closed);
}

static void test_call_gives_what_there_is(void **state)
{
    struct rpc *r = ask(CHAT);
    assert_int_equal(peer_pulls(r), PULL_WAIT);
    visit_gives(visit(), "one");
    visit_gives(visit(), "two!");
    assert_true(r->woken);
    assert_int_equal(peer_pulls(r), PULL_WAIT);
    assert_memory_equal(r->put, "\3one\4two!", 9);
    visit_over(visit(), SESSION_ENDED, END_COMPLETED);
    assert_int_equal(peer_pulls(r), PULL_WAIT);
    assert_refused(r, 0, 0);
    assert_null(visit()->client);
}

static void test_call_with_the_key_in_its_first_message(void **state)
{
    struct ask a = {.path = CHAT, .position = "3", .secret = SECRET};
    struct rpc *r = ask_with(&a);
    assert_int_equal(peer_pulls(r), PULL_WAIT);
    assert_int_equal(world->sessions.n, 0);
    peer_says(r, STR("\x0a\x00\x22\x03"
                     "abc\x28\x07"));
    assert_true(str_eq(visit()->hello.key, STR("abc")));
    assert_int_equal(visit()->hello.position, 3);
    assert_int_equal(visit()->secret[31], 31);
    assert_string_equal(visit()->said, "\x07");
    assert_true(r->wanted);

    static const struct str wrong[] = {STR_INIT("\x0a\x00\x28\x07"), STR_INIT("nonsense"),
                                       STR_INIT("\x0a\x00\x22\x03"
                                                "a/b")};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        r = ask_with(&a);
        peer_says(r, wrong[i]);
        assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
    }
    r = ask_with(&a);
    r->setup.ops->half_closed(r);
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
    r = ask_with(&a);
    server_drains(r);
    assert_refused(r, GRPC_UNAVAILABLE, 0);
    assert_int_equal(world->sessions.n, 1);
}

static void test_call_that_goes_leaves_its_session(void **state)
{
    struct rpc *r = ask(CHAT);
    assert_non_null(visit()->client);
    peer_goes(r);
    assert_null(visit()->client);
}

/* ---- how they end ---- */

static const struct over_row {
    enum session_over over;
    enum end_reason end;
    bool aborted;
    int code;
    size_t details; /* two: with a gap */
} over_rows[] = {
    {SESSION_ENDED, END_COMPLETED, false, 0, 0},
    {SESSION_ENDED, END_CANCELLED, true, 0, 0},
    {SESSION_ENDED, END_CANCELLED, false, GRPC_CANCELLED, 1},
    {SESSION_ENDED, END_FAILED, false, GRPC_INTERNAL, 1},
    {SESSION_ENDED, END_ORPHANED, false, GRPC_FAILED_PRECONDITION, 1},
    {SESSION_ENDED, END_EXPIRED, false, GRPC_FAILED_PRECONDITION, 1},
    {SESSION_IDLE, END_NONE, false, 0, 0},
    {SESSION_REPLACED, END_NONE, false, GRPC_ABORTED, 1},
    {SESSION_WRONG_SECRET, END_NONE, false, GRPC_PERMISSION_DENIED, 1},
    {SESSION_UNKNOWN, END_NONE, false, GRPC_NOT_FOUND, 2},
    {SESSION_EXPIRED, END_NONE, false, GRPC_FAILED_PRECONDITION, 2},
    {SESSION_GAP, END_NONE, false, GRPC_OUT_OF_RANGE, 2},
    {SESSION_MALFORMED, END_NONE, false, GRPC_INVALID_ARGUMENT, 1},
    {SESSION_BUSY, END_NONE, false, GRPC_RESOURCE_EXHAUSTED, 0},
    {SESSION_FAILED, END_NONE, false, GRPC_UNAVAILABLE, 0},
    {SESSION_DRAINING, END_NONE, false, GRPC_UNAVAILABLE, 0},
};

static void test_ends(void **state)
{
    for (size_t i = 0; i < COUNT(over_rows); i++) {
        const struct over_row *row = &over_rows[i];
        struct rpc *r = ask(CHAT);
        visit()->client->aborted = row->aborted;
        visit_over(visit(), row->over, row->end);
        peer_pulls(r);
        assert_refused(r, row->code, row->details);
        assert_int_equal(r->message[0] != 0, row->code != 0);
        if (row->details == 2)
            assert_string_equal(r->details[1], SESSION_GAP_TYPE);
    }
}

static void test_end_in_words(void **state)
{
    struct session_client c = {
        .over = SESSION_ENDED, .end = END_FAILED, .message = STR_INIT("no model")};
    struct session_status s;
    session_status_over(&s, &c, 0);
    assert_true(str_eq(s.rpc.message, STR("no model")));
    struct str details = s.details[0].value;
    assert_non_null(memmem(details.p, details.n, "no model", 8));
    session_status_deinit(&s);

    c = (struct session_client){.over = SESSION_GAP, .earliest = 4, .latest = 9};
    session_status_over(&s, &c, 2);
    assert_true(str_eq(s.details[1].value, STR("\x0a\x01"
                                               "2\x12\x01"
                                               "4\x1a\x07"
                                               "trimmed")));
    session_status_deinit(&s);
    session_status_over(&s, &c, 10);
    assert_non_null(memmem(s.details[1].value.p, s.details[1].value.n, "ahead", 5));
    session_status_deinit(&s);
}

/* A store that does not work now may work later; what it has lost stays lost. */
static void test_end_of_a_damaged_session(void **state)
{
    struct session_client c = {.over = SESSION_FAILED, .err = ERR_IO};
    struct session_status s;
    session_status_over(&s, &c, 0);
    assert_int_equal(s.rpc.code, GRPC_UNAVAILABLE);
    assert_int_equal(s.rpc.n_details, 0);
    session_status_deinit(&s);
    c.err = ERR_CORRUPT;
    session_status_over(&s, &c, 0);
    assert_int_equal(s.rpc.code, GRPC_DATA_LOSS);
    assert_int_equal(s.rpc.n_details, 1);
    session_status_deinit(&s);
}

static void test_every_refusal_says_something(void **state)
{
    for (int why = REFUSE_KEY; why <= REFUSE_DRAINING; why++) {
        struct session_status s;
        session_status_refusal(&s, why);
        assert_int_not_equal(s.rpc.code, 0);
        assert_true(s.rpc.message.n > 0);
        session_status_deinit(&s);
    }
}

/* ---- downlinks and appends ---- */

static void put_field(struct buf *out, char tag, struct str bytes)
{
    buf_putc(out, tag);
    if (bytes.n > 127)
        buf_putc(out, (char)(0x80 | (bytes.n & 0x7f)));
    buf_putc(out, (char)(bytes.n > 127 ? bytes.n >> 7 : bytes.n));
    buf_put(out, bytes);
}

static struct rpc *downlink_of(const char *id)
{
    struct buf body = {0};
    struct rpc *r = ask(CHAT "SSE");
    put_field(&body, 0x0a, str_of_cstr(id));
    peer_says(r, buf_str(&body));
    buf_deinit(&body);
    return r;
}

static struct rpc *append_by(const char *secret, const struct principal *who, const char *id,
                             char number, struct str data)
{
    struct buf name = {0}, body = {0};
    struct rpc *r = ask_with(&(struct ask){.path = APPEND, .who = who, .secret = secret});
    put_field(&name, 0x0a, str_of_cstr(id));
    put_field(&body, 0x12, buf_str(&name));
    buf_putc(&body, 0x18);
    buf_putc(&body, number);
    put_field(&body, 0x22, data);
    peer_says(r, buf_str(&body));
    buf_deinit(&name);
    buf_deinit(&body);
    return r;
}

static struct rpc *append_bytes(const struct principal *who, const char *id, char number,
                                struct str data)
{
    return append_by(SECRET, who, id, number, data);
}

static struct rpc *append(const char *id, char number, char message)
{
    return append_bytes(NULL, id, number, str_of(&message, 1));
}

static bool waits(const struct rpc *r)
{
    return !rpc_is_over(r);
}

static void test_appends_are_said_in_order(void **state)
{
    struct rpc *down = downlink_of("id");
    struct rpc *third = append("id", 2, 'c'), *second = append("id", 1, 'b');
    assert_string_equal(visit()->said, "");
    struct rpc *first = append("id", 0, 'a');
    assert_string_equal(visit()->said, "abc");
    assert_true(waits(first) && waits(second) && waits(third));
    visit_settles(visit(), 2);
    assert_true(first->replied && second->replied && waits(third));
    struct rpc *again = append("id", 1, 'x');
    assert_true(again->replied);
    assert_string_equal(visit()->said, "abc");
    visit_settles(visit(), 3);
    assert_true(third->replied);
    assert_true(waits(down));
    assert_refused(append("id", 20, 'y'), GRPC_RESOURCE_EXHAUSTED, 0);
    assert_true(waits(append("id", 19, 'y')));
}

/* A chunk that was there already: nothing has to be written, and nobody is called. */
static void test_append_that_is_settled_at_once(void **state)
{
    downlink_of("id");
    visit()->settles_at_once = true;
    assert_true(append("id", 0, 'a')->replied);
}

static void test_append_as_hex(void **state)
{
    downlink_of("id");
    struct rpc *r = ask(APPEND);
    peer_says(r, STR("\x0a\x04"
                     "6162\x12\x04\x0a\x02"
                     "id"));
    assert_string_equal(visit()->said, "b");
    r = ask(APPEND);
    peer_says(r, STR("\x0a\x03"
                     "616\x12\x04\x0a\x02"
                     "id\x18\x01"));
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
    r = ask(APPEND);
    peer_says(r, STR("\x0a\x02"
                     "61"));
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
}

static void test_append_sent_again_replaces(void **state)
{
    downlink_of("id");
    struct rpc *before = append("id", 1, 'x'), *after = append("id", 1, 'b');
    assert_refused(before, GRPC_ABORTED, 0);
    append("id", 0, 'a');
    assert_string_equal(visit()->said, "ab");
    visit_settles(visit(), 2);
    assert_true(after->replied);
}

/* Its message has come whole, and those behind it wait for it. */
static void test_append_whose_peer_goes_is_said(void **state)
{
    downlink_of("id");
    struct rpc *second = append("id", 1, 'b');
    peer_goes(second);
    struct rpc *first = append("id", 0, 'a'), *third = append("id", 2, 'c');
    assert_string_equal(visit()->said, "abc");
    peer_goes(first);
    visit_settles(visit(), 3);
    assert_true(third->replied);
}

static void test_appends_wait_for_room(void **state)
{
    downlink_of("id");
    visit()->no_room = true;
    append("id", 0, 'a');
    append("id", 1, 'b');
    assert_string_equal(visit()->said, "");
    visit()->no_room = false;
    visit()->client->ops->ready(visit()->client);
    assert_string_equal(visit()->said, "ab");
}

static void test_append_waits_for_its_downlink(void **state)
{
    struct rpc *second = append("id", 1, 'b'), *first = append("id", 0, 'a');
    time_passes(CHANNEL_EARLY_MS - 100);
    assert_true(waits(first) && waits(second));
    downlink_of("id");
    assert_string_equal(visit()->said, "ab");
    time_passes(60 * 1000);
    assert_true(waits(first));
    visit_settles(visit(), 2);
    assert_true(first->replied && second->replied);
}

/* With its downlink there it waits for those before it, as long as its peer does. */
static void test_append_that_was_early_waits_on(void **state)
{
    struct rpc *second = append("id", 1, 'b');
    downlink_of("id");
    assert_int_equal(world->surface.n_early, 0);
    time_passes(CHANNEL_EARLY_MS + 100);
    assert_true(waits(second));
    append("id", 0, 'a');
    assert_string_equal(visit()->said, "ab");
}

static void test_append_without_a_downlink(void **state)
{
    struct rpc *r = append("id", 0, 'a'), *gone = append("id", 1, 'a');
    peer_goes(gone);
    time_passes(CHANNEL_EARLY_MS + 100);
    assert_refused(r, GRPC_NOT_FOUND, 0);
    assert_int_equal(world->surface.channels.n, 0);
    assert_int_equal(world->surface.n_early, 0);
    assert_int_equal(world->surface.waiting_bytes, 0);
}

static void test_lost_downlink(void **state)
{
    struct rpc *down = downlink_of("id");
    struct rpc *said = append("id", 0, 'a'), *held = append("id", 2, 'c');
    peer_goes(down);
    assert_null(visit()->client);
    assert_refused(said, GRPC_UNAVAILABLE, 0);
    assert_refused(held, GRPC_UNAVAILABLE, 0);

    struct rpc *early = append("id", 0, 'x');
    assert_true(waits(early));
    downlink_of("id");
    assert_string_equal(visit()->said, "x");
    visit_settles(visit(), 1);
    assert_true(early->replied);
    assert_int_equal(world->surface.channels.n, 1);
}

static void test_newer_downlink_replaces(void **state)
{
    struct rpc *old = downlink_of("id"), *said = append("id", 0, 'a');
    struct session_visit *older = visit();
    struct rpc *new = downlink_of("id");
    assert_refused(old, GRPC_ABORTED, 1);
    assert_refused(said, GRPC_UNAVAILABLE, 0);
    assert_null(older->client);
    append("id", 0, 'b');
    assert_string_equal(visit()->said, "b");
    assert_true(waits(new));
}

static void test_channel_is_forgotten(void **state)
{
    peer_goes(downlink_of("id"));
    assert_int_equal(world->surface.channels.n, 1);
    time_passes(CHANNEL_LINGER_MS + 100);
    assert_int_equal(world->surface.channels.n, 0);
}

static void test_appends_of_a_session_that_ends(void **state)
{
    struct rpc *down = downlink_of("id"), *before = append("id", 0, 'a');
    visit_over(visit(), SESSION_ENDED, END_COMPLETED);
    peer_pulls(down);
    assert_refused(down, 0, 0);
    assert_refused(before, GRPC_FAILED_PRECONDITION, 1);
    assert_refused(append("id", 1, 'b'), GRPC_FAILED_PRECONDITION, 1);

    down = downlink_of("id");
    before = append("id", 0, 'a');
    visit_over(visit(), SESSION_MALFORMED, END_NONE);
    peer_pulls(down);
    assert_refused(before, GRPC_INVALID_ARGUMENT, 1);
}

static void test_callers_have_their_own_ids(void **state)
{
    static const struct principal other = {.name = STR_INIT("other")};
    downlink_of("id");
    struct rpc *r = append_bytes(&other, "id", 0, STR("a"));
    assert_true(waits(r));
    assert_string_equal(visit()->said, "");
    struct rpc *tidemark = ask("/tidemark.v1.SessionService/Append");
    peer_says(tidemark, STR("\x12\x04\x0a\x02"
                            "id\x22\x01z"));
    assert_string_equal(visit()->said, "");
    append("id", 0, 'b');
    assert_string_equal(visit()->said, "b");
}

/* Whoever knows a request id and not the key can neither say, hear nor disturb anything under it,
 * and is not told that it is in use. */
static void test_a_request_id_alone_is_nothing(void **state)
{
    static const char *wrong[] = {NULL, "", "short", SECRET "!"};
    struct rpc *down = downlink_of("id"),
               *early = append_by(OTHER_SECRET, NULL, "new", 0, STR("x"));
    struct session_visit *mine = visit();
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct rpc *r = append_by(wrong[i], NULL, "id", 0, STR("x"));
        assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
        assert_non_null(strstr(r->message, "x-idempotent-encryption-key"));
    }
    struct rpc *stranger = append_by(OTHER_SECRET, NULL, "id", 0, STR("x"));
    assert_true(waits(stranger));
    append("id", 0, 'a'); /* which is not taken for sent again */
    assert_string_equal(mine->said, "a");

    downlink_of("new"); /* what came before it from elsewhere is not its own */
    assert_string_equal(visit()->said, "");

    struct rpc *theirs =
        ask_with(&(struct ask){.path = CHAT "SSE", .key = "k", .secret = OTHER_SECRET});
    peer_says(theirs, STR("\x0a\x02id"));
    assert_true(waits(down));
    append("id", 1, 'b');
    assert_string_equal(mine->said, "ab");
    assert_string_equal(visit()->said, "x"); /* the stranger's own, to the stranger */

    time_passes(CHANNEL_EARLY_MS + 100);
    struct rpc *nothing = append_by(OTHER_SECRET, NULL, "none", 0, STR("x"));
    time_passes(CHANNEL_EARLY_MS + 100);
    assert_refused(early, GRPC_NOT_FOUND, 0);
    assert_refused(nothing, GRPC_NOT_FOUND, 0);
    assert_string_equal(early->message, nothing->message);
}

static void test_appends_are_bounded(void **state)
{
    char data[1001] = {0};
    struct str large = str_of(data, 1000);
    downlink_of("id");
    assert_refused(append_bytes(NULL, "id", 0, str_of(data, 1001)), GRPC_RESOURCE_EXHAUSTED, 1);
    assert_true(waits(append_bytes(NULL, "id", 1, large)));
    assert_true(waits(append_bytes(NULL, "id", 2, large)));
    assert_refused(append_bytes(NULL, "id", 3, large), GRPC_RESOURCE_EXHAUSTED, 0);
    append_bytes(NULL, "id", 0, large); /* is said at once, and those behind it */
    assert_int_equal(visit()->n_said, 3);
    assert_int_equal(world->surface.waiting_bytes, 0);

    char id[32];
    for (int i = 0; i < CHANNEL_EARLY_MAX; i++) {
        snprintf(id, sizeof id, "early-%d", i);
        assert_true(waits(append(id, 0, 'a')));
    }
    assert_refused(append("one-more", 0, 'a'), GRPC_RESOURCE_EXHAUSTED, 0);
    assert_int_equal(world->surface.channels.n, 1 + CHANNEL_EARLY_MAX);
}

/* Only those are forgotten early that nobody needs, and the oldest first. */
static void test_channels_are_bounded(void **state)
{
    struct rpc *early = append("early", 0, 'a'), *down = downlink_of("live");
    static const uint8_t proof[SESSION_PROOF_SIZE];
    struct channel_name name = {.service = SESSION_AISERVER, .proof = proof};
    char id[32], first[] = "0";
    for (int i = 0; world->surface.channels.n < CHANNEL_MAX; i++) {
        snprintf(id, sizeof id, "%d", i);
        name.request_id = str_of_cstr(id);
        assert_non_null(channel_get(&world->surface, &name));
    }
    name.request_id = str_of_cstr(first);
    assert_non_null(channel_find(&world->surface, &name));
    name.request_id = STR("one more");
    assert_non_null(channel_get(&world->surface, &name));
    assert_int_equal(world->surface.channels.n, CHANNEL_MAX);
    name.request_id = str_of_cstr(first);
    assert_null(channel_find(&world->surface, &name));
    assert_true(waits(early) && waits(down));
    append("live", 0, 'b');
    assert_string_equal(visit()->said, "b");
}

static void test_request_ids_are_bounded(void **state)
{
    char id[SESSION_REQUEST_ID_MAX];
    struct buf body = {0};
    memset(id, 'x', sizeof id);
    buf_put(&body, STR("\x0a\x80\x01"));
    buf_put(&body, str_of(id, sizeof id));
    struct rpc *r = ask(CHAT "SSE");
    peer_says(r, buf_str(&body));
    assert_true(waits(r));
    body.p[1]++;
    buf_putc(&body, 'x');
    r = ask(CHAT "SSE");
    peer_says(r, buf_str(&body));
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
    r = ask(CHAT "SSE");
    peer_says(r, STR_NONE);
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
    buf_deinit(&body);
}

static void test_downlink_needs_headers(void **state)
{
    struct rpc *r = ask_with(&(struct ask){.path = CHAT "SSE", .secret = SECRET});
    peer_says(r, STR("\x0a\x02id"));
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
    assert_int_equal(world->surface.channels.n, 0);
}

static void test_drain(void **state)
{
    struct rpc *early = append("id", 0, 'a'), *unnamed = ask(CHAT "SSE");
    server_drains(early);
    server_drains(unnamed);
    assert_refused(early, GRPC_UNAVAILABLE, 0);
    assert_refused(unnamed, GRPC_UNAVAILABLE, 0);
    assert_refused(append("id", 0, 'a'), GRPC_UNAVAILABLE, 0);
    assert_int_equal(world->surface.channels.n, 0);
}

/* ---- polls ---- */

static struct rpc *poll_of(bool start)
{
    struct rpc *r =
        start ? ask(CHAT "Poll") : ask_with(&(struct ask){.path = CHAT "Poll", .secret = SECRET});
    peer_says(r, start ? STR("\x0a\x04\x0a\x02id\x10\x01") : STR("\x0a\x04\x0a\x02id"));
    return r;
}

static void test_polls_give_what_there_is(void **state)
{
    struct rpc *r = poll_of(true);
    peer_pulls(r);
    assert_true(waits(r));
    visit_gives(visit(), "\x01");
    visit_gives(visit(), "\xff");
    assert_true(r->woken);
    peer_pulls(r);
    assert_refused(r, 0, 0);
    assert_memory_equal(r->put,
                        "\x06\x08\x01\x12\x02"
                        "01\x06\x08\x02\x12\x02"
                        "ff",
                        14);
    assert_int_equal(r->n_put, 14);

    append("id", 0, 'a');
    assert_string_equal(visit()->said, "a");

    r = poll_of(false);
    peer_pulls(r);
    time_passes(world->surface.long_poll_ms + 100);
    assert_refused(r, 0, 0);
    assert_int_equal(r->n_put, 0);

    visit_over(visit(), SESSION_ENDED, END_COMPLETED);
    r = poll_of(false);
    peer_pulls(r);
    assert_refused(r, 0, 0);
    assert_memory_equal(r->put, "\x04\x08\x03\x18\x01", 5);
    assert_refused(poll_of(false), GRPC_NOT_FOUND, 0);
}

static void test_poll_that_fails(void **state)
{
    struct rpc *r = poll_of(true);
    visit_over(visit(), SESSION_WRONG_SECRET, END_NONE);
    peer_pulls(r);
    assert_refused(r, GRPC_PERMISSION_DENIED, 1);
    assert_int_equal(r->n_put, 0);
}

static void test_poll_of_nothing(void **state)
{
    assert_refused(poll_of(false), GRPC_NOT_FOUND, 0);
    downlink_of("id");
    assert_refused(poll_of(false), GRPC_NOT_FOUND, 0);
    struct rpc *r = ask_with(&(struct ask){.path = CHAT "Poll"});
    peer_says(r, STR("\x0a\x04\x0a\x02ix\x10\x01"));
    assert_refused(r, GRPC_INVALID_ARGUMENT, 1);
}

static void test_poll_by_the_request_id_alone(void **state)
{
    struct rpc *first = poll_of(true);
    visit_gives(visit(), "a");
    struct rpc *none = ask_with(&(struct ask){.path = CHAT "Poll", .key = "k"});
    peer_says(none, STR("\x0a\x04\x0a\x02id"));
    assert_refused(none, GRPC_INVALID_ARGUMENT, 1);
    struct rpc *wrong = ask_with(&(struct ask){.path = CHAT "Poll", .secret = OTHER_SECRET});
    peer_says(wrong, STR("\x0a\x04\x0a\x02id"));
    assert_refused(wrong, GRPC_NOT_FOUND, 0);
    assert_true(waits(first));
    peer_pulls(first);
    assert_true(first->n_put > 0);
}

static void test_poll_replaces_the_one_that_waits(void **state)
{
    struct rpc *first = poll_of(true), *second = poll_of(false);
    assert_refused(first, 0, 0);
    visit_gives(visit(), "a");
    peer_pulls(second);
    assert_true(second->n_put > 0);

    struct session_visit *older = visit();
    struct rpc *anew = poll_of(true);
    assert_null(older->client);
    visit_gives(visit(), "a");
    peer_pulls(anew);
    assert_memory_equal(anew->put, "\x06\x08\x01", 3);
}

static void test_poller_that_stays_away(void **state)
{
    struct rpc *r = poll_of(true);
    time_passes(world->surface.long_poll_ms + 100);
    time_passes(CHANNEL_POLL_AWAY_MS - 1000);
    assert_non_null(visit()->client);
    r = poll_of(false);
    time_passes(2000);
    assert_true(waits(r));
    assert_non_null(visit()->client);
    peer_goes(r);
    struct rpc *said = append("id", 0, 'a');
    time_passes(CHANNEL_POLL_AWAY_MS - 1000);
    assert_non_null(visit()->client);
    time_passes(2000);
    assert_null(visit()->client);
    assert_refused(said, GRPC_UNAVAILABLE, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_init, world_deinit)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_window_puts_in_order),
        TEST(test_window_gives_all_back),
        TEST(test_headers_that_are_wrong),
        TEST(test_headers_say_hello),
        TEST(test_secret_is_wiped_from_requests),
        TEST(test_paths),
        TEST(test_faults_stop_clients),
        TEST(test_call_says_while_there_is_room),
        TEST(test_call_gives_what_there_is),
        TEST(test_call_with_the_key_in_its_first_message),
        TEST(test_call_that_goes_leaves_its_session),
        TEST(test_ends),
        TEST(test_end_in_words),
        TEST(test_end_of_a_damaged_session),
        TEST(test_every_refusal_says_something),
        TEST(test_appends_are_said_in_order),
        TEST(test_append_that_is_settled_at_once),
        TEST(test_append_as_hex),
        TEST(test_append_sent_again_replaces),
        TEST(test_append_whose_peer_goes_is_said),
        TEST(test_appends_wait_for_room),
        TEST(test_append_waits_for_its_downlink),
        TEST(test_append_that_was_early_waits_on),
        TEST(test_append_without_a_downlink),
        TEST(test_lost_downlink),
        TEST(test_newer_downlink_replaces),
        TEST(test_channel_is_forgotten),
        TEST(test_appends_of_a_session_that_ends),
        TEST(test_callers_have_their_own_ids),
        TEST(test_a_request_id_alone_is_nothing),
        TEST(test_appends_are_bounded),
        TEST(test_channels_are_bounded),
        TEST(test_request_ids_are_bounded),
        TEST(test_downlink_needs_headers),
        TEST(test_drain),
        TEST(test_polls_give_what_there_is),
        TEST(test_poll_that_fails),
        TEST(test_poll_of_nothing),
        TEST(test_poll_by_the_request_id_alone),
        TEST(test_poll_replaces_the_one_that_waits),
        TEST(test_poller_that_stays_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
