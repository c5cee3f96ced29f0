// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rand.h"
#include "client/backoff.h"
#include "client/client.h"
#include "client/request.h"
#include "store/content.h"

#include <stdio.h>
#include <stdlib.h>

struct client_producer {
    struct client *client;
    char *name, *content_type, *id;
    bool is_json, claim;
    uint32_t linger_ms;
    size_t batch_bytes;
    uint64_t retry_for_ms;

    uint64_t epoch, seq; /* of the batch below */
    struct buf batch;    /* the body so far; of JSON without the last bracket */
    uint64_t since_ms;   /* when its first piece came */
    /* The batch was sent and may be stored under its number: it must not change any more, and the
     * same number must not be used for anything else. */
    bool frozen;
    bool closes; /* the frozen batch closes the stream; it may be empty */
    bool closed; /* the stream is closed by us */
    char offset[CLIENT_OFFSET_SIZE];
};

static char *random_id(void)
{
    char id[24];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)rand_u64());
    return client_copy(str_of_cstr(id));
}

struct client_producer *client_producer_new(struct client *c, const char *name,
                                            const struct client_producer_options *o)
{
    struct client_producer *p = mem_zalloc(sizeof *p);
    const char *type = o->content_type ? o->content_type : "application/octet-stream";
    p->client = c;
    p->name = client_copy(str_of_cstr(name));
    p->content_type = client_copy(str_of_cstr(type));
    p->id = o->id ? client_copy(str_of_cstr(o->id)) : random_id();
    p->is_json = content_kind(str_of_cstr(type)) == CONTENT_JSON;
    p->claim = o->claim;
    p->linger_ms = o->linger_ms ? o->linger_ms : 5;
    p->batch_bytes = o->batch_bytes ? o->batch_bytes : 1024 * 1024;
    p->retry_for_ms = o->retry_for_ms;
    p->epoch = o->epoch;
    return p;
}

void client_producer_free(struct client_producer *p)
{
    if (p == NULL)
        return;
    buf_deinit(&p->batch);
    free(p->name);
    free(p->content_type);
    free(p->id);
    free(p);
}

const char *client_producer_offset(const struct client_producer *p)
{
    return p->offset;
}

/* -- sending ---------------------------------------------------------------------------------- */

static void stored(struct client_producer *p, const struct client_answer *a)
{
    if (*a->state.next_offset) /* some servers say nothing to a duplicate */
        memcpy(p->offset, a->state.next_offset, sizeof p->offset);
    p->closed = p->closes;
    p->batch.n = 0;
    p->frozen = p->closes = false;
    p->seq++;
}

/* A newer epoch holds the id. The number starts over with ours, as the protocol demands. */
static int take_epoch(struct client_producer *p, const struct client_answer *a)
{
    if (!p->claim || a->epoch < p->epoch)
        return ERR_FENCED;
    client_notice(p->client, "producer %s: taking epoch %llu", p->id,
                  (unsigned long long)a->epoch + 1);
    p->epoch = a->epoch + 1;
    p->seq = 0;
    return 0;
}

/* One try. *wait_ms is what the server asks to wait, *again whether to try again at all. */
static int try_batch(struct client_producer *p, uint64_t *wait_ms, bool *again)
{
    struct client_request r;
    client_request_init(&r, p->client, "POST", p->name);
    if (p->batch.n > 0)
        client_request_header(&r, "Content-Type", p->content_type);
    client_request_header(&r, "Producer-Id", p->id);
    client_request_header_u64(&r, "Producer-Epoch", p->epoch);
    client_request_header_u64(&r, "Producer-Seq", p->seq);
    if (p->closes)
        client_request_header(&r, "Stream-Closed", "true");
    r.body = buf_str(&p->batch);
    int err = client_request_run(&r);
    *wait_ms = r.answer.retry_after_ms;
    *again = client_request_may_retry(&r, err);
    if (err == 0)
        stored(p, &r.answer);
    if (err == ERR_FENCED)
        *again = take_epoch(p, &r.answer) == 0;
    client_request_deinit(&r);
    return err;
}

static int give_up(struct client_producer *p, int err)
{
    return client_fail(p->client, err, "%s; gave up after %llu s", p->client->error,
                       (unsigned long long)p->retry_for_ms / 1000);
}

/* The frozen batch, until it is stored or cannot be. */
static int send_frozen(struct client_producer *p)
{
    struct client *c = p->client;
    struct backoff backoff = {.first_ms = c->options.retry_first_ms,
                              .max_ms = c->options.retry_max_ms};
    uint64_t began = clock_mono_ms();
    for (bool claimed = false;;) {
        uint64_t wait;
        bool again;
        int err = try_batch(p, &wait, &again);
        if (err == 0 || !again)
            return err;
        if (err == ERR_FENCED && !claimed) {
            claimed = true; /* with the new epoch at once; if that is fenced too, not so fast */
            continue;
        }
        wait = backoff_next(&backoff, wait, rand_u64());
        if (p->retry_for_ms && clock_mono_ms() - began + wait > p->retry_for_ms)
            return give_up(p, err);
        client_notice(c, "%s; trying again in %.1f s", c->error, (double)wait / 1000);
        err = client_wait(c, wait);
        if (err)
            return err;
    }
}

static int send_batch(struct client_producer *p, bool closes)
{
    if (!p->frozen) {
        if (p->is_json && p->batch.n > 0)
            buf_putc(&p->batch, ']');
        p->frozen = true;
        p->closes = closes;
    }
    return send_frozen(p);
}

/* -- gathering -------------------------------------------------------------------------------- */

uint64_t client_producer_due_ms(const struct client_producer *p)
{
    if (p->frozen)
        return 0;
    if (p->batch.n == 0)
        return UINT64_MAX;
    uint64_t waited = clock_mono_ms() - p->since_ms;
    bool is_full = p->batch.n >= p->batch_bytes;
    return is_full || waited >= p->linger_ms ? 0 : p->linger_ms - waited;
}

static void put_piece(struct client_producer *p, struct str piece)
{
    if (p->batch.n == 0)
        p->since_ms = clock_mono_ms();
    if (p->is_json)
        buf_putc(&p->batch, p->batch.n == 0 ? '[' : ',');
    buf_put(&p->batch, piece);
}

static int check_piece(struct client_producer *p, struct str piece)
{
    size_t at;
    if (p->closed)
        return client_fail(p->client, ERR_CLOSED, "this producer has closed the stream");
    if (piece.n == 0)
        return client_fail(p->client, ERR_EMPTY, "%s", err_text(ERR_EMPTY));
    if (p->is_json && json_check(piece, &at) != 0)
        return client_fail(p->client, ERR_JSON, "not a JSON value (at byte %zu)", at + 1);
    return 0;
}

int client_producer_append(struct client_producer *p, const void *data, size_t n)
{
    struct str piece = str_of(data, n);
    int err = check_piece(p, piece);
    if (err)
        return err;
    /* What is due goes first, so that a failure never leaves the piece half taken. */
    bool is_full = p->batch.n > 0 && p->batch.n + n > p->batch_bytes;
    if (is_full || client_producer_due_ms(p) == 0)
        err = send_batch(p, false);
    if (err == 0)
        put_piece(p, piece);
    return err;
}

int client_producer_flush(struct client_producer *p)
{
    return p->batch.n > 0 || p->frozen ? send_batch(p, false) : 0;
}

int client_producer_close(struct client_producer *p)
{
    if (p->closed)
        return 0;
    if (p->frozen && !p->closes) {
        int err = send_frozen(p); /* it was sent without closing: so it must be sent again */
        if (err)
            return err;
    }
    return send_batch(p, true);
}
