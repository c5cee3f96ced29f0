// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/sessions_http.h"
#include "base/err.h"
#include "base/must.h"
#include "base/num.h"
#include "base/rand.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/limits.h"
#include "http/rpc.h"
#include "http/surface.h"
#include "feature/sessions/sessions_http_core.h"
#include "token/mac.h"

#define COUNT(a)        (sizeof(a) / sizeof *(a))

#define HEADER_KEY      "x-idempotency-key"
#define HEADER_POSITION "x-idempotency-event-id"
#define HEADER_SECRET   "x-idempotent-encryption-key"

/* ---- headers ---- */

/* A request's memory lives as long as its call, which may be hours; the secret need not. */
void session_headers_drop(const struct request *req)
{
    for (size_t i = 0; i < req->n_headers; i++)
        if (str_eq_nocase(req->headers[i].name, STR(HEADER_SECRET)))
            explicit_bzero((char *)req->headers[i].value.p, req->headers[i].value.n);
}

static bool sessions_read_key(const struct request *req, struct session_headers *out)
{
    struct str key = request_header(req, STR(HEADER_KEY));
    if (key.n == 0)
        return true;
    if (!session_key_valid(key))
        return false;
    memcpy(out->key, key.p, key.n);
    out->key_n = key.n;
    return true;
}

static bool sessions_read_position(const struct request *req, struct session_headers *out)
{
    struct str position = request_header(req, STR(HEADER_POSITION));
    return position.n == 0 || num_parse(position, UINT64_MAX, &out->position) == 0;
}

static bool sessions_read_secret(const struct request *req, struct session_headers *out)
{
    return session_secret_parse(request_header(req, STR(HEADER_SECRET)), out->secret) == 0;
}

bool session_headers_read(const struct request *req, struct session_headers *out,
                          enum session_refusal *why)
{
    static const struct {
        bool (*read)(const struct request *req, struct session_headers *out);
        enum session_refusal why;
    } readers[] = {{sessions_read_key, REFUSE_KEY},
                   {sessions_read_position, REFUSE_POSITION},
                   {sessions_read_secret, REFUSE_SECRET}};
    size_t i = 0;
    *out = (struct session_headers){0};
    while (i < COUNT(readers) && readers[i].read(req, out))
        i++;
    session_headers_drop(req);
    if (i == COUNT(readers))
        return true;
    session_headers_wipe(out);
    *why = readers[i].why;
    return false;
}

void session_headers_wipe(struct session_headers *h)
{
    explicit_bzero(h->secret, sizeof h->secret);
}

bool session_headers_enter(struct exchange *x, struct session_headers *h, enum session_refusal *why)
{
    const struct principal *p = x->principal;
    struct str key = str_of(h->key, h->key_n);
    *why = p->known ? REFUSE_FORBIDDEN : REFUSE_UNKNOWN_CALLER;
    if (h->key_n == 0)
        return access_holds(&p->rights, ACCESS_VERB_SESSION, ACCESS_SESSION);
    if (!principal_may(p, ACCESS_VERB_SESSION, ACCESS_SESSION, key))
        return false;
    if (p->root.n == 0)
        return true;
    *why = REFUSE_KEY;
    if (p->root.n + key.n > SESSION_KEY_MAX)
        return false;
    key = session_key_rooted(p, &x->arena, key);
    memcpy(h->key, key.p, key.n);
    h->key_n = key.n;
    return true;
}

bool session_proof_read(struct sessions_http *s, const struct request *req,
                        uint8_t out[SESSION_PROOF_SIZE])
{
    struct session_headers h = {0};
    struct str secret = str_of((const char *)h.secret, sizeof h.secret);
    _Static_assert(SESSION_PROOF_SIZE == MAC_SIZE, "a proof is a MAC");
    bool read = sessions_read_secret(req, &h);
    if (read)
        mac_sign(s->prover, &secret, 1, out);
    session_headers_wipe(&h);
    return read;
}

/* ---- what all calls do ---- */

void session_connect_headers(struct sessions_http *s, struct session_client *c,
                             struct session_headers *h, enum session_service service)
{
    session_connect(s->sessions, c,
                    &(struct session_hello){.key = str_of(h->key, h->key_n),
                                            .secret = h->secret,
                                            .position = h->position,
                                            .service = service});
    session_headers_wipe(h);
}

enum session_next session_pull(struct rpc *r, struct session_client *c,
                               void (*put)(void *ctx, struct str message), void *ctx)
{
    struct buf message = {0};
    uint64_t before = c->given;
    size_t given = 0;
    enum session_next next = SESSION_NEXT_MESSAGE;
    while (next == SESSION_NEXT_MESSAGE && given < EXCHANGE_PULL) {
        message.n = 0;
        next = session_next(c, &message);
        if (next != SESSION_NEXT_MESSAGE)
            break;
        put(ctx, buf_str(&message));
        given += message.n;
    }
    limits_count_events(rpc_exchange(r), c->given - before);
    buf_deinit(&message);
    return next;
}

void session_put_rpc(void *rpc, struct str message)
{
    rpc_put(rpc, message);
}

/* ---- paths ---- */

/* A session's key is in a header, which the calls read. */
#define SESSION_RULE(id, path)                                                                     \
    {                                                                                              \
        id, "POST", path, ACCESS_VERB_SESSION, ACCESS_SESSION, RULE_LATER, NULL                    \
    }
static const struct surface_rule chat_rules[] = {
    SESSION_RULE("chat.stream", "StreamUnifiedChatWithToolsIdempotent"),
    SESSION_RULE("chat.sse", "StreamUnifiedChatWithToolsIdempotentSSE"),
    SESSION_RULE("chat.poll", "StreamUnifiedChatWithToolsIdempotentPoll"),
    {0},
};
static const struct surface_rule bidi_rules[] = {
    SESSION_RULE("bidi.append", "BidiAppend"),
    {0},
};
static const struct surface_rule own_rules[] = {
    SESSION_RULE("session.stream", "Stream"),
    SESSION_RULE("session.sse", "StreamSSE"),
    SESSION_RULE("session.poll", "StreamPoll"),
    SESSION_RULE("session.append", "Append"),
    {0},
};

/* ---- refusals ---- */

static void sessions_on_refused_gone(struct rpc *r)
{
}

/* As the protocol of the call has it. */
static void sessions_on_refused(void *ctx, struct exchange *x, const struct surface_refusal *why)
{
    static const struct rpc_ops ops = {.gone = sessions_on_refused_gone};
    struct sessions_http *s = ctx;
    bool unary = x->request->path.n >= 6 &&
                 str_eq(str_skip(x->request->path, x->request->path.n - 6), STR("Append"));
    session_headers_drop(x->request);
    exchange_decided(x);
    struct rpc *r = rpc_new(x, &(struct rpc_setup){.sched = s->sched,
                                                   .kind = unary ? RPC_UNARY : RPC_SERVER_STREAM,
                                                   .max_message = s->max_message,
                                                   .ops = &ops});
    if (r == NULL)
        return;
    if (why->status == 401)
        session_refuse(r, REFUSE_UNKNOWN_CALLER);
    else if (why->status == 403)
        session_refuse(r, REFUSE_FORBIDDEN);
    else
        rpc_end(r, &(struct rpc_status){.code = why->status == 429 ? GRPC_RESOURCE_EXHAUSTED
                                                                   : GRPC_UNAVAILABLE,
                                        .message = why->message});
}

/* Pages have the downlink and appends: no browser streams both ways. */
static const struct surface_share sessions_share = {
    .methods = STR_INIT("POST, OPTIONS"),
    .keep_s = STR_INIT(SURFACE_KEEP_S),
};

#define SESSIONS_SURFACE(at, table)                                                                \
    {                                                                                              \
        .path = at, .rules = table, .share = &sessions_share, .refuse = sessions_on_refused        \
    }
const struct surface sessions_chat_surface = SESSIONS_SURFACE(SESSIONS_CHAT, chat_rules);
const struct surface sessions_bidi_surface = SESSIONS_SURFACE(SESSIONS_BIDI, bidi_rules);
const struct surface sessions_own_surface = SESSIONS_SURFACE(SESSIONS_OWN, own_rules);
static const struct surface *const services[] = {&sessions_chat_surface, &sessions_bidi_surface,
                                                 &sessions_own_surface};

static const struct method_row {
    struct str path;
    enum session_service service;
    void (*begin)(struct sessions_http *s, enum session_service service, struct exchange *x);
} methods[] = {
    {STR_INIT(SESSIONS_CHAT "StreamUnifiedChatWithToolsIdempotent"), SESSION_AISERVER,
     session_call_begin},
    {STR_INIT(SESSIONS_CHAT "StreamUnifiedChatWithToolsIdempotentSSE"), SESSION_AISERVER,
     session_stream_begin},
    {STR_INIT(SESSIONS_CHAT "StreamUnifiedChatWithToolsIdempotentPoll"), SESSION_AISERVER,
     session_poll_begin},
    {STR_INIT(SESSIONS_BIDI "BidiAppend"), SESSION_AISERVER, session_append_begin},
    {STR_INIT(SESSIONS_OWN "Stream"), SESSION_TIDEMARK, session_call_begin},
    {STR_INIT(SESSIONS_OWN "StreamSSE"), SESSION_TIDEMARK, session_stream_begin},
    {STR_INIT(SESSIONS_OWN "StreamPoll"), SESSION_TIDEMARK, session_poll_begin},
    {STR_INIT(SESSIONS_OWN "Append"), SESSION_TIDEMARK, session_append_begin},
};

static void sessions_handle(void *ctx, struct exchange *x)
{
    exchange_decided(x); /* the calls end with a status of their own */
    for (size_t i = 0; i < COUNT(methods); i++) {
        if (str_eq(x->request->path, methods[i].path)) {
            if (methods[i].begin != session_append_begin && !limits_take_live(x))
                return;
            methods[i].begin(ctx, methods[i].service, x);
            return;
        }
    }
    /* Connect and gRPC both read this as `unimplemented`. */
    exchange_problem(x, 404, STR("NO_METHOD"), STR("This service has no such method"));
}

void sessions_http_mount(struct sessions_http *surface, struct http *http)
{
    uint8_t key[MAC_KEY_SIZE];
    rand_bytes(key, sizeof key);
    surface->prover = mac_new(str_of((const char *)key, sizeof key));
    explicit_bzero(key, sizeof key);
    map_init(&surface->channels);
    list_init(&surface->idle);
    surface->n_early = 0;
    surface->waiting_bytes = 0;
    for (size_t i = 0; i < COUNT(services); i++)
        http_mount(http, services[i], sessions_handle, surface);
}

void sessions_http_deinit(struct sessions_http *surface)
{
    size_t at = 0;
    struct channel *ch;
    while ((ch = map_next(&surface->channels, &at)) != NULL)
        channel_release(ch);
    must(surface->waiting_bytes == 0);
    map_deinit(&surface->channels);
    mac_free(surface->prover);
}
