// SPDX-License-Identifier: Apache-2.0
/* Calls over a transport made for this: it hands over the request's bytes in pieces of any size,
 * pulls at once as HTTP/1 does or later as HTTP/2 does, and goes away whenever it likes. */
#include "base/buf.h"
#include "base/err.h"
#include "base/sched.h"
#include "http/http.h"
#include "http/rpc.h"
#include "http/rpc_head.h"
#include "http/rpc_status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define MAX_MESSAGE 1000

/* What the handler does with a message, with the half-close, and in its pulls. */
enum act {
    DO_NOTHING,
    DO_NEXT,
    DO_ECHO, /* the message goes back, and the next is asked for */
    DO_END,  /* with w->status */
    DO_REPLY,
    DO_LEAVE, /* the peer goes away */
};

struct world {
    struct sched sched;
    uint64_t now_ms;
    struct http http;
    struct exchange *x; /* NULL: over */
    struct request request;
    struct header headers[8];
    bool eager; /* pulls from within wake */

    uint64_t length; /* of the request's body, as its head says */
    struct str body; /* the rest of it */
    size_t piece;    /* of it in one delivery; 0: all */
    bool open;       /* more may follow it */
    bool wanted, end_delivered;

    bool woken, pulling, ended, forgotten;
    int status;
    struct buf head, sent, trailers; /* heads: "name: value\n" */

    struct rpc *r;
    struct buf log;
    struct buf out; /* bytes for the next pull */
    struct rpc_status end;
    enum act on_message, on_half_close, on_pull;
    int pulls;
};

/* ---- the transport ---- */

static void leave(struct world *w)
{
    struct exchange *x = w->x;
    w->x = NULL;
    if (x != NULL)
        exchange_finish(x, true);
}

static void put_headers(struct buf *to, const struct exchange_header *h)
{
    for (; h != NULL; h = h->next)
        buf_printf(to, "%.*s: %.*s\n", (int)h->header.name.n, h->header.name.p,
                   (int)h->header.value.n, h->header.value.p);
}

static void deliver(struct world *w)
{
    size_t n = w->piece == 0 || w->piece > w->body.n ? w->body.n : w->piece;
    char *copy = malloc(n + 1); /* of its own, so that a read beyond it is noticed */
    memcpy(copy, w->body.p, n);
    w->body = str_skip(w->body, n);
    w->end_delivered = w->body.n == 0 && !w->open;
    w->wanted = false;
    exchange_deliver(w->x, str_of(copy, n), w->end_delivered, false);
    free(copy);
}

static void via_want(struct exchange *x)
{
    struct world *w = x->transport;
    w->wanted = true;
    if (w->body.n > 0 || !w->open)
        deliver(w);
}

static void via_begin(struct exchange *x, int64_t length)
{
    struct world *w = x->transport;
    w->status = x->status;
    put_headers(&w->head, x->headers);
}

static void via_put(struct exchange *x, struct slice s)
{
    buf_put(&((struct world *)x->transport)->sent, s.bytes);
}

static void finish(struct world *w)
{
    struct exchange *x = w->x;
    w->ended = true;
    w->x = NULL;
    exchange_finish(x, false);
}

static void via_end(struct exchange *x)
{
    finish(x->transport);
}

static void pull(struct world *w)
{
    struct exchange *x = w->x;
    enum pull result;
    exchange_hold(x);
    w->pulling = true;
    do {
        w->woken = false;
        result = x->ops->pull(x);
    } while (w->x == x && (result == PULL_MORE || (w->woken && result == PULL_WAIT)));
    w->pulling = false;
    w->forgotten = x->request == NULL;
    if (w->x == x && result == PULL_END) {
        put_headers(&w->trailers, x->headers);
        finish(w);
    }
    exchange_release(x);
}

static void via_wake(struct exchange *x)
{
    struct world *w = x->transport;
    w->woken = true;
    if (w->eager && !w->pulling)
        pull(w);
}

static void via_abort(struct exchange *x)
{
    leave(x->transport);
}

static const struct transport_ops via = {.want = via_want,
                                         .begin = via_begin,
                                         .put = via_put,
                                         .wake = via_wake,
                                         .end = via_end,
                                         .abort = via_abort};

/* Turns of the loop until nothing happens any more. */
static void run(struct world *w)
{
    do {
        sched_turn(&w->sched, w->now_ms, 0);
        if (w->x != NULL && w->woken && w->x->streaming)
            pull(w);
        sched_drain(&w->sched);
    } while (w->x != NULL && w->woken && w->x->streaming);
}

static void feed(struct world *w, struct str bytes, bool end)
{
    w->body = bytes;
    w->open = !end;
    while (w->x != NULL && w->wanted && !w->end_delivered && (w->body.n > 0 || end))
        deliver(w);
    run(w);
}

/* ---- the handler ---- */

static void put_hex(struct buf *out, struct str bytes)
{
    for (size_t i = 0; i < bytes.n; i++)
        buf_printf(out, "%02x", (unsigned char)bytes.p[i]);
}

static void act(struct world *w, struct rpc *r, enum act what, struct str bytes)
{
    switch (what) {
    case DO_NOTHING: break;
    case DO_NEXT: rpc_next(r); break;
    case DO_ECHO:
        buf_put(&w->out, bytes);
        rpc_wake(r);
        rpc_next(r);
        break;
    case DO_END: rpc_end(r, &w->end); break;
    case DO_REPLY: rpc_reply(r, bytes); break;
    case DO_LEAVE: leave(w); break;
    }
}

static void on_message(struct rpc *r, struct str bytes)
{
    struct world *w = rpc_ctx(r);
    struct buf copy = {0};
    buf_put(&copy, bytes);
    put_hex(&w->log, bytes);
    buf_putc(&w->log, ' ');
    act(w, r, w->on_message, bytes);
    assert_true(str_eq(buf_str(&copy), bytes)); /* lent to the end, whatever was called */
    buf_deinit(&copy);
}

static void on_half_closed(struct rpc *r)
{
    struct world *w = rpc_ctx(r);
    buf_put(&w->log, STR("half "));
    act(w, r, w->on_half_close, STR_NONE);
}

static enum pull on_pull(struct rpc *r)
{
    struct world *w = rpc_ctx(r);
    w->pulls++;
    if (w->out.n > 0)
        rpc_put(r, buf_str(&w->out));
    w->out.n = 0;
    enum act what = w->on_pull;
    w->on_pull = DO_NOTHING;
    act(w, r, what, STR_NONE);
    return PULL_WAIT;
}

static void on_gone(struct rpc *r)
{
    struct world *w = rpc_ctx(r);
    buf_put(&w->log, STR("gone "));
    rpc_end(r, &RPC_OK); /* does nothing */
    rpc_wake(r);
}

static void on_drain(struct rpc *r)
{
    struct world *w = rpc_ctx(r);
    buf_put(&w->log, STR("drain "));
    rpc_end(r, &w->end);
}

static const struct rpc_ops ops = {.message = on_message,
                                   .half_closed = on_half_closed,
                                   .pull = on_pull,
                                   .gone = on_gone,
                                   .drain = on_drain};

/* ---- the world ---- */

static void header(struct world *w, const char *name, const char *value)
{
    assert_true(w->request.n_headers < 8);
    w->headers[w->request.n_headers++] = (struct header){str_of_cstr(name), str_of_cstr(value)};
}

static void world_init(struct world *w, const char *type)
{
    *w = (struct world){.now_ms = 1000, .open = true};
    w->http.limits.inflight_bytes = 1 << 20;
    sched_init(&w->sched, w->now_ms, 0);
    w->request = (struct request){.method = METHOD_POST, .version = 20, .headers = w->headers};
    if (type != NULL)
        header(w, "content-type", type);
}

static struct rpc *call_with(struct world *w, enum rpc_kind kind, const struct rpc_ops *with)
{
    w->x = exchange_new(&w->http, &via, w);
    w->x->request = &w->request;
    w->x->body_length = w->length;
    w->r = rpc_new(
        w->x,
        &(struct rpc_setup){
            .sched = &w->sched, .kind = kind, .max_message = MAX_MESSAGE, .ops = with, .ctx = w});
    return w->r;
}

static struct rpc *call(struct world *w, enum rpc_kind kind)
{
    return call_with(w, kind, &ops);
}

/* Everything has been given back; what has not, the sanitizer tells. */
static void world_deinit(struct world *w)
{
    leave(w);
    sched_drain(&w->sched);
    assert_int_equal(w->http.inflight_bytes, 0);
    buf_deinit(&w->head);
    buf_deinit(&w->sent);
    buf_deinit(&w->trailers);
    buf_deinit(&w->log);
    buf_deinit(&w->out);
    arena_cache_deinit(&w->http.arenas);
}

static void assert_text(const struct buf *got, const char *expected)
{
    if (!str_eq(buf_str(got), str_of_cstr(expected)))
        fail_msg("\"%.*s\" is not \"%s\"", (int)got->n, got->p, expected);
}

static void assert_sent(const struct world *w, struct str expected)
{
    if (str_eq(buf_str(&w->sent), expected))
        return;
    struct buf hex = {0};
    put_hex(&hex, buf_str(&w->sent));
    buf_put(&hex, STR(" is not "));
    put_hex(&hex, expected);
    buf_putc(&hex, '\0');
    fail_msg("%s", hex.p);
}

static void assert_has(const struct buf *got, const char *part)
{
    if (memmem(got->p, got->n, part, strlen(part)) == NULL)
        fail_msg("\"%.*s\" has no \"%s\"", (int)got->n, got->p, part);
}

#define CONNECT "application/connect+proto"
#define HELLO   "\0\0\0\0\4\x0a\0\x28\0"
#define EOS     "\2\0\0\0\2{}"

/* ---- requests that are no calls ---- */

static void test_refusals(void **state)
{
    static const struct {
        enum method method;
        int version;
        const char *type;
        enum rpc_kind kind;
        int status;
        const char *head;
    } cases[] = {
        {METHOD_GET, 20, CONNECT, RPC_BIDI, 405, "Allow: POST\n"},
        {METHOD_PUT, 11, "application/proto", RPC_UNARY, 405, "Allow: POST\n"},
        {METHOD_POST, 20, NULL, RPC_BIDI, 415, "Accept-Post: application/connect+proto, "},
        {METHOD_POST, 20, "application/connect+json", RPC_BIDI, 415, "Accept-Post: "},
        {METHOD_POST, 20, "application/grpc+json", RPC_BIDI, 415, "application/grpc"},
        {METHOD_POST, 20, "application/grpc-web", RPC_BIDI, 415, "Accept-Post: "},
        {METHOD_POST, 20, "application/proto", RPC_SERVER_STREAM, 415, "Accept-Post: "},
        {METHOD_POST, 20, CONNECT, RPC_UNARY, 415, "Accept-Post: application/proto, "},
        {METHOD_POST, 11, CONNECT, RPC_BIDI, 505, "application/json"},
        {METHOD_POST, 11, "application/grpc", RPC_UNARY, 505, "application/json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        world_init(&w, cases[i].type);
        w.request.method = cases[i].method;
        w.request.version = (uint8_t)cases[i].version;
        assert_null(call(&w, cases[i].kind));
        assert_int_equal(w.status, cases[i].status);
        assert_has(&w.head, cases[i].head);
        assert_true(w.ended);
        world_deinit(&w);
    }
}

static void test_types_that_are_calls(void **state)
{
    static const struct {
        const char *type;
        enum rpc_kind kind;
        int version;
    } cases[] = {
        {"Application/Connect+Proto", RPC_BIDI, 20},
        {"application/connect+proto; charset=utf-8", RPC_SERVER_STREAM, 11},
        {"application/grpc", RPC_SERVER_STREAM, 20},
        {"application/grpc+proto", RPC_UNARY, 20},
        {"application/proto", RPC_UNARY, 11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        world_init(&w, cases[i].type);
        w.request.version = (uint8_t)cases[i].version;
        assert_non_null(call(&w, cases[i].kind));
        leave(&w);
        assert_text(&w.log, "gone ");
        world_deinit(&w);
    }
}

/* Heads that cannot be understood, in the words of each protocol. */
static void test_bad_heads(void **state)
{
    static const struct {
        const char *type, *name, *value, *code, *why;
        int http; /* of a unary call */
    } cases[] = {
        {CONNECT, "connect-protocol-version", "2", "invalid_argument", "must be 1", 0},
        {CONNECT, "connect-timeout-ms", "12345678901", "invalid_argument", "Timeout", 0},
        {CONNECT, "connect-timeout-ms", "", "invalid_argument", "Timeout", 0},
        {CONNECT, "connect-timeout-ms", "-1", "invalid_argument", "Timeout", 0},
        {CONNECT, "connect-content-encoding", "br", "unimplemented", "send gzip or identity", 0},
        {"application/proto", "content-encoding", "zstd", "unimplemented", "\\\"zstd\\\"", 501},
        {"application/proto", "connect-timeout-ms", "1s", "invalid_argument", "Timeout", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        world_init(&w, cases[i].type);
        header(&w, cases[i].name, cases[i].value);
        assert_null(call(&w, cases[i].http != 0 ? RPC_UNARY : RPC_BIDI));
        assert_int_equal(w.status, cases[i].http != 0 ? cases[i].http : 200);
        assert_has(&w.sent, cases[i].code);
        assert_has(&w.sent, cases[i].why);
        assert_has(&w.head, "ccept-Encoding: gzip\n");
        world_deinit(&w);
    }
}

static void test_bad_heads_of_grpc(void **state)
{
    static const struct {
        const char *name, *value, *status;
    } cases[] = {
        {"grpc-encoding", "snappy", "grpc-status: 12\ngrpc-message: compression \"snappy\""},
        {"grpc-timeout", "123456789m", "grpc-status: 3\n"},
        {"grpc-timeout", "1", "grpc-status: 3\n"},
        {"grpc-timeout", "S", "grpc-status: 3\n"},
        {"grpc-timeout", "1s", "grpc-status: 3\n"},
        {"grpc-timeout", "-1S", "grpc-status: 3\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        world_init(&w, "application/grpc");
        header(&w, cases[i].name, cases[i].value);
        assert_null(call(&w, RPC_BIDI));
        assert_int_equal(w.status, 200);
        assert_has(&w.head, cases[i].status);
        assert_has(&w.head, "grpc-accept-encoding: identity,gzip\n");
        assert_int_equal(w.sent.n + w.trailers.n, 0); /* trailers only */
        world_deinit(&w);
    }
}

/* ---- bidirectional calls ---- */

/* The head is out, and the client not kept waiting, before it has said anything. */
static void test_bidi_begins_by_itself(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    struct rpc *r = call(&w, RPC_BIDI);
    assert_int_equal(w.status, 0);
    rpc_next(r);
    run(&w);
    assert_int_equal(w.status, 200);
    assert_has(&w.head, "Content-Type: application/connect+proto\n");
    assert_int_equal(w.pulls, 1);
    assert_int_equal(w.sent.n, 0);
    world_deinit(&w);
}

static void test_bidi_echo(void **state)
{
    for (size_t piece = 0; piece <= 9; piece++)
        for (int eager = 0; eager <= 1; eager++) {
            struct world w;
            world_init(&w, CONNECT);
            w.eager = eager;
            w.piece = piece;
            w.on_message = DO_ECHO;
            w.on_half_close = DO_END;
            rpc_next(call(&w, RPC_BIDI));
            run(&w);
            feed(&w, STR(HELLO), false);
            assert_sent(&w, STR(HELLO));
            feed(&w, STR("\0\0\0\0\1z"), false);
            assert_false(w.ended);
            feed(&w, STR(""), true);
            assert_text(&w.log, "0a002800 7a half ");
            assert_sent(&w, STR(HELLO "\0\0\0\0\1z" EOS));
            assert_true(w.ended);
            assert_int_equal(w.trailers.n, 0);
            world_deinit(&w);
        }
}

/* A message that is not asked for is not taken, and not lost. */
static void test_messages_come_when_asked_for(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    struct rpc *r = call(&w, RPC_BIDI);
    run(&w);
    rpc_next(r);
    feed(&w, STR("\0\0\0\0\1a\0\0\0\0\1b"), true);
    assert_text(&w.log, "61 ");
    assert_true(w.http.inflight_bytes > 0); /* the rest is kept, and accounted for */
    rpc_next(r);
    assert_text(&w.log, "61 62 ");
    assert_int_equal(w.http.inflight_bytes, 0);
    rpc_next(r);
    assert_text(&w.log, "61 62 half ");
    world_deinit(&w);
}

/* As many messages as fit into a piece do not make as many frames on the stack. */
static void test_many_messages_in_one_piece(void **state)
{
    enum { MANY = 50000 };
    struct world w;
    char *body = calloc(MANY, 5);
    world_init(&w, CONNECT);
    w.on_message = DO_NEXT;
    rpc_next(call(&w, RPC_BIDI));
    feed(&w, str_of(body, MANY * 5), true);
    assert_int_equal(w.log.n, MANY + strlen("half "));
    world_deinit(&w);
    free(body);
}

static void test_grpc_bidi(void **state)
{
    struct world w;
    world_init(&w, "application/grpc");
    header(&w, "te", "trailers");
    w.on_message = DO_ECHO;
    w.on_half_close = DO_END;
    rpc_next(call(&w, RPC_BIDI));
    run(&w);
    assert_has(&w.head, "Content-Type: application/grpc\n");
    feed(&w, STR(HELLO), false);
    feed(&w, STR(""), true);
    assert_text(&w.log, "0a002800 half ");
    assert_sent(&w, STR(HELLO));
    assert_text(&w.trailers, "grpc-status: 0\n");
    world_deinit(&w);
}

/* ---- how calls end ---- */

static const struct rpc_detail details[] = {
    {STR_INIT("a.B"), STR_INIT("\x08\x01")},
    {STR_INIT("c.D"), STR_INIT("\xff\xfe\xfd")},
};

static const struct rpc_status denied = {.code = GRPC_PERMISSION_DENIED,
                                         .message = STR_INIT("no \"entry\"\n"),
                                         .details = details,
                                         .n_details = 2};
#define DENIED_JSON                                                                                \
    "{\"code\":\"permission_denied\",\"message\":\"no \\\"entry\\\"\\n\",\"details\":["            \
    "{\"type\":\"a.B\",\"value\":\"CAE\"},{\"type\":\"c.D\",\"value\":\"//79\"}]}"
#define DENIED_EOS "\2\0\0\0\x88{\"error\":" DENIED_JSON "}"

static void test_connect_error_of_a_stream(void **state)
{
    for (int begun = 0; begun <= 1; begun++) {
        struct world w;
        world_init(&w, CONNECT);
        struct rpc *r = call(&w, RPC_BIDI);
        if (begun)
            run(&w);
        rpc_end(r, &denied);
        run(&w);
        assert_int_equal(w.status, 200);
        assert_sent(&w, STR(DENIED_EOS));
        assert_true(w.ended);
        assert_text(&w.log, "");
        world_deinit(&w);
    }
}

/* google.rpc.Status {7, "no \"entry\"\n", [Any, Any]} */
#define DENIED_GRPC                                                                                \
    "grpc-status: 7\ngrpc-message: no \"entry\"%0A\ngrpc-status-details-bin: "                     \
    "CAcSC25vICJlbnRyeSIKGh0KF3R5cGUuZ29vZ2xlYXBpcy5jb20vYS5CEgIIARoeChd0eXBlLmdvb2dsZWFwaXMu"     \
    "Y29tL2MuRBID//79\n"

static void test_grpc_error(void **state)
{
    for (int begun = 0; begun <= 1; begun++) {
        struct world w;
        world_init(&w, "application/grpc+proto");
        struct rpc *r = call(&w, RPC_BIDI);
        if (begun)
            run(&w);
        rpc_end(r, &denied);
        run(&w);
        assert_has(&w.head, "Content-Type: application/grpc+proto\n");
        if (begun)
            assert_text(&w.trailers, DENIED_GRPC);
        else
            assert_has(&w.head, DENIED_GRPC);
        assert_int_equal(w.sent.n, 0);
        assert_true(w.ended);
        world_deinit(&w);
    }
}

static void test_percent(void **state)
{
    struct buf out = {0};
    rpc_put_percent(&out, STR("100% \x7f\x1f~ \xc3\xa9\r\n"));
    assert_text(&out, "100%25 %7F%1F~ %C3%A9%0D%0A");
    buf_deinit(&out);
}

static void test_codes(void **state)
{
    static const struct {
        int code;
        const char *text;
        int http;
    } cases[] = {
        {0, "ok", 200},
        {1, "canceled", 499},
        {2, "unknown", 500},
        {3, "invalid_argument", 400},
        {4, "deadline_exceeded", 504},
        {5, "not_found", 404},
        {6, "already_exists", 409},
        {7, "permission_denied", 403},
        {8, "resource_exhausted", 429},
        {9, "failed_precondition", 400},
        {10, "aborted", 409},
        {11, "out_of_range", 400},
        {12, "unimplemented", 501},
        {13, "internal", 500},
        {14, "unavailable", 503},
        {15, "data_loss", 500},
        {16, "unauthenticated", 401},
        {17, "unknown", 500},
        {-1, "unknown", 500},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(str_eq(rpc_code_text(cases[i].code), str_of_cstr(cases[i].text)));
        assert_int_equal(err_grpc_http(cases[i].code), cases[i].http);
    }
}

/* ---- calls of one message ---- */

static void test_server_stream(void **state)
{
    for (size_t piece = 0; piece <= 9; piece++)
        for (int version = 11; version <= 20; version += 9) {
            struct world w;
            world_init(&w, CONNECT);
            w.request.version = (uint8_t)version;
            w.eager = version == 11;
            w.piece = piece;
            rpc_next(call(&w, RPC_SERVER_STREAM));
            feed(&w, STR(HELLO), false);
            assert_text(&w.log, ""); /* it may not have been all */
            assert_int_equal(w.status, 0);
            buf_put(&w.out, STR("x"));
            feed(&w, STR(""), true);
            assert_text(&w.log, "0a002800 ");
            assert_sent(&w, STR("\0\0\0\0\1x"));
            buf_put(&w.out, STR("y"));
            w.on_pull = DO_END;
            rpc_wake(w.r);
            assert_int_equal(w.pulls, 1); /* never from within */
            run(&w);
            assert_sent(&w, STR("\0\0\0\0\1x\0\0\0\0\1y" EOS));
            assert_true(w.ended);
            assert_true(w.forgotten);
            world_deinit(&w);
        }
}

static void test_unary_of_connect(void **state)
{
    for (size_t piece = 0; piece <= 4; piece++) {
        struct world w;
        world_init(&w, "application/proto");
        w.request.version = 11;
        w.piece = piece;
        w.on_message = DO_REPLY;
        rpc_next(call(&w, RPC_UNARY));
        feed(&w, STR("\x0a\0\x28\0"), true);
        assert_text(&w.log, "0a002800 ");
        assert_int_equal(w.status, 200);
        assert_has(&w.head, "Content-Type: application/proto\n");
        assert_sent(&w, STR("\x0a\0\x28\0"));
        assert_true(w.ended);
        world_deinit(&w);
    }
}

static void test_unary_error_of_connect(void **state)
{
    struct world w;
    world_init(&w, "application/proto");
    w.on_message = DO_END;
    w.end = denied;
    rpc_next(call(&w, RPC_UNARY));
    feed(&w, STR(""), true);
    assert_text(&w.log, " "); /* an empty body is an empty message */
    assert_int_equal(w.status, 403);
    assert_has(&w.head, "Content-Type: application/json\n");
    assert_sent(&w, STR(DENIED_JSON));
    world_deinit(&w);
}

static void test_unary_of_grpc(void **state)
{
    struct world w;
    world_init(&w, "application/grpc");
    w.on_message = DO_REPLY;
    rpc_next(call(&w, RPC_UNARY));
    feed(&w, STR(HELLO), true);
    assert_int_equal(w.status, 200);
    assert_sent(&w, STR(HELLO));
    assert_text(&w.trailers, "grpc-status: 0\n");
    assert_true(w.ended);
    world_deinit(&w);
}

/* The answer may be long in coming: then the peer, too, may be gone. */
static void test_unary_later(void **state)
{
    for (int gone = 0; gone <= 1; gone++) {
        struct world w;
        world_init(&w, "application/grpc");
        rpc_next(call(&w, RPC_UNARY));
        feed(&w, STR(HELLO), true);
        if (gone) {
            leave(&w);
            assert_text(&w.log, "0a002800 gone ");
        } else {
            rpc_reply(w.r, STR("late"));
            leave(&w); /* before it has been pulled */
            assert_text(&w.log, "0a002800 ");
        }
        world_deinit(&w);
    }
}

/* ---- messages that are none ---- */

static void put_zipped(struct buf *out, size_t n)
{
    static char zeros[1 << 16];
    struct buf zipped = {0};
    z_stream z = {.next_in = (unsigned char *)zeros, .avail_in = (unsigned)n};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, n);
    z.next_out = (unsigned char *)buf_reserve(&zipped, room);
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    zipped.n = room - z.avail_out;
    buf_put(out, STR("\1\0\0"));
    buf_putc(out, (char)(zipped.n >> 8));
    buf_putc(out, (char)zipped.n);
    buf_put(out, buf_str(&zipped));
    buf_deinit(&zipped);
}

static void test_gzip(void **state)
{
    static const struct {
        const char *type, *header;
    } cases[] = {{CONNECT, "connect-content-encoding"}, {"application/grpc", "grpc-encoding"}};
    for (size_t i = 0; i < 2; i++) {
        struct buf body = {0};
        struct world w;
        world_init(&w, cases[i].type);
        header(&w, cases[i].header, "gzip");
        put_zipped(&body, 3);
        w.on_message = DO_NEXT;
        rpc_next(call(&w, RPC_BIDI));
        feed(&w, buf_str(&body), true);
        assert_text(&w.log, "000000 half ");
        world_deinit(&w);
        buf_deinit(&body);
    }
}

static void test_bomb(void **state)
{
    struct buf body = {0};
    struct world w;
    world_init(&w, CONNECT);
    header(&w, "connect-content-encoding", "gzip");
    put_zipped(&body, 1 << 16);
    rpc_next(call(&w, RPC_BIDI));
    feed(&w, buf_str(&body), true);
    assert_text(&w.log, "gone ");
    assert_has(&w.sent, "resource_exhausted");
    assert_has(&w.sent, "when decompressed");
    world_deinit(&w);
    buf_deinit(&body);
}

static void test_what_is_no_message(void **state)
{
    static const struct {
        struct str body;
        enum rpc_kind kind;
        const char *log, *code;
    } cases[] = {
        {STR_INIT("\4\0\0\0\0"), RPC_BIDI, "gone ", "invalid_argument"},
        {STR_INIT("\x80\0\0\0\0"), RPC_BIDI, "gone ", "invalid_argument"},
        {STR_INIT(EOS), RPC_BIDI, "gone ", "only a server"},
        {STR_INIT("\1\0\0\0\1x"), RPC_BIDI, "gone ", "no header said how"},
        {STR_INIT("\0\0\0\3\xe9"), RPC_BIDI, "gone ", "resource_exhausted"},
        {STR_INIT(HELLO "\0\0"), RPC_BIDI, "0a002800 gone ", "invalid_argument"},
        {STR_INIT(HELLO HELLO), RPC_SERVER_STREAM, "gone ", "unimplemented"},
        {STR_INIT(HELLO "\0"), RPC_SERVER_STREAM, "gone ", "unimplemented"},
        {STR_INIT(""), RPC_SERVER_STREAM, "gone ", "unimplemented"},
        {STR_INIT("\0\0\0\0\2x"), RPC_SERVER_STREAM, "gone ", "invalid_argument"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int how = 0; how < 4; how++) {
            struct world w;
            world_init(&w, CONNECT);
            w.piece = how & 1;
            w.eager = how & 2;
            w.on_message = DO_NEXT;
            rpc_next(call(&w, cases[i].kind));
            run(&w);
            feed(&w, cases[i].body, true);
            assert_text(&w.log, cases[i].log);
            assert_int_equal(w.status, 200);
            assert_has(&w.sent, "{\"error\":{\"code\":");
            assert_has(&w.sent, cases[i].code);
            assert_true(w.ended);
            world_deinit(&w);
        }
}

static void test_unary_too_long(void **state)
{
    char body[MAX_MESSAGE + 1] = {0};
    struct world w;
    world_init(&w, "application/proto");
    w.piece = 100;
    rpc_next(call(&w, RPC_UNARY));
    feed(&w, str_of(body, sizeof body), true);
    assert_text(&w.log, "gone ");
    assert_int_equal(w.status, 429);
    assert_has(&w.sent, "longer than 1000 bytes");
    world_deinit(&w);
}

static void explain(struct rpc_status *status, struct arena *a)
{
    struct rpc_detail *detail = arena_alloc(a, sizeof *detail);
    *detail = (struct rpc_detail){STR("a.Reason"), status->message};
    status->details = detail;
    status->n_details = 1;
}

/* What the peer itself did wrong is explained, whenever it is noticed; that time has passed is not
 * its fault. */
static void test_faults_are_explained(void **state)
{
    static const struct {
        const char *header, *value;
        struct str body;
        bool explained;
    } cases[] = {
        {"connect-protocol-version", "1", STR_INIT("\x80\0\0\0\0"), true},
        {"connect-protocol-version", "1", STR_INIT("\0\0\xff\0\0"), true}, /* too long */
        {"connect-protocol-version", "2", STR_INIT(""), true},
        {"connect-timeout-ms", "10", STR_INIT(""), false},
    };
    struct rpc_ops explaining = ops;
    explaining.fault = explain;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        world_init(&w, CONNECT);
        header(&w, cases[i].header, cases[i].value);
        struct rpc *r = call_with(&w, RPC_BIDI, &explaining);
        if (r != NULL) {
            rpc_next(r);
            feed(&w, cases[i].body, false);
            w.now_ms += 1000;
            run(&w);
        }
        assert_has(&w.sent, "{\"error\":");
        assert_int_equal(memmem(w.sent.p, w.sent.n, "a.Reason", 8) != NULL, cases[i].explained);
        world_deinit(&w);
    }
}

/* What is said to be too long is not waited for. */
static void test_announced_too_long(void **state)
{
    static const struct {
        const char *type;
        enum rpc_kind kind;
        uint64_t length;
        bool taken;
    } cases[] = {
        {"application/proto", RPC_UNARY, MAX_MESSAGE + 6, false},
        {CONNECT, RPC_SERVER_STREAM, MAX_MESSAGE + 5, true},
        {CONNECT, RPC_SERVER_STREAM, MAX_MESSAGE + 6, false},
        {CONNECT, RPC_BIDI, MAX_MESSAGE * 10, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        world_init(&w, cases[i].type);
        w.length = cases[i].length;
        assert_int_equal(call(&w, cases[i].kind) != NULL, cases[i].taken);
        if (!cases[i].taken)
            assert_has(&w.sent, "resource_exhausted");
        world_deinit(&w);
    }
}

/* What other bodies have taken is not there for this one. */
static void test_no_memory_for_bodies(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    w.http.limits.inflight_bytes = 6;
    rpc_next(call(&w, RPC_BIDI));
    feed(&w, STR("\0\0\0\0\4x"), false);
    assert_text(&w.log, "");
    feed(&w, STR("x"), false);
    assert_text(&w.log, "gone ");
    assert_has(&w.sent, "unavailable");
    world_deinit(&w);
}

/* ---- deadlines ---- */

/* A deadline that is set never comes too early. */
static void test_timeouts_round_up(void **state)
{
    static const struct {
        const char *value;
        uint64_t ms;
    } cases[] = {{"0n", 0}, {"1n", 1},    {"1000000n", 1}, {"1000001n", 2},
                 {"1u", 1}, {"1000u", 1}, {"1001u", 2},    {"99999999u", 100000},
                 {"7m", 7}, {"7S", 7000}, {"7M", 420000},  {"7H", 25200000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct header timeout = {STR("Grpc-Timeout"), str_of_cstr(cases[i].value)};
        struct request req = {.headers = &timeout, .n_headers = 1};
        struct rpc_head h = {.protocol = RPC_GRPC};
        struct str why;
        assert_int_equal(rpc_head_read(&h, &req, NULL, &why), 0);
        assert_true(h.has_timeout);
        assert_int_equal(h.timeout_ms, cases[i].ms);
    }
}

static void test_deadlines(void **state)
{
    static const struct {
        const char *type, *header, *value;
        uint64_t ms;
    } cases[] = {
        {CONNECT, "connect-timeout-ms", "5000", 5000},
        {CONNECT, "connect-timeout-ms", "0", 0},
        {CONNECT, "connect-timeout-ms", "9999999999", 9999999999},
        {"application/grpc", "grpc-timeout", "2S", 2000},
        {"application/grpc", "grpc-timeout", "300m", 300},
        {"application/grpc", "grpc-timeout", "1M", 60000},
        {"application/grpc", "grpc-timeout", "3H", 3 * 3600000},
        {"application/grpc", "grpc-timeout", "1500u", 2},
        {"application/grpc", "grpc-timeout", "1n", 1},
        {"application/grpc", "grpc-timeout", "99999999H", 99999999ull * 3600000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int asked = 0; asked <= 1; asked++) {
            struct world w;
            world_init(&w, cases[i].type);
            header(&w, cases[i].header, cases[i].value);
            struct rpc *r = call(&w, RPC_BIDI);
            if (asked)
                rpc_next(r);
            w.now_ms += cases[i].ms - (cases[i].ms > 0);
            if (cases[i].ms > 0)
                run(&w);
            assert_false(w.ended);
            w.now_ms += 2 * SCHED_TICK_MS;
            run(&w);
            run(&w);
            assert_text(&w.log, "gone ");
            assert_true(w.ended);
            if (cases[i].type[12] == 'c')
                assert_has(&w.sent, "{\"error\":{\"code\":\"deadline_exceeded\"");
            else
                assert_has(w.trailers.n > 0 ? &w.trailers : &w.head, "grpc-status: 4\n");
            world_deinit(&w);
        }
}

static void test_deadline_of_a_unary_call(void **state)
{
    struct world w;
    world_init(&w, "application/proto");
    header(&w, "connect-timeout-ms", "10");
    rpc_next(call(&w, RPC_UNARY));
    feed(&w, STR("x"), true);
    w.now_ms += 10 + 2 * SCHED_TICK_MS;
    run(&w);
    assert_text(&w.log, "78 gone ");
    assert_int_equal(w.status, 504);
    world_deinit(&w);
}

/* A call that has ended has no deadline, even if its end has not been sent. */
static void test_end_before_the_deadline(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    header(&w, "connect-timeout-ms", "10");
    struct rpc *r = call(&w, RPC_BIDI);
    run(&w);
    rpc_end(r, &RPC_OK);
    w.now_ms += 1000;
    sched_turn(&w.sched, w.now_ms, 0);
    run(&w);
    assert_text(&w.log, "");
    assert_sent(&w, STR(EOS));
    world_deinit(&w);
}

/* ---- lifetimes ---- */

/* Whatever happens, wherever it is called from: once, and nothing afterwards. */
static void test_everything_from_everywhere(void **state)
{
    enum { IN_MESSAGE, IN_HALF_CLOSE, IN_PULL, IN_MESSAGE_IN_PULL, IN_HALF_CLOSE_IN_PULL, PLACES };
    static const enum act acts[] = {DO_END, DO_LEAVE};
    static const char *const types[] = {CONNECT, "application/grpc"};
    for (int place = 0; place < PLACES; place++)
        for (int i = 0; i < 16; i++) {
            struct world w;
            enum act what = acts[i & 1];
            bool half = place == IN_HALF_CLOSE || place == IN_HALF_CLOSE_IN_PULL;
            world_init(&w, types[i >> 1 & 1]);
            w.eager = i & 4;
            w.piece = i & 8 ? 1 : 0;
            w.end = denied;
            struct rpc *r = call(&w, RPC_BIDI);
            if (place == IN_PULL)
                w.on_pull = what;
            else if (half)
                w.on_half_close = what;
            else
                w.on_message = what;
            if (place == IN_MESSAGE_IN_PULL || place == IN_HALF_CLOSE_IN_PULL) {
                w.body = half ? STR("") : STR(HELLO HELLO);
                w.open = false;
                w.on_pull = DO_NEXT;
                run(&w);
            } else if (place == IN_PULL) {
                run(&w);
            } else {
                run(&w);
                rpc_next(r);
                feed(&w, half ? STR("") : STR(HELLO HELLO), true);
            }
            struct buf expected = {0};
            if (place != IN_PULL)
                buf_put(&expected, half ? STR("half ") : STR("0a002800 "));
            if (what == DO_LEAVE)
                buf_put(&expected, STR("gone "));
            buf_putc(&expected, '\0');
            assert_text(&w.log, expected.p);
            assert_int_equal(w.ended, what == DO_END);
            assert_null(w.x);
            buf_deinit(&expected);
            world_deinit(&w);
        }
}

/* The end has been said, and the peer goes before it is sent: nobody is told. */
static void test_gone_after_the_end(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    struct rpc *r = call(&w, RPC_BIDI);
    rpc_next(r);
    run(&w);
    rpc_end(r, &RPC_OK);
    assert_false(w.ended);
    leave(&w);
    assert_text(&w.log, "");
    world_deinit(&w);
}

/* Messages that come behind the end are no concern of anybody's. */
static void test_messages_after_the_end(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    struct rpc *r = call(&w, RPC_BIDI);
    rpc_next(r);
    run(&w);
    rpc_end(r, &RPC_OK);
    w.body = STR(HELLO);
    w.http.limits.inflight_bytes = 1; /* nor is there a lack of memory for them */
    deliver(&w);
    assert_int_equal(w.http.inflight_bytes, 0);
    run(&w);
    assert_text(&w.log, "");
    assert_sent(&w, STR(EOS));
    world_deinit(&w);
}

/* A peer that does not take the end of its call does not keep memory with what it sent. */
static void test_memory_after_the_end(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    w.on_message = DO_END;
    struct rpc *r = call(&w, RPC_BIDI);
    run(&w);
    rpc_next(r);
    w.body = STR(HELLO HELLO "\0\0\0");
    deliver(&w);
    assert_text(&w.log, "0a002800 ");
    assert_false(w.ended);
    assert_int_equal(w.http.inflight_bytes, 0);
    run(&w);
    assert_sent(&w, STR(EOS));
    world_deinit(&w);
}

static void test_drain(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    call(&w, RPC_BIDI);
    run(&w);
    w.x->ops->drain(w.x);
    run(&w);
    assert_text(&w.log, "drain ");
    assert_sent(&w, STR(EOS));
    world_deinit(&w);
}

/* A stream that is open for hours does not keep its request. */
static void test_request_is_given_back(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    struct rpc *r = call(&w, RPC_BIDI);
    run(&w);
    assert_non_null(w.x->request); /* its body is still being read */
    rpc_next(r);
    feed(&w, STR(""), true);
    assert_text(&w.log, "half ");
    assert_null(w.x->request);
    rpc_end(r, &denied); /* and trailers find memory all the same */
    run(&w);
    assert_sent(&w, STR(DENIED_EOS));
    world_deinit(&w);
}

static void test_wake_before_the_beginning(void **state)
{
    struct world w;
    world_init(&w, CONNECT);
    w.eager = true;
    struct rpc *r = call(&w, RPC_SERVER_STREAM);
    rpc_wake(r);
    run(&w);
    assert_int_equal(w.pulls, 0);
    rpc_next(r);
    feed(&w, STR(HELLO), true);
    assert_int_equal(w.pulls, 1);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_types_that_are_calls),
        cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_bad_heads_of_grpc),
        cmocka_unit_test(test_bidi_begins_by_itself),
        cmocka_unit_test(test_bidi_echo),
        cmocka_unit_test(test_messages_come_when_asked_for),
        cmocka_unit_test(test_many_messages_in_one_piece),
        cmocka_unit_test(test_grpc_bidi),
        cmocka_unit_test(test_connect_error_of_a_stream),
        cmocka_unit_test(test_grpc_error),
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_server_stream),
        cmocka_unit_test(test_unary_of_connect),
        cmocka_unit_test(test_unary_error_of_connect),
        cmocka_unit_test(test_unary_of_grpc),
        cmocka_unit_test(test_unary_later),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_what_is_no_message),
        cmocka_unit_test(test_unary_too_long),
        cmocka_unit_test(test_faults_are_explained),
        cmocka_unit_test(test_announced_too_long),
        cmocka_unit_test(test_no_memory_for_bodies),
        cmocka_unit_test(test_timeouts_round_up),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_deadline_of_a_unary_call),
        cmocka_unit_test(test_end_before_the_deadline),
        cmocka_unit_test(test_everything_from_everywhere),
        cmocka_unit_test(test_gone_after_the_end),
        cmocka_unit_test(test_messages_after_the_end),
        cmocka_unit_test(test_memory_after_the_end),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_request_is_given_back),
        cmocka_unit_test(test_wake_before_the_beginning),
    };
    return cmocka_run_group_tests_name("rpc", tests, NULL, NULL);
}
