// SPDX-License-Identifier: Apache-2.0
#include "client/session_link.h"
#include "base/hex.h"
#include "client/codec.h"

#include <openssl/rand.h>
#include <stdio.h>

#define APPENDS_AT_ONCE 4
#define REFUSAL_MAX     (16 * 1024) /* bytes of an error's body that are looked at */
#define TIMEOUT_MS      1000

static const struct paths {
    struct str both, downlink, append;
} paths[] = {
    [TM_SERVICE_TIDEMARK] = {STR_INIT("/tidemark.v1.SessionService/Stream"),
                             STR_INIT("/tidemark.v1.SessionService/StreamSSE"),
                             STR_INIT("/tidemark.v1.SessionService/Append")},
    [TM_SERVICE_AISERVER] =
        {STR_INIT("/aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotent"),
         STR_INIT("/aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotentSSE"),
         STR_INIT("/aiserver.v1.BidiService/BidiAppend")},
};

struct append {
    struct link link;
    struct slink *owner;
    struct http_request request;
    bool under_way;
    struct bytes body, refusal;
};

int slink_uuid(char out[SLINK_REQUEST_ID])
{
    uint8_t b[16];
    if (RAND_bytes(b, sizeof b) != 1)
        return TM_E_IO;
    hex_uuid(b, out);
    out[SLINK_REQUEST_ID - 1] = 0;
    return 0;
}

/* ---- closing ---- */

static void append_free(struct append *a)
{
    struct slink *l = a->owner;
    http_cancel(&a->request);
    list_remove(&a->link);
    bytes_free_secret(l->client, &a->body);
    bytes_free(l->client, &a->refusal);
    client_free(l->client, a);
}

void slink_close(struct slink *l)
{
    if (!l->open)
        return;
    l->open = false;
    timer_stop(&l->timeout);
    http_cancel(&l->request);
    while (!list_empty(&l->appends))
        append_free(list_item(l->appends.next, struct append, link));
    bytes_free_secret(l->client, &l->texts);
    bytes_free_secret(l->client, &l->body);
    bytes_free(l->client, &l->refusal);
    swire_frames_free(l->client, &l->frames);
}

static void session_link_finish(struct slink *l, const struct slink_end *end)
{
    slink_close(l);
    l->over(l, end);
}

/* ---- hearing ---- */

static int receive_frame(struct slink *l, struct str payload, bool end)
{
    if (l->ended)
        return TM_E_PROTOCOL;
    if (!end)
        return l->message(l, payload);
    l->ended = true;
    return swire_read_end(payload, &l->end);
}

static int session_link_on_data(struct http_request *r, struct str bytes)
{
    struct slink *l = container_of(r, struct slink, request);
    if (r->status != 200) {
        size_t room = REFUSAL_MAX - l->refusal.n;
        return bytes_put(l->client, &l->refusal, str_of(bytes.p, bytes.n < room ? bytes.n : room));
    }
    int err = swire_frames_put(l->client, &l->frames, bytes);
    int more = 1;
    while (err == 0 && more > 0) {
        struct str payload;
        bool end;
        more = swire_frames_next(&l->frames, &payload, &end);
        err = more < 0 ? more : more > 0 ? receive_frame(l, payload, end) : 0;
    }
    return err;
}

/* What an answer that is none says about itself. */
static void read_refusal(struct tm_client *c, const struct bytes *body, int status,
                         struct slink_end *end)
{
    end->status = status;
    if (swire_read_error(bytes_str(body), &end->rpc) != 0)
        end->rpc = (struct swire_end){.failed = true};
    if (end->rpc.message[0] == '\0')
        snprintf(end->rpc.message, sizeof end->rpc.message, "the server answered %d", status);
}

static void session_link_on_over(struct http_request *r, int err)
{
    struct slink *l = container_of(r, struct slink, request);
    struct slink_end end = {.err = err, .http2_refused = r->http2_refused};
    char message[sizeof r->message];
    snprintf(message, sizeof message, "%s", r->message);
    end.message = message;
    if (l->ended && (err == 0 || err == TM_E_NETWORK || err == TM_E_TIMEOUT)) {
        end.err = 0; /* nothing can come behind it */
        end.rpc = l->end;
    } else if (err == 0 && r->status != 200) {
        read_refusal(l->client, &l->refusal, r->status, &end);
    } else if (err == 0) {
        end.err = TM_E_NETWORK;
        end.message = "the answer ended in the middle";
    }
    session_link_finish(l, &end);
}

/* ---- opening ---- */

static void session_link_add_header(struct http_request *r, struct str name, struct str value)
{
    r->headers[r->n_headers++] = (struct http_header){name, value};
}

static int fill_texts(struct slink *l)
{
    return codec_put_base64url(l->client, &l->texts, str_of((const char *)l->secret, SECRET_SIZE));
}

/* The call's only message names what its appends belong to. */
static int fill_downlink(struct slink *l)
{
    size_t at;
    int err = slink_uuid(l->request_id);
    if (err == 0)
        err = swire_open_envelope(l->client, &l->body, &at);
    if (err == 0)
        err = swire_put_request_id(l->client, &l->body, str_of_cstr(l->request_id));
    if (err == 0)
        swire_close_envelope(&l->body, at);
    return err;
}

static void fill_request(struct slink *l)
{
    const struct paths *p = &paths[l->service];
    struct http_request *r = &l->request;
    *r = (struct http_request){.client = l->client,
                               .method = STR("POST"),
                               .path = l->http1 ? p->downlink : p->both,
                               .body = bytes_str(&l->body),
                               .duplex = !l->http1,
                               .live = true,
                               .resend = true,
                               .version = l->http1 ? HTTP_1 : HTTP_2,
                               .data = session_link_on_data,
                               .over = session_link_on_over};
    session_link_add_header(r, STR("content-type"), STR("application/connect+proto"));
    session_link_add_header(r, STR("connect-protocol-version"), STR("1"));
    session_link_add_header(r, STR("x-idempotency-key"), l->key);
    session_link_add_header(r, STR("x-idempotency-event-id"), l->event_id);
    session_link_add_header(r, STR("x-idempotent-encryption-key"), bytes_str(&l->texts));
    if (l->http1)
        session_link_add_header(r, STR("x-request-id"), str_of_cstr(l->request_id));
}

static void session_link_on_timeout(struct timer *t);

void slink_init(struct slink *l)
{
    list_init(&l->appends);
    timer_init(&l->timeout, session_link_on_timeout);
    l->open = false;
}

int slink_open(struct slink *l)
{
    l->open = true;
    l->ended = false;
    l->next_append = 0;
    l->under_way = 0;
    l->refused = (struct swire_end){0};
    l->frames.max = l->client->options.answer_max;
    int err = fill_texts(l);
    if (err == 0 && l->http1)
        err = fill_downlink(l);
    if (err == 0) {
        fill_request(l);
        err = http_start(&l->request);
    }
    if (err != 0)
        slink_close(l);
    return err;
}

/* ---- appends ---- */

static void start_appends(struct slink *l);

static void session_link_on_timeout(struct timer *t)
{
    struct slink *l = container_of(t, struct slink, timeout);
    struct slink_end end = {.rpc = l->refused};
    session_link_finish(l, &end);
}

static int session_link_on_append_data(struct http_request *r, struct str bytes)
{
    struct append *a = container_of(r, struct append, request);
    if (r->status == 200)
        return 0; /* there is nothing in it */
    size_t room = REFUSAL_MAX - a->refusal.n;
    return bytes_put(a->owner->client, &a->refusal,
                     str_of(bytes.p, bytes.n < room ? bytes.n : room));
}

static void append_failed(struct append *a, int err)
{
    struct slink *l = a->owner;
    char message[sizeof a->request.message];
    snprintf(message, sizeof message, "%s", a->request.message);
    struct slink_end end = {.err = err, .message = message};
    if (err == 0)
        read_refusal(l->client, &a->refusal, a->request.status, &end);
    append_free(a);
    if (err == 0 && end.rpc.final) {
        l->refused = end.rpc;
        sched_start(&l->client->sched, &l->timeout, TIMEOUT_MS);
        return;
    }
    end.status = 0; /* an append may come too late, or too early, for reasons that pass */
    session_link_finish(l, &end);
}

static void session_link_on_append_over(struct http_request *r, int err)
{
    struct append *a = container_of(r, struct append, request);
    struct slink *l = a->owner;
    l->under_way--;
    if (err != 0 || r->status != 200) {
        append_failed(a, err);
        return;
    }
    append_free(a);
    start_appends(l);
}

static int append_start(struct append *a)
{
    struct slink *l = a->owner;
    struct http_request *r = &a->request;
    *r = (struct http_request){.client = l->client,
                               .method = STR("POST"),
                               .path = paths[l->service].append,
                               .body = bytes_str(&a->body),
                               .resend = true, /* its number tells the server that it was there */
                               .version = HTTP_1,
                               .data = session_link_on_append_data,
                               .over = session_link_on_append_over};
    session_link_add_header(r, STR("content-type"), STR("application/proto"));
    session_link_add_header(r, STR("connect-protocol-version"), STR("1"));
    session_link_add_header(r, STR("x-idempotent-encryption-key"), bytes_str(&l->texts));
    int err = http_start(r);
    if (err == 0) {
        a->under_way = true;
        l->under_way++;
    }
    return err;
}

/* In their order. One that cannot be started waits for another to end; the last one cannot. */
static void start_appends(struct slink *l)
{
    list_each (i, &l->appends) {
        struct append *a = list_item(i, struct append, link);
        if (a->under_way)
            continue;
        if (l->under_way == APPENDS_AT_ONCE || l->refused.failed)
            return;
        int err = append_start(a);
        if (err != 0 && l->under_way == 0)
            session_link_finish(l, &(struct slink_end){.err = err, .message = tm_error_text(err)});
        if (err != 0)
            return;
    }
}

static int send_append(struct slink *l, struct str message)
{
    struct append *a = client_zalloc(l->client, sizeof *a);
    if (a == NULL)
        return TM_E_NOMEM;
    a->owner = l;
    list_init(&a->link);
    int err = swire_put_append(l->client, &a->body, message, l->service == TM_SERVICE_AISERVER,
                               str_of_cstr(l->request_id), l->next_append);
    if (err == 0 && l->under_way < APPENDS_AT_ONCE && !l->refused.failed)
        err = append_start(a);
    if (err != 0) {
        append_free(a);
        return err;
    }
    l->next_append++;
    list_push(&l->appends, &a->link);
    return 0;
}

/* ---- saying ---- */

int slink_send(struct slink *l, struct str message)
{
    size_t at;
    if (l->http1)
        return send_append(l, message);
    l->body.n = 0; /* http_send copies */
    int err = swire_open_envelope(l->client, &l->body, &at);
    if (err == 0)
        err = bytes_put_secret(l->client, &l->body, message);
    if (err != 0)
        return err;
    swire_close_envelope(&l->body, at);
    return http_send(&l->request, bytes_str(&l->body));
}

int slink_finish(struct slink *l)
{
    return l->http1 ? 0 : http_end(&l->request);
}
