// SPDX-License-Identifier: Apache-2.0
#include "client/client_http.h"
#include "base/ascii.h"
#include "client/client_http_core.h"

#include <poll.h>
#include <stdio.h>

#define POLLED_AT_ONCE 64
#define KEPT_MAX       8 /* idle connections */
/* An idle connection may be dead without anybody having said so: routers forget. */
#define KEPT_MS        60000

/* ---- what may be sent ---- */

bool http_name_ok(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] >= 'A' && name.p[i] <= 'Z')
            return false;
    return ascii_is_token(name);
}

bool http_value_ok(struct str value)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char ch = (unsigned char)value.p[i];
        if ((ch < 0x20 && ch != '\t') || ch == 0x7f)
            return false;
    }
    return true;
}

static bool method_ok(struct str method)
{
    for (size_t i = 0; i < method.n; i++)
        if (method.p[i] < 'A' || method.p[i] > 'Z')
            return false;
    return method.n > 0;
}

static bool path_ok(struct str path)
{
    for (size_t i = 0; i < path.n; i++)
        if (path.p[i] <= 0x20 || path.p[i] >= 0x7f || path.p[i] == '#')
            return false;
    return path.n > 0 && path.p[0] == '/';
}

static bool request_ok(const struct http_request *r)
{
    if (!method_ok(r->method) || !path_ok(r->path) || r->n_headers > HTTP_HEADERS_MAX)
        return false;
    for (size_t i = 0; i < r->n_headers; i++)
        if (!http_name_ok(r->headers[i].name) || !http_value_ok(r->headers[i].value))
            return false;
    return true;
}

static enum http_version version_of(const struct http_request *r)
{
    if (r->version != HTTP_ANY)
        return r->version;
    return r->duplex || r->client->options.http == TM_HTTP_2 ? HTTP_2 : HTTP_1;
}

bool exchange_has_length(const struct http_exchange *x)
{
    struct str m = x->r->method;
    if (x->r->duplex)
        return false;
    return x->r->body.n > 0 || str_eq(m, STR("POST")) || str_eq(m, STR("PUT")) ||
           str_eq(m, STR("PATCH"));
}

/* ---- which connection ---- */

static bool is_idle(const struct wire *w)
{
    return w->state == WIRE_OPEN && list_empty(&w->exchanges);
}

/* It may have ended since the last turn. Nobody is called back by that: nothing is asked on it. */
static bool is_good(struct wire *w)
{
    wire_look(w);
    if (w->client->sched.awake_ms(&w->client->sched) - w->idle_since_ms > KEPT_MS)
        wire_close(w);
    return w->state == WIRE_OPEN && !w->no_more;
}

static bool can_take(const struct wire *w, enum http_version version)
{
    if (w->state == WIRE_CLOSED || w->no_more)
        return false;
    if (version == HTTP_1)
        return http1_speaks(w) && is_idle(w);
    return http2_speaks(w) && http2_can_take(w);
}

static struct wire *find_wire(struct tm_client *c, enum http_version version)
{
    list_each (l, &c->wires) {
        struct wire *w = list_item(l, struct wire, link);
        if (can_take(w, version) && (!is_idle(w) || is_good(w)))
            return w;
    }
    return NULL;
}

static struct wire *new_wire(struct tm_client *c, enum http_version version)
{
    return version == HTTP_1 ? http1_wire_new(c) : http2_wire_new(c);
}

static void client_http_attach(struct http_exchange *x, struct wire *w)
{
    x->wire = w;
    x->kept = w->used && w->state == WIRE_OPEN;
    x->begun = x->received = false;
    w->used = true;
    list_push(&w->exchanges, &x->link);
    wire_wake(w);
}

/* ---- an exchange's life ---- */

static uint64_t silence_ms(const struct http_exchange *x)
{
    const struct tm_options *o = &x->wire->client->options;
    if (x->r->silence_ms > 0)
        return (uint64_t)x->r->silence_ms;
    return (uint64_t)(x->r->live ? o->live_timeout_ms : o->request_timeout_ms);
}

/* Where both sides may speak there are no heartbeats, and silence says nothing: HTTP/2 can ask. */
static bool may_ask(const struct http_exchange *x)
{
    return x->version == HTTP_2 && x->r->live && x->r->duplex;
}

static void client_http_on_silence(struct timer *t)
{
    struct http_exchange *x = container_of(t, struct http_exchange, silence);
    if (may_ask(x) && !x->asked) {
        x->asked = true;
        http2_ping(x->wire);
        sched_start(&x->wire->client->sched, t, silence_ms(x) - silence_ms(x) / 2);
        return;
    }
    /* Whatever is wrong with this connection, the next request is better off with another. */
    x->wire->no_more = true;
    exchange_fail(x, TM_E_TIMEOUT, "the server was silent for too long");
}

static void client_http_on_total(struct timer *t)
{
    exchange_fail(container_of(t, struct http_exchange, total), TM_E_TIMEOUT,
                  "the request took too long");
}

static void exchange_free_unsent(struct tm_client *c, struct http_exchange *x)
{
    bytes_free_secret(c, &x->text);
    bytes_free_secret(c, &x->added);
    bytes_free_secret(c, &x->params);
    client_free(c, x);
}

static void exchange_free(struct http_exchange *x)
{
    struct tm_client *c = x->wire->client;
    list_remove(&x->link);
    timer_stop(&x->silence);
    timer_stop(&x->total);
    bytes_free(c, &x->answer.head);
    bytes_free(c, &x->answer.trailers);
    bytes_free_secret(c, &x->more);
    exchange_free_unsent(c, x);
}

static int prepare(struct http_exchange *x)
{
    struct tm_client *c = x->r->client;
    if (x->version == HTTP_1)
        return http1_prepare(x);
    if (exchange_put_target(x, &x->text) != 0)
        return TM_E_NOMEM;
    x->path_n = x->text.n;
    if (c->options.token == NULL || exchange_sets(x, STR("authorization")))
        return 0;
    if (bytes_put_secret(c, &x->text, STR("Bearer ")) != 0)
        return TM_E_NOMEM;
    return bytes_put_secret(c, &x->text, str_of_cstr(c->options.token));
}

static int client_http_refuse(struct http_request *r, int err, const char *why)
{
    if (why != r->message)
        snprintf(r->message, sizeof(r->message), "%s", why);
    return client_fail(r->client, err, "%s", why);
}

int http_start(struct http_request *r)
{
    struct tm_client *c = r->client;
    enum http_version version = version_of(r);
    r->status = 0;
    r->framed = r->http2_refused = false;
    r->message[0] = 0;
    r->answer = NULL;
    if (!request_ok(r) || (r->duplex && version == HTTP_1))
        return client_http_refuse(r, TM_E_INVALID, "a header or the path cannot be sent");

    struct http_exchange *x = client_zalloc(c, sizeof(*x));
    if (x == NULL)
        return client_http_refuse(r, TM_E_NOMEM, tm_error_text(TM_E_NOMEM));
    x->r = r;
    x->version = version;
    x->all = !r->duplex;
    timer_init(&x->silence, client_http_on_silence);
    timer_init(&x->total, client_http_on_total);
    struct wire *w = NULL;
    int err = exchange_prepare(x);
    if (err == 0)
        err = prepare(x);
    if (err == 0) {
        w = find_wire(c, version);
        if (w == NULL)
            w = new_wire(c, version);
    }
    if (w == NULL) {
        exchange_free_unsent(c, x);
        err = err ? err : TM_E_NOMEM;
        return client_http_refuse(r, err, r->message[0] ? r->message : tm_error_text(err));
    }
    client_http_attach(x, w);
    r->exchange = x;
    if (r->timeout_ms > 0)
        sched_start(&c->sched, &x->total, (uint64_t)r->timeout_ms);
    return 0;
}

/* Nobody waits for it from here on; what it holds stays until the sweep. */
static void client_http_detach(struct http_exchange *x)
{
    x->r->exchange = NULL;
    x->r = NULL;
    timer_stop(&x->silence);
    timer_stop(&x->total);
    list_remove(&x->link);
    list_push(&x->wire->finished, &x->link);
    if (list_empty(&x->wire->exchanges)) {
        struct sched *s = &x->wire->client->sched;
        x->wire->idle_since_ms = s->awake_ms(s);
    }
    wire_wake(x->wire);
}

static void client_http_drop(struct http_exchange *x)
{
    if (x->version == HTTP_1)
        http1_drop(x);
    else
        http2_drop(x);
}

void http_cancel(struct http_request *r)
{
    struct http_exchange *x = r->exchange;
    if (x == NULL)
        return;
    client_http_drop(x);
    client_http_detach(x);
}

void exchange_over(struct http_exchange *x, int err, const char *message)
{
    struct http_request *r = x->r;
    if (r == NULL)
        return;
    if (err != 0) {
        snprintf(r->message, sizeof(r->message), "%s",
                 message != NULL ? message : tm_error_text(err));
        text_make_safe(r->message);
    }
    r->answer = &x->answer;
    client_http_detach(x);
    r->over(r, err);
}

void exchange_fail(struct http_exchange *x, int err, const char *message)
{
    if (x->r == NULL)
        return;
    client_http_drop(x);
    exchange_over(x, err, message);
}

/* When many go again at once, one new connection does for all. */
static struct wire *fresh_wire(struct tm_client *c, enum http_version version)
{
    list_each (l, &c->wires) {
        struct wire *w = list_item(l, struct wire, link);
        if (w->state != WIRE_OPEN && can_take(w, version))
            return w;
    }
    return new_wire(c, version);
}

void exchange_again(struct http_exchange *x)
{
    struct wire *w = fresh_wire(x->r->client, x->version);
    if (w == NULL) {
        exchange_fail(x, TM_E_NOMEM, NULL);
        return;
    }
    timer_stop(&x->silence);
    exchange_forget_answer(x);
    x->text_sent = x->body_sent = x->more_taken = 0;
    x->stream = 0;
    x->deferred = false;
    list_remove(&x->link);
    client_http_attach(x, w);
}

/* Of a duplex body, what has been taken is gone. */
static bool may_go_again(const struct http_exchange *x)
{
    return x->kept && !x->received && (x->r->resend || !x->begun) && x->more_taken == 0;
}

void http_lost(struct wire *w, int err, const char *message)
{
    struct link lost;
    list_init(&lost);
    list_splice(&lost, &w->exchanges);
    while (!list_empty(&lost)) {
        struct http_exchange *x = list_item(lost.next, struct http_exchange, link);
        if ((err == 0 || err == TM_E_NETWORK) && may_go_again(x))
            exchange_again(x);
        else
            exchange_over(x, err != 0 ? err : TM_E_NETWORK, message);
    }
}

/* ---- what the protocols tell ---- */

void exchange_progress(struct http_exchange *x)
{
    if (x->r == NULL)
        return;
    x->asked = false;
    sched_start(&x->wire->client->sched, &x->silence, silence_ms(x) / (may_ask(x) ? 2 : 1));
}

void exchange_begin(struct http_exchange *x)
{
    if (x->begun)
        return;
    x->begun = true;
    exchange_progress(x);
}

int exchange_header(struct http_exchange *x, bool trailer, struct str name, struct str value)
{
    struct tm_client *c = x->wire->client;
    struct bytes *b = trailer ? &x->answer.trailers : &x->answer.head;
    size_t n[2] = {name.n, value.n};
    if (x->answer.head.n + x->answer.trailers.n + name.n + value.n > HTTP_HEAD_MAX)
        return TM_E_PROTOCOL;
    if (bytes_room(c, b, sizeof(n) + name.n + value.n) == NULL)
        return TM_E_NOMEM;
    bytes_put(c, b, str_of((const char *)n, sizeof(n)));
    bytes_put(c, b, name);
    bytes_put(c, b, value);
    return 0;
}

void exchange_forget_answer(struct http_exchange *x)
{
    x->answer.head.n = x->answer.trailers.n = 0;
}

static struct str find_header(const struct bytes *b, struct str name)
{
    size_t n[2];
    for (size_t at = 0; at < b->n; at += sizeof(n) + n[0] + n[1]) {
        memcpy(n, b->p + at, sizeof(n));
        const char *p = b->p + at + sizeof(n);
        if (str_eq(str_of(p, n[0]), name))
            return str_of(p + n[0], n[1]);
    }
    return STR_NONE;
}

struct str http_answer_header(const struct http_request *r, struct str name)
{
    if (r->answer == NULL)
        return STR_NONE;
    struct str found = find_header(&r->answer->head, name);
    return found.p != NULL ? found : find_header(&r->answer->trailers, name);
}

void exchange_head(struct http_exchange *x, int status)
{
    struct http_request *r = x->r;
    r->status = status;
    r->answer = &x->answer;
    if (r->head != NULL)
        r->head(r);
}

void exchange_data(struct http_exchange *x, struct str bytes)
{
    if (x->r == NULL || bytes.n == 0)
        return;
    exchange_progress(x);
    int err = x->r->data != NULL ? x->r->data(x->r, bytes) : 0;
    if (err != 0)
        exchange_fail(x, err, NULL);
}

/* ---- duplex bodies ---- */

int http_send(struct http_request *r, struct str bytes)
{
    struct http_exchange *x = r->exchange;
    if (x == NULL || x->all)
        return client_fail(r->client, TM_E_INVALID, "this request takes no more");
    if (x->more_taken > x->more.n / 2) {
        bytes_cut(&x->more, x->more_taken);
        x->more_taken = 0;
    }
    int err = bytes_put_secret(r->client, &x->more, bytes);
    if (err == 0)
        http2_resume(x);
    return err;
}

int http_end(struct http_request *r)
{
    struct http_exchange *x = r->exchange;
    if (x == NULL)
        return client_fail(r->client, TM_E_INVALID, "this request is not under way");
    if (!x->all) {
        x->all = true;
        http2_resume(x);
    }
    return 0;
}

size_t http_unsent(const struct http_request *r)
{
    const struct http_exchange *x = r->exchange;
    if (x == NULL)
        return 0;
    return r->body.n - x->body_sent + x->more.n - x->more_taken;
}

/* ---- turns ---- */

/* In runs, since the wires are as many as there are requests. */
void http_turn(struct tm_client *c)
{
    struct pollfd polled[POLLED_AT_ONCE];
    struct wire *wires[POLLED_AT_ONCE];
    struct link *l = c->wires.next;
    while (l != &c->wires) {
        nfds_t n = 0;
        for (; l != &c->wires && n < POLLED_AT_ONCE; l = l->next) {
            struct tm_descriptor d;
            wires[n] = list_item(l, struct wire, link);
            if (wire_interest(wires[n], &d))
                polled[n++] = (struct pollfd){
                    .fd = d.fd,
                    .events = (short)((d.readable ? POLLIN : 0) | (d.writable ? POLLOUT : 0)),
                };
        }
        if (poll(polled, n, 0) <= 0)
            continue;
        for (nfds_t i = 0; i < n; i++)
            wire_ready(wires[i], polled[i].revents);
    }
}

static void client_http_sweep(struct tm_client *c)
{
    size_t idle = 0;
    for (struct link *l = c->wires.prev, *prev; l != &c->wires; l = prev) {
        struct wire *w = list_item(l, struct wire, link);
        prev = l->prev;
        while (!list_empty(&w->finished))
            exchange_free(list_item(w->finished.next, struct http_exchange, link));
        if (list_empty(&w->exchanges) && w->state != WIRE_CLOSED &&
            (w->no_more || ++idle > KEPT_MAX))
            wire_close(w);
        if (w->state == WIRE_CLOSED)
            wire_free(w);
    }
}

void http_flush(struct tm_client *c)
{
    list_each (l, &c->wires)
        wire_flush(list_item(l, struct wire, link));
    client_http_sweep(c);
}

size_t http_descriptors(const struct tm_client *c, struct tm_descriptor *out, size_t max)
{
    size_t n = 0;
    list_each (l, &c->wires) {
        struct tm_descriptor d;
        if (!wire_interest(list_item(l, struct wire, link), &d))
            continue;
        if (n < max)
            out[n] = d;
        n++;
    }
    return n;
}

void http_close_all(struct tm_client *c)
{
    while (!list_empty(&c->wires)) {
        struct wire *w = list_item(c->wires.next, struct wire, link);
        while (!list_empty(&w->exchanges))
            client_http_detach(list_item(w->exchanges.next, struct http_exchange, link));
        while (!list_empty(&w->finished))
            exchange_free(list_item(w->finished.next, struct http_exchange, link));
        wire_free(w);
    }
}
