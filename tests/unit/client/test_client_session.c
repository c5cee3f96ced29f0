// SPDX-License-Identifier: Apache-2.0
/* Sessions, with a server that is played by hand. */
#include "unit/client/fake_session_http.h"
#include "unit/client/failing_memory.h"
#include "client/session_mac.h"
#include "client/state.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define PATIENCE 5000 /* turns of a millisecond */

#define FINAL(code)                                                                                \
    "{\"error\":{\"code\":\"" code "\",\"message\":\"no\",\"details\":[{\"type\":"                 \
    "\"aiserver.v1.ErrorDetails\",\"value\":\"\"}]}}"
#define PASSING(code) "{\"error\":{\"code\":\"" code "\",\"message\":\"come back\"}}"

static const uint8_t secret[SECRET_SIZE] = "0123456789abcdef0123456789abcde";

struct world {
    struct failing_memory memory;
    struct tm_client *client;
    struct tm_session *s;
    struct tm_session_options o;
    char folder[64], path[96];
    uint8_t mac_key[MAC_SIZE], mac[MAC_SIZE];
};

static void open_client(struct world *w, enum tm_http http)
{
    struct tm_options o = TM_OPTIONS_INIT;
    o.server = "http://127.0.0.1:1";
    o.http = http;
    o.answer_max = 4096;
    o.allocator = &w->memory.allocator;
    assert_int_equal(tm_open(&o, &w->client), 0);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    failing_init(&w->memory);
    open_client(w, TM_HTTP_AUTO);
    strcpy(w->folder, "/tmp/tidemark-session-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/state", w->folder);
    w->o = (struct tm_session_options)TM_SESSION_INIT;
    w->o.key = "k";
    w->o.secret = secret;
    w->o.reconnect_ms = 1;
    assert_int_equal(smac_derive(secret, STR("k"), w->mac_key), 0);
    fake_reset();
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[128];
    tm_session_free(w->s);
    tm_close(w->client);
    assert_int_equal(w->memory.held, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
    assert_int_equal(system(command), 0);
    fake_reset();
    free(w);
    return 0;
}

/* The n-th request, which there will be soon. */
static struct http_exchange *request(struct world *w, size_t n)
{
    for (int i = 0; i < PATIENCE && fake.n <= n; i++) {
        tm_turn(w->client);
        if (fake.n <= n)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    if (fake.n <= n)
        fail_msg("request %zu does not come", n);
    return &fake.all[n];
}

/* Nothing happens for longer than any wait of these tests. */
static void assert_quiet(struct world *w)
{
    size_t n = fake.n;
    for (int i = 0; i < 60; i++) {
        tm_turn(w->client);
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    assert_int_equal(fake.n, n);
}

static struct http_exchange *begin(struct world *w)
{
    int err = tm_session_new(w->client, &w->o, &w->s);
    if (err != 0)
        fail_msg("%s", tm_error(w->client));
    return request(w, fake.n);
}

/* ---- what the server says ---- */

static void say_frame(struct http_exchange *x, int flags, const void *payload, size_t n)
{
    char frame[2048] = {(char)flags, 0, 0, (char)(n >> 8), (char)n};
    memcpy(frame + 5, payload, n);
    fake_data(x, frame, n + 5);
}

#define SAY(x, bytes) say_frame(x, 0, bytes, sizeof bytes - 1)

static void welcome(struct http_exchange *x)
{
    SAY(x, "\x1a\x09\x0a\x07welcome");
}

static void ack(struct http_exchange *x, int seqno)
{
    char bytes[] = {0x20, (char)seqno};
    say_frame(x, 0, bytes, 2);
}

/* A server chunk: `content`, the event id, and if it is signed its MAC. */
static void say_content(struct world *w, struct http_exchange *x, const void *content, size_t n,
                        const char *id, bool is_signed)
{
    bool ai = w->o.service == TM_SERVICE_AISERVER;
    char chunk[1024], message[1200];
    size_t k = n, id_n = strlen(id);
    memcpy(chunk, content, n);
    if (id_n > 0) {
        chunk[k++] = 0x3a;
        chunk[k++] = (char)id_n;
        memcpy(chunk + k, id, id_n);
        k += id_n;
    }
    if (is_signed) {
        assert_int_equal(smac_chain(w->mac_key, w->mac, str_of(chunk, k), w->mac), 0);
        memcpy(chunk + k, ai ? "\x82\x80\x01\x20" : "\x42\x20", ai ? 4 : 2);
        k += ai ? 4 : 2;
        memcpy(chunk + k, w->mac, MAC_SIZE);
        k += MAC_SIZE;
    }
    message[0] = 0x0a;
    message[1] = (char)(0x80 | (k & 0x7f));
    message[2] = (char)(k >> 7);
    memcpy(message + 3, chunk, k);
    say_frame(x, 0, message, k + 3);
}

/* text: a payload, or the text of a chat response. */
static void say_text(struct world *w, struct http_exchange *x, const char *text, const char *id)
{
    char content[128];
    int n = w->o.service == TM_SERVICE_AISERVER
                ? snprintf(content, sizeof content, "\x12%c\x0a%c%s", (char)(strlen(text) + 2),
                           (char)strlen(text), text)
                : snprintf(content, sizeof content, "\x0a%c%s", (char)strlen(text), text);
    say_content(w, x, content, (size_t)n, id, true);
}

static void say_tool(struct world *w, struct http_exchange *x, const char *call, const char *id)
{
    char content[128];
    int n = snprintf(content, sizeof content, "\x0a%c\x1a%c%s", (char)(strlen(call) + 2),
                     (char)strlen(call), call);
    say_content(w, x, content, (size_t)n, id, true);
}

static void end_with(struct http_exchange *x, const char *json)
{
    say_frame(x, 2, json, strlen(json));
    fake_over(x, 0, "");
}

static void lose(struct http_exchange *x)
{
    fake_over(x, TM_E_NETWORK, "cut");
}

/* ---- what the caller sees ---- */

static struct tm_event event(struct world *w, enum tm_event_kind kind)
{
    struct tm_event e;
    int got = tm_session_next(w->s, &e);
    if (got != 1)
        fail_msg("no event, but %d", got);
    if (e.kind != kind)
        fail_msg("an event of kind %d: %d %s", e.kind, e.err, e.text);
    return e;
}

static void assert_text(struct world *w, const char *text, const char *id)
{
    struct tm_event e = event(w, TM_EVENT_CHUNK);
    assert_string_equal(e.event_id, id);
    if (w->o.service == TM_SERVICE_AISERVER) {
        assert_string_equal(e.text, text);
    } else {
        assert_int_equal(e.n, strlen(text));
        assert_memory_equal(e.data, text, e.n);
    }
}

static void assert_nothing(struct world *w)
{
    struct tm_event e;
    assert_int_equal(tm_session_next(w->s, &e), 0);
}

static void assert_end(struct world *w, int err)
{
    struct tm_event e = event(w, TM_EVENT_END);
    if (e.err != err)
        fail_msg("ended with %d %s", e.err, e.text);
    assert_int_equal(tm_session_next(w->s, &e), TM_E_CLOSED);
    assert_quiet(w);
}

static void send_text(struct world *w, const char *text)
{
    assert_int_equal(tm_session_send(w->s, text, strlen(text), NULL), 0);
}

/* What a request has sent, as messages behind each other. */
static void assert_sent(struct http_exchange *x, const char *right, size_t n)
{
    char messages[1024];
    size_t k = 0;
    for (size_t at = 0; at < x->n;) {
        size_t length =
            (size_t)(unsigned char)x->body[at + 3] << 8 | (unsigned char)x->body[at + 4];
        memcpy(messages + k, x->body + at + 5, length);
        k += length;
        at += 5 + length;
    }
    assert_int_equal(k, n);
    assert_memory_equal(messages, right, n);
}

#define SENT(x, bytes) assert_sent(x, bytes, sizeof bytes - 1)

/* ---- saved state ---- */

static void load_saved(struct world *w, struct saved_state *out)
{
    struct state_dir d = STATE_DIR_NONE;
    char name[STATE_NAME_SIZE];
    unsigned dropped;
    assert_int_equal(state_dir_open(w->client, w->path, false, &d), 0);
    assert_int_equal(state_name(STR("k"), name), 0);
    assert_int_equal(state_load(w->client, &d, name, out, &dropped), 0);
    state_dir_close(&d);
}

static bool is_saved(struct world *w)
{
    char name[STATE_NAME_SIZE], path[256];
    assert_int_equal(state_name(STR("k"), name), 0);
    snprintf(path, sizeof path, "%s/%s", w->path, name);
    return access(path, F_OK) == 0;
}

/* ---- tests ---- */

static void test_headers(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    assert_string_equal(x->path, "/tidemark.v1.SessionService/Stream");
    assert_string_equal(x->key, "k");
    assert_string_equal(x->event_id, "0");
    assert_string_equal(x->secret, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZQA");
    assert_int_equal(x->version, HTTP_2);
    assert_true(x->r->duplex && x->r->live);
}

static void test_replay(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    uint32_t seqno;
    send_text(w, "a");
    assert_int_equal(tm_session_send(w->s, "b", 1, &seqno), 0);
    assert_int_equal(seqno, 1);
    send_text(w, "c");
    SENT(x, "\x0a\x01"
            "a\x28\x00\x0a\x01"
            "b\x28\x01\x0a\x01"
            "c\x28\x02");
    welcome(x);
    ack(x, 1); /* exactly this one */
    ack(x, 7); /* of nothing */
    lose(x);
    event(w, TM_EVENT_WELCOME);
    assert_int_equal(event(w, TM_EVENT_ACK).seqno, 1);
    assert_string_equal(event(w, TM_EVENT_RECONNECT).text, "cut");
    assert_nothing(w);
    assert_int_equal(tm_session_unacknowledged(w->s), 2);
    send_text(w, "d"); /* while there is no connection */
    assert_int_equal(tm_session_finish(w->s), 0);
    assert_int_equal(tm_session_send(w->s, "e", 1, NULL), TM_E_CLOSED);
    x = request(w, 1);
    SENT(x, "\x0a\x01"
            "a\x28\x00\x0a\x01"
            "c\x28\x02\x0a\x01"
            "d\x28\x03\x1a\x00");
    assert_true(x->ended);
    end_with(x, "{}");
    assert_end(w, 0);
}

static void test_position(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    say_text(w, x, "one", "1");
    say_text(w, x, "two", "2");
    assert_text(w, "one", "1");
    assert_string_equal(tm_session_event_id(w->s), "0");
    assert_text(w, "two", "2");
    assert_string_equal(tm_session_event_id(w->s), "1");
    lose(x);
    x = request(w, 1); /* both were heard in this process */
    assert_string_equal(x->event_id, "2");
    say_text(w, x, "three", "3");
    event(w, TM_EVENT_RECONNECT);
    assert_string_equal(tm_session_event_id(w->s), "2");
    struct tm_event e = event(w, TM_EVENT_CHUNK);
    assert_string_equal(e.event_id, "3");
    assert_true(e.verified);
}

/* Of the editor's messages only what is said or thought moves the position. */
static void test_chat_position(void **state)
{
    struct world *w = *state;
    const void *data;
    size_t n;
    w->o.service = TM_SERVICE_AISERVER;
    struct http_exchange *x = begin(w);
    assert_string_equal(x->path, "/aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotent");
    say_text(w, x, "hm", "1");
    uint8_t at_one[MAC_SIZE];
    memcpy(at_one, w->mac, MAC_SIZE);
    say_tool(w, x, "call", "2");
    assert_text(w, "hm", "1");
    struct tm_event e = event(w, TM_EVENT_CHUNK);
    assert_string_equal(e.tool_call_id, "call");
    assert_true(e.verified);
    assert_int_equal(tm_session_put_result(w->s, "call", "result", 6), 0);
    assert_nothing(w);
    assert_string_equal(tm_session_event_id(w->s), "1");
    lose(x);

    x = request(w, 1);
    assert_string_equal(x->event_id, "1");
    memcpy(w->mac, at_one, MAC_SIZE);
    say_tool(w, x, "call", "2"); /* as it must; but this process has it */
    say_text(w, x, "done", "3");
    event(w, TM_EVENT_RECONNECT);
    assert_int_equal(tm_session_get_result(w->s, "call", &data, &n), 1);
    assert_int_equal(n, 6);
    assert_text(w, "done", "3");
    assert_nothing(w);
    assert_string_equal(tm_session_event_id(w->s), "3");
    assert_int_equal(tm_session_get_result(w->s, "call", &data, &n), 0);
}

static void test_no_event_id(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    for (size_t i = 1; i < 5; i++) {
        say_text(w, x, "x", "");
        assert_null(x->r);
        memset(w->mac, 0, MAC_SIZE);
        assert_string_equal(event(w, TM_EVENT_RECONNECT).text, "an event has no id");
        x = request(w, i);
    }
    say_text(w, x, "x", ""); /* that is what it is, then */
    assert_end(w, TM_E_PROTOCOL);
}

static void test_degraded(void **state)
{
    struct world *w = *state;
    w->o.state_dir = w->path;
    struct http_exchange *x = begin(w);
    send_text(w, "a");
    assert_true(is_saved(w));
    SAY(x, "\x1a\x02\x10\x01");
    assert_false(is_saved(w));
    assert_true(event(w, TM_EVENT_WELCOME).degraded);
    say_content(w, x, "\x0a\x01x", 3, "", true); /* ids may be empty */
    assert_text(w, "x", "");
    send_text(w, "b");
    assert_false(is_saved(w));
    lose(x);
    assert_end(w, TM_E_NETWORK);
    assert_int_equal(tm_session_send(w->s, "c", 1, NULL), TM_E_CLOSED);
}

static void test_errors(void **state)
{
    static const struct {
        const char *json;
        int err;
    } final[] = {
        {FINAL("permission_denied"), TM_E_DENIED},
        {FINAL("not_found"), TM_E_NOT_FOUND},
        {FINAL("failed_precondition"), TM_E_EXPIRED},
        {FINAL("out_of_range"), TM_E_GAP},
        {FINAL("invalid_argument"), TM_E_REFUSED},
        {FINAL("aborted"), TM_E_REPLACED},
        {FINAL("canceled"), TM_E_CANCELLED},
        {FINAL("internal"), TM_E_FAILED},
        {FINAL("new_code"), TM_E_REFUSED},
    };
    struct world *w = *state;
    for (size_t i = 0; i < COUNT(final); i++) {
        struct http_exchange *x = begin(w);
        end_with(x, final[i].json);
        assert_end(w, final[i].err);
        tm_session_free(w->s);
        w->s = NULL;
    }
    struct http_exchange *x = begin(w);
    size_t n = fake.n;
    end_with(x, PASSING("permission_denied")); /* without details: come back */
    assert_string_equal(event(w, TM_EVENT_RECONNECT).text, "come back");
    x = request(w, n);
    fake_over(x, 0, ""); /* an answer without an end */
    event(w, TM_EVENT_RECONNECT);
    x = request(w, n + 1);
    say_frame(x, 2, "{}", 2);
    lose(x); /* behind its end nothing can be lost */
    assert_end(w, 0);
}

static void answer_status(struct http_exchange *x, int status, const char *body)
{
    fake_head(x, status);
    fake_data(x, body, strlen(body));
    fake_over(x, 0, "");
}

static void test_statuses(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    answer_status(x, 503, "busy");
    assert_string_equal(event(w, TM_EVENT_RECONNECT).text, "the server answered 503");
    x = request(w, 1);
    welcome(x);
    lose(x);
    event(w, TM_EVENT_WELCOME);
    event(w, TM_EVENT_RECONNECT);
    x = request(w, 2);
    answer_status(x, 404, ""); /* it was there a moment ago */
    event(w, TM_EVENT_RECONNECT);
    x = request(w, 3);
    tm_session_free(w->s);
    w->s = NULL;

    x = begin(w);
    answer_status(x, 401, "{\"code\":\"unauthenticated\",\"message\":\"a token, please\"}");
    assert_end(w, TM_E_DENIED);
    tm_session_free(w->s);
    w->s = NULL;

    x = begin(w);
    answer_status(x, 301, ""); /* nobody goes there, and the next time it is the same */
    assert_end(w, TM_E_REFUSED);
}

static void test_tampered(void **state)
{
    for (int how = 0; how < 4; how++) {
        struct world *w = *state;
        memset(w->mac, 0, MAC_SIZE);
        struct http_exchange *x = begin(w);
        say_text(w, x, "one", "1");
        if (how == 0)
            w->mac[0] ^= 1; /* another event was before it */
        else if (how == 1)
            w->mac_key[0] ^= 1; /* somebody else signs */
        if (how == 2)
            say_content(w, x, "\x0a\x01x", 3, "2", false); /* nobody does */
        else if (how < 2)
            say_text(w, x, "two", "2");
        else
            say_content(w, x,
                        "\x0a\x01x\x3a\x01"
                        "2\x42\x20"
                        "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm",
                        40, "", false);
        assert_text(w, "one", "1");
        assert_end(w, TM_E_TAMPERED);
        if (how == 1)
            w->mac_key[0] ^= 1;
        tm_session_free(w->s);
        w->s = NULL;
    }
}

/* A server that does not sign is not suspicious. */
static void test_unsigned(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    say_content(w, x, "\x0a\x01x", 3, "1", false);
    say_content(w, x, "\x0a\x01y", 3, "2", false);
    assert_false(event(w, TM_EVENT_CHUNK).verified);
    assert_false(event(w, TM_EVENT_CHUNK).verified);
}

static void test_saved(void **state)
{
    struct world *w = *state;
    w->o.state_dir = w->path;
    w->o.generation = "g";
    struct http_exchange *x = begin(w);
    struct saved_state s;
    load_saved(w, &s);
    assert_string_equal(s.event_id, "0");
    assert_int_equal(s.next_seqno, 0);
    assert_string_equal(s.generation, "g");
    state_deinit(w->client, &s);

    send_text(w, "a");
    send_text(w, "b"); /* saved before they were sent: both are there now */
    load_saved(w, &s);
    assert_int_equal(s.next_seqno, 2);
    assert_int_equal(s.n_chunks, 2);
    state_deinit(w->client, &s);
    ack(x, 0);
    say_text(w, x, "one", "1");
    uint8_t at_one[MAC_SIZE];
    memcpy(at_one, w->mac, MAC_SIZE);
    say_text(w, x, "two", "2");
    event(w, TM_EVENT_ACK);
    assert_text(w, "one", "1");
    assert_text(w, "two", "2");
    tm_session_free(w->s); /* "two" was not dealt with */
    w->s = NULL;
    load_saved(w, &s);
    assert_int_equal(s.n_chunks, 1);
    assert_string_equal(s.event_id, "1");
    assert_memory_equal(s.mac, at_one, MAC_SIZE);
    state_deinit(w->client, &s);

    memcpy(w->mac, at_one, MAC_SIZE);
    x = begin(w); /* the same key: goes on */
    assert_string_equal(x->event_id, "1");
    SENT(x, "\x0a\x01"
            "b\x28\x01");
    say_text(w, x, "two", "2");
    struct tm_event e = event(w, TM_EVENT_CHUNK);
    assert_string_equal(e.event_id, "2");
    assert_true(e.verified);
    end_with(x, "{}");
    assert_true(is_saved(w)); /* as long as the caller has not seen the end */
    assert_end(w, 0);
    assert_false(is_saved(w));
}

/* Which ends leave something to come back to. */
static void test_state_at_end(void **state)
{
    static const struct {
        const char *json;
        bool kept;
    } rows[] = {
        {"{}", false},
        {FINAL("canceled"), false},
        {FINAL("internal"), false},
        {FINAL("failed_precondition"), false},
        {FINAL("aborted"), true},
        {FINAL("permission_denied"), true},
    };
    struct world *w = *state;
    w->o.state_dir = w->path;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct http_exchange *x = begin(w);
        struct tm_event e;
        end_with(x, rows[i].json);
        assert_int_equal(tm_session_next(w->s, &e), 1);
        assert_true(is_saved(w)); /* as long as the caller has not dealt with the end */
        if (i % 2 == 0) {
            assert_int_equal(tm_session_next(w->s, &e), TM_E_CLOSED);
        } else {
            tm_session_free(w->s);
            w->s = NULL;
        }
        assert_int_equal(is_saved(w), rows[i].kept);
        tm_session_free(w->s);
        w->s = NULL;
    }
}

static void test_state_conflicts(void **state)
{
    struct world *w = *state;
    struct tm_session *other;
    w->o.state_dir = w->path;
    begin(w);
    assert_int_equal(tm_session_new(w->client, &w->o, &other), TM_E_BUSY);
    tm_session_free(w->s);
    w->s = NULL;
    uint8_t wrong[SECRET_SIZE] = {0};
    w->o.secret = wrong;
    assert_int_equal(tm_session_new(w->client, &w->o, &other), TM_E_CONFLICT);
    w->o.secret = NULL;
    w->o.service = TM_SERVICE_AISERVER;
    assert_int_equal(tm_session_new(w->client, &w->o, &other), TM_E_CONFLICT);
    w->o.service = TM_SERVICE_TIDEMARK;
    begin(w);
    assert_memory_equal(tm_session_secret(w->s), secret, SECRET_SIZE);
}

/* What cannot be saved is not sent. */
static void test_save_fails(void **state)
{
    struct world *w = *state;
    char command[128];
    w->o.state_dir = w->path;
    struct http_exchange *x = begin(w);
    snprintf(command, sizeof command, "rm -rf '%s'", w->path);
    assert_int_equal(system(command), 0);
    assert_int_equal(tm_session_send(w->s, "a", 1, NULL), TM_E_IO);
    assert_int_equal(tm_session_finish(w->s), TM_E_IO);
    assert_int_equal(tm_session_unacknowledged(w->s), 0);
    assert_int_equal(x->n, 0);
    assert_false(x->ended);
}

static void test_gates(void **state)
{
    struct world *w = *state;
    struct stat st;
    w->o.state_dir = w->path;
    w->o.persist_idempotent_stream_state = -1;
    begin(w);
    assert_int_not_equal(stat(w->path, &st), 0);
    tm_session_free(w->s);
    w->s = NULL;
    w->o.persist_idempotent_stream_state = 0;
    w->o.idempotent_agentic_composer = -1;
    struct http_exchange *x = begin(w);
    assert_int_not_equal(stat(w->path, &st), 0);
    lose(x);
    assert_end(w, TM_E_NETWORK);
    struct tm_session *s;
    w->o = (struct tm_session_options)TM_SESSION_INIT;
    w->o.persist_idempotent_stream_state = 1;
    assert_int_equal(tm_session_new(w->client, &w->o, &s), TM_E_INVALID);
}

static void test_invalid(void **state)
{
    static const char *const keys[] = {"", "a b", "a/b", "a%", "\x7f", "\xc3\xa9"};
    struct world *w = *state;
    struct tm_session *s;
    for (size_t i = 0; i < COUNT(keys); i++) {
        w->o.key = keys[i];
        assert_int_equal(tm_session_new(w->client, &w->o, &s), TM_E_INVALID);
    }
    char key[202];
    memset(key, 'k', sizeof key);
    key[201] = '\0';
    w->o.key = key;
    assert_int_equal(tm_session_new(w->client, &w->o, &s), TM_E_INVALID);
    key[200] = '\0';
    begin(w);
    assert_int_equal(tm_session_put_result(w->s, "", "", 0), TM_E_INVALID);
}

static void test_limits(void **state)
{
    struct world *w = *state;
    w->o.unacknowledged_max = 10;
    struct http_exchange *x = begin(w);
    send_text(w, "123456");
    assert_int_equal(tm_session_send(w->s, "12345", 5, NULL), TM_E_BUSY);
    assert_int_equal(tm_session_send(w->s, "12345678901", 11, NULL), TM_E_TOO_LARGE);
    ack(x, 0);
    send_text(w, "12345");
    SENT(x, "\x0a\x06"
            "123456\x28\x00\x0a\x05"
            "12345\x28\x01");
    fake_data(x, "\0\0\0\x10\x01", 5); /* more than answer_max */
    event(w, TM_EVENT_ACK);
    assert_end(w, TM_E_TOO_LARGE);
}

/* Events that nobody takes are not heaped up: the connection waits. */
static void test_full(void **state)
{
    struct world *w = *state;
    char content[903] = {0x0a, (char)0x84, 0x07};
    struct http_exchange *x = begin(w);
    uint64_t n = 0;
    while (x->r != NULL) {
        char id[24];
        snprintf(id, sizeof id, "%llu", (unsigned long long)++n);
        say_content(w, x, content, sizeof content, id, true);
        assert_true(n < 10);
    }
    assert_true(n > 2);
    assert_quiet(w);
    for (uint64_t i = 0; i < n; i++)
        event(w, TM_EVENT_CHUNK);
    assert_quiet(w);
    assert_nothing(w);
    char id[24];
    snprintf(id, sizeof id, "%llu", (unsigned long long)n);
    x = request(w, 1);
    assert_string_equal(x->event_id, id);
    snprintf(id, sizeof id, "%llu", (unsigned long long)n + 1);
    say_text(w, x, "more", id);
    assert_text(w, "more", id);
}

static void test_abort(void **state)
{
    struct world *w = *state;
    w->o.state_dir = w->path;
    struct http_exchange *x = begin(w);
    send_text(w, "a");
    say_text(w, x, "one", "1");
    assert_int_equal(tm_session_abort(w->s), 0);
    assert_true(x->cancelled);
    assert_false(is_saved(w));
    x = request(w, 1);
    assert_string_equal(x->event_id, "1");
    SENT(x, "\x12\x00");
    assert_true(x->ended);
    lose(x); /* it must be told */
    x = request(w, 2);
    SENT(x, "\x12\x00");
    welcome(x);
    say_text(w, x, "two", "2");
    assert_nothing(w);
    end_with(x, "{}");
    assert_end(w, TM_E_CANCELLED);
}

/* Nothing of what was sent is left in memory that is given back. */
static void test_wiped(void **state)
{
    struct world *w = *state;
    static const enum tm_http versions[] = {TM_HTTP_2, TM_HTTP_1};
    for (size_t i = 0; i < COUNT(versions); i++) {
        char chunk[2000] = "between you and me";
        tm_close(w->client);
        open_client(w, versions[i]);
        begin(w);
        w->memory.secret = "between you and me";
        for (size_t n = 20; n <= sizeof chunk; n *= 10)
            assert_int_equal(tm_session_send(w->s, chunk, n, NULL), 0);
        tm_session_free(w->s);
        w->s = NULL;
        tm_turn(w->client);
        assert_int_equal(w->memory.leaks, 0);
        w->memory.secret = NULL;
    }
}

static void test_abort_alone(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    assert_int_equal(tm_session_abort(w->s), 0);
    for (size_t i = 1; i <= 3; i++) {
        x = request(w, i);
        lose(x);
    }
    assert_end(w, TM_E_CANCELLED);
    tm_session_free(w->s);
    /* One that the server cannot know of. */
    size_t n = fake.n;
    assert_int_equal(tm_session_new(w->client, &w->o, &w->s), 0);
    assert_int_equal(tm_session_abort(w->s), 0);
    assert_end(w, TM_E_CANCELLED);
    assert_int_equal(fake.n, n);
}

static void test_give_up(void **state)
{
    struct world *w = *state;
    struct tm_event e;
    w->o.give_up_ms = 40;
    begin(w);
    for (int i = 0;; i++) {
        tm_turn(w->client);
        for (size_t k = 0; k < fake.n; k++)
            if (fake.all[k].r != NULL)
                lose(&fake.all[k]);
        int got = tm_session_next(w->s, &e);
        if (got == 1 && e.kind == TM_EVENT_END)
            break;
        assert_true(i < PATIENCE);
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    assert_int_equal(e.err, TM_E_NETWORK);
    assert_non_null(strstr(e.text, "cut"));
}

/* A server that has nothing to say is silent, and nobody is to know. */
static void test_idle(void **state)
{
    struct world *w = *state;
    tm_close(w->client);
    open_client(w, TM_HTTP_1);
    struct http_exchange *x = begin(w);
    welcome(x);
    fake_over(x, TM_E_TIMEOUT, "silent");
    request(w, 1);
    event(w, TM_EVENT_WELCOME);
    assert_nothing(w);
}

/* Over HTTP/2 it has been asked, and did not answer. */
static void test_dead(void **state)
{
    struct world *w = *state;
    struct http_exchange *x = begin(w);
    welcome(x);
    fake_over(x, TM_E_TIMEOUT, "silent");
    event(w, TM_EVENT_WELCOME);
    assert_string_equal(event(w, TM_EVENT_RECONNECT).text, "silent");
    request(w, 1);
}

/* ---- without HTTP/2 ---- */

static void refuse_http2(struct http_exchange *x)
{
    struct http_request *r = x->r;
    r->http2_refused = true;
    fake_over(x, TM_E_PROTOCOL, "no HTTP/2");
}

static void test_fallback(void **state)
{
    struct world *w = *state;
    w->o.service = TM_SERVICE_AISERVER;
    struct http_exchange *x = begin(w);
    send_text(w, "a");
    assert_int_equal(tm_session_service(w->s), TM_SERVICE_AISERVER);
    refuse_http2(x);
    struct http_exchange *down = request(w, 1), *first = request(w, 2);
    assert_string_equal(down->path,
                        "/aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotentSSE");
    assert_int_equal(down->version, HTTP_1);
    assert_int_equal(strlen(down->request_id), 36);
    assert_int_equal(down->n, 5 + 2 + 36);
    assert_memory_equal(down->body + 7, down->request_id, 36);
    assert_string_equal(first->path, "/aiserver.v1.BidiService/BidiAppend");
    assert_string_equal(first->secret, down->secret);
    assert_memory_equal(first->body,
                        "\x0a\x0a"
                        "0a01612800\x12\x26\x0a\x24",
                        16);
    assert_int_equal(first->n, 16 + 36); /* append_seqno 0 is not written */
    for (int i = 0; i < 5; i++)
        send_text(w, "b");
    assert_int_equal(fake.n, 6); /* a few at a time */
    fake_head(first, 200);
    fake_over(first, 0, "");
    assert_int_equal(fake.n, 7);
    assert_memory_equal(fake.all[6].body + 52, "\x18\x04", 2);
    welcome(down);
    ack(down, 0);
    event(w, TM_EVENT_WELCOME);
    assert_int_equal(event(w, TM_EVENT_ACK).seqno, 0);
    /* An append that is lost takes the connection with it. */
    lose(&fake.all[4]);
    assert_true(down->cancelled && fake.all[3].cancelled && fake.all[6].cancelled);
    event(w, TM_EVENT_RECONNECT);
    down = request(w, 7);
    assert_string_equal(down->path,
                        "/aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotentSSE");
    end_with(down, "{}");
    assert_end(w, 0);
}

/* What an append is refused for good is the session's end, unless the downlink knows better. */
static void test_refused_append(void **state)
{
    static const char body[] = "{\"code\":\"resource_exhausted\",\"message\":\"large\",\"details\":"
                               "[{\"type\":\"aiserver.v1.ErrorDetails\"}]}";
    struct world *w = *state;
    tm_close(w->client);
    open_client(w, TM_HTTP_1);
    for (int downlink = 0; downlink < 2; downlink++) {
        struct http_exchange *down = begin(w);
        size_t n = fake.n;
        assert_string_equal(down->path, "/tidemark.v1.SessionService/StreamSSE");
        send_text(w, "a");
        answer_status(&fake.all[n], 429, body);
        send_text(w, "b"); /* waits */
        assert_int_equal(fake.n, n + 1);
        if (downlink)
            end_with(down, "{}");
        struct tm_event e;
        assert_int_equal(tm_session_wait(w->s, &e, PATIENCE), 1);
        assert_int_equal(e.kind, TM_EVENT_END);
        assert_int_equal(e.err, downlink ? 0 : TM_E_BUSY);
        tm_session_free(w->s);
        w->s = NULL;
    }
}

/* ---- resuming ---- */

struct found {
    struct tm_session *s[4];
    size_t n;
    const char *unwanted;
    int stop;
};

static int resumed(void *ctx, struct tm_session *s, const char *generation)
{
    struct found *f = ctx;
    f->s[f->n++] = s;
    return f->stop;
}

static int wanted(void *ctx, const char *generation)
{
    struct found *f = ctx;
    return f->unwanted == NULL || strcmp(generation, f->unwanted) != 0;
}

static void leave_behind(struct world *w, const char *key, const char *generation)
{
    struct tm_session *s;
    w->o.state_dir = w->path;
    w->o.key = key;
    w->o.generation = generation;
    assert_int_equal(tm_session_new(w->client, &w->o, &s), 0);
    assert_int_equal(tm_session_send(s, key, strlen(key), NULL), 0);
    tm_session_free(s);
}

static struct tm_resume_report resume(struct world *w, struct found *f, int64_t window)
{
    struct tm_resume_options o = TM_RESUME_INIT;
    struct tm_resume_report r;
    o.resumed = resumed;
    o.wanted = wanted;
    o.ctx = f;
    o.retry_lookback_window_ms = window;
    assert_int_equal(tm_resume_all(w->client, w->path, &o, &r), 0);
    return r;
}

static void free_found(struct found *f)
{
    for (size_t i = 0; i < f->n; i++)
        tm_session_free(f->s[i]);
    f->n = 0;
}

static void test_resume_all(void **state)
{
    struct world *w = *state;
    struct found f = {0};
    struct tm_resume_report r = resume(w, &f, 0); /* nothing was ever saved */
    assert_int_equal(r.resumed + r.cleared + r.too_old + r.refused, 0);
    leave_behind(w, "one", NULL);
    leave_behind(w, "two", "gone");
    leave_behind(w, "three", ""); /* orphaned */
    leave_behind(w, "four", "alive");

    r = resume(w, &f, -1); /* even now is too long ago */
    assert_int_equal(r.too_old, 4);
    f.unwanted = "gone";
    r = resume(w, &f, 0);
    assert_int_equal(r.resumed, 2);
    assert_int_equal(r.cleared, 2);
    assert_int_equal(f.n, 2);
    for (size_t i = 0; i < f.n; i++) {
        assert_int_equal(tm_session_unacknowledged(f.s[i]), 1);
        assert_memory_equal(tm_session_secret(f.s[i]), secret, SECRET_SIZE);
    }
    r = resume(w, &f, 0);
    assert_int_equal(r.in_use, 2);
    free_found(&f);
    f.stop = 1;
    r = resume(w, &f, 0);
    assert_int_equal(r.resumed, 1);
    free_found(&f);
}

static void test_resume_refused(void **state)
{
    struct world *w = *state;
    struct found f = {0};
    char command[256];
    leave_behind(w, "one", NULL);
    leave_behind(w, "two", NULL);
    snprintf(command, sizeof command, "cd '%s' && f=$(ls *.json | head -1) && echo >> $f", w->path);
    assert_int_equal(system(command), 0);
    struct tm_resume_report r = resume(w, &f, 0);
    assert_int_equal(r.refused, 1);
    assert_int_equal(r.resumed, 1);
    free_found(&f);
    r = resume(w, &f, 0);
    assert_int_equal(r.refused, 0);
    assert_int_equal(r.resumed, 1);
    free_found(&f);
}

static void test_resume_invalid(void **state)
{
    struct world *w = *state;
    struct tm_resume_options o = TM_RESUME_INIT;
    assert_int_equal(tm_resume_all(w->client, w->path, &o, NULL), TM_E_INVALID);
    o.resumed = resumed;
    assert_int_equal(tm_resume_all(w->client, w->path, &o, NULL), 0);
    o.size = 0;
    assert_int_equal(tm_resume_all(w->client, w->path, &o, NULL), TM_E_INVALID);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_headers),         TEST(test_replay),         TEST(test_position),
        TEST(test_chat_position),   TEST(test_no_event_id),    TEST(test_degraded),
        TEST(test_errors),          TEST(test_statuses),       TEST(test_tampered),
        TEST(test_unsigned),        TEST(test_saved),          TEST(test_state_at_end),
        TEST(test_state_conflicts), TEST(test_save_fails),     TEST(test_gates),
        TEST(test_invalid),         TEST(test_limits),         TEST(test_full),
        TEST(test_abort),           TEST(test_wiped),          TEST(test_abort_alone),
        TEST(test_give_up),         TEST(test_dead),           TEST(test_idle),
        TEST(test_fallback),        TEST(test_refused_append), TEST(test_resume_all),
        TEST(test_resume_refused),  TEST(test_resume_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
