// SPDX-License-Identifier: Apache-2.0
/* Single requests about streams. A call is made whole when it is asked for and sent by the next
 * turn, so that headers may be added in between; it owns all that its request points to. */
#include "client/stream.h"
#include "base/num.h"

#include <stdio.h>

struct tm_call {
    struct tm_client *client;
    struct http_request request;
    struct task start;
    struct timer retry;
    struct bytes path, body;
    char *texts[2 * HTTP_HEADERS_MAX]; /* of headers, owned */
    size_t n_texts;
    bool may_repeat;  /* nothing happens twice when it is sent again */
    bool any_status;  /* whatever the server answers is what was asked for */
    bool is_numbered; /* data of a producer: an answer of 204 means that it was there before */
    bool started;
    unsigned failures;
    bool done;
    int err;
    size_t max;        /* bytes of a successful answer */
    struct bytes data; /* the answer's body, or what explains a refusal */
    struct stream_answer answer;
    struct stream_refusal refusal;
    struct tm_result result;
};

/* -- the end of a call ------------------------------------------------------------------------ */

static void fill_result(struct tm_call *call)
{
    const struct stream_answer *a = &call->answer;
    bool ok = call->err == 0;
    call->result = (struct tm_result){
        .status = call->request.status,
        .content_type = a->content_type,
        .next_offset = a->next_offset,
        .cursor = a->cursor,
        .end_reason = a->end_reason,
        .expires_at = a->expires_at,
        .created = call->request.status == 201,
        .closed = a->closed,
        .up_to_date = a->up_to_date,
        .duplicate = call->is_numbered && call->request.status == 204,
        .data = ok && call->data.p ? call->data.p : "",
        .n = ok ? call->data.n : 0,
        .producer_epoch = a->epoch,
        .producer_expected_seq = a->expected_seq,
        .ttl_s = a->ttl_s,
        .gap_requested = call->refusal.requested,
        .gap_earliest = call->refusal.earliest,
        .gap_reason = call->refusal.reason,
    };
}

static void end_call(struct tm_call *call, int err)
{
    call->done = true;
    call->err = err;
    fill_result(call);
    client_happened(call->client);
}

/* -- sending ---------------------------------------------------------------------------------- */

static void call_on_retry(struct timer *t);

static void send_call(struct tm_call *call)
{
    call->started = true;
    call->data.n = 0;
    stream_answer_init(&call->answer);
    memset(&call->refusal, 0, sizeof call->refusal);
    call->request.path = bytes_str(&call->path);
    call->request.body = bytes_str(&call->body);
    int err = http_start(&call->request);
    if (err == 0)
        return;
    snprintf(call->refusal.message, sizeof call->refusal.message, "%s",
             call->request.message[0] ? call->request.message : tm_error_text(err));
    call->request.status = 0;
    end_call(call, err);
}

static void call_on_start(struct task *t)
{
    send_call(container_of(t, struct tm_call, start));
}

static void call_on_retry(struct timer *t)
{
    send_call(container_of(t, struct tm_call, retry));
}

/* -- the answer ------------------------------------------------------------------------------- */

static bool is_wanted(const struct tm_call *call)
{
    return call->any_status || stream_is_success(call->request.status);
}

static int call_on_data(struct http_request *r, struct str bytes)
{
    struct tm_call *call = container_of(r, struct tm_call, request);
    if (!is_wanted(call)) {
        size_t room = STREAM_REFUSAL_MAX - call->data.n;
        return bytes_put(call->client, &call->data,
                         str_of(bytes.p, bytes.n < room ? bytes.n : room));
    }
    if (bytes.n > call->max - call->data.n)
        return TM_E_TOO_LARGE;
    return bytes_put(call->client, &call->data, bytes);
}

/* Half an answer is none: what has no end of its own cannot be told from what broke off. */
static int check_answer(struct tm_call *call)
{
    struct http_request *r = &call->request;
    int err = stream_answer_read(&call->answer, r);
    if (err)
        snprintf(call->refusal.message, sizeof call->refusal.message,
                 "the answer has a header that is too long");
    if (err == 0 && is_wanted(call) && call->data.n > 0 && !r->framed) {
        err = TM_E_PROTOCOL;
        snprintf(call->refusal.message, sizeof call->refusal.message,
                 "the answer does not say where it ends");
    }
    if (err == 0 && !is_wanted(call)) {
        stream_refusal_read(&call->refusal, r, &call->answer, bytes_str(&call->data));
        err = call->refusal.err;
    }
    return err;
}

/* What was asked for is so, if not by this request then by one whose answer was lost. */
static bool is_so_already(const struct tm_call *call)
{
    return call->failures > 0 && call->request.status == 404 &&
           str_eq(call->request.method, STR("DELETE"));
}

static void call_try_again(struct tm_call *call)
{
    struct tm_client *c = call->client;
    uint64_t ms = stream_retry_ms(c, ++call->failures, &call->answer);
    stream_notice_retry(c, bytes_str(&call->path), call->refusal.message, ms);
    sched_start(&c->sched, &call->retry, ms);
}

static void call_on_over(struct http_request *r, int err)
{
    struct tm_call *call = container_of(r, struct tm_call, request);
    if (err) {
        r->status = 0; /* half an answer is none */
        snprintf(call->refusal.message, sizeof call->refusal.message, "%s",
                 r->message[0] ? r->message : tm_error_text(err));
    } else {
        err = check_answer(call);
    }
    if (err && is_so_already(call))
        err = 0;
    bool is_last = call->failures >= (unsigned)call->client->options.retries;
    if (err && call->may_repeat && !is_last && stream_may_retry(err, r->status))
        call_try_again(call);
    else
        end_call(call, err);
}

/* -- making one ------------------------------------------------------------------------------- */

static struct tm_call *new_call(struct tm_client *c, struct str method)
{
    struct tm_call *call = client_zalloc(c, sizeof *call);
    if (call == NULL)
        return NULL;
    call->client = c;
    call->max = c->options.answer_max;
    call->may_repeat = true;
    task_init(&call->start, call_on_start);
    timer_init(&call->retry, call_on_retry);
    call->request.client = c;
    call->request.method = method;
    call->request.data = call_on_data;
    call->request.over = call_on_over;
    stream_answer_init(&call->answer);
    fill_result(call);
    return call;
}

static int nomem(struct tm_client *c)
{
    return client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
}

static char *keep_text(struct tm_call *call, struct str text)
{
    if (call->n_texts == sizeof call->texts / sizeof *call->texts)
        return NULL;
    char *copy = client_copy(call->client, text);
    if (copy)
        call->texts[call->n_texts++] = copy;
    return copy;
}

/* name is static, in lower case. NULL or "" as value: no such header. */
static int call_put_header(struct tm_call *call, struct str name, const char *value)
{
    if (value == NULL || *value == '\0')
        return 0;
    if (!stream_header_ok(value))
        return client_fail(call->client, TM_E_INVALID, "%.*s has a control character in it",
                           (int)name.n, name.p);
    char *copy = keep_text(call, str_of_cstr(value));
    if (copy == NULL)
        return nomem(call->client);
    stream_header(&call->request, name, str_of_cstr(copy));
    return 0;
}

static int call_put_number(struct tm_call *call, struct str name, uint64_t value)
{
    char text[NUM_TEXT_MAX + 1];
    text[num_format(value, text)] = '\0';
    return call_put_header(call, name, text);
}

static int call_put_body(struct tm_call *call, const void *data, size_t n)
{
    if (n == 0)
        return 0;
    if (data == NULL)
        return client_fail(call->client, TM_E_INVALID, "there is no data");
    if (bytes_put(call->client, &call->body, str_of(data, n)) != 0)
        return nomem(call->client);
    return 0;
}

/* The call goes with the next turn, or not at all. */
static int start_call(struct tm_call *call, int err, struct tm_call **out)
{
    if (err) {
        tm_call_free(call);
        return err;
    }
    sched_post(&call->client->sched, &call->start);
    *out = call;
    return 0;
}

static int fill_create(struct tm_call *call, const char *name, const struct tm_create_options *o)
{
    if (o->ttl_s < 0)
        return client_fail(call->client, TM_E_INVALID, "ttl_s cannot be negative");
    int err = stream_path(call->client, &call->path, name);
    if (err == 0)
        err = call_put_header(call, STR("content-type"), o->content_type);
    if (err == 0 && o->ttl_s > 0)
        err = call_put_number(call, STR("stream-ttl"), (uint64_t)o->ttl_s);
    if (err == 0)
        err = call_put_header(call, STR("stream-expires-at"), o->expires_at);
    if (err == 0 && o->closed)
        err = call_put_header(call, STR("stream-closed"), "true");
    if (err == 0)
        err = call_put_header(call, STR("stream-forked-from"), o->forked_from);
    if (err == 0)
        err = call_put_header(call, STR("stream-fork-offset"), o->fork_offset);
    return err ? err : call_put_body(call, o->data, o->n);
}

int tm_create(struct tm_client *c, const char *name, const struct tm_create_options *options,
              struct tm_call **out)
{
    struct tm_create_options o = TM_CREATE_INIT;
    STREAM_OPTIONS(o, options);
    struct tm_call *call = new_call(c, STR("PUT"));
    if (call == NULL)
        return nomem(c);
    return start_call(call, fill_create(call, name, &o), out);
}

static int call_put_producer(struct tm_call *call, const struct tm_append_options *o)
{
    if (o->producer_id == NULL)
        return 0;
    if (*o->producer_id == '\0' || o->producer_epoch > NUM_SAFE_MAX ||
        o->producer_seq > NUM_SAFE_MAX)
        return client_fail(call->client, TM_E_INVALID,
                           "the producer's id is empty, or a number of "
                           "it above 2^53 - 1");
    int err = call_put_header(call, STR("producer-id"), o->producer_id);
    if (err == 0)
        err = call_put_number(call, STR("producer-epoch"), o->producer_epoch);
    if (err == 0)
        err = call_put_number(call, STR("producer-seq"), o->producer_seq);
    return err;
}

static int fill_append(struct tm_call *call, const char *name, const struct tm_append_options *o)
{
    const char *type = o->content_type ? o->content_type : "application/octet-stream";
    bool only_close = o->n == 0 && o->close;
    if (o->n == 0 && !o->close)
        return client_fail(call->client, TM_E_INVALID, "an append needs at least one byte");
    call->may_repeat = only_close || o->producer_id || o->if_match || o->at_least_once;
    call->request.resend = call->may_repeat;
    call->is_numbered = o->producer_id && o->n > 0;
    int err = stream_path(call->client, &call->path, name);
    if (err == 0 && !only_close)
        err = call_put_header(call, STR("content-type"), type);
    if (err == 0 && o->close)
        err = call_put_header(call, STR("stream-closed"), "true");
    if (err == 0)
        err = call_put_header(call, STR("stream-seq"), o->seq);
    if (err == 0)
        err = call_put_header(call, STR("if-match"), o->if_match);
    if (err == 0)
        err = call_put_producer(call, o);
    return err ? err : call_put_body(call, o->data, o->n);
}

int tm_append(struct tm_client *c, const char *name, const struct tm_append_options *options,
              struct tm_call **out)
{
    struct tm_append_options o = TM_APPEND_INIT;
    STREAM_OPTIONS(o, options);
    struct tm_call *call = new_call(c, STR("POST"));
    if (call == NULL)
        return nomem(c);
    return start_call(call, fill_append(call, name, &o), out);
}

static int new_plain(struct tm_client *c, struct str method, const char *name, struct tm_call **out)
{
    struct tm_call *call = new_call(c, method);
    if (call == NULL)
        return nomem(c);
    return start_call(call, stream_path(c, &call->path, name), out);
}

int tm_head(struct tm_client *c, const char *name, struct tm_call **out)
{
    return new_plain(c, STR("HEAD"), name, out);
}

int tm_delete(struct tm_client *c, const char *name, struct tm_call **out)
{
    return new_plain(c, STR("DELETE"), name, out);
}

static int fill_read(struct tm_call *call, const char *name, const char *offset, enum tm_live live)
{
    struct tm_client *c = call->client;
    if (live != TM_LIVE_NO && live != TM_LIVE_LONG_POLL)
        return client_fail(c, TM_E_INVALID, "a single read is not live, or a long-poll");
    call->request.live = live == TM_LIVE_LONG_POLL;
    int err = stream_path(c, &call->path, name);
    if (err)
        return err;
    err = stream_param(c, &call->path, true, "offset", offset ? offset : "-1");
    if (err == 0 && call->request.live)
        err = stream_param(c, &call->path, false, "live", "long-poll");
    return err ? nomem(c) : 0;
}

int tm_read(struct tm_client *c, const char *name, const char *offset, enum tm_live live,
            struct tm_call **out)
{
    struct tm_call *call = new_call(c, STR("GET"));
    if (call == NULL)
        return nomem(c);
    return start_call(call, fill_read(call, name, offset, live), out);
}

int tm_get(struct tm_client *c, const char *path, struct tm_call **out)
{
    if (path == NULL || path[0] != '/')
        return client_fail(c, TM_E_INVALID, "a path begins with `/`");
    struct tm_call *call = new_call(c, STR("GET"));
    if (call == NULL)
        return nomem(c);
    int err = bytes_put(c, &call->path, str_of_cstr(path)) ? nomem(c) : 0;
    return start_call(call, err, out);
}

static int fill_post(struct tm_call *call, const char *path, const struct tm_post_options *o)
{
    struct tm_client *c = call->client;
    call->any_status = true;
    call->may_repeat = false;
    call->request.silence_ms = o->answer_timeout_ms;
    if (bytes_put(c, &call->path, str_of_cstr(path)) != 0)
        return nomem(c);
    int err = call_put_header(call, STR("content-type"), o->content_type);
    return err ? err : call_put_body(call, o->data, o->n);
}

int tm_post(struct tm_client *c, const char *path, const struct tm_post_options *options,
            struct tm_call **out)
{
    struct tm_post_options o = TM_POST_INIT;
    STREAM_OPTIONS(o, options);
    if (path == NULL || path[0] != '/')
        return client_fail(c, TM_E_INVALID, "a path begins with `/`");
    if (o.answer_timeout_ms < 0)
        return client_fail(c, TM_E_INVALID, "answer_timeout_ms cannot be negative");
    struct tm_call *call = new_call(c, STR("POST"));
    if (call == NULL)
        return nomem(c);
    return start_call(call, fill_post(call, path, &o), out);
}

int tm_call_header(struct tm_call *call, const char *name, const char *value)
{
    struct tm_client *c = call->client;
    if (call->started)
        return client_fail(c, TM_E_INVALID, "the call is under way");
    char low[HTTP_NAME_MAX + 1];
    if (name == NULL || value == NULL || !stream_name_ok(name, low) || !stream_header_ok(value))
        return client_fail(c, TM_E_INVALID, "this cannot be a header");
    if (call->request.n_headers == HTTP_HEADERS_MAX)
        return client_fail(c, TM_E_TOO_LARGE, "too many headers");
    char *own_name = keep_text(call, str_of_cstr(low));
    char *own_value = own_name ? keep_text(call, str_of_cstr(value)) : NULL;
    if (own_value == NULL)
        return nomem(c);
    stream_header(&call->request, str_of_cstr(own_name), str_of_cstr(own_value));
    return 0;
}

/* -- looking at one --------------------------------------------------------------------------- */

int tm_call_done(const struct tm_call *call)
{
    return call->done;
}

static bool call_is_done(void *ctx)
{
    const struct tm_call *call = ctx;
    return call->done;
}

int tm_call_error(const struct tm_call *call)
{
    return call->err;
}

const char *tm_call_message(const struct tm_call *call)
{
    return call->refusal.message;
}

int tm_call_wait(struct tm_call *call, int timeout_ms)
{
    int err = client_wait_for(call->client, call_is_done, call, timeout_ms);
    if (err)
        return err;
    if (call->err == 0)
        return 0;
    char text[STREAM_MESSAGE_SIZE + 40];
    int n = snprintf(text, sizeof text, "%s", call->refusal.message);
    if (call->request.status != 0)
        snprintf(text + n, sizeof text - (size_t)n, " (the server answered %d)",
                 call->request.status);
    return stream_fail(call->client, call->err, bytes_str(&call->path), text);
}

const struct tm_result *tm_call_result(const struct tm_call *call)
{
    return &call->result;
}

void tm_call_free(struct tm_call *call)
{
    if (call == NULL)
        return;
    struct tm_client *c = call->client;
    http_cancel(&call->request);
    task_cancel(&call->start);
    timer_stop(&call->retry);
    for (size_t i = 0; i < call->n_texts; i++)
        client_free_secret(c, call->texts[i], strlen(call->texts[i]));
    bytes_free(c, &call->path);
    bytes_free(c, &call->body);
    bytes_free(c, &call->data);
    client_free(c, call);
}
