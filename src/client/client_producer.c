// SPDX-License-Identifier: Apache-2.0
/* A producer keeps its batches in the order of their numbers until they are acknowledged: first
 * those that are under way or wait to be sent (again), last the open one, which still grows.
 *
 *     pump    sends what may be sent, in order, from a task of the turn
 *     over    an answer: the batch is gone, or waits for the timer, for those before it, or for a
 *             new epoch
 *
 * A number means the same bytes for ever once it was sent: a batch that was sealed never changes,
 * and only a new epoch gives it another number. */
#include "client/stream.h"
#include "base/num.h"
#include "client/client_json.h"

#include <openssl/rand.h>
#include <stdio.h>

enum batch_state {
    BATCH_READY,
    BATCH_FLYING,
    BATCH_BEHIND, /* it arrived before its predecessors: ready when one of them is stored */
};

struct append_batch {
    struct link link;
    struct tm_producer *producer;
    struct http_request request;
    enum batch_state state;
    struct bytes body;
    size_t n_data;  /* bytes that were appended, framing not counted */
    size_t n_items; /* by so many appends */
    uint64_t seq;
    char epoch_text[NUM_TEXT_MAX + 1], seq_text[NUM_TEXT_MAX + 1];
    bool closes;
    bool sent_first; /* nothing was before it when it was sent */
    struct stream_answer answer;
    struct bytes refusal; /* what explains one */
};

struct tm_producer {
    struct tm_client *client;
    struct bytes path;
    char *content_type, *id;
    bool is_json, claim;
    int linger_ms;
    size_t batch_bytes, batch_items, pending_max;
    unsigned in_flight;
    uint64_t retry_for_ms;

    uint64_t epoch, next_seq;
    bool is_known; /* a batch of this epoch was stored: the next ones need not wait for it */
    struct link batches;
    struct append_batch *open; /* NULL: none; not among the batches */
    unsigned flying;
    size_t pending;
    struct task pump;
    struct timer linger, retry;

    unsigned failures; /* in a row */
    uint64_t failing_since_ms;
    bool fenced; /* a new epoch is taken when nothing is flying any more */
    uint64_t fenced_by;
    unsigned claims; /* epochs taken since something was stored */
    bool closing, closed;
    int err;
    char message[STREAM_MESSAGE_SIZE];
    char offset[STREAM_OFFSET_SIZE];
    uint64_t offset_seq; /* of the batch that it stands behind */
};

/* -- batches ---------------------------------------------------------------------------------- */

static void free_batch(struct append_batch *b)
{
    struct tm_client *c = b->producer->client;
    http_cancel(&b->request);
    list_remove(&b->link);
    bytes_free(c, &b->body);
    bytes_free(c, &b->refusal);
    client_free(c, b);
}

static struct append_batch *first_batch(struct tm_producer *p)
{
    return list_empty(&p->batches) ? NULL : list_item(p->batches.next, struct append_batch, link);
}

static int client_producer_on_data(struct http_request *r, struct str bytes);
static void client_producer_on_over(struct http_request *r, int err);

static struct append_batch *new_batch(struct tm_producer *p)
{
    struct append_batch *b = client_zalloc(p->client, sizeof *b);
    if (b == NULL)
        return NULL;
    list_init(&b->link);
    b->producer = p;
    b->request.client = p->client;
    b->request.method = STR("POST");
    b->request.data = client_producer_on_data;
    b->request.over = client_producer_on_over;
    return b;
}

/* The open batch gets its number and takes its place behind the others. */
static void client_producer_seal(struct tm_producer *p)
{
    struct append_batch *b = p->open;
    if (b == NULL)
        return;
    p->open = NULL;
    timer_stop(&p->linger);
    b->seq = p->next_seq++;
    list_push(&p->batches, &b->link);
    sched_post(&p->client->sched, &p->pump);
}

/* -- the end ---------------------------------------------------------------------------------- */

static void fail_producer(struct tm_producer *p, int err, const char *message)
{
    if (p->err)
        return;
    p->err = err;
    snprintf(p->message, sizeof p->message, "%s", message);
    timer_stop(&p->linger);
    timer_stop(&p->retry);
    list_each (l, &p->batches) {
        struct append_batch *b = list_item(l, struct append_batch, link);
        http_cancel(&b->request);
        b->state = BATCH_READY;
    }
    p->flying = 0;
    client_happened(p->client);
}

static int client_producer_report(struct tm_producer *p)
{
    return stream_fail(p->client, p->err, bytes_str(&p->path), p->message);
}

/* -- sending ---------------------------------------------------------------------------------- */

static void client_producer_put_headers(struct tm_producer *p, struct append_batch *b)
{
    struct http_request *r = &b->request;
    b->epoch_text[num_format(p->epoch, b->epoch_text)] = '\0';
    b->seq_text[num_format(b->seq, b->seq_text)] = '\0';
    r->n_headers = 0;
    if (b->body.n > 0)
        stream_header(r, STR("content-type"), str_of_cstr(p->content_type));
    stream_header(r, STR("producer-id"), str_of_cstr(p->id));
    stream_header(r, STR("producer-epoch"), str_of_cstr(b->epoch_text));
    stream_header(r, STR("producer-seq"), str_of_cstr(b->seq_text));
    if (b->closes)
        stream_header(r, STR("stream-closed"), STR("true"));
}

static void wait_to_retry(struct tm_producer *p, int err, const char *why,
                          const struct stream_answer *a);

static bool send_batch(struct tm_producer *p, struct append_batch *b)
{
    client_producer_put_headers(p, b);
    b->request.path = bytes_str(&p->path);
    b->request.body = bytes_str(&b->body);
    b->refusal.n = 0;
    stream_answer_init(&b->answer);
    b->sent_first = b == first_batch(p);
    int err = http_start(&b->request);
    if (err == 0) {
        b->state = BATCH_FLYING;
        p->flying++;
        return true;
    }
    if (err == TM_E_NOMEM)
        wait_to_retry(p, err, tm_error_text(err), &b->answer); /* there may be some later */
    else
        fail_producer(p, err, b->request.message);
    return false;
}

/* What is flying has the old epoch, and some of it may be stored; only what is left when all
 * answers are there is numbered anew. */
static void take_epoch(struct tm_producer *p)
{
    p->epoch = p->fenced_by + 1;
    p->fenced = p->is_known = false;
    p->next_seq = 0;
    list_each (l, &p->batches) {
        struct append_batch *b = list_item(l, struct append_batch, link);
        b->seq = p->next_seq++;
        b->state = BATCH_READY;
    }
    p->offset_seq = 0;
    client_notice(p->client, "producer %s: taking epoch %llu", p->id, (unsigned long long)p->epoch);
}

/* A new epoch must begin with its number 0, so that the first goes alone. */
static bool may_send(const struct tm_producer *p, const struct append_batch *b, bool is_first)
{
    unsigned limit = p->is_known ? p->in_flight : 1;
    return p->flying < limit && (b->state == BATCH_READY || is_first);
}

static void pump(struct tm_producer *p)
{
    if (p->err || timer_running(&p->retry))
        return;
    if (p->fenced && p->flying > 0)
        return;
    if (p->fenced)
        take_epoch(p);
    list_each (l, &p->batches) {
        struct append_batch *b = list_item(l, struct append_batch, link);
        if (b->state == BATCH_FLYING)
            continue;
        /* In order: one that has to wait holds back those behind it. */
        if (!may_send(p, b, l == p->batches.next) || !send_batch(p, b))
            return;
    }
}

static void client_producer_on_pump(struct task *t)
{
    pump(container_of(t, struct tm_producer, pump));
}

static void client_producer_on_retry(struct timer *t)
{
    pump(container_of(t, struct tm_producer, retry));
}

static void client_producer_on_linger(struct timer *t)
{
    client_producer_seal(container_of(t, struct tm_producer, linger));
}

/* -- answers ---------------------------------------------------------------------------------- */

static void wait_to_retry(struct tm_producer *p, int err, const char *why,
                          const struct stream_answer *a)
{
    struct tm_client *c = p->client;
    uint64_t now = stream_now_ms(c);
    if (timer_running(&p->retry))
        return; /* several were under way when it began */
    if (p->failures == 0)
        p->failing_since_ms = now;
    uint64_t ms = stream_retry_ms(c, ++p->failures, a);
    if (p->retry_for_ms && now - p->failing_since_ms + ms > p->retry_for_ms) {
        char text[STREAM_MESSAGE_SIZE];
        snprintf(text, sizeof text, "%.240s; gave up after %llu s", why,
                 (unsigned long long)p->retry_for_ms / 1000);
        fail_producer(p, err, text);
        return;
    }
    stream_notice_retry(c, bytes_str(&p->path), why, ms);
    sched_start(&c->sched, &p->retry, ms);
}

static void stored(struct tm_producer *p, struct append_batch *b)
{
    /* Answers may overtake each other, and some servers say nothing to a duplicate. */
    if (b->answer.next_offset[0] && (b->seq >= p->offset_seq || p->offset[0] == '\0')) {
        memcpy(p->offset, b->answer.next_offset, sizeof p->offset);
        p->offset_seq = b->seq;
    }
    p->failures = p->claims = 0;
    p->is_known = true;
    p->closed = p->closed || b->closes;
    p->pending -= b->n_data;
    free_batch(b);
    list_each (l, &p->batches) {
        struct append_batch *later = list_item(l, struct append_batch, link);
        if (later->state == BATCH_BEHIND)
            later->state = BATCH_READY;
    }
    client_happened(p->client);
}

/* Another holds the id. Twice in a row, and it is a fight: not so fast. */
static void was_fenced(struct tm_producer *p, const struct stream_answer *a,
                       const struct stream_refusal *why)
{
    if (!p->claim || a->epoch < p->epoch || a->epoch >= NUM_SAFE_MAX) {
        fail_producer(p, TM_E_FENCED, why->message);
        return;
    }
    if (!p->fenced && p->claims++ > 0)
        wait_to_retry(p, TM_E_FENCED, why->message, a);
    p->fenced = true;
    p->fenced_by = a->epoch > p->fenced_by ? a->epoch : p->fenced_by;
}

static void was_refused(struct tm_producer *p, struct append_batch *b)
{
    struct stream_refusal why;
    stream_refusal_read(&why, &b->request, &b->answer, bytes_str(&b->refusal));
    int status = b->request.status;
    if (stream_may_retry(why.err, status))
        wait_to_retry(p, why.err, why.message, &b->answer);
    else if (status == 403 && b->answer.has_epoch)
        was_fenced(p, &b->answer, &why);
    else if (status == 409 && b->answer.has_expected_seq && !b->sent_first &&
             b->answer.expected_seq < b->seq)
        b->state = BATCH_BEHIND;
    else
        fail_producer(p, why.err, why.message);
}

static int client_producer_on_data(struct http_request *r, struct str bytes)
{
    struct append_batch *b = container_of(r, struct append_batch, request);
    size_t room = STREAM_REFUSAL_MAX - b->refusal.n;
    return bytes_put(b->producer->client, &b->refusal,
                     str_of(bytes.p, bytes.n < room ? bytes.n : room));
}

static void client_producer_on_over(struct http_request *r, int err)
{
    struct append_batch *b = container_of(r, struct append_batch, request);
    struct tm_producer *p = b->producer;
    p->flying--;
    b->state = BATCH_READY;
    if (err == 0)
        err = stream_answer_read(&b->answer, r);
    else
        r->status = 0; /* half an answer is none */
    if (err == TM_E_NOMEM || (err && stream_may_retry(err, r->status)))
        wait_to_retry(p, err, r->message[0] ? r->message : tm_error_text(err), &b->answer);
    else if (err)
        fail_producer(p, err, r->message[0] ? r->message : tm_error_text(err));
    else if (stream_is_success(r->status))
        stored(p, b);
    else
        was_refused(p, b);
    sched_post(&p->client->sched, &p->pump);
}

/* -- gathering -------------------------------------------------------------------------------- */

/* On JSON streams a batch is one array, whole at any time: [ piece , piece ]. All room is taken
 * before anything is changed. */
static int client_producer_put_piece(struct tm_producer *p, struct str piece)
{
    struct bytes *body = &p->open->body;
    if (bytes_room(p->client, body, piece.n + 2) == NULL)
        return TM_E_NOMEM;
    char *to = body->p + body->n;
    if (p->is_json) {
        if (body->n == 0)
            *to++ = '[';
        else
            to[-1] = ','; /* where the bracket was */
    }
    memcpy(to, piece.p, piece.n);
    to += piece.n;
    if (p->is_json)
        *to++ = ']';
    body->n = (size_t)(to - body->p);
    p->open->n_data += piece.n;
    p->open->n_items++;
    p->pending += piece.n;
    return 0;
}

static int check_piece(struct tm_producer *p, struct str piece)
{
    struct tm_client *c = p->client;
    if (p->err)
        return client_producer_report(p);
    if (p->closing)
        return client_fail(c, TM_E_CLOSED, "this producer has closed the stream");
    if (piece.p == NULL || piece.n == 0)
        return client_fail(c, TM_E_INVALID, "an append needs at least one byte");
    if (p->is_json && !json_valid(piece))
        return client_fail(c, TM_E_INVALID, "this is not a JSON value");
    if (piece.n > p->pending_max)
        return client_fail(c, TM_E_TOO_LARGE, "one append is larger than pending_max");
    if (piece.n > p->pending_max - p->pending) {
        client_producer_seal(
            p); /* a batch that cannot grow is full, and may be all that is waited for */
        return client_fail(c, TM_E_BUSY, "%zu bytes are not acknowledged yet", p->pending);
    }
    return 0;
}

static int take_piece(struct tm_producer *p, struct str piece)
{
    struct tm_client *c = p->client;
    bool is_new = p->open == NULL;
    if (is_new)
        p->open = new_batch(p);
    int err = p->open ? client_producer_put_piece(p, piece) : TM_E_NOMEM;
    if (err == 0) {
        if (is_new && p->linger_ms >= 0)
            sched_start(&c->sched, &p->linger, (uint64_t)p->linger_ms);
        return 0;
    }
    if (is_new && p->open) {
        free_batch(p->open);
        p->open = NULL;
    }
    return client_fail(c, err, "%s", tm_error_text(err));
}

int tm_producer_append(struct tm_producer *p, const void *data, size_t n)
{
    struct str piece = str_of(data, n);
    int err = check_piece(p, piece);
    if (err)
        return err;
    /* Larger than a batch alone is a batch of its own. */
    if (p->open && p->open->body.n + n + 1 > p->batch_bytes)
        client_producer_seal(p);
    err = take_piece(p, piece);
    if (err == 0 && (p->open->body.n >= p->batch_bytes || p->open->n_items >= p->batch_items))
        client_producer_seal(p);
    return err;
}

static bool client_producer_is_idle(void *ctx)
{
    const struct tm_producer *p = ctx;
    return p->err || list_empty(&p->batches);
}

static int wait_until_idle(struct tm_producer *p, int timeout_ms)
{
    int err = client_wait_for(p->client, client_producer_is_idle, p, timeout_ms);
    return err == 0 && p->err ? client_producer_report(p) : err;
}

int tm_producer_flush(struct tm_producer *p, int timeout_ms)
{
    if (p->err)
        return client_producer_report(p);
    client_producer_seal(p);
    return wait_until_idle(p, timeout_ms);
}

/* The last batch closes the stream; without data it is empty and only does that. */
static int seal_last(struct tm_producer *p, const void *data, size_t n)
{
    struct tm_client *c = p->client;
    if (n > 0) {
        int err = check_piece(p, str_of(data, n));
        if (err == 0)
            err = take_piece(p, str_of(data, n));
        if (err)
            return err;
    }
    if (p->open == NULL)
        p->open = new_batch(p);
    if (p->open == NULL)
        return client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
    p->open->closes = p->closing = true;
    client_producer_seal(p);
    return 0;
}

int tm_producer_close(struct tm_producer *p, const void *data, size_t n, int timeout_ms)
{
    if (p->err)
        return client_producer_report(p);
    if (!p->closing) {
        int err = seal_last(p, data, n);
        if (err)
            return err;
    }
    return wait_until_idle(p, timeout_ms);
}

/* -- making one ------------------------------------------------------------------------------- */

static char *random_id(struct tm_client *c)
{
    uint64_t number;
    if (RAND_bytes((unsigned char *)&number, sizeof number) != 1)
        return NULL;
    char id[24];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)number);
    return client_copy(c, str_of_cstr(id));
}

static void client_producer_fill_in(struct tm_producer_options *o)
{
    static const struct tm_producer_options standard = TM_PRODUCER_STRICT_INIT;
    if (o->strict)
        return;
    o->linger_ms = o->linger_ms ? o->linger_ms : standard.linger_ms;
    o->batch_bytes = o->batch_bytes ? o->batch_bytes : standard.batch_bytes;
    o->batch_items = o->batch_items ? o->batch_items : standard.batch_items;
    o->pending_max = o->pending_max ? o->pending_max : standard.pending_max;
    o->in_flight = o->in_flight ? o->in_flight : standard.in_flight;
}

static bool is_size(size_t n)
{
    return n > 0 && n <= SIZE_MAX / 4;
}

static bool is_header(const char *value)
{
    return *value != '\0' && stream_header_ok(value);
}

static int check_options(struct tm_client *c, const struct tm_producer_options *o)
{
    const struct {
        bool is_wrong;
        const char *what;
    } checks[] = {
        {o->epoch > NUM_SAFE_MAX, "epoch is above 2^53 - 1"},
        {o->id && !is_header(o->id), "id cannot be sent"},
        {o->content_type && !is_header(o->content_type), "content_type cannot be sent"},
        {!is_size(o->batch_bytes), "batch_bytes must be positive, and fit into memory"},
        {!is_size(o->pending_max), "pending_max must be positive, and fit into memory"},
        {!is_size(o->batch_items), "batch_items must be positive, and fit into memory"},
        {o->in_flight <= 0, "in_flight must be positive"},
        {o->retry_for_ms < 0, "retry_for_ms cannot be negative"},
        {o->linger_ms < TM_FOREVER, "linger_ms cannot be negative"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i].is_wrong)
            return client_fail(c, TM_E_INVALID, "%s", checks[i].what);
    return 0;
}

static void take_options(struct tm_producer *p, const struct tm_producer_options *o)
{
    p->claim = o->claim;
    p->epoch = o->epoch;
    p->linger_ms = o->linger_ms;
    p->batch_bytes = o->batch_bytes;
    p->batch_items = o->batch_items;
    p->pending_max = o->pending_max;
    p->in_flight = (unsigned)o->in_flight;
    p->retry_for_ms = (uint64_t)o->retry_for_ms;
}

static int copy_texts(struct tm_producer *p, const char *name, const struct tm_producer_options *o)
{
    struct tm_client *c = p->client;
    const char *type = o->content_type ? o->content_type : "application/octet-stream";
    p->content_type = client_copy(c, str_of_cstr(type));
    p->id = o->id ? client_copy(c, str_of_cstr(o->id)) : random_id(c);
    if (p->content_type == NULL || p->id == NULL)
        return client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
    p->is_json = stream_kind(str_of_cstr(type)) == STREAM_JSON;
    return stream_path(c, &p->path, name);
}

int tm_producer_new(struct tm_client *c, const char *name,
                    const struct tm_producer_options *options, struct tm_producer **out)
{
    struct tm_producer_options o = TM_PRODUCER_INIT;
    STREAM_OPTIONS(o, options);
    client_producer_fill_in(&o);
    int err = check_options(c, &o);
    if (err)
        return err;
    struct tm_producer *p = client_zalloc(c, sizeof *p);
    if (p == NULL)
        return client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
    p->client = c;
    list_init(&p->batches);
    task_init(&p->pump, client_producer_on_pump);
    timer_init(&p->linger, client_producer_on_linger);
    timer_init(&p->retry, client_producer_on_retry);
    take_options(p, &o);
    err = copy_texts(p, name, &o);
    if (err) {
        tm_producer_free(p);
        return err;
    }
    *out = p;
    return 0;
}

void tm_producer_free(struct tm_producer *p)
{
    if (p == NULL)
        return;
    struct tm_client *c = p->client;
    if (p->open)
        free_batch(p->open);
    list_each_safe (l, &p->batches)
        free_batch(list_item(l, struct append_batch, link));
    task_cancel(&p->pump);
    timer_stop(&p->linger);
    timer_stop(&p->retry);
    bytes_free(c, &p->path);
    client_free(c, p->content_type);
    client_free(c, p->id);
    client_free(c, p);
}

size_t tm_producer_pending(const struct tm_producer *p)
{
    return p->pending;
}

int tm_producer_error(const struct tm_producer *p)
{
    return p->err;
}

const char *tm_producer_offset(const struct tm_producer *p)
{
    return p->offset;
}

uint64_t tm_producer_epoch(const struct tm_producer *p)
{
    return p->epoch;
}
